"""Policies from published folders: pi0, pi0.5 and SmolVLA, whole, and folders that must not pass."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from vla_files import ACTION, STATE, change_json, tiny_stats, write_policy
from vla_worlds import dummy_pi, published, tiny_actions

from mstar_plan.errors import ConfigError, WeightsError
from mstar_plan.families.servable import FamilyConfig, Servable
from mstar_plan.families.vla import action_spec, chunking_of, load_vla
from mstar_plan.models.vla.act_walk import sample_chunk
from mstar_plan.models.vla.normalise import Normaliser
from mstar_plan.models.vla.rtc import ChunkingConfig
from mstar_plan.runtime.runtime import Runtime

QUANTILES = {"VISUAL": "IDENTITY", "STATE": "QUANTILES", "ACTION": "QUANTILES"}


def pi_folder(folder: Path, kind: str, **changes: object) -> Path:
    """A folder with a policy of openpi's dummy towers."""
    tensors = published(dummy_pi(kind))
    if kind == "pi0":
        write_policy(folder, kind=kind, layout="buffers", tensors=tensors)
    else:
        write_policy(folder, kind=kind, rules=QUANTILES, tensors=tensors)
    sizes = {"paligemma_variant": "dummy", "action_expert_variant": "dummy", "image_resolution": [28, 28]}
    change_json(folder / "config.json", **sizes, num_inference_steps=3, **changes)
    return folder


def given(seed: int = 0) -> dict:
    rng = np.random.default_rng(seed)
    return {
        "observation.images.top": rng.integers(0, 256, (48, 64, 3), dtype=np.uint8),
        "observation.state": rng.normal(size=STATE).astype(np.float32),
        "task": "pick up the cup",
    }


def acted(family: Servable, seed: int = 0) -> torch.Tensor:
    assert family.action is not None
    with Runtime(family.graph) as runtime:
        call = family.action.act(given(), seed=seed)
        return runtime.submit(call.walk, call.values).result().outputs["actions"]


@pytest.mark.parametrize("kind", ["pi0", "pi05", "smolvla"])
def test_a_folder_becomes_a_family_that_acts(tmp_path: Path, kind: str) -> None:
    folder = write_policy(tmp_path / "p") if kind == "smolvla" else pi_folder(tmp_path / "p", kind)
    family = load_vla(kind, FamilyConfig(weights=folder))
    assert family.abilities == ("action",)
    actions = acted(family)
    assert actions.shape == (1, 5, ACTION)
    assert torch.equal(acted(family), actions)
    half = load_vla(kind, FamilyConfig(weights=folder, dtype="bfloat16"))
    error = (acted(half) - actions).abs().max() / (actions.max() - actions.min())
    assert 0 < error < 0.1


def test_statistics_and_prompt_reach_the_model(tmp_path: Path) -> None:
    """The chunk is that of the policy on hand-made inputs, un-normalised by the folder's own numbers."""
    family = load_vla("pi05", FamilyConfig(weights=pi_folder(tmp_path / "p", "pi05")))
    policy, stats, seen = dummy_pi("pi05"), tiny_stats(), given()
    q01, q99 = (stats["observation.state"][name] for name in ("q01", "q99"))
    state = 2 * (torch.tensor(seen["observation.state"]) - q01) / (q99 - q01) - 1
    bins = " ".join(str(b) for b in np.digitize(state.numpy(), np.linspace(-1, 1, 257)[:-1]) - 1)
    text = f"Task: pick up the cup, State: {bins};\nAction: "
    call = family.action.act(seen, seed=0)
    mask = call.values["token_mask"][0]
    tokens = family.action.eyes.tokenize(text)[:24]  # the folder's own limit
    assert call.values["tokens"][0][mask].tolist() == list(tokens)
    with torch.inference_mode():
        chunk = sample_chunk(policy, policy.see(call.values), call.values["noise"], 3)[..., :ACTION]
    low, high = stats["action"]["q01"], stats["action"]["q99"]
    spec = family.action.action
    wanted = ((chunk + 1) / 2 * (high - low) + low).clamp(torch.tensor(spec.low), torch.tensor(spec.high))
    torch.testing.assert_close(acted(family), wanted, atol=1e-5, rtol=1e-4)


