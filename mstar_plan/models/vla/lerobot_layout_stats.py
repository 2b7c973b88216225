"""Normalisers of a published policy: from its processor files, or from buffers inside older models."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from mstar_plan.errors import ConfigError, WeightsError, did_you_mean
from mstar_plan.models.vla.lerobot_layout_config import Feature, features_of, rules_of
from mstar_plan.models.vla.lerobot_layout_files import (
    MAX_STATS_BYTES,
    file_inside,
    need_finite,
    read_json,
    read_tensors,
)
from mstar_plan.models.vla.normalise import EPS, STATISTICS, Normaliser, Rule

Stats = dict[str, dict[str, Tensor]]

MAX_STEPS = 32
NORMALISING = ("normalizer_processor", "unnormalizer_processor")
# Steps that say something here, and steps that only move values about: {name: keys of its config}.
STEPS: Mapping[str, frozenset[str]] = {
    "normalizer_processor": frozenset({"eps", "features", "norm_map", "normalize_observation_keys"}),
    "unnormalizer_processor": frozenset({"eps", "features", "norm_map", "normalize_observation_keys"}),
    "rename_observations_processor": frozenset({"rename_map"}),
    "tokenizer_processor": frozenset(
        {"max_length", "task_key", "padding_side", "padding", "truncation", "tokenizer_name"}
    ),
    "to_batch_processor": frozenset(),
    "device_processor": frozenset({"device", "float_dtype"}),
    "smolvla_new_line_processor": frozenset(),
    "pi0_new_line_processor": frozenset(),
    "pi05_prepare_state_tokenizer_processor_step": frozenset({"max_state_dim", "task_key", "include_state_in_prompt"}),
    "relative_actions_processor": frozenset({"enabled", "exclude_joints", "action_names"}),
    "absolute_actions_processor": frozenset({"enabled"}),
}
# Buffers of older models: normalize_inputs.buffer_observation_state.mean; some name a robot before "buffer".
_BUFFER = re.compile(
    r"^(?:model\.)?(?:normalize_inputs|normalize_targets|unnormalize_outputs)\.(?:so\d+(?:-\w+)?_)?buffer_(.+)\.(\w+)$"
)


@dataclass(frozen=True, eq=False)
class Pipeline:
    """What a processor file says.

    Attributes:
        normalisers: {feature: its normaliser}.
        unmeasured: Features whose rule wants statistics that the files do not have; they pass as they are.
        rename: {name of a robot's value: name of the policy's}.
        tokenizer: Config of the tokenizer's step.
    """

    normalisers: Mapping[str, Normaliser] = field(default_factory=dict)
    unmeasured: tuple[str, ...] = ()
    rename: Mapping[str, str] = field(default_factory=dict)
    tokenizer: Mapping[str, Any] = field(default_factory=dict)


def read_pipeline(folder: Path, name: str) -> Pipeline:
    """Returns what a processor file of a folder says.

    Raises:
        WeightsError: The file or a statistics file is absent or damaged, or a step or a key is unknown.
    """
    path = folder / name
    content = read_json(path)
    for key in content:
        if key not in ("name", "steps"):
            raise WeightsError(f"{name} has unknown key {key!r}{did_you_mean(key, ('name', 'steps'))}", field=key)
    steps = content.get("steps")
    if not isinstance(steps, list) or len(steps) > MAX_STEPS:
        raise WeightsError(f"{name} needs a list of at most {MAX_STEPS} steps", field="steps")
    normalisers: dict[str, Normaliser] = {}
    unmeasured: list[str] = []
    rename: Mapping[str, str] = {}
    tokenizer: Mapping[str, Any] = {}
    for at, step in enumerate(steps):
        kind, config = _step(step, f"{name} step {at}")
        if kind in NORMALISING:
            made, lacking = _normalising(folder, step, config, f"{name} step {at}")
            normalisers |= made
            unmeasured += lacking
        elif kind == "rename_observations_processor":
            rename = _names(config.get("rename_map"), f"{name} step {at}")
        elif kind == "tokenizer_processor":
            tokenizer = config
    return Pipeline(normalisers, tuple(unmeasured), rename, tokenizer)


def _step(step: object, where: str) -> tuple[str, Mapping[str, Any]]:
    if not isinstance(step, Mapping) or not isinstance(step.get("config", {}), Mapping):
        raise WeightsError(f"{where} is no step: it needs registry_name and config", field="steps")
    for key in step:
        if key not in ("registry_name", "class", "config", "state_file"):
            known = ("registry_name", "class", "config", "state_file")
            raise WeightsError(f"{where} has unknown key {key!r}{did_you_mean(key, known)}", field=key)
    kind, config = step.get("registry_name"), step.get("config", {})
    if not isinstance(kind, str) or kind not in STEPS:
        near = did_you_mean(kind, STEPS) if isinstance(kind, str) else "; classes by path are never loaded"
        raise WeightsError(f"{where} is of kind {kind or step.get('class')!r}{near}", field="registry_name")
    for key in config:
        if key not in STEPS[kind]:
            raise WeightsError(f"{where} ({kind}) has unknown key {key!r}{did_you_mean(key, STEPS[kind])}", field=key)
    if config.get("enabled"):
        raise WeightsError(f"{where} ({kind}) is on, which is not computed here; take another policy", field="enabled")
    if config.get("include_state_in_prompt") is False:
        raise WeightsError(f"{where} leaves the state out of the prompt, which is not computed here")
    return kind, config


def _names(names: object, where: str) -> dict[str, str]:
    if names is None:
        return {}
    if not isinstance(names, Mapping) or not all(isinstance(each, str) for each in names.values()):
        raise WeightsError(f"{where} has rename_map {names!r}; it needs an object of names", field="rename_map")
    return dict(names)


def _normalising(
    folder: Path, step: Mapping[str, Any], config: Mapping[str, Any], where: str
) -> tuple[dict[str, Normaliser], list[str]]:
    features = features_of(config.get("features"), f"{where} features")
    rules = rules_of(config.get("norm_map"), f"{where} norm_map")
    stats: Stats = {}
    if step.get("state_file") is not None:
        file = file_inside(folder, step["state_file"], where)
        for full, tensor in read_tensors(file, MAX_STATS_BYTES).items():
            feature, _, statistic = full.rpartition(".")
            stats.setdefault(feature, {})[statistic] = tensor
    eps = config.get("eps", EPS)
    if not isinstance(eps, float | int) or isinstance(eps, bool):
        raise WeightsError(f"{where} has eps {eps!r}; it needs a number", field="eps")
    only = config.get("normalize_observation_keys")
    kept = {n: f for n, f in features.items() if only is None or f.kind == "ACTION" or n in only}
    return normalisers_of(kept, rules, stats, float(eps), where)


def normalisers_of(
    features: Mapping[str, Feature], rules: Mapping[str, str], stats: Stats, eps: float, where: str
) -> tuple[dict[str, Normaliser], list[str]]:
    """Returns {feature: normaliser}, and the features whose rule wants statistics that are not there.

    Raises:
        WeightsError: Statistics lack a part, are not finite, or do not fit the feature's shape.
    """
    made: dict[str, Normaliser] = {}
    lacking: list[str] = []
    for name, feature in features.items():
        rule = rules.get(feature.kind, "identity")
        if rule != "identity" and name not in stats:
            lacking.append(name)
            rule = "identity"
        if rule == "identity":
            made[name] = Normaliser()
            continue
        kept = _statistics(f"{where}: {name}", feature, rule, stats[name])
        try:
            made[name] = Normaliser(rule=cast("Rule", rule), stats=kept, eps=eps)
        except ConfigError as error:
            raise WeightsError(f"{where}: {name}: {error}", field=name) from error
    return made, lacking


BOUNDS = ("min", "max")


def _statistics(what: str, feature: Feature, rule: str, stats: Mapping[str, Tensor]) -> dict[str, Tensor]:
    kept: dict[str, Tensor] = {}
    for statistic in STATISTICS[rule]:
        if statistic not in stats:
            raise WeightsError(f"{what} needs {statistic!r} for {rule}{did_you_mean(statistic, stats)}", field="stats")
        need_finite(what, statistic, stats[statistic])
        kept[statistic] = _fitted(f"{what}.{statistic}", feature, stats[statistic].to(torch.float32))
    for statistic in BOUNDS:  # what actions are limited by, whatever the rule
        if statistic not in kept and statistic in stats and bool(stats[statistic].isfinite().all()):
            kept[statistic] = _fitted(f"{what}.{statistic}", feature, stats[statistic].to(torch.float32))
    return kept


def _fitted(what: str, feature: Feature, tensor: Tensor) -> Tensor:
    """Statistics of a vector as [D], of a picture as [C, 1, 1]."""
    channels = feature.shape[0]
    if feature.kind == "VISUAL":
        if tensor.numel() == channels:
            return tensor.reshape(channels, 1, 1)
    elif tuple(tensor.shape) == feature.shape:
        return tensor
    raise WeightsError(f"{what} has shape {list(tensor.shape)}; the feature is {list(feature.shape)}", field="stats")


def split_buffers(tensors: Mapping[str, Tensor], features: Mapping[str, Feature]) -> tuple[dict[str, Tensor], Stats]:
    """Returns the tensors of an older model without its normalisers, and the statistics of those.

    Buffers that were never filled hold infinity; they count as not there.

    Raises:
        WeightsError: A buffer is of no feature, or two buffers of one feature differ.
    """
    spelled = {name.replace(".", "_"): name for name in features}
    rest: dict[str, Tensor] = {}
    stats: Stats = {}
    for full, tensor in tensors.items():
        found = _BUFFER.match(full)
        if found is None:
            rest[full] = tensor
            continue
        spelling, statistic = found.groups()
        if spelling not in spelled:
            raise WeightsError(f"buffer {full} is of no feature{did_you_mean(spelling, spelled)}", field=full)
        if bool(tensor.isinf().all()):
            continue
        held = stats.setdefault(spelled[spelling], {})
        if statistic in held and not torch.equal(held[statistic], tensor):
            raise WeightsError(f"buffer {full} differs from another of {spelled[spelling]}; keep one", field=full)
        held[statistic] = tensor
    return rest, stats
