"""Tiny policies in the folders that LeRobot publishes: SmolVLA whole, or a few tensors under any config."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

GOLDEN = Path(__file__).parents[1] / "golden"
CAMERAS = ("observation.images.top", "observation.images.wrist")
STATE, ACTION = 5, 4  # numbers of a state and of an action
MEAN_STD = {"VISUAL": "IDENTITY", "STATE": "MEAN_STD", "ACTION": "MEAN_STD"}
Layout = Literal["processors", "buffers"]
Stats = Mapping[str, Mapping[str, Tensor]]


def case_config(name: str = "smolvla") -> dict[str, Any]:
    """The configuration of a golden case."""
    config: dict[str, Any] = json.loads((GOLDEN / name / "case.json").read_text())["config"]
    return config


def tiny_stats(seed: int = 0) -> dict[str, dict[str, Tensor]]:
    """Statistics of every kind for the state and the action."""
    generator = torch.Generator().manual_seed(seed)
    made = {}
    for feature, width in (("observation.state", STATE), ("action", ACTION)):
        low = torch.randn(width, generator=generator)
        spread = torch.rand(width, generator=generator) + 0.5
        made[feature] = {
            "mean": low + spread / 2, "std": spread, "min": low, "max": low + spread,
            "q01": low + 0.1 * spread, "q99": low + 0.9 * spread, "q10": low + 0.2 * spread, "q90": low + 0.8 * spread,
        }  # fmt: skip
    return made


def policy_config(kind: str = "smolvla", rules: Mapping[str, str] = MEAN_STD) -> dict[str, Any]:
    """config.json of a tiny policy."""
    inputs = {name: {"type": "VISUAL", "shape": [3, 48, 64]} for name in CAMERAS}
    config = {
        "type": kind,
        "n_obs_steps": 1,
        "input_features": inputs | {"observation.state": {"type": "STATE", "shape": [STATE]}},
        "output_features": {"action": {"type": "ACTION", "shape": [ACTION]}},
        "normalization_mapping": dict(rules),
        "device": "cuda",
        "chunk_size": 5,
        "n_action_steps": 5,
        "max_state_dim": 6,
        "max_action_dim": 6,
        "optimizer_lr": 1e-4,
    }
    if kind == "smolvla":
        names = ("num_steps", "num_vlm_layers", "num_expert_layers", "expert_width_multiplier")
        names += ("self_attn_every_n_layers", "attention_mode", "min_period", "max_period", "prefix_length")
        config |= {name: case_config()[name] for name in names}
        config |= {"vlm_model_name": "tests/tiny-vlm", "resize_imgs_with_padding": [32, 32]}
    return config


def vlm_config() -> dict[str, Any]:
    """vlm_config.json of the tiny SmolVLA."""
    return {name: case_config()[name] for name in ("text_config", "vision_config", "scale_factor")}


def write_tokenizer(path: Path) -> None:
    """A tokenizer of single bytes, ids 3 to 258, and the two marks around pictures."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({char: at + 3 for at, char in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<fake_token_around_image>", "<global-img>"])
    path.parent.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(path))


def processors(rules: Mapping[str, str], stats: bool, kind: str = "smolvla") -> dict[str, dict[str, Any]]:
    """The two processor files by name."""
    config = policy_config(kind, rules)
    outputs = config["output_features"]
    made = {}
    for name, step, features in (
        ("policy_preprocessor", "normalizer_processor", config["input_features"] | outputs),
        ("policy_postprocessor", "unnormalizer_processor", outputs),
    ):
        normaliser = {"registry_name": step, "config": {"eps": 1e-8, "features": features, "norm_map": dict(rules)}}
        if stats:
            normaliser["state_file"] = f"{name}_step_1_{step}.safetensors"
        made[f"{name}.json"] = {
            "name": name,
            "steps": [
                {"registry_name": "device_processor", "config": {"device": "cpu", "float_dtype": None}},
                normaliser,
            ],
        }
    before = made["policy_preprocessor.json"]["steps"]
    before += [
        {"registry_name": "rename_observations_processor", "config": {"rename_map": {"cam": CAMERAS[0]}}},
        {"registry_name": "to_batch_processor", "config": {}},
        {"registry_name": "smolvla_new_line_processor", "config": {}},
        {
            "registry_name": "tokenizer_processor",
            "config": {
                "max_length": 24, "task_key": "task", "padding_side": "right", "padding": "longest",
                "truncation": True, "tokenizer_name": "tests/tiny",
            },
        },
    ]  # fmt: skip
    return made


def write_policy(
    folder: Path,
    *,
    kind: str = "smolvla",
    layout: Layout = "processors",
    rules: Mapping[str, str] = MEAN_STD,
    stats: Stats | None = None,
    tensors: Mapping[str, Tensor] | None = None,
) -> Path:
    """Writes a policy's folder.

    Args:
        folder: Where to.
        kind: Of its config.
        layout: Statistics in processor files, or in buffers of the model as before LeRobot 0.4.
        rules: How features are normalised.
        stats: Statistics; None: `tiny_stats`; empty: none at all.
        tensors: Its weights without "model."; None: those of the golden case of SmolVLA.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stats = tiny_stats() if stats is None else stats
    tensors = load_file(GOLDEN / "smolvla" / "weights.safetensors") if tensors is None else tensors
    weights = {f"model.{name}": tensor for name, tensor in tensors.items()}
    if layout == "buffers":
        for feature, each in stats.items():
            owner = "unnormalize_outputs" if feature == "action" else "normalize_inputs"
            for name, tensor in each.items():
                weights[f"{owner}.buffer_{feature.replace('.', '_')}.{name}"] = tensor
    else:
        flat = {f"{feature}.{name}": tensor for feature, each in stats.items() for name, tensor in each.items()}
        for name, content in processors(rules, bool(stats), kind).items():
            (folder / name).write_text(json.dumps(content))
            for step in content["steps"]:
                if "state_file" in step:
                    save_file(flat, folder / step["state_file"])
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(policy_config(kind, rules)))
    if kind == "smolvla":
        (folder / "vlm_config.json").write_text(json.dumps(vlm_config()))
    write_tokenizer(folder / "tokenizer.json")
    return folder


def change_json(path: Path, **changes: Any) -> None:
    """Overwrites keys of a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
