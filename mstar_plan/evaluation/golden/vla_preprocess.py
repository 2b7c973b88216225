"""What comes before a policy: padded pictures by two rules, bins and prompts of a state, normalised vectors."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torch import Tensor

from mstar_plan.errors import WeightsError
from mstar_plan.evaluation.golden.case import Comparison, GoldenCase
from mstar_plan.models.vla.normalise import STATISTICS, Normaliser
from mstar_plan.models.vla.preprocess import discretise_state, pi05_prompt, resize_with_pad

GREY_LEVELS = 1  # that uint8 pictures may differ by
_PICTURE = re.compile(r"^out\.(pi|smolvla)\.(uint8|float)_(\w+)_(\d+)(?:x(\d+))?$")
# What a case calls a rule: the rule.
_RULES = {"quantile": "quantiles", "mean_std": "mean_std", "min_max": "min_max", "quantile10": "quantile10"}


def check_vla_preprocess(case: GoldenCase) -> Iterator[Comparison]:
    """Every out.RULE.KIND_PICTURE_SIZE; then bins, prompts, and every normaliser that the case has statistics of."""
    for name in sorted(case.io):
        if _PICTURE.match(name):
            yield _compare_picture(case, name)
    if case.has("in.state_normalised", "out.state_bins"):
        yield case.compare("out.state_bins", discretise_state(case.input("state_normalised")))
    if "expected_prompts" in case.config:
        yield _compare_prompts(case)
    for theirs, rule in _RULES.items():
        yield from _compare_rule(case, theirs, rule)


def _compare_picture(case: GoldenCase, name: str) -> Comparison:
    found = _PICTURE.match(name)
    assert found is not None, "only names of pictures come here"
    rule, kind, picture = found[1], found[2], found[3]
    expected, image = case.io[name], case.input(f"image_{kind}_{picture}")
    first, last = _channels_first(image), _channels_first(expected)
    height, width = expected.shape[2:] if last else expected.shape[1:3]
    images = image.permute(0, 2, 3, 1) if first else image
    ours = resize_with_pad(images, height, width, rule=rule)  # type: ignore[arg-type]  # one that the name may have
    ours = ours.permute(0, 3, 1, 2) if last else ours
    if expected.is_floating_point() or ours.shape != expected.shape:
        return case.compare(name, ours)
    error = float((ours.int() - expected.int()).abs().max())
    return Comparison(name, error, error <= GREY_LEVELS and ours.dtype == expected.dtype, "grey levels")


def _channels_first(image: Tensor) -> bool:
    return image.shape[1] in (1, 3) and image.shape[-1] not in (1, 3)


def _compare_prompts(case: GoldenCase) -> Comparison:
    tasks, expected = case.config.get("tasks", ()), case.config["expected_prompts"]
    states = case.input("state_normalised")
    if not len(tasks) == len(expected) == len(states):
        raise WeightsError(f"case {case.name} has {len(tasks)} tasks, {len(expected)} prompts, {len(states)} states")
    ours = [pi05_prompt(task, state) for task, state in zip(tasks, states, strict=True)]
    wrong = [mine for mine, theirs in zip(ours, expected, strict=True) if mine != theirs]
    return Comparison("config.expected_prompts", float(len(wrong)), not wrong, f"ours: {wrong[0]!r}" if wrong else "")


def _compare_rule(case: GoldenCase, theirs: str, rule: str) -> Iterator[Comparison]:
    names = STATISTICS[rule]
    if not case.has("in.raw", *(f"in.{name}" for name in names)):
        return
    normaliser = Normaliser(rule=rule, stats={name: case.input(name) for name in names})  # type: ignore[arg-type]
    if case.has(f"out.{theirs}"):
        yield case.compare(f"out.{theirs}", normaliser.normalise(case.input("raw")))
    if case.has(f"out.{theirs}", f"out.{theirs}_inverse"):
        yield case.compare(f"out.{theirs}_inverse", normaliser.unnormalise(case.io[f"out.{theirs}"]))
