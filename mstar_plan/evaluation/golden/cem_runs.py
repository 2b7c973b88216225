"""The published planner's runs and action grids, with the stored noise fed in.

Shapes: S samples, E elites, H horizon, N patches, D width, K actions of a grid; 7 numbers a pose and an action.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mstar_plan.evaluation.golden.ac_checkpoint import build_pair, encode_frames
from mstar_plan.evaluation.golden.case import Comparison, GoldenCase
from mstar_plan.models.vjepa2.contract import ModelContract
from mstar_plan.models.vjepa2.world_model import VJEPA2AC, VJEPA2ACConfig
from mstar_plan.rollout.constraints import SearchSpace
from mstar_plan.rollout.landscape import action_grid
from mstar_plan.rollout.nodes import inside
from mstar_plan.rollout.noise import NoiseConfig
from mstar_plan.rollout.objective import ObjectiveConfig, make_objective
from mstar_plan.rollout.planner import best_first
from mstar_plan.rollout.vjepa2_cem import POSE_SAMPLED, VJEPA2CEM, VJEPA2CEMConfig
from mstar_plan.types import POSE_UNITS, ActionSpec

ENERGY = ObjectiveConfig(distance="l1", mean=0.0, final=1.0)
# What the published function does where a run does not say.
DEFAULTS = {"rollout": 1, "cem_steps": 100, "samples": 100, "topk": 10, "momentum_mean": 0.25, "momentum_std": 0.95}
NAMES = {"samples": "samples", "topk": "elites", "cem_steps": "iterations", "rollout": "horizon"}  # theirs: ours
SAME = (
    "maxnorm", "close_gripper", "momentum_mean", "momentum_std", "momentum_mean_gripper", "momentum_std_gripper",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Scene:
    """A model, and from where to where.

    Attributes:
        model: The world model.
        context: [1, 1, N, D] tokens of now.
        goal: [1, N D] embedded goal.
        pose: [1, 7] now.
    """

    model: VJEPA2AC
    context: Tensor
    goal: Tensor
    pose: Tensor

    def roll_out(self, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Embedded frames [1, K, H, N D] and poses [K, H + 1, 7] of actions [1, K, H, 7]."""
        _, many, horizon, _ = actions.shape
        latent, pose, cache = self.model.begin(self.context, None, self.pose, many, horizon)
        frames, poses = [], [pose]
        for step in actions.unbind(2):
            latent, pose, cache = self.model.predict(latent, pose, step, cache)
            frames.append(self.model.embed(latent))
            poses.append(pose)
        return torch.stack(frames, 2), torch.stack([p for p in poses if p is not None], 2)[0]


def make_scene(case: GoldenCase) -> Scene:
    """The scene of a case: frame 0 is now, the last one the goal."""
    encoder, predictor = build_pair(case.config, case.weights())
    contract = ModelContract(normalize_latents=bool(case.config.get("normalize_reps", True)))
    config = VJEPA2ACConfig(encoder.config, predictor.config, contract)
    model = VJEPA2AC(case.name, config, pose_action(1.0), encoder, predictor)
    tokens = model.normalize(encode_frames(encoder, case.input("frames")))
    return Scene(model, tokens[None, :1], model.embed(tokens[-1:]), case.input("pose").reshape(1, -1))


def pose_action(translation: float, gripper: float = 1.0, dt_s: float = 0.25) -> ActionSpec:
    """Actions of an end effector: the largest translation along an axis, and change of the gripper."""
    high = torch.tensor([translation] * 3 + [math.pi] * 3 + [gripper]).numpy()
    return ActionSpec(-high, high, dt_s, units=POSE_UNITS)


def run_config(run: Mapping[str, Any]) -> VJEPA2CEMConfig:
    """Our settings of a published run."""
    run = {**DEFAULTS, **run}
    settings = {ours: run[theirs] for theirs, ours in NAMES.items()}
    settings |= {name: run[name] for name in SAME if run.get(name) is not None}
    return VJEPA2CEMConfig(**settings, fixed=tuple((int(i), float(v)) for i, v in run.get("axis", {}).items()))


def fed_noise(draws: Tensor, horizon: int) -> Any:
    """A source of noise [1, S, H, 4] for iteration i: the draws [steps H, S, 4], step after step."""

    def noise(config: NoiseConfig, seed: Tensor, iteration: Tensor, shape: tuple[int, int, int]) -> Tensor:
        del config, seed
        first = int(iteration) * horizon
        drawn = draws[first : first + horizon].transpose(0, 1)
        assert drawn.shape == shape, f"the draws are {tuple(drawn.shape)}, the planner asks for {shape}"
        return drawn[None]

    return noise


