"""The contract: its terms, and robots that do not agree with them."""

from __future__ import annotations

import numpy as np
import pytest

from mstar_plan.errors import ConfigError
from mstar_plan.models.vjepa2.checkpoint import published_action
from mstar_plan.models.vjepa2.contract import ModelContract, check_terms
from mstar_plan.types import ActionSpec

ACTION = published_action(7, 0.075)
TERMS = ModelContract().terms((256, 256), ACTION)


def test_the_terms_say_all_that_must_hold():
    assert TERMS["image_size"] == "256, 256"
    assert TERMS["frame_hz"] == "4"
    assert TERMS["frame_order"] == "oldest_first"
    assert TERMS["frame_copies"] == "2"
    assert TERMS["normalize_latents"] == "true"
    assert TERMS["action_frame"] == "robot base"
    assert TERMS["action_units"] == "m, m, m, rad, rad, rad, 1"
    assert TERMS["action_high"].startswith("0.075, 0.075, 0.075, 3.141593")
    assert TERMS["gripper_sign"] == "closes"
    assert all(isinstance(value, str) for value in TERMS.values())


def test_a_robot_that_agrees():
    claims = {
        "image_size": (256, 256),
        "frame_hz": 4.0,
        "normalize_latents": True,
        "action_units": ["m", "m", "m", "rad", "rad", "rad", "1"],
        "action_high": ACTION.high.tolist(),
        "gripper_sign": "Closes",
        "action_frame": "robot base",
    }
    check_terms(TERMS, claims)
    ModelContract().check(claims, (256, 256), ACTION)
    check_terms(TERMS, TERMS)


def test_each_mismatch_is_named():
    claims = {
        "frame_hz": 15,
        "gripper_sign": "opens",
        "image_size": (256, 256),
        "frame_copies": 1,
        "action_units": ["m"] * 7,
    }
    with pytest.raises(ConfigError, match="do not agree on 4 of 5 terms") as caught:
        check_terms(TERMS, claims)
    text = str(caught.value)
    for part in (
        "frame_hz is 15, the model needs 4",
        "gripper_sign is opens",
        "frame_copies is 1",
        "action_units is m",
    ):
        assert part in text
    assert "image_size" not in text
    with pytest.raises(ConfigError, match=r"no term 'frame_rate'"):
        check_terms(TERMS, {"frame_rate": 4})


def test_parts_that_do_not_agree_with_the_contract():
    contract = ModelContract()
    contract.check_inside(2, ACTION)
    contract.check_inside(None, ACTION)
    with pytest.raises(ConfigError, match="a tubelet has 3"):
        contract.check_inside(3, ACTION)
    two = ActionSpec(-np.ones(2, np.float32), np.ones(2, np.float32), 0.1)
    with pytest.raises(ConfigError, match=r"lasts 0\.1 s; state is pose"):
        contract.check_inside(2, two)
