"""Drawings: the tree says what happens, and the chart is one that Mermaid can read."""

from __future__ import annotations

import re

import pytest
from toys import FAMILIES

from mstar_plan.walks.draw import draw_mermaid, draw_text
from mstar_plan.walks.step import Best, Branch, Loop, Node, Parallel, Sequential
from mstar_plan.walks.stream import FixedChunks, Stream
from mstar_plan.walks.walk import Walk


def talk() -> Walk:
    decode = Node("decode", {"last": "token"}, ("token", "done"), "model.step")
    writing = Loop(decode, "most", carry={"token": "prompt"}, until="done", collect={"token": "text"}, name="writing")
    case = {"yes": Node("codec", ("chunk",), ("audio",)), "no": Node("mute", ("chunk",), ("audio",))}
    speaking = Loop(Branch("aloud", case), stream="chunk", collect={"audio": "speech"}, name="speaking")
    step = Parallel((writing, speaking), (Stream("token", "chunk", FixedChunks(2)),))
    return Walk("talk", step, ("prompt", "most", "aloud"), ("text", "speech"))


def search() -> Walk:
    body = Node("try", ("attempt", "x"), ("x", "cost"))
    loop = Loop(
        body,
        5,
        carry=("x",),
        scan={"attempts": "attempt"},
        best=Best("cost", {"x": "plan"}),
        anytime=True,
        name="search",
    )
    return Walk("search", Sequential((loop,)), ("x", "attempts"), ("plan",))


def test_text() -> None:
    assert (
        draw_text(talk())
        == """\
talk(prompt, most, aloud) -> text, speech
  parallel, stream token -> chunk in FixedChunks(size=2)
  | branch 1
      loop writing x most; until done; carry token=prompt; collect token in text
        decode [model.step](last=token) -> token, done
  | branch 2
      loop speaking for each chunk; collect audio in speech
        branch on aloud
        | yes
            codec(chunk) -> audio
        | no
            mute(chunk) -> audio"""
    )
    assert (
        draw_text(search())
        == """\
search(x, attempts) -> plan
  loop search x 5; or out of time; carry x; each attempt of attempts; keep the best plan by cost
    try(attempt, x) -> x, cost"""
    )


def test_mermaid() -> None:
    assert (
        draw_mermaid(talk())
        == """\
flowchart LR
  request([request])
  reply([reply])
  subgraph s1["parallel"]
    subgraph s2["writing x most, until done"]
      n_decode["decode"]
    end
    subgraph s3["speaking: each chunk"]
      subgraph s4["branch on aloud"]
        n_codec["codec"]
        n_mute["mute"]
      end
    end
  end
  request -- "token" --> n_decode
  n_decode -- "token" --> n_decode
  n_decode -- "chunk" --> n_codec
  n_decode -- "chunk" --> n_mute
  n_decode -- "text" --> reply
  n_codec -- "speech" --> reply
  n_mute -- "speech" --> reply
  request -. "most" .-> s2
  request -. "aloud" .-> s4"""
    )


def test_a_box_is_steered_from_outside_alone() -> None:
    """Mermaid refuses an arrow from a node to a box that it is in."""
    loop = Loop(Sequential((Node("less", ("n",), ("n",)), Node("f", ("x",), ("y",)))), "n", carry=("n",))
    chart = draw_mermaid(Walk("w", Sequential((Node("count", ("x",), ("n",)), loop)), ("x",), ("y",)))
    assert re.findall(r"(\w+) -\. ", chart) == ["n_count"]


def test_names_that_mermaid_cannot_read_get_ids_of_their_own() -> None:
    names = ("a.b", "a_b", 'say "hi"', "end", "größe", "a-b")
    nodes = [Node(name, (f"v{i}",), (f"v{i + 1}",)) for i, name in enumerate(names)]
    chart = draw_mermaid(Walk("w", Sequential(tuple(nodes)), ("v0",), (f"v{len(names)}",)))
    ids = re.findall(r"^  (n_\w+)\[\"", chart, re.M)
    assert len(set(ids)) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9_]+", name) for name in ids)
    assert '["say #quot;hi#quot;"]' in chart
    arrows = re.findall(r"^  (\w+) -- \"v\d\" --> (\w+)$", chart, re.M)
    assert arrows == list(zip(["request", *ids], [*ids, "reply"], strict=True))


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_is_drawn_whole(name: str) -> None:
    walk = FAMILIES[name]().walk
    text, chart = draw_text(walk), draw_mermaid(walk)
    for node in walk.nodes:
        assert re.search(rf"^ +{node.name}( \[\w+\])?\(", text, re.M)
        assert f'["{node.name}"]' in chart
    assert chart.count("subgraph") == len(re.findall(r"^ *end$", chart, re.M))
    known = set(re.findall(r"(\w+)[\[(]", chart))
    for source, target in re.findall(r"(\w+) (?:--|-\.) .* (?:-->|\.->) (\w+)", chart):
        assert {source, target} <= known
