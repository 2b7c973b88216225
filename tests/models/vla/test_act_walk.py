"""The walk `act`: the same as its loop written by hand, alone and beside others; what comes out; what is refused."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from vla_worlds import observed, tiny_pi
from walk_driver import run, run_together

from mstar_plan.errors import ComponentError, ConfigError, InvalidInputError, LimitExceededError
from mstar_plan.models.vla.act_walk import MOST_STEPS, Finish, FlowPolicy, act_graph, sample_chunk
from mstar_plan.models.vla.pi import PiPolicy
from mstar_plan.models.vla.rtc import ChunkingConfig, ChunkPrior, make_prior
from mstar_plan.runtime.runtime import Runtime
from mstar_plan.walks.batch import Batch
from mstar_plan.walks.draw import draw_text
from mstar_plan.walks.graph import Graph

KINDS = ("pi0", "pi05")


def graph_of(policy: FlowPolicy, most: float = 1e6, width: int = 6) -> Graph:
    return act_graph("tiny", policy, Finish(lambda x: x, torch.full((width,), -most), torch.full((width,), most)))


def request(policy: PiPolicy, seed: int, *, steps: int = 4, prior: ChunkPrior | None = None, **sizes: int) -> dict:
    seen = observed(policy, seed=seed, **sizes)
    rows = len(seen["tokens"])
    noise = torch.randn(rows, policy.chunk, policy.action_width, generator=torch.Generator().manual_seed(seed))
    return {**seen, "noise": noise, "steps": steps, "prior": prior or ChunkPrior(rows)}


def by_hand(policy: PiPolicy, values: dict) -> torch.Tensor:
    with torch.inference_mode():
        return sample_chunk(policy, policy.see(values), values["noise"], values["steps"], values["prior"])


def mixed_requests(policy: PiPolicy) -> list[dict]:
    """Different numbers of rows, cameras, tokens and steps; two that go on from an old chunk."""
    old = torch.randn(1, 3, policy.action_width, generator=torch.Generator().manual_seed(5))
    guided = make_prior(ChunkingConfig(schedule="exp", max_weight=5.0, horizon=3), policy.chunk, old, 1)
    requests = [
        request(policy, 0),
        request(policy, 1, tokens=3),
        request(policy, 2, prior=guided),
        request(policy, 3, steps=6),
        request(policy, 4, rows=2),
        request(policy, 5, cameras=1),
    ]
    if policy.config.kind == "pi05":
        clean = make_prior(ChunkingConfig("trained", max_delay=3), policy.chunk, old, 2)
        requests.append(request(policy, 6, prior=clean))
    return requests


class Counting:
    """A component that notes how many rows its calls had."""

    def __init__(self, component: Any) -> None:
        self.component, self.sizes = component, []
        self.inputs, self.outputs = component.inputs, component.outputs

    def __call__(self, batch: Batch) -> Any:
        self.sizes.append(batch.size)
        return self.component(batch)


@pytest.mark.parametrize("kind", KINDS)
def test_equals_the_loop_written_by_hand(kind: str) -> None:
    policy = tiny_pi(kind)
    graph = graph_of(policy)
    with Runtime(graph) as runtime:
        for values in mixed_requests(policy):
            wanted = by_hand(policy, values)
            with torch.inference_mode():
                assert torch.equal(run(graph, "act", values).outputs["actions"], wanted)
            result = runtime.submit("act", values).result()
            assert torch.equal(result.outputs["actions"], wanted)
            assert result.loop_ends["flow"].iterations == values["steps"]
            assert result.outputs["clipped"].tolist() == [0] * len(wanted)


@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_requests_join_whatever_their_prefix_step_and_prior(kind: str) -> None:
    policy = tiny_pi(kind)
    requests = mixed_requests(policy)
    wanted = [by_hand(policy, values) for values in requests]
    graph = graph_of(policy)
    for seed in range(3):
        found = run_together(graph, "act", requests, random.Random(seed))
        for ours, expected in zip(found, wanted, strict=True):
            torch.testing.assert_close(ours["actions"], expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_a_runtime_does_join_them(kind: str) -> None:
    policy = tiny_pi(kind)
    graph = graph_of(policy)
    denoise = Counting(graph.components["denoise"])
    graph = Graph("tiny", {**graph.components, "denoise": denoise}, graph.walks)
    requests = [request(policy, seed, tokens=3 + seed % 3) for seed in range(8)]
    wanted = [by_hand(policy, values) for values in requests]
    with Runtime(graph) as runtime:
        found = [future.result().outputs["actions"] for future in [runtime.submit("act", each) for each in requests]]
    assert sum(denoise.sizes) == 8 * 4
    assert len(denoise.sizes) < 8 * 4 / 2
    for ours, expected in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-4)


def test_a_bad_request_spoils_no_other() -> None:
    policy = tiny_pi("pi0")
    good, bad = request(policy, 0), request(policy, 1)
    bad["noise"] = bad["noise"] * torch.nan
    with Runtime(graph_of(policy)) as runtime:
        futures = [runtime.submit("act", each) for each in (good, bad, good)]
        assert torch.isfinite(futures[0].result().outputs["actions"]).all()
        with pytest.raises(ComponentError, match="NaN or infinite"):
            futures[1].result()
        assert torch.isfinite(futures[2].result().outputs["actions"]).all()


def test_actions_are_scaled_then_limited_and_counted() -> None:
    finish = Finish(lambda x: 10 * x, torch.tensor([-5.0, 0.0]), torch.tensor([5.0, 20.0]))
    x = torch.tensor([[[0.1, 1.0, 9.0], [-0.9, 3.0, 9.0]], [[0.0, 0.5, 9.0], [0.5, 2.0, 9.0]]])
    given = finish(Batch({"x": x}, 2))
    assert given["actions"].tolist() == [[[1.0, 10.0], [-5.0, 20.0]], [[0.0, 5.0], [5.0, 20.0]]]
    assert given["clipped"].tolist() == [2, 0]


@pytest.mark.parametrize(
    ("steps", "error"),
    [(MOST_STEPS + 1, LimitExceededError), (0, ConfigError), (True, ConfigError), (2.5, ConfigError)],
)
def test_steps_out_of_range_are_refused(steps: Any, error: type[Exception]) -> None:
    policy = tiny_pi("pi0")
    with Runtime(graph_of(policy)) as runtime, pytest.raises(error, match=str(steps)):
        runtime.submit("act", request(policy, 0, steps=steps)).result()


def test_the_walk_asks_for_what_its_policy_observes() -> None:
    pi0, pi05 = (graph_of(tiny_pi(kind)).walks["act"] for kind in KINDS)
    assert set(pi0.inputs) - set(pi05.inputs) == {"state"}
    assert "loop flow x steps" in draw_text(pi0)
    values = request(tiny_pi("pi0"), 0)
    del values["state"]
    with Runtime(graph_of(tiny_pi("pi0"))) as runtime, pytest.raises(InvalidInputError, match="'state'"):
        runtime.submit("act", values)
