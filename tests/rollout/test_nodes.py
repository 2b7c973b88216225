"""The components, each by itself."""

import torch
from planning_worlds import Slow

from mstar_plan.models.toy import ToyWorld, render
from mstar_plan.rollout.cem import CEM, CEMConfig
from mstar_plan.rollout.constraints import SearchSpace
from mstar_plan.rollout.nodes import (
    Answer,
    Conclude,
    CutTiles,
    Encode,
    Energy,
    Hold,
    Init,
    Propose,
    Refit,
    Score,
    plan_components,
)
from mstar_plan.rollout.objective import ObjectiveConfig, make_objective
from mstar_plan.rollout.vjepa2_cem import VJEPA2CEM, VJEPA2CEMConfig
from mstar_plan.walks.batch import Batch

PLANNER, SPACE = CEM(CEMConfig(samples=12, elites=4, carry=2)), SearchSpace(Slow().spec.action)


def call(component, **values):
    size = next(v.shape[0] for v in values.values() if isinstance(v, torch.Tensor))
    outputs = component(Batch(values, size))
    assert set(outputs) == set(component.outputs)
    return outputs


def test_encode_keeps_requests_and_frames_apart() -> None:
    places = [[[-0.5, 0.0], [0.5, 0.1]], [[0.2, -0.3], [0.0, 0.7]], [[0.4, 0.4], [-0.9, 0.9]]]
    frames = torch.stack([torch.stack([torch.from_numpy(render(p)) for p in row]) for row in places])
    latents = call(Encode(ToyWorld()), frames=frames)["latents"]
    assert latents.shape == (3, 2, 1, 2)
    torch.testing.assert_close(latents[:, :, 0], torch.tensor(places), atol=2e-3, rtol=0)


def test_init_scales_a_warm_start() -> None:
    latents = torch.zeros(2, 1, 1, 2)
    warm = torch.tensor([0.25, 1.0]).expand(2, 3, 2)
    fresh = call(Init(PLANNER, SPACE), latents=latents, warm_mean=None, warm_elites=None, horizon=3)
    assert fresh["elites"].shape == (2, 0, 3, 2)
    started = call(Init(PLANNER, SPACE), latents=latents, warm_mean=warm, warm_elites=warm[:, None], horizon=3)
    torch.testing.assert_close(started["mean"][0, 0], torch.tensor([0.0, 1.0]))
    torch.testing.assert_close(started["elites"][0, 0, 0], torch.tensor([0.0, 1.0]))


def test_propose_gives_candidates_and_the_same_in_units() -> None:
    state = PLANNER.init((2, 4, 2), None, torch.device("cpu"))
    values = {"mean": state.mean, "std": state.std * 5, "elites": state.elites, "samples": 12}
    values |= {"seed": torch.tensor([1, 2]), "iteration": torch.tensor([0, 3])}
    last = torch.tensor([[1.0, 0.0], [-0.5, 1.0]])
    out = call(Propose(PLANNER, SPACE), **values, last_action=last)
    assert out["candidates"].abs().max() <= 1
    torch.testing.assert_close(SPACE.from_units(out["actions"]), out["candidates"], atol=1e-6, rtol=0)
    first = out["actions"][:, :, 0] - last[:, None]
    assert (first.abs() <= torch.tensor([0.2, 0.5])).all()
    free = call(Propose(PLANNER, SPACE), **values, last_action=None)
    assert not torch.equal(free["candidates"], out["candidates"])


def test_tiles_hold_all_candidates_and_padding() -> None:
    candidates = torch.randn(2, 10, 4, 2)
    out = call(CutTiles(), candidates=candidates, actions=2 * candidates, tile=4)
    assert out["tiles"] == 3
    flat = out["tiled_candidates"].flatten(1, 2)
    assert torch.equal(flat[:, :10], candidates)
    assert not flat[:, 10:].any()
    assert torch.equal(out["tiled_actions"], 2 * out["tiled_candidates"])