def test_a_policy_is_loaded_under_its_own_name_or_one_of_the_users(tmp_path: Path) -> None:
    folder = pi_folder(tmp_path / "p", "pi0")
    assert load_vla("my_robot", FamilyConfig(weights=folder)).graph.name == "my_robot"
    with pytest.raises(WeightsError, match="holds a pi0 policy"):
        load_vla("pi05", FamilyConfig(weights=folder))
    with pytest.raises(ConfigError, match="weights=FOLDER"):
        load_vla("pi0", FamilyConfig())


def test_a_missing_or_damaged_tokenizer_is_told(tmp_path: Path) -> None:
    folder = pi_folder(tmp_path / "p", "pi0")
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(WeightsError, match="no tokenizer"):
        load_vla("pi0", FamilyConfig(weights=folder))
    (folder / "tokenizer.json").unlink()
    with pytest.raises(WeightsError, match=r"no tokenizer\.json"):
        load_vla("pi0", FamilyConfig(weights=folder))


def test_names_of_actions_come_from_the_config(tmp_path: Path) -> None:
    names = ["dx", "dy", "dz", "grip"]
    family = load_vla("pi0", FamilyConfig(weights=pi_folder(tmp_path / "p", "pi0", action_feature_names=names)))
    assert family.action.action.names == tuple(names)


def test_empty_cameras_are_not_asked_for(tmp_path: Path) -> None:
    folder = pi_folder(tmp_path / "p", "pi0")
    config = json.loads((folder / "config.json").read_text())
    inputs = config["input_features"] | {"observation.images.empty_camera_0": {"type": "VISUAL", "shape": [3, 28, 28]}}
    change_json(folder / "config.json", input_features=inputs, empty_cameras=1)
    family = load_vla("pi0", FamilyConfig(weights=folder))
    assert [each.key for each in family.action.fields if each.kind == "image"] == [
        "observation.images.top",
        "observation.images.wrist",
    ]


def test_a_folders_own_ends_are_limits(tmp_path: Path) -> None:
    rules = {"VISUAL": "IDENTITY", "STATE": "MEAN_STD", "ACTION": "MIN_MAX"}
    family = load_vla("smolvla", FamilyConfig(weights=write_policy(tmp_path / "p", rules=rules)))
    stats, actions = tiny_stats()["action"], acted(family)
    np.testing.assert_allclose(family.action.action.low, stats["min"])
    assert ((actions >= stats["min"]) & (actions <= stats["max"])).all()


def test_ends_are_limits_under_any_rule(tmp_path: Path) -> None:
    family = load_vla("smolvla", FamilyConfig(weights=write_policy(tmp_path / "p")))  # mean_std
    np.testing.assert_allclose(family.action.action.high, tiny_stats()["action"]["max"])


def test_a_base_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"no statistics of .*action"):
        load_vla("smolvla", FamilyConfig(weights=write_policy(tmp_path / "p", stats={})))


def test_limits_are_the_datas_ends_where_they_are_told() -> None:
    spec = action_spec(Normaliser("min_max", {"min": torch.tensor([0.0, 1.0]), "max": torch.tensor([2.0, 1.0])}), 2)
    assert spec.low.tolist()[0] == 0
    assert spec.high.tolist()[0] == 2
    assert spec.low[1] < 1 < spec.high[1]  # a number that never moved keeps a little room
    free = action_spec(Normaliser(), 2)
    assert (free.high == np.finfo(np.float32).max).all()
    assert (action_spec(Normaliser("mean_std", {"mean": torch.zeros(1), "std": torch.ones(1)}), 3).low < -1e38).all()


def test_chunking_follows_the_policys_config() -> None:
    assert chunking_of({}) == ChunkingConfig()
    assert chunking_of({"rtc_config": None, "rtc_training_max_delay": 0}) == ChunkingConfig()
    told = {"mode": "trained", "prefix_attention_schedule": "EXP", "max_guidance_weight": 5, "execution_horizon": 8}
    assert chunking_of({"rtc_config": told, "rtc_training_max_delay": 4}) == ChunkingConfig("trained", "exp", 5.0, 8, 4)
    with pytest.raises(ConfigError, match="rtc_training_max_delay"):
        chunking_of({"rtc_config": told})


def test_pictures_are_centred_and_signed() -> None:
    images = tiny_actions("pi0").eyes.images
    wide = torch.full((14, 28, 3), 255, dtype=torch.uint8)
    pixels, there = images([wide, None])
    assert there.tolist() == [[True, False]]
    assert (pixels[0, 0, :, 7:21] == 1).all()
    assert (pixels[0, 0, :, :7] == -1).all()
    assert (pixels[0, 0, :, 21:] == -1).all()
