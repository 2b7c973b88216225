"""The patch encoder: shapes, folding, and that it sees every pixel."""

from __future__ import annotations

import pytest
import torch

from mstar_plan.models.layers.patch_encoder import PatchEncoder


@pytest.fixture
def encoder():
    torch.manual_seed(0)
    return PatchEncoder(image_size=16, patch=4, width=8, blocks=2, hidden=12, latent=5)


def frames(count):
    return torch.randint(0, 256, (count, 16, 16, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def test_folding_changes_nothing(encoder):
    for _ in range(3):
        encoder(frames(32))  # moves the running statistics away from zero and one
    encoder.eval()
    folded = encoder.folded()
    torch.testing.assert_close(folded(frames(6)), encoder(frames(6)), rtol=1e-4, atol=1e-5)
    assert not any(isinstance(module, torch.nn.BatchNorm1d) for module in folded.modules())


def test_every_frame_counts_alone_after_folding(encoder):
    folded = encoder.folded()
    torch.testing.assert_close(folded(frames(6))[2:3], folded(frames(6)[2:3]), rtol=1e-4, atol=1e-6)


def test_a_pixel_anywhere_matters(encoder):
    folded = encoder.folded()
    base = torch.zeros(1, 16, 16, 3, dtype=torch.uint8)
    for row, column in ((0, 0), (15, 15), (0, 15), (7, 8)):
        changed = base.clone()
        changed[0, row, column] = 255
        assert not torch.allclose(folded(changed), folded(base))
