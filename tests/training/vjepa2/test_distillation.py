"""The encoder learns to say what a teacher says."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mstar_plan.errors import ConfigError
from mstar_plan.training.vjepa2.distillation import DistillationConfig, distil, encode_all, still_tokens
from mstar_plan.training.vjepa2.targets import TokenTargets


def test_the_fast_way_to_encode_is_exact(small_ac, episodes):
    frames = torch.from_numpy(episodes.frames[0])
    with torch.no_grad():
        torch.testing.assert_close(still_tokens(small_ac, frames), small_ac.encode(frames), atol=1e-5, rtol=1e-4)


def test_frames_are_encoded_batch_by_batch_in_their_order(small_ac, episodes):
    frames = episodes.frames.reshape(-1, 32, 32, 3)[:20]
    whole = encode_all(small_ac.encode, frames)
    assert not whole.requires_grad
    torch.testing.assert_close(encode_all(small_ac.encode, frames, batch=7), whole)


def two_colours(count: int) -> tuple[np.ndarray, torch.Tensor]:
    """Pictures whose red and green are a latent of two numbers; blue tells the patches apart."""
    latents = torch.rand(count, 2, generator=torch.Generator().manual_seed(1)) * 2 - 1
    frames = np.zeros((count, 32, 32, 3), np.uint8)
    frames[..., :2] = (128 + 100 * latents.numpy())[:, None, None].astype(np.uint8)
    frames[:, :16, :, 2] += 80
    frames[:, :, :16, 2] += 160
    return frames, latents


def test_the_encoder_comes_to_say_the_latent(small_ac):
    frames, latents = two_colours(400)
    targets = TokenTargets(latents, tokens=4, width=24)
    told: list[tuple[int, float]] = []
    config = DistillationConfig(iterations=200, batch=32, warmup=10, learning_rate=5e-3)
    distil(small_ac, frames[100:], latents[100:], targets, config, report=lambda i, loss: told.append((i, loss)))
    assert told[-1][0] == 200
    assert told[-1][1] < 0.05 * told[0][1]
    read = targets.read(encode_all(small_ac.encode, frames[:100]))
    assert (read - latents[:100]).square().mean() < 0.05 * latents[:100].var()


def test_the_same_seed_gives_the_same_encoder(small_ac, episodes):
    frames = episodes.frames.reshape(-1, 32, 32, 3)
    latents = torch.from_numpy(episodes.positions.reshape(-1, 2)).float()
    targets = TokenTargets(latents, tokens=4, width=24)
    start = {name: value.clone() for name, value in small_ac.state_dict().items()}
    ends = []
    for _ in range(2):
        small_ac.load_state_dict(start)
        distil(small_ac, frames, latents, targets, DistillationConfig(iterations=3, batch=8), seed=4)
        ends.append(small_ac.encoder.norm.weight.clone())
    assert torch.equal(*ends)


def test_settings_without_work_are_refused():
    with pytest.raises(ConfigError, match="iterations is 0"):
        DistillationConfig(iterations=0)
    with pytest.raises(ConfigError, match="learning_rate is -1"):
        DistillationConfig(learning_rate=-1)
