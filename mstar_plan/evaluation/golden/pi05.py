"""pi0.5's flow: prefix, time condition, velocities, chunks, and real-time chunking."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import torch

from mstar_plan.evaluation.golden.case import Comparison, GoldenCase, numbered
from mstar_plan.evaluation.golden.pi0 import check_chunks, check_velocities
from mstar_plan.models.vla.act_walk import FlowPolicy, sample_chunk
from mstar_plan.models.vla.pi05 import Pi05Policy
from mstar_plan.models.vla.pi_checkpoint import load_pi
from mstar_plan.models.vla.pi_config import read_pi_config
from mstar_plan.models.vla.rtc import SCHEDULES, ChunkingConfig, Schedule, make_prior, prefix_weights


def check_pi05(case: GoldenCase) -> Iterator[Comparison]:
    """Any number of cameras: in.imageN and in.img_maskN."""
    policy = load_pi(read_pi_config("pi05", case.config), case.weights())
    assert isinstance(policy, Pi05Policy), "a configuration of kind pi05 gives another policy"
    cameras = [at for _, at in sorted(numbered(case, "in.image"), key=lambda each: each[1])]
    images = torch.stack([case.input(f"image{at}") for at in cameras], 1)
    there = torch.stack([case.input(f"img_mask{at}") for at in cameras], 1).bool()
    tokens, mask = case.input("tokens"), case.input("token_mask").bool()
    z_BPD, seen_BP = policy.embed_prefix(images, there, tokens, mask)
    everything = torch.cat([there.repeat_interleave(policy.config.vision.patches, 1), mask], 1)
    if case.has("mid.prefix_embeds"):
        features = policy.image_features(images.flatten(0, 1)).reshape(len(tokens), -1, z_BPD.shape[-1])
        whole = torch.cat([features, policy.embed_text(tokens)], 1)  # the case tells what masked places hold, too
        whole[everything] = z_BPD[seen_BP] if seen_BP is not None else z_BPD.flatten(0, 1)
        yield case.compare("mid.prefix_embeds", whole)
    if case.has("mid.prefix_pad_mask"):
        yield case.compare("mid.prefix_pad_mask", everything)
    if case.has("mid.adarms_cond_step0"):
        condition = policy.time_condition(torch.ones(1)).expand(len(tokens), -1)
        yield case.compare("mid.adarms_cond_step0", condition)
    prefix = policy.fill(z_BPD, seen_BP, None)
    yield from check_velocities(case, policy, prefix)
    yield from check_chunks(case, policy, prefix)
    yield from check_chunking(case, policy, prefix)


def check_chunking(case: GoldenCase, policy: FlowPolicy, prefix: Any) -> Iterator[Comparison]:
    """out.rtc_SCHEDULE.weights and .actions by config.rtc."""
    settings = cast("Mapping[str, Any]", case.config.get("rtc") or {})
    for schedule in SCHEDULES:
        run = f"out.rtc_{schedule}"
        if case.has(f"{run}.weights"):
            delay, horizon = _cut(case, settings)
            yield case.compare(f"{run}.weights", prefix_weights(schedule, delay, horizon, policy.chunk))
        if case.has(f"{run}.actions"):
            yield case.compare(f"{run}.actions", _guided(case, policy, prefix, schedule, settings))


def _cut(case: GoldenCase, settings: Mapping[str, Any]) -> tuple[int, int]:
    """Delay, and the horizon as far as the old chunk goes."""
    return int(settings["inference_delay"]), min(
        int(settings["execution_horizon"]), case.input("rtc_prev_chunk").shape[1]
    )


def _guided(
    case: GoldenCase, policy: FlowPolicy, prefix: Any, schedule: Schedule, settings: Mapping[str, Any]
) -> torch.Tensor:
    config = ChunkingConfig(
        "guided", schedule, float(settings["max_guidance_weight"]), int(settings["execution_horizon"])
    )
    prior = make_prior(config, policy.chunk, case.input("rtc_prev_chunk"), int(settings["inference_delay"]))
    return sample_chunk(policy, prefix, case.input("noise"), policy.steps, prior)
