from mstar_plan.models.vjepa2.config import AC_PREDICTORS
from mstar_plan.models.vjepa2.memory import cache_bytes, rollout_bytes

GIANT = AC_PREDICTORS["vit_ac_giant"]


def test_keys_and_values_of_the_published_size():
    assert cache_bytes(GIANT, 1, 1, element=2) == 2 * 24 * 258 * 1024 * 2  # 25.4 MB a frame and candidate
    assert cache_bytes(GIANT, 800, 2, element=2) / 1e9 > 40


def test_it_grows_with_everything_that_is_held():
    least = rollout_bytes(GIANT, 8, 2, rows=4, element=2)
    assert least > cache_bytes(GIANT, 8, 2, element=2)
    for more in ((16, 2, 4, 2), (8, 3, 4, 2), (8, 2, 8, 2), (8, 2, 4, 4)):
        assert rollout_bytes(GIANT, *more) > least
