"""Processor files and buffers: unknown steps, keys and statistics are told, and nothing is loaded by its path."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from vla_files import CAMERAS, MEAN_STD, tiny_stats, write_policy

from mstar_plan.errors import WeightsError
from mstar_plan.models.vla.lerobot_layout_config import Feature
from mstar_plan.models.vla.lerobot_layout_stats import normalisers_of, read_pipeline, split_buffers

NAME = "policy_preprocessor.json"
STATS = "policy_preprocessor_step_1_normalizer_processor.safetensors"
STATE = "observation.state"


def edited(folder: Path, edit: Callable[[dict], object]) -> Path:
    write_policy(folder, tensors={"a": torch.ones(1)})
    content = json.loads((folder / NAME).read_text())
    edit(content)
    (folder / NAME).write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda c: c.update(step=[]), "did you mean 'steps'"),
        (lambda c: c.update(steps=None), "needs a list"),
        (lambda c: c.update(steps=[{}] * 33), "at most 32"),
        (lambda c: c["steps"].append(3), "is no step"),
        (lambda c: c["steps"].append({"registry_name": "to_batch_processor", "config": 3}), "is no step"),
        (lambda c: c["steps"].append({"registry_name": "to_batch_processer"}), "did you mean 'to_batch_processor'"),
        (lambda c: c["steps"].append({"class": "os.system"}), "by path are never loaded"),
        (lambda c: c["steps"][0].update(file="x"), "unknown key 'file'"),
        (lambda c: c["steps"][1]["config"].update(epsilon=1), "unknown key 'epsilon'"),
        (lambda c: c["steps"][1]["config"].update(eps="small"), "has eps 'small'"),
        (lambda c: c["steps"][1]["config"].update(eps=0), "eps of a normaliser is 0"),
        (lambda c: c["steps"][1]["config"]["norm_map"].update(STATE="MEANSTD"), "did you mean 'MEAN_STD'"),
        (lambda c: c["steps"][1].update(state_file="../a.safetensors"), "plain name"),
        (lambda c: c["steps"][2]["config"].update(rename_map={"a": 3}), "object of names"),
        (
            lambda c: c["steps"].append({"registry_name": "relative_actions_processor", "config": {"enabled": True}}),
            "is on, which is not computed",
        ),
        (
            lambda c: c["steps"].append(
                {
                    "registry_name": "pi05_prepare_state_tokenizer_processor_step",
                    "config": {"include_state_in_prompt": False},
                }
            ),
            "out of the prompt",
        ),
    ],
)
def test_processors_that_are_refused(tmp_path: Path, edit: Callable[[dict], object], said: str) -> None:
    with pytest.raises(WeightsError, match=said):
        read_pipeline(edited(tmp_path, edit), NAME)


def test_steps_that_are_off_pass(tmp_path: Path) -> None:
    step = {"registry_name": "relative_actions_processor", "config": {"enabled": False, "exclude_joints": []}}
    assert (
        read_pipeline(edited(tmp_path, lambda c: c["steps"].append(step)), NAME).normalisers[STATE].rule == "mean_std"
    )


def test_only_named_observations_are_normalised(tmp_path: Path) -> None:
    only = edited(tmp_path, lambda c: c["steps"][1]["config"].update(normalize_observation_keys=["other"]))
    made = read_pipeline(only, NAME).normalisers
    assert STATE not in made
    assert made["action"].rule == "mean_std"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda s: s.pop(f"{STATE}.std"), "needs 'std' for mean_std"),
        (lambda s: s.update({f"{STATE}.std": torch.full((5,), torch.nan)}), "NaN or infinity"),
        (lambda s: s.update({f"{STATE}.std": torch.full((5,), torch.inf)}), "NaN or infinity"),
        (lambda s: s.update({f"{STATE}.std": -torch.ones(5)}), "under 0"),
        (lambda s: s.update({f"{STATE}.std": torch.ones(4)}), r"shape \[4\]; the feature is \[5\]"),
        (lambda s: s.update({f"{STATE}.std": torch.ones(5, dtype=torch.bool)}), "numbers are needed"),
    ],
)
def test_statistics_that_are_refused(tmp_path: Path, change: Callable[[dict], object], said: str) -> None:
    path = write_policy(tmp_path, tensors={"a": torch.ones(1)}) / STATS
    stats = load_file(path)
    change(stats)
    save_file(stats, path)
    with pytest.raises(WeightsError, match=said):
        read_pipeline(tmp_path, NAME)


@pytest.mark.parametrize("shape", [(3,), (3, 1, 1)])
def test_pictures_have_statistics_by_channel(shape: tuple[int, ...]) -> None:
    features = {CAMERAS[0]: Feature("VISUAL", (3, 48, 64))}
    stats = {CAMERAS[0]: {"mean": torch.arange(3.0).view(shape), "std": torch.ones(shape)}}
    made, lacking = normalisers_of(features, {"VISUAL": "mean_std"}, stats, 1e-8, "w")
    assert lacking == []
    assert torch.allclose(made[CAMERAS[0]].normalise(torch.zeros(2, 3, 4, 4))[0, :, 0, 0], -torch.arange(3.0))


def test_double_precision_statistics_are_read(tmp_path: Path) -> None:
    path = write_policy(tmp_path, tensors={"a": torch.ones(1)}, rules=MEAN_STD) / STATS
    save_file({name: tensor.double() for name, tensor in load_file(path).items()}, path)
    stats = read_pipeline(tmp_path, NAME).normalisers[STATE].stats
    assert stats["mean"].dtype == torch.float32
    assert torch.equal(stats["mean"], tiny_stats()[STATE]["mean"])


def test_buffers() -> None:
    features = {"observation.images.top_cam": Feature("VISUAL", (3, 4, 4)), STATE: Feature("STATE", (2,))}
    tensors = {
        "model.w": torch.ones(1),
        "normalize_inputs.buffer_observation_images_top_cam.mean": torch.ones(3, 1, 1),
        "model.normalize_inputs.buffer_observation_state.mean": torch.zeros(2),
        "normalize_targets.buffer_observation_state.mean": torch.zeros(2),
        "normalize_inputs.buffer_observation_state.std": torch.full((2,), torch.inf),
    }
    rest, stats = split_buffers(tensors, features)
    assert list(rest) == ["model.w"]
    assert {name: list(each) for name, each in stats.items()} == {
        "observation.images.top_cam": ["mean"],
        STATE: ["mean"],
    }


def test_buffers_that_are_refused() -> None:
    features = {STATE: Feature("STATE", (2,))}
    with pytest.raises(WeightsError, match="did you mean 'observation_state'"):
        split_buffers({"normalize_inputs.buffer_observation_stat.mean": torch.ones(2)}, features)
    two = {
        f"normalize_inputs.{robot}buffer_observation_state.mean": torch.full((2,), at)
        for robot, at in (("", 0.0), ("so100_", 1.0))
    }
    with pytest.raises(WeightsError, match="differs from another"):
        split_buffers(two, features)
