"""The decoder part by part, for every kind of codec and every size of part."""

from __future__ import annotations

import pytest
import torch
from toy_speech import KINDS, toy_codec, toy_codes

from mstar_plan.models.snac.noise import draw_noise

FRAMES = 12


@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_every_size_of_part_gives_the_whole(kind: str) -> None:
    config = KINDS[kind]
    codec = toy_codec(config)
    z = codec.latent(toy_codes(config, FRAMES, rows=2))
    noise = draw_noise(config, [1, 2], FRAMES) if config.noise else None
    whole = codec.decoder(z, noise)
    assert whole.shape[-1] == FRAMES * config.frame_samples
    for size in range(1, z.shape[-1] + 1):
        kept, out, taken = codec.decoder.begin(2), [], [0] * len(config.noise_per_frame)

        def given(block: int, steps: int, taken: list[int] = taken) -> torch.Tensor:
            taken[block] += steps
            assert noise is not None
            return noise[block][..., taken[block] - steps : taken[block]]

        for part in z.split(size, -1):
            audio, kept = codec.decoder.stream(part, kept, given if noise else None, False)
            out.append(audio)
        audio, kept = codec.decoder.stream(z[..., :0], kept, given if noise else None, True)
        torch.testing.assert_close(torch.cat([*out, audio], -1), whole, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_comes_out_as_soon_as_it_is_certain(kind: str) -> None:
    """As many samples as the config says, and none of them changes with what follows."""
    config = KINDS[kind]
    codec = toy_codec(config)
    codes = toy_codes(config, 3 * FRAMES)
    z, stride = codec.latent(codes), config.vq_strides[0]
    whole, kept, count = codec.decoder(z), codec.decoder.begin(1), 0
    for frames in range(1, 2 * FRAMES):
        audio, kept = codec.decoder.stream(z[..., (frames - 1) * stride : frames * stride], kept, None, False)
        count += audio.shape[-1]
        assert count == config.certain_samples(frames)
    other = z.clone()
    other[..., stride * (2 * FRAMES - 1) :] += 1
    changed = (codec.decoder(other) - whole).abs()[0, 0]
    assert changed[:count].max() < 1e-12
    if config.attn_window_size is None:
        assert changed[count : count + 2 * stride].max() > 0  # one sample more would not have been certain
