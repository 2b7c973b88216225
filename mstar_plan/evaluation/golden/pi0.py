"""pi0's flow: image features, prefix, suffix tokens, velocities of every step, and the chunks that come out."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from mstar_plan.evaluation.golden.case import Comparison, GoldenCase, numbered
from mstar_plan.models.vla.act_walk import flow_step, sample_chunk
from mstar_plan.models.vla.flow import euler_times
from mstar_plan.models.vla.pi import PiPolicy
from mstar_plan.models.vla.pi0 import Pi0Policy
from mstar_plan.models.vla.pi_checkpoint import load_pi
from mstar_plan.models.vla.pi_config import read_pi_config
from mstar_plan.models.vla.prefix_cache import PrefixCache
from mstar_plan.models.vla.rtc import ChunkPrior


def check_pi0(case: GoldenCase) -> Iterator[Comparison]:
    """The prompt comes as transformers lays it out: image tokens of the cameras that are there, then text."""
    policy = load_pi(read_pi_config("pi0", case.config), case.weights())
    assert isinstance(policy, Pi0Policy), "a configuration of kind pi0 gives another policy"
    pixels, cameras = case.input("pixel_values"), case.input("pixel_attention_mask")
    ids, present = case.input("input_ids"), case.input("attention_mask").bool()
    vlm = case.config["vlm_config"]
    tokens, mask = split_prompt(
        ids, present, int(vlm["image_token_index" if "image_token_index" in vlm else "image_token_id"])
    )
    if case.has("mid.image_features"):
        yield case.compare("mid.image_features", policy.image_features(pixels.flatten(0, 1)))
    z_BPD, seen_BP = policy.embed_prefix(pixels, cameras.bool(), tokens, mask)
    whole = policy.embed_text(ids.masked_fill(present, 0))  # the case tells what masked places hold, too
    whole[present] = z_BPD[seen_BP] if seen_BP is not None else z_BPD.flatten(0, 1)
    if case.has("mid.prefix_embeds"):
        yield case.compare("mid.prefix_embeds", whole)
    # In the places of the case: the same sums in another order differ by rounding, which tiny random weights enlarge.
    prefix = policy.fill(whole, None if bool(present.all()) else present, case.input("state"))
    yield from check_velocities(case, policy, prefix)
    if case.has("mid.action_embeds_step0"):
        actions = policy.embed_actions(case.input("noise"), policy.condition(torch.ones(len(tokens))))
        state = policy.embed_state(case.input("state"))
        yield case.compare("mid.action_embeds_step0", torch.cat([state, actions], 1))
    yield from check_chunks(case, policy, prefix)


def split_prompt(ids_BP: Tensor, present_BP: Tensor, image_token: int) -> tuple[Tensor, Tensor]:
    """The text of prompts [B, P] that hold image tokens, at the left: ids [B, L], and which are there [B, L]."""
    text_BP = present_BP & (ids_BP != image_token)
    order = (~text_BP).to(torch.int8).argsort(dim=1, stable=True)
    most = max(int(text_BP.sum(1).max()), 1)
    kept = text_BP.gather(1, order)[:, :most]
    return ids_BP.gather(1, order)[:, :most].masked_fill(~kept, 0), kept


def check_velocities(case: GoldenCase, policy: PiPolicy, prefix: PrefixCache) -> Iterator[Comparison]:
    """mid.velocity_stepK of a run with the case's own number of steps."""
    steps = policy.steps
    wanted = {at: name for name, at in numbered(case, "mid.velocity_step")}
    x_BSA, table, times_N = case.input("noise"), policy.conditions(steps), euler_times(steps)
    for k in range(steps):
        condition = table[k].expand(len(x_BSA), *table.shape[1:])
        if k in wanted:
            yield case.compare(wanted[k], policy.velocity(x_BSA, condition, prefix))
        now = torch.tensor([float(times_N[k]), -1.0 / steps]).expand(len(x_BSA), -1)
        x_BSA = flow_step(policy, x_BSA, now, condition, prefix=prefix, prior=ChunkPrior(len(x_BSA)))


def check_chunks(case: GoldenCase, policy: PiPolicy, prefix: PrefixCache) -> Iterator[Comparison]:
    """out.actions, and out.actions_stepsN for every N."""
    runs = dict(numbered(case, "out.actions_steps"))
    if case.has("out.actions"):
        runs["out.actions"] = policy.steps
    for name, steps in runs.items():
        yield case.compare(name, sample_chunk(policy, prefix, case.input("noise"), steps))
