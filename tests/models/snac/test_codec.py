"""The codec as a whole; its values are compared with the published ones by the golden cases."""

from __future__ import annotations

import pytest
import torch
from toy_speech import KINDS, SIZES, toy_codec, toy_codes

from mstar_plan.errors import InvalidInputError
from mstar_plan.models.snac.noise import draw_noise


@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_audio_to_codes_and_back(kind: str) -> None:
    config = KINDS[kind]
    codec = toy_codec(config)
    whole = config.hop_length * config.granule
    codes = codec.encode(torch.randn(2, 1, whole + 1, dtype=torch.float64))
    assert [each.shape[-1] * stride for each, stride in zip(codes, config.vq_strides, strict=True)] == [
        2 * config.granule
    ] * len(codes)
    audio = codec.decode(codes)
    assert audio.shape == (2, 1, 2 * config.granule * config.frame_samples // config.vq_strides[0])
    assert audio.abs().max() <= 1
    assert audio.std() > 1e-3


@torch.inference_mode()
def test_filling_up_is_silence_at_the_end() -> None:
    codec = toy_codec()
    audio = torch.randn(1, 1, 20, dtype=torch.float64)
    padded = torch.cat([audio, torch.zeros(1, 1, 4, dtype=torch.float64)], -1)
    assert all(torch.equal(a, b) for a, b in zip(codec.encode(audio), codec.encode(padded), strict=True))


@torch.inference_mode()
def test_rows_do_not_see_each_other_and_noise_counts() -> None:
    codec, codes = toy_codec(), toy_codes(SIZES, 3, rows=3)
    noise = draw_noise(SIZES, [1, 2, 3], 3)
    both = codec.decode(codes, noise)
    one = codec.decode([each[1:2] for each in codes], [each[1:2] for each in noise])
    torch.testing.assert_close(both[1:2], one, rtol=0, atol=1e-12)
    quiet = codec.decode(codes)
    assert (both - quiet).abs().max() > 1e-3
    torch.testing.assert_close(codec.decode(codes, [0 * each for each in noise]), quiet, rtol=0, atol=1e-12)


def test_refused() -> None:
    codec, codes = toy_codec(), toy_codes(SIZES, 2)
    with pytest.raises(InvalidInputError, match="noise has shapes"):
        codec.decode(codes, draw_noise(SIZES, [1], 3))
    for audio in (torch.zeros(1, 24), torch.zeros(1, 2, 24), torch.zeros(1, 1, 0)):
        with pytest.raises(InvalidInputError, match="audio has shape"):
            codec.encode(audio)
    attention = KINDS["attention"]
    with pytest.raises(InvalidInputError, match="multiple of 8"):
        toy_codec(attention).decode(toy_codes(attention, 3))
    with pytest.raises(InvalidInputError, match="codes have shapes"):
        codec.decode(toy_codes(SIZES, 0))
