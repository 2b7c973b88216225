"""The published planner: representations, poses, and its runs."""

from __future__ import annotations

from collections.abc import Iterator

from torch.nn import functional

from mstar_plan.evaluation.golden.ac_checkpoint import build_pair, encode_frames
from mstar_plan.evaluation.golden.case import Comparison, GoldenCase
from mstar_plan.evaluation.golden.cem_runs import check_grids, check_runs
from mstar_plan.models.vjepa2.pose import compute_new_pose, pose_difference


def check_ac_cem(case: GoldenCase) -> Iterator[Comparison]:
    """Everything of the case that is known here."""
    yield from _representations(case)
    yield from _poses(case)
    yield from check_runs(case)
    yield from check_grids(case)


def _representations(case: GoldenCase) -> Iterator[Comparison]:
    """Frame 0 is the context, the last one the goal."""
    encoder, _ = build_pair(case.config, case.weights())
    tokens = encode_frames(encoder, case.input("frames"))
    if case.config.get("normalize_reps", True):
        tokens = functional.layer_norm(tokens, tokens.shape[-1:])
    for name, frame in (("out.context_rep", tokens[:1]), ("out.goal_rep", tokens[-1:])):
        if case.has(name):
            yield case.compare(name, frame)


def _poses(case: GoldenCase) -> Iterator[Comparison]:
    if case.has("in.pose_a", "in.pose_action", "out.new_pose"):
        yield case.compare("out.new_pose", compute_new_pose(case.input("pose_a"), case.input("pose_action")))
    if case.has("in.diff_start", "in.diff_end", "out.pose_diff"):
        yield case.compare("out.pose_diff", pose_difference(case.input("diff_start"), case.input("diff_end")))