def check_runs(case: GoldenCase) -> Iterator[Comparison]:
    """Every run of the case's configuration."""
    runs = [run for run in case.config.get("runs", ()) if case.has(f"out.{run['tag']}.noise")]
    scene = make_scene(case) if runs else None
    for run in runs:
        assert scene is not None
        prefix = f"out.{run['tag']}."
        known = case.io.get(f"{prefix}elite_indices")
        found = search(scene, run_config(run), case.io[f"{prefix}noise"], known, case.atol)
        for name, value in found.items():
            if case.has(prefix + name):
                elites = name == "elite_indices"
                yield compare_elites(case, prefix, found) if elites else case.compare(prefix + name, value)


def compare_elites(case: GoldenCase, prefix: str, found: Mapping[str, Tensor]) -> Comparison:
    """Elites [steps, E] of a run against the stored ones, as sets; says where ties were settled by the stored ones."""
    name, chosen = f"{prefix}elite_indices", found["elite_indices"]
    stored = case.io[name]
    if chosen.shape != stored.shape:
        return case.compare(name, chosen)
    different = int((chosen.sort(1).values != stored.sort(1).values).sum())
    lowest = best_first(found["energies"], chosen.shape[1])
    ties = sum(len(set(a) - set(b)) for a, b in zip(chosen.tolist(), lowest.tolist(), strict=True))
    note = "other elites" if different else f"{ties} taken from ties within {case.atol:g}" if ties else ""
    return Comparison(name, float(different > 0), not different, note)


def search(
    scene: Scene, config: VJEPA2CEMConfig, draws: Tensor, known: Tensor | None = None, slack: float = 0.0
) -> dict[str, Tensor]:
    """What a run went through, by the names of its tensors.

    Args:
        scene: From where to where.
        config: Settings of the run.
        draws: [steps H, S, 4] its noise.
        known: [steps, E] elites of the reference, which are followed where ours are no better by more than `slack`.
        slack: Difference of energies that rounding may make.
    """
    reach = max([config.maxnorm, *(abs(value) for index, value in config.fixed if index < 3)])
    grip = max([1.0, *(abs(value) for index, value in config.fixed if index == 3)])
    space = SearchSpace(pose_action(reach, grip))
    planner = VJEPA2CEM(config, space.spec, fed_noise(draws, config.horizon))
    energy, sampled = make_objective(ENERGY), list(POSE_SAMPLED)
    state = planner.init((1, config.horizon, space.spec.size), None, draws.device)
    kept: dict[str, list[Tensor]] = {"mean": [space.to_units(state.mean)[0]], "std": [(state.std * space.half)[0]]}
    for i in range(config.iterations):
        proposed = planner.propose(state, torch.tensor([0]), torch.tensor([i]), config.samples)
        candidates, actions = inside(space, proposed, None)
        embedded, poses = scene.roll_out(actions)
        energies = energy(embedded, scene.goal, candidates)
        settled = energies if known is None else settle(energies, known[i], slack)
        state = planner.refit(state, candidates, settled)
        found = {
            "actions": actions[0],
            "poses": poses,
            "energies": energies[0],
            "elite_indices": best_first(settled, config.elites)[0],
            "mean": space.to_units(state.mean)[0],
            "std": (state.std * space.half)[0],
        }
        for name, value in found.items():
            kept.setdefault(name, []).append(value)
    result = {name: torch.stack(values) for name, values in kept.items()}
    plan = space.to_units(planner.answer(state))[0]
    return {**result, "mean": result["mean"][..., sampled], "std": result["std"][..., sampled], "action": plan}


def settle(energies: Tensor, stored: Tensor, slack: float) -> Tensor:
    """Energies [1, S] with all but the stored elites [E] at infinity, if these are a tie with the lowest ones.

    Which of two candidates comes first, whose energies differ by rounding alone, is no finding; but a run that goes on
    with the other one is another run.
    """
    lowest = best_first(energies, len(stored))[0]
    disputed = energies[0, sorted(set(lowest.tolist()) ^ set(stored.tolist()))]
    if not len(disputed) or not ((disputed - energies[0, lowest[-1]]).abs() <= slack).all():
        return energies
    only = torch.full_like(energies, torch.inf)
    only[0, stored] = energies[0, stored]
    return only


def check_grids(case: GoldenCase) -> Iterator[Comparison]:
    """Energies of the action grid: out.grid after one step, out.gridN after N."""
    sizes = case.config.get("grid")
    names = [n for n in sorted(case.io) if n.startswith("out.grid") and n.endswith(".energies")]
    if not sizes or not names:
        return
    scene, energy = make_scene(case), make_objective(ENERGY)
    made = action_grid(pose_action(sizes["grid_size"]), (0, 1, 2), sizes["nsamples"], most=10**6).actions
    grid = torch.from_numpy(made)[None, :, None]
    if case.has("out.grid.actions"):
        yield case.compare("out.grid.actions", grid[0])
    for name in names:
        repeat = int(name.removeprefix("out.grid").removesuffix(".energies") or 1)
        embedded, poses = scene.roll_out(grid.expand(-1, -1, repeat, -1))
        yield case.compare(name, energy(embedded, scene.goal, grid)[0])
        if case.has(poses_name := name.replace("energies", "poses")):
            yield case.compare(poses_name, poses)
