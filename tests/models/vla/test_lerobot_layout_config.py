"""config.json: known keys pass, unknown ones are told with the nearest, and what is not computed is refused."""

from __future__ import annotations

import pytest
from vla_files import policy_config

from mstar_plan.errors import WeightsError
from mstar_plan.models.vla.lerobot_layout_config import KEYS, OFF, Feature, check_config, features_of, rules_of


@pytest.mark.parametrize("kind", sorted(KEYS))
def test_known_keys_pass(kind: str) -> None:
    off = {name: False for name in OFF if name in KEYS[kind]}
    assert off
    assert check_config(policy_config(kind) | off, "c") == kind


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"type": "smolvlm"}, "did you mean 'smolvla'"),
        ({"type": None}, "known: pi0, pi05, smolvla"),
        ({"type": ["smolvla"]}, "known: pi0, pi05, smolvla"),
        ({"num_step": 3}, "did you mean 'num_steps'"),
        ({"paligemma_variant": "gemma_2b"}, "unknown key 'paligemma_variant'"),
        ({"n_obs_steps": 2}, "only 1 is computed"),
    ],
)
def test_configs_that_are_refused(changes: dict, said: str) -> None:
    with pytest.raises(WeightsError, match=said):
        check_config(policy_config() | changes, "c")


@pytest.mark.parametrize("name", OFF)
def test_what_is_not_computed_is_refused(name: str) -> None:
    kind = next(kind for kind in ("smolvla", "pi05") if name in KEYS[kind])
    with pytest.raises(WeightsError, match=f"asks for {name}"):
        check_config(policy_config(kind) | {name: True}, "c")


def test_features() -> None:
    assert features_of(None, "f") == {}
    assert features_of({"a": {"type": "STATE", "shape": [3]}}, "f") == {"a": Feature("STATE", (3,))}


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([], "must be an object"),
        ({str(at): {"type": "STATE", "shape": [1]} for at in range(65)}, "at most 64"),
        ({"a": 3}, "needs type and shape"),
        ({"a": {"type": "STATES", "shape": [3]}}, "did you mean 'STATE'"),
        ({"a": {"type": ["STATE"], "shape": [3]}}, "has type"),
        ({"a": {"type": "STATE", "shape": []}}, "whole numbers"),
        ({"a": {"type": "STATE", "shape": [True]}}, "whole numbers"),
        ({"a": {"type": "STATE", "shape": [0]}}, "whole numbers"),
        ({"a": {"type": "STATE", "shape": [1e9]}}, "whole numbers"),
        ({"a": {"type": "STATE", "shape": [10**9]}}, "whole numbers"),
        ({"a": {"type": "STATE"}}, "whole numbers"),
    ],
)
def test_features_that_are_refused(entries, said: str) -> None:
    with pytest.raises(WeightsError, match=said):
        features_of(entries, "f")


def test_rules() -> None:
    assert rules_of(None, "r") == {}
    assert rules_of({"STATE": "MEAN_STD"}, "r") == {"STATE": "mean_std"}
    for mapping, said in ((3, "object"), ({"STAT": "IDENTITY"}, "'STATE'"), ({"STATE": "MEANSTD"}, "'MEAN_STD'")):
        with pytest.raises(WeightsError, match=said):
            rules_of(mapping, "r")
