"""Sizes of the codec: what is refused, and what follows from them."""

from __future__ import annotations

import dataclasses

import pytest
from toy_speech import KINDS

from mstar_plan.errors import WeightsError
from mstar_plan.models.snac.config import SnacConfig

PUBLISHED_44KHZ = {
    "sampling_rate": 44100, "encoder_dim": 64, "encoder_rates": [3, 3, 7, 7], "decoder_dim": 1536,
    "decoder_rates": [7, 7, 3, 3], "attn_window_size": 32, "codebook_size": 4096, "codebook_dim": 8,
    "vq_strides": [8, 4, 2, 1], "noise": True, "depthwise": True,
}  # fmt: skip


def test_defaults_are_the_24_khz_model() -> None:
    config = SnacConfig()
    assert (config.width, config.hop_length, config.frame_samples) == (768, 512, 2048)
    assert config.codes_per_frame == (1, 2, 4)
    assert config.noise_per_frame == (32, 256, 1024, 2048)
    assert config.granule == 4


def test_lookahead_of_the_24_khz_model() -> None:
    """Worked out by hand: ((((3 * 8 + 43) * 8 + 43) * 4 + 41) * 2 + 40) + 3."""
    config = SnacConfig()
    assert config.lookahead == 4757
    assert config.first_frames == 3
    assert config.certain_samples(3) == 3 * 2048 - 4757
    assert config.certain_samples(2) == 0


def test_published_44_khz_model_has_attention() -> None:
    config = SnacConfig.from_published(PUBLISHED_44KHZ)
    assert config.granule == 32
    assert config.certain_samples(config.first_frames) > 0 == config.certain_samples(config.first_frames - 1)
    assert config.certain_samples(9) == config.certain_samples(8 + 4)  # nothing before a whole window


@pytest.mark.parametrize("kind", KINDS)
def test_certain_samples_grow(kind: str) -> None:
    config = KINDS[kind]
    some = [config.certain_samples(frames) for frames in range(40)]
    assert some == sorted(some)
    assert all(have < frames * config.frame_samples for frames, have in enumerate(some) if frames)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"decoder_rates": (8, 1)}, "decoder_rates is 1"),
        ({"encoder_rates": [2, 4]}, "encoder_rates"),
        ({"encoder_dim": 0}, "encoder_dim"),
        ({"encoder_dim": True}, "encoder_dim"),
        ({"vq_strides": (4, 3, 1)}, "vq_strides"),
        ({"vq_strides": ()}, "vq_strides"),
        ({"latent_dim": 5}, "latent_dim"),
        ({"decoder_dim": 1000}, "halved"),
        ({"attn_window_size": 8, "decoder_dim": 48}, "multiple of 64"),
        ({"noise": 1}, "noise"),
        ({"codebook_size": 2**40}, "codebook_size"),
    ],
)
def test_refused(change: dict, said: str) -> None:
    with pytest.raises(WeightsError, match=said):
        dataclasses.replace(SnacConfig(), **change)


def test_unknown_key_is_named() -> None:
    with pytest.raises(WeightsError, match="did you mean 'vq_strides'"):
        SnacConfig.from_published({"vq_stride": [4]})
