"""The codec's golden check: what it must compare, and that it fails where something is wrong."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from mstar_plan.evaluation.golden.check import check_folder

CASES = Path(__file__).parents[2] / "golden"
ATTENTION = Path(__file__).parent / "cases" / "orpheus_snac_attention"  # other rates, and attention in windows


def test_compares_everything_and_streams() -> None:
    result = check_folder(CASES / "orpheus_snac")
    names = [each.tensor for each in result.comparisons]
    assert result.ok
    assert len(set(names)) == 12
    assert names.count("out.stream.full_audio") == 3
    assert names.count("out.audio_zero_noise") == 3


def test_a_codec_with_attention() -> None:
    result = check_folder(ATTENTION)
    assert result.ok, result
    assert len(result.comparisons) == 8
    assert not result.unchecked


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("out.stream.chunks", lambda t: t + 2),
        ("out.stream.chunks", lambda t: t[1:]),
        ("out.stream.full_audio", lambda t: torch.roll(t, 1, -1)),
        ("out.audio_with_noise", lambda t: t * 1.001),
        ("out.encode_codes1", lambda t: t.flip(-1)),
        ("out.map.codes2", lambda t: t.flip(-1)),
        ("out.stream.accepted", lambda t: t[:-1]),
        ("in.stream.custom_token_numbers", lambda t: t[:-8]),
    ],
)
def test_a_wrong_value_fails(tmp_path: Path, name: str, change: Callable[[Tensor], Tensor]) -> None:
    folder = tmp_path / "orpheus_snac"
    shutil.copytree(CASES / "orpheus_snac", folder)
    io = load_file(folder / "io.safetensors")
    io[name] = change(io[name]).contiguous()
    save_file(io, folder / "io.safetensors")
    assert not check_folder(folder).ok