def test_score_and_refit_find_the_best() -> None:
    embedded = torch.rand(1, 12, 4, 2)
    embedded[0, 7] = 0.5
    goal, candidates = torch.full((1, 1, 2), 0.5), torch.rand(1, 12, 4, 2)
    costs = call(Score(make_objective(ObjectiveConfig())), embedded=embedded, goal=goal, candidates=candidates)["costs"]
    assert costs.argmin() == 7
    state = PLANNER.init((1, 4, 2), None, torch.device("cpu"))
    padded = torch.cat([costs, torch.zeros(1, 4)], 1)  # costs of padding may be lower than all others
    kept = {"mean": state.mean, "std": state.std, "elites": state.elites, "samples": 12}
    out = call(Refit(PLANNER), **kept, candidates=candidates, actions=3 * candidates, costs=padded)
    assert torch.equal(out["best_actions"][0], 3 * candidates[0, 7])
    assert torch.equal(out["best_cost"], costs[:, 7])
    assert torch.equal(out["elites"][0, 0], candidates[0, 7])
    assert out["samples"] == 12
    spoilt = call(
        Refit(PLANNER), **kept, candidates=candidates, actions=candidates, costs=torch.full((1, 12), torch.nan)
    )
    assert spoilt["best_cost"].tolist() == [torch.inf]


def test_an_answer_is_one_candidate_inside_the_limits() -> None:
    mean = torch.full((2, 3, 2), 2.0)
    kept = {"mean": mean, "std": mean, "elites": mean[:, None]}
    out = call(Answer(PLANNER, SPACE), **kept, last_action=torch.tensor([[0.5, 0.0], [1.0, 1.0]]))
    assert out["count"] == 1
    assert out["candidates"].shape == out["actions"].shape == (2, 1, 3, 2)
    assert (out["actions"][0, 0, :, 0] - torch.tensor([0.7, 0.9, 1.0])).abs().max() < 1e-3
    assert (out["actions"][1] == 1.0).all()
    whole = call(Conclude(), actions=out["actions"], costs=torch.tensor([[3.0], [4.0]]))
    assert torch.equal(whole["plan"], out["actions"][:, 0])
    assert whole["cost"].tolist() == [3.0, 4.0]


def test_a_grid_is_held_without_a_copy() -> None:
    grid = torch.tensor([[[0.25, 1.0], [-0.5, 0.0]]])
    out = call(Hold(SPACE), grid=grid, repeat=3)
    assert out["actions"].shape == (1, 2, 3, 2)
    assert out["actions"].data_ptr() == grid.data_ptr()
    torch.testing.assert_close(out["candidates"][0, :, 2], torch.tensor([[0.0, 1.0], [-1.0, 0.0]]))


def test_energies_are_of_one_frame() -> None:
    embedded, goal = torch.rand(2, 5, 2), torch.rand(2, 1, 2)
    objective = make_objective(ObjectiveConfig(distance="l1", mean=0.0, final=1.0))
    out = call(Energy(objective), embedded=embedded, goal=goal, candidates=torch.zeros(2, 5, 3, 2))
    torch.testing.assert_close(out["costs"], (embedded - goal).abs().mean(-1))


def test_every_component_says_its_ports() -> None:
    objective = make_objective(ObjectiveConfig())
    components = plan_components(ToyWorld(), PLANNER, objective, objective)
    names = {
        "encode", "embed", "begin", "predict", "init", "propose", "cut_tiles", "score", "refit", "hold", "energy",
    }  # fmt: skip
    assert set(components) == names
    assert all(component.inputs and component.outputs for component in components.values())
    published = plan_components(ToyWorld(), VJEPA2CEM(VJEPA2CEMConfig()), objective, objective)
    assert set(published) == names | {"answer", "conclude"}
    assert "best_actions" not in published["refit"].outputs
