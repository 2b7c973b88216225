"""Pieces: a walk is cut exactly where it changes groups, and every crossing value is named."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from mstar_plan.runtime.pieces import Piece, cut_step
from mstar_plan.walks.step import Branch, Loop, Node, Parallel, Sequential
from mstar_plan.walks.stream import Stream
from mstar_plan.walks.walk import Walk


def test_one_group_is_one_piece(toys: SimpleNamespace) -> None:
    walk = toys.plan_graph().walks["plan"]
    [piece] = cut_step(walk, {n.name: "main" for n in walk.nodes})
    assert piece.nodes == ("see", "aim", "propose", "predict", "score", "refit")
    assert piece.receives == tuple(sorted(walk.inputs))
    assert piece.sends == tuple(sorted(walk.outputs))


def test_neighbours_in_a_sequence_grow_together(toys: SimpleNamespace) -> None:
    walk = toys.plan_graph().walks["plan"]
    groups = {n.name: "brain" for n in walk.nodes} | {"see": "eye", "aim": "eye"}
    eye, brain = cut_step(walk, groups)
    assert eye == Piece("eye", ("see", "aim"), ("g", "x"), ("goal", "z"))
    assert brain.nodes == ("propose", "predict", "score", "refit")
    assert brain.receives == ("goal", "horizon", "iterations", "mean", "seed", "z")


def test_a_loop_over_several_groups_is_cut_inside(toys: SimpleNamespace) -> None:
    walk = toys.plan_graph().walks["plan"]
    groups = {n.name: "cpu" for n in walk.nodes} | {"predict": "gpu"}
    pieces = cut_step(walk, groups)
    assert [(p.group, p.nodes) for p in pieces] == [
        ("cpu", ("see", "aim")),  # not one with `propose`: the loop comes back to that one alone
        ("cpu", ("propose",)),
        ("gpu", ("predict",)),
        ("cpu", ("score", "refit")),
    ]
    assert pieces[1].receives == ("i", "mean", "seed")
    assert pieces[1].sends == ("action",)
    assert pieces[2] == Piece("gpu", ("predict",), ("action", "horizon", "z"), ("now",))
    assert pieces[3] == Piece("cpu", ("score", "refit"), ("action", "goal", "mean", "now"), ("cost", "mean"))


def test_parallel_branches_of_two_groups_stay_apart(toys: SimpleNamespace) -> None:
    walk = toys.plan_graph().walks["plan"]
    groups = {n.name: "a" for n in walk.nodes} | {"aim": "b"}
    assert [p.nodes for p in cut_step(walk, groups)][:2] == [("see",), ("aim",)]


def test_a_stream_crosses_under_both_its_names() -> None:
    producer = Loop(Node("decode", ("t",), ("t", "token")), times=4, carry=("t",), name="thinker")
    consumer = Loop(Node("codec", ("chunk", "acc"), ("acc",)), stream="chunk", carry=("acc",))
    step = Parallel((producer, consumer), (Stream("token", "chunk"),))
    walk = Walk("talk", step, ("t", "acc"), ("t", "acc"))
    assert cut_step(walk, {"decode": "a", "codec": "b"}) == [
        Piece("a", ("decode",), ("t",), ("t", "token")),
        Piece("b", ("codec",), ("acc", "chunk"), ("acc",)),
    ]


def test_cases_of_two_groups_stay_apart() -> None:
    cases = {"yes": Node("fix", ("x",), ("y",)), "no": Node("keep", ("x",), ("y",))}
    step = Sequential((Node("judge", ("x",), ("bad",)), Branch("bad", cases)))
    walk = Walk("repair", step, ("x",), ("y",))
    assert cut_step(walk, {"judge": "a", "fix": "b", "keep": "a"}) == [
        Piece("a", ("judge",), ("x",), ("bad",)),
        Piece("b", ("fix",), ("x",), ("y",)),
        Piece("a", ("keep",), ("x",), ("y",)),
    ]


@given(homes=st.lists(st.sampled_from("ab"), min_size=1, max_size=8))
def test_a_chain_is_cut_at_every_change(homes: list[str]) -> None:
    nodes = [Node(f"n{i}", (f"v{i}",), (f"v{i + 1}",)) for i in range(len(homes))]
    walk = Walk("chain", Sequential(tuple(nodes)), ("v0",), (f"v{len(homes)}",))
    pieces = cut_step(walk, {n.name: home for n, home in zip(nodes, homes, strict=True)})
    changes = sum(a != b for a, b in itertools.pairwise(homes))
    assert len(pieces) == changes + 1
    assert [name for p in pieces for name in p.nodes] == [n.name for n in nodes]
    for before, after in itertools.pairwise(pieces):
        assert before.sends == after.receives
