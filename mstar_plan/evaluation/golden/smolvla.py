"""SmolVLA: its prefix, velocities, and chunks of actions through the walk `act`, with and without guidance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from mstar_plan.evaluation.golden.case import Comparison, GoldenCase, numbered
from mstar_plan.models.vla.act_walk import Finish, act_graph, flow_step
from mstar_plan.models.vla.flow import euler_times
from mstar_plan.models.vla.preprocess import pad_last
from mstar_plan.models.vla.rtc import SCHEDULES, ChunkingConfig, ChunkPrior, make_prior, prefix_weights
from mstar_plan.models.vla.smolvla import SmolVLAPolicy
from mstar_plan.models.vla.smolvla_config import SmolVLAConfig, smolvla_config
from mstar_plan.models.vla.smolvla_weights import load_smolvla
from mstar_plan.walks.graph import Graph
from mstar_plan.walks.state import WalkState

MARKS = ("fake_image_token_id", "global_image_token_id")


def check_smolvla(case: GoldenCase) -> Iterator[Comparison]:
    """The prefix in mid.prefix_*, velocities in mid.velocity_stepK, actions in out.actions and out.rtc_SCHEDULE.*."""
    config = _config(case.config)
    policy = load_smolvla(config, _unwrapped(case.weights()))
    observed = _observed(case, config)
    yield from _prefix(case, policy, observed)
    yield from _velocities(case, policy, observed)
    graph = act_graph("policy", policy, _as_they_are(config))
    runs = dict(numbered(case, "out.actions_steps")) | (
        {"out.actions": config.steps} if case.has("out.actions") else {}
    )
    for name, steps in runs.items():
        prior = ChunkPrior(len(case.input("noise")))
        yield case.compare(name, _act(case, graph, observed, prior, steps))
    for schedule in SCHEDULES:
        yield from _chunked(case, graph, config, observed, schedule)


def _config(config: Mapping[str, Any]) -> SmolVLAConfig:
    marks = tuple(config[name] for name in MARKS) if all(name in config for name in MARKS) else None
    return smolvla_config(config, config, marks)


def _unwrapped(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    wrapped = all(name.startswith("model.") for name in tensors)
    return {name.removeprefix("model.") if wrapped else name: tensor for name, tensor in tensors.items()}


def _observed(case: GoldenCase, config: SmolVLAConfig) -> dict[str, Tensor]:
    cameras = [number for _, number in sorted(numbered(case, "in.image"), key=lambda each: each[1])]
    images = torch.stack([case.input(f"image{camera}") for camera in cameras], 1)
    masks = [case.io.get(f"in.img_mask{camera}", torch.ones(len(images), dtype=torch.bool)) for camera in cameras]
    tokens = case.input("tokens")
    return {
        "images": images,
        "image_mask": torch.stack(masks, 1).bool(),
        "tokens": tokens,
        "token_mask": case.io.get("in.token_mask", torch.ones_like(tokens)).bool(),
        "state": pad_last(case.input("state"), config.state_width),
    }


def _as_they_are(config: SmolVLAConfig) -> Finish:
    limit = torch.full((config.action_width,), torch.inf)
    return Finish(lambda actions: actions, -limit, limit)


def _prefix(case: GoldenCase, policy: SmolVLAPolicy, observed: Mapping[str, Tensor]) -> Iterator[Comparison]:
    z_BPD, seen_BP = policy.embed_prefix(observed, all_images=True)
    starts_BP = torch.zeros_like(seen_BP)
    starts_BP[:, -1] = True
    rest = max(0, policy.config.prefix_length - z_BPD.shape[1])
    ours = {
        "mid.prefix_embeds": functional.pad(z_BPD, (0, 0, 0, rest)),
        "mid.prefix_pad_mask": functional.pad(seen_BP, (0, rest)),
        "mid.prefix_att_mask": functional.pad(starts_BP, (0, rest)),
    }
    for name, tensor in ours.items():
        if case.has(name):
            yield case.compare(name, tensor)


def _velocities(case: GoldenCase, policy: SmolVLAPolicy, observed: Mapping[str, Tensor]) -> Iterator[Comparison]:
    x_BSA, steps = case.input("noise"), policy.steps
    rows = len(x_BSA)
    prefix, table, prior = policy.see(observed), policy.conditions(steps), ChunkPrior(rows)
    for k, time in enumerate(euler_times(steps)):
        condition = table[k].expand(rows, -1)
        if case.has(f"mid.velocity_step{k}"):
            yield case.compare(f"mid.velocity_step{k}", policy.velocity(x_BSA, condition, prefix))
        now_B2 = torch.stack([time, torch.tensor(-1.0 / steps)]).expand(rows, -1)
        x_BSA = flow_step(policy, x_BSA, now_B2, condition, prefix, prior)


def _chunked(
    case: GoldenCase, graph: Graph, config: SmolVLAConfig, observed: Mapping[str, Tensor], schedule: str
) -> Iterator[Comparison]:
    run = f"out.rtc_{schedule}"
    rtc, previous = case.config.get("rtc") or {}, case.io.get("in.rtc_prev_chunk")
    if previous is None or not case.has(f"{run}.actions"):
        return
    chunking = ChunkingConfig(
        schedule=schedule,  # type: ignore[arg-type]  # one of SCHEDULES
        max_weight=float(rtc.get("max_guidance_weight", 10.0)),
        horizon=int(rtc.get("execution_horizon", 10)),
    )
    delay = int(rtc.get("inference_delay", 0))
    prior = make_prior(chunking, config.chunk, pad_last(previous, config.action_width), delay)
    assert prior is not None, "there is a previous chunk"
    yield case.compare(f"{run}.actions", _act(case, graph, observed, prior, config.steps))
    if case.has(f"{run}.weights"):
        horizon = min(chunking.horizon, previous.shape[1])
        yield case.compare(f"{run}.weights", prefix_weights(chunking.schedule, delay, horizon, config.chunk))


def _act(case: GoldenCase, graph: Graph, observed: Mapping[str, Tensor], prior: ChunkPrior, steps: int) -> Tensor:
    """Actions [B, S, A] of the walk, in the policy's own units."""
    values = {**observed, "noise": case.input("noise"), "prior": prior, "steps": steps}
    state = WalkState(graph.walks["act"], values)
    while not state.finished:
        node = state.ready()[0]
        state.complete(node, graph.components[node.component](state.inputs_of(node)))
    actions: Tensor = state.outputs()["actions"]
    return actions
