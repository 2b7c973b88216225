"""One core serves them all: toy models of six families give their known answers, in any order and in any company."""

from __future__ import annotations

import random

import pytest
import torch
from toy_cache import Cache
from toy_family import Family
from toys import FAMILIES
from walk_driver import run, run_together, same

from mstar_plan.walks.loop_run import LoopEnd, LoopStop


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> Family:
    return FAMILIES[request.param]()


def test_it_gives_the_known_answer(family: Family) -> None:
    for values in family.requests:
        family.check(values, run(family.graph, family.walk, values).outputs)


def test_alone_is_as_in_a_batch(family: Family) -> None:
    alone = [run(family.graph, family.walk, values).outputs for values in family.requests]
    for seed in range(4):
        together = run_together(family.graph, family.walk, family.requests, random.Random(seed))
        for one, other in zip(alone, together, strict=True):
            assert same(one, other)


def test_any_order_of_the_ready_nodes_gives_the_same(family: Family) -> None:
    values = family.requests[0]
    first = run(family.graph, family.walk, values)
    for seed in range(4):
        again = run(family.graph, family.walk, values, choose=random.Random(seed).choice)
        assert same(first.outputs, again.outputs)
        assert again.state.loop_ends == first.state.loop_ends
        assert sorted(again.trace) == sorted(first.trace)


def test_the_flow_prefills_once_and_leaves_the_prefix_as_it_was() -> None:
    flow = FAMILIES["flow"]()
    values = flow.requests[0]
    done = run(flow.graph, flow.walk, values)
    assert done.trace == ["prefill", *["denoise", "euler"] * 10]
    assert torch.equal(done.state.values["prefix"].dense(), values["patches"])


def test_speech_begins_before_the_text_ends() -> None:
    toy = FAMILIES["decode_fixed"]()
    eager = lambda ready: min(ready, key=lambda node: node.name != "codec")  # noqa: E731
    trace = run(toy.graph, toy.walk, toy.requests[0], choose=eager).trace
    assert trace.index("codec") < len(trace) - 1 - trace[::-1].index("decode")


@pytest.mark.parametrize(("prompt", "most", "end"), [(7, 20, LoopStop.UNTIL), (7, 2, LoopStop.COUNT)])
def test_decoding_says_why_it_ended(prompt: int, most: int, end: LoopStop) -> None:
    toy = FAMILIES["decode_left_context"]()
    ends = run(toy.graph, toy.walk, {"prompt": torch.tensor([[prompt]]), "max_tokens": most}).state.loop_ends
    assert ends["writing"].stop is end
    assert ends["sounding"].stop is LoopStop.STREAM
    tokens = 1 + ends["writing"].iterations  # the prompt's last token sounds as well
    assert ends["sounding"].iterations == -(-tokens // 3)


def test_guidance_forks_share_what_they_have_in_common() -> None:
    toy = FAMILIES["guidance"]()
    values = run(toy.graph, toy.walk, toy.requests[0]).state.values
    prefix, some, full = (values[name].rows[0] for name in ("prefix", "with_image", "full"))
    assert prefix.pages[0] is some.pages[0] is full.pages[0]
    assert [row.length for row in (prefix, some, full)] == [3, 4, 5]
    assert len(full.pages) == 2
    other = Cache([prefix]).append(torch.ones(1, 2, dtype=torch.float64)).rows[0]
    assert other.pages[0] is not prefix.pages[0], "a second fork that writes into a shared page must copy it"
    assert torch.equal(other.dense()[:3], prefix.dense())
    assert torch.equal(some.dense()[3], toy.requests[0]["image"][0])


def test_a_repaired_answer_is_the_best_so_far_not_the_last() -> None:
    toy = FAMILIES["repair"]()
    ends = [run(toy.graph, toy.walk, values).state.loop_ends["trying"] for values in toy.requests]
    assert ends[0] == LoopEnd(LoopStop.COUNT, 4)
    assert ends[1] == LoopEnd(LoopStop.UNTIL, 3)


def test_a_plan_out_of_time_is_its_best_so_far() -> None:
    toy = FAMILIES["plan"]()
    values = toy.requests[0]
    clock = iter(range(1000))
    done = run(toy.graph, toy.walk, values, clock=lambda: float(next(clock)), soft_deadline=9.0)
    assert done.state.loop_ends["search"].stop is LoopStop.BUDGET
    iterations = done.state.loop_ends["search"].iterations
    assert 1 <= iterations < values["iterations"]
    whole = run(toy.graph, toy.walk, values).outputs
    assert torch.equal(done.outputs["history"], whole["history"][:, :iterations])
    assert torch.equal(done.outputs["plan_cost"], whole["history"][:, :iterations].amin(1))
