"""The published flow-matching Euler schedule: timesteps, sigmas, and the samples of every step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

import torch

from mstar_plan.errors import WeightsError, did_you_mean
from mstar_plan.evaluation.golden.case import Comparison, GoldenCase
from mstar_plan.models.vla.flow import FlowMatchConfig, FlowMatchSchedule, flow_match_schedule

CALL = ("n", "sigmas", "mu")  # of a run, not of the schedule's configuration


def check_flow_match_euler(case: GoldenCase) -> Iterator[Comparison]:
    """Every run of config.runs."""
    for name, run in case.config["runs"].items():
        schedule = schedule_of(case.config, run)
        for what, ours in (("timesteps", schedule.timesteps), ("sigmas", schedule.sigmas)):
            if case.has(f"out.{name}.{what}"):
                yield case.compare(f"out.{name}.{what}", ours)
        if case.has(f"out.{name}.samples"):
            yield case.compare(f"out.{name}.samples", _samples(case, schedule))


def schedule_of(config: Mapping[str, Any], run: Mapping[str, Any]) -> FlowMatchSchedule:
    """The schedule of a run; settings that it does not give are the case's, then the defaults.

    Raises:
        WeightsError: It has a setting that is not known.
    """
    known = {each.name for each in fields(FlowMatchConfig)}
    for key in run:
        if key not in known and key not in CALL:
            raise WeightsError(f"a run asks for {key!r}{did_you_mean(key, known | set(CALL))}", field=key)
    settings = {name: value for name, value in {**config, **run}.items() if name in known}
    return flow_match_schedule(FlowMatchConfig(**settings), run.get("n"), sigmas=run.get("sigmas"), mu=run.get("mu"))


def _samples(case: GoldenCase, schedule: FlowMatchSchedule) -> torch.Tensor:
    sample, made = case.input("x0"), []
    for index in range(len(schedule.timesteps)):
        sample = schedule.step(sample, case.input("v")[index], index)
        made.append(sample)
    return torch.stack(made)
