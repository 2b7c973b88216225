"""World models as a family: their walks do what the solver does, take what their faces say, and refuse the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
import torch
from planning_worlds import Broken, Glider, Proprioceptive, Slow
from torch import Tensor

from mstar_plan.errors import ComponentError, ConfigError, InvalidInputError, LimitExceededError, MStarError
from mstar_plan.families.servable import Servable
from mstar_plan.families.world import world_servable
from mstar_plan.models.registry import load_model
from mstar_plan.models.toy import ToyWorld, best_plan, render
from mstar_plan.models.world_model import WorldModel
from mstar_plan.rollout.cem import CEMConfig
from mstar_plan.rollout.landscape import survey
from mstar_plan.rollout.limits import PlanLimits
from mstar_plan.rollout.objective import ObjectiveConfig
from mstar_plan.rollout.plan_walk import plan_graph
from mstar_plan.rollout.solver import PlanSolver
from mstar_plan.rollout.vjepa2_cem import VJEPA2CEMConfig
from mstar_plan.runtime.request import Value
from mstar_plan.runtime.runtime import Runtime
from mstar_plan.types import Goal, Observation, PlanRequest
from mstar_plan.walks.graph import Graph

PLANNER = CEMConfig(samples=64, iterations=8, horizon=4, elites=8, carry=4)
LIMITS = PlanLimits(max_horizon=12, max_iterations=20, max_samples=256)
HERE, THERE = np.array([-0.3, 0.1]), np.array([0.1, -0.2])
NOW, GOAL = render(HERE), render(THERE)
WALKS = [
    "encode", "rollout", "plan", "plan_to_latent", "plan_in_tiles", "plan_to_latent_in_tiles", "landscape",
    "landscape_to_latent",
]  # fmt: skip


class World:
    """A served world and its runtime, as a wire uses them."""

    def __init__(self, servable: Servable, runtime: Runtime) -> None:
        self.servable, self.runtime = servable, runtime

    def values(self, walk: str, **given: Any) -> Mapping[str, Any]:
        face = self.servable.faces[walk]
        return face.prepare(face.check(given))

    def run(self, walk: str, **given: Any) -> Mapping[str, Tensor]:
        face = self.servable.faces[walk]
        outputs = self.runtime.submit(face.walk, self.values(walk, **given)).result(20).outputs
        assert outputs.keys() == face.outputs.keys()
        return {name: face.present(name, value) for name, value in outputs.items()}


def frames(*pictures: np.ndarray) -> Tensor:
    """One row of pictures."""
    return torch.from_numpy(np.stack(pictures))[None]


@pytest.fixture
def serve() -> Iterator[Callable[..., World]]:
    with ExitStack() as stack:

        def start(model: WorldModel | None = None, planner: Any = PLANNER, **options: Any) -> World:
            made = model or ToyWorld()
            graph = plan_graph(made, planner, ObjectiveConfig(), "world")
            servable = world_servable("world", graph, made.spec, **{"limits": LIMITS, **options})
            return World(servable, stack.enter_context(Runtime(graph)))

        yield start


@pytest.mark.parametrize("name", ["toy", "reach"])
@pytest.mark.parametrize(
    "planner", [PLANNER, VJEPA2CEMConfig(samples=16, iterations=2, horizon=3)], ids=["cem", "vjepa2_cem"]
)
def test_every_walk_of_packaged_models_keeps_to_its_face(serve, name, planner):
    world = serve(load_model(name), planner)
    assert list(world.servable.faces) == WALKS
    assert set(WALKS) == set(world.servable.graph.walks)
    for walk, face in world.servable.faces.items():
        sample = {key: port.sample() for key, port in face.inputs.items() if port.sample() is not None}
        for key, value in world.run(walk, **sample).items():
            shape = face.outputs[key].shape
            assert value.dtype is torch.float32
            assert len(value.shape) == len(shape), key
            assert all(want in (None, have) for want, have in zip(shape, value.shape, strict=True)), key


def test_encoding(serve):
    found = serve().run("encode", frames=torch.cat([frames(NOW, GOAL), frames(GOAL, NOW)]))["latents"]
    np.testing.assert_allclose(found[0, :, 0], [HERE, THERE], atol=0.01)
    np.testing.assert_allclose(found[1, :, 0], [THERE, HERE], atol=0.01)


def test_rolling_out(serve):
    actions = torch.tensor([[[[1.0, 0.0], [0.0, -1.0]]]])
    found = serve().run("rollout", frames=frames(NOW), actions=actions)["predicted"]
    np.testing.assert_allclose(found[0, 0, :, 0], HERE + np.array([[0.1, 0.0], [0.1, -0.1]]), atol=0.01)


@pytest.mark.parametrize("walk", ["plan", "plan_in_tiles"])
def test_the_best_plan_is_found(serve, walk):
    found = serve().run(walk, frames=frames(NOW), goal_frames=frames(GOAL), seed=1)
    np.testing.assert_allclose(found["plan"][0, 0], best_plan(HERE, THERE, 4)[0], atol=0.1)
    np.testing.assert_allclose(HERE + 0.1 * found["plan"][0].sum(0).numpy(), THERE, atol=0.03)
    assert found["cost_history"].shape == (1, 8)


def test_plans_are_the_solvers(serve):
    world = serve()
    solver = PlanSolver(ToyWorld().spec, world.runtime, PLANNER, limits=LIMITS)
    plan = solver.solve(PlanRequest(Observation(NOW[None]), Goal(frame=GOAL), seed=5))
    found = world.run("plan", frames=frames(NOW), goal_frames=frames(GOAL), seed=5)
    np.testing.assert_array_equal(found["plan"][0], plan.actions)
    np.testing.assert_allclose(found["mean"][0], plan.warm_start.mean, atol=1e-6)
    np.testing.assert_allclose(found["elites"][0], plan.warm_start.elites, atol=1e-6)
    np.testing.assert_allclose(found["std"][0], plan.std, atol=1e-6)
    again = world.run("plan_to_latent", frames=frames(NOW), goal_latent=found["goal_latent"], seed=5)
    np.testing.assert_array_equal(again["plan"], found["plan"])


def test_rows_are_plans_of_their_own(serve):
    world = serve()
    rows = {"frames": torch.cat([frames(NOW), frames(GOAL)]), "goal_frames": torch.cat([frames(GOAL), frames(NOW)])}
    found = world.run("plan", **rows, seed=3, samples=32)["plan"]
    alone = [world.run("plan", frames=frames(a), goal_frames=frames(b), seed=3, samples=32)["plan"] for a, b in
             ((NOW, GOAL), (GOAL, NOW))]  # fmt: skip
    torch.testing.assert_close(found, torch.cat(alone))


def test_a_warm_start_in_units_goes_on(serve):
    world = serve(Slow())  # bounds that are not centred
    first = world.run("plan", frames=frames(NOW), goal_frames=frames(GOAL))
    warm = {"warm_mean": first["mean"], "warm_elites": first["elites"]}
    asked = {"frames": frames(NOW), "goal_frames": frames(GOAL), "iterations": 1}
    cold_cost = world.run("plan", **asked)["cost"]
    assert world.run("plan", **asked, **warm)["cost"] <= first["cost"] + 1e-5 < cold_cost
    world.run("plan", **asked, warm_mean=first["mean"])


def test_a_rate_limit_goes_on_from_the_last_action(serve):
    world = serve(Slow())
    last = torch.tensor([[-0.5, -1.0]])
    found = world.run("plan", frames=frames(NOW), goal_frames=frames(GOAL), last_action=last)["plan"]
    assert bool(((found[0, 0] - last[0]).abs() <= torch.tensor([0.2, 0.5]) + 1e-5).all())
    assert "last_action" not in world.servable.faces["landscape"].inputs


def test_models_with_context_and_with_proprioception(serve):
    glider = serve(Glider())
    asked = {"frames": frames(NOW, NOW), "context_actions": torch.zeros(1, 1, 2), "goal_frames": frames(GOAL)}
    two = glider.run("plan", **asked)
    earlier = glider.run("encode", frames=frames(NOW))["latents"]
    one = glider.run("plan", **{**asked, "frames": frames(NOW)}, context_latents=earlier)
    torch.testing.assert_close(one["plan"], two["plan"])
    with pytest.raises(InvalidInputError, match="needs input 'context_actions'"):
        glider.run("plan", frames=frames(NOW, NOW), goal_frames=frames(GOAL))
    with pytest.raises(InvalidInputError, match="1 together; model 'glider' sees 2"):
        glider.run("plan", **{**asked, "frames": frames(NOW)})
    feeling = serve(Proprioceptive())
    state = torch.tensor([[0.4, -0.3]])
    felt = feeling.run("plan", frames=frames(NOW), goal_frames=frames(GOAL), state=state)["plan"]
    assert felt[0, 0].abs().max() < 0.5  # it feels that it is there already
    with pytest.raises(InvalidInputError, match="needs input 'state'"):
        feeling.run("rollout", frames=frames(NOW), actions=torch.zeros(1, 1, 1, 2))


@pytest.mark.parametrize("tile", [0, 3])
def test_the_landscape_is_that_of_the_survey(serve, tile):
    world = serve()
    grid = np.array([[1, 0], [0, 1], [-1, 0], [0, -1], [1, -1], [0, 0]], np.float32)
    solver = PlanSolver(ToyWorld().spec, world.runtime, PLANNER, limits=LIMITS)
    expected = survey(solver, PlanRequest(Observation(NOW[None]), Goal(frame=GOAL)), grid, repeat=2)
    asked = {"grid": torch.from_numpy(grid)[None], "repeat": 2, "tile": tile}
    found = world.run("landscape", frames=frames(NOW), goal_frames=frames(GOAL), **asked)["costs"]
    np.testing.assert_allclose(found[0], expected, atol=1e-6)
    assert found[0].argmin() == 4


def test_progress_is_streamed(serve):
    world = serve()
    face = world.servable.faces["plan"]
    values = world.values("plan", frames=frames(NOW), goal_frames=frames(GOAL))
    events = list(world.runtime.stream("plan", values, emit=tuple(face.streams)))
    costs = [face.present(e.name, e.value).item() for e in events if isinstance(e, Value) and e.name == "best_cost"]
    assert costs == events[-1].result.outputs["cost_history"][0].tolist()
    assert set(face.streams) == {"best_cost", "best_actions"}
    assert set(serve(planner=VJEPA2CEMConfig()).servable.faces["plan"].streams) == {"best_cost"}


PLAN = {"frames": frames(NOW), "goal_frames": frames(GOAL)}
SEQUENCES = torch.zeros(1, 2, 3, 2)
GRID = torch.zeros(1, 6, 2)


@pytest.mark.parametrize(
    ("walk", "given", "kind", "words"),
    [
        ("plan", {"samples": 2}, InvalidInputError, "samples is 2; this search needs at least 8"),
        ("plan", {"samples": 257}, LimitExceededError, "samples is 257; at most 256"),
        ("plan", {"horizon": 0}, InvalidInputError, "horizon is 0"),
        ("plan", {"horizon": 13}, LimitExceededError, "horizon is 13"),
        ("plan", {"iterations": 21}, LimitExceededError, "iterations is 21"),
        ("plan", {"iterations": 2**62}, LimitExceededError, "iterations"),
        ("plan", {"seed": -1}, InvalidInputError, "seed is -1"),
        ("plan", {"warm_mean": torch.zeros(1, 3, 2)}, InvalidInputError, "warm_mean has 3 actions.*horizon 4"),
        ("plan", {"warm_mean": torch.full((1, 4, 2), 2.0)}, InvalidInputError, "warm_mean reaches 2, outside"),
        ("plan", {"warm_elites": torch.zeros(1, 1, 4, 2)}, InvalidInputError, "without warm_mean"),
        (
            "plan",
            {"warm_mean": torch.zeros(1, 4, 2), "warm_elites": torch.zeros(1, 70, 4, 2)},
            InvalidInputError,
            "at least 72",
        ),
        ("plan", {"warm_mean": torch.zeros(2, 4, 2)}, InvalidInputError, "differ in their leading batch axis"),
        ("plan", {"frames": frames(NOW, NOW)}, InvalidInputError, "2 together; model 'toy' sees 1"),
        ("plan", {"frames": frames(NOW)[:, :, :32]}, InvalidInputError, "shape"),
        ("plan", {"last_action": torch.zeros(1, 2)}, InvalidInputError, "no input 'last_action'"),
        ("plan_in_tiles", {"tile": 0}, InvalidInputError, "tile is 0"),
        ("rollout", {"actions": SEQUENCES + 1.5}, InvalidInputError, "actions reaches 1.5"),
        ("rollout", {"actions": torch.zeros(1, 257, 1, 2)}, LimitExceededError, "samples is 257"),
        ("rollout", {"actions": torch.zeros(1, 1, 13, 2)}, LimitExceededError, "horizon is 13"),
        ("landscape", {"grid": GRID - 2}, InvalidInputError, "grid reaches 2"),
        ("landscape", {"grid": GRID, "tile": 4}, InvalidInputError, "send one that divides them"),
        ("landscape", {"grid": GRID, "tile": -1}, InvalidInputError, "tile is -1"),
        ("landscape", {"grid": GRID, "repeat": 13}, LimitExceededError, "horizon is 13"),
    ],
)
def test_what_is_refused(serve, walk, given, kind, words):
    base = {"frames": frames(NOW)} if walk == "rollout" else PLAN
    with pytest.raises(kind, match=words):
        serve().run(walk, **{**base, **given})


def test_rows_share_the_limit(serve):
    rows = {name: value.expand(9, *value.shape[1:]) for name, value in PLAN.items()}
    with pytest.raises(LimitExceededError, match="samples is 288"):
        serve().run("plan", **rows, samples=32)


def test_memory_is_bounded(serve):
    limits = PlanLimits(max_memory_mb=1)
    world = serve(limits=limits, footprint=lambda candidates, horizon: candidates * horizon * 2**13)
    world.run("plan", **PLAN, samples=32)
    with pytest.raises(LimitExceededError, match="would hold 2 MiB; at most 1 MiB"):
        world.run("plan", **PLAN, samples=64)
    world.run("plan_in_tiles", **PLAN, samples=64, tile=32)
    with pytest.raises(LimitExceededError, match="would hold"):
        world.run("plan_in_tiles", **PLAN, samples=64, tile=64)


def test_a_cost_that_is_not_finite_is_the_models_fault(serve):
    with pytest.raises(ComponentError, match="no candidate a finite cost"):
        serve(Broken()).run("plan", **PLAN)


def test_a_graph_that_does_not_plan():
    with pytest.raises(ConfigError, match="does not plan"):
        world_servable("x", Graph("x", {}, {}), ToyWorld().spec)


def test_a_black_frame_is_refused(serve):
    with pytest.raises(MStarError, match="black"):
        serve().run("encode", frames=torch.zeros(1, 1, 64, 64, 3, dtype=torch.uint8))
