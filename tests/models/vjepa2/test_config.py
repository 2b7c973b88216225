import pytest

from mstar_plan.errors import ConfigError
from mstar_plan.models.vjepa2.config import AC_PREDICTORS, ENCODERS, ACPredictorConfig, EncoderConfig


def test_the_published_sizes():
    giant, predictor = ENCODERS["vit_giant"], AC_PREDICTORS["vit_ac_giant"]
    assert (giant.embed_dim, giant.depth, giant.num_heads, int(giant.width * giant.mlp_ratio)) == (1408, 40, 22, 6144)
    assert (predictor.width, predictor.depth, predictor.num_heads, predictor.embed_dim) == (1024, 24, 16, 1408)
    assert (predictor.tokens_per_frame, predictor.sequence_per_frame, predictor.max_frames) == (256, 258, 32)


def test_one_side_makes_a_square():
    assert EncoderConfig(img_size=64).img_size == (64, 64)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("patch_size", 0, "patch_size is 0"),
        ("img_size", (64, 60), "no multiple of patch_size"),
        ("num_frames", 7, "no multiple of tubelet_size"),
        ("num_heads", 7, "num_heads 7 does not divide"),
        ("mlp_ratio", float("nan"), "mlp_ratio is nan"),
    ],
)
def test_sizes_that_cannot_be_are_refused(field, value, words):
    with pytest.raises(ConfigError, match=words):
        ACPredictorConfig(**{field: value})
