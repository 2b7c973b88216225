"""Random walks of a few pure components, requests to them, and random damage to them, for hypothesis.

All components reckon in whole numbers modulo a prime, row by row, so that their answers cannot depend on rounding, and
take whatever they are given. A value `x` is int64 [B, 4] or anything else that `digest` understands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from mstar_plan.walks.batch import Batch
from mstar_plan.walks.step import Best, Branch, Collect, Loop, Node, Parallel, Scan, Sequential, Step, reads_of
from mstar_plan.walks.stream import FixedChunks, LeftContext, SlidingWindow, Stream
from mstar_plan.walks.walk import Walk

PRIME = 97
INPUTS = ("x0", "x1", "line", "dial", "count", "word")


def digest(value: Any, rows: int) -> Tensor:
    """Any value as int64 [B, 4]."""
    if not isinstance(value, Tensor):
        return torch.full((rows, 4), len(str(value)))
    flat = value.nan_to_num(5.0).long().reshape(rows, -1)
    place = torch.arange(1, flat.shape[1] + 1)
    columns = (flat.sum(1), (flat * place).sum(1), flat[:, :1].sum(1), torch.full((rows,), flat.shape[1]))
    return torch.stack(columns, 1) % PRIME


def answer(component: str, batch: Batch) -> Tensor:
    """What a component makes of all that it reads."""
    total = torch.zeros(batch.size, 4, dtype=torch.int64)
    for place, value in enumerate(batch.values.values()):
        total = (3 * total + (place + 1) * digest(value, batch.size)) % PRIME
    match component:
        case "stop":  # [B] bool, each row by itself
            return total[:, 0] % 3 == 0
        case "ask":  # [B] bool, the same in all rows of a request, if what it reads is
            return total[:, 2] % 2 == 0
        case "turn":  # [B]
            return (5 * total[:, 2] + 3) % 4
        case "score":  # [B] float, at times NaN
            cost = (total[:, 0] % 7).double()
            return torch.where(cost == 3, torch.nan, cost)
    return (total * torch.tensor([2, 3, 5, 7]) + 1) % PRIME


COMPONENTS = {
    name: lambda batch, name=name: {"out": answer(name, batch)} for name in ("mix", "stop", "ask", "turn", "score")
}


class _Builder:
    """Makes blocks: steps that read some of the wires given, and whose one result nobody has read yet."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw, self.count = draw, 0

    def wire(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"

    def maybe(self) -> bool:
        return self.draw(st.booleans())

    def some(self, wires: Sequence[str]) -> list[str]:
        return self.draw(st.lists(st.sampled_from(wires), min_size=1, max_size=2))

    def node(self, reads: Sequence[str], into: str = "", component: str = "mix") -> tuple[Node, str]:
        into = into or self.wire("y")
        ports = {f"p{i}": wire for i, wire in enumerate(dict.fromkeys(reads))}
        return Node(self.wire("node"), ports, {"out": into}, component), into

    def block(self, xs: list[str], dial: str, depth: int) -> tuple[Step, str]:
        kinds = [self.one, self.chain, self.loop, self.branch, self.parallel, self.stream]
        return self.draw(st.sampled_from(kinds if depth else kinds[:1]))(xs, dial, depth - 1)

    def one(self, xs: list[str], dial: str, depth: int) -> tuple[Step, str]:
        return self.node(self.some(xs))

    def chain(self, xs: list[str], dial: str, depth: int) -> tuple[Step, str]:
        steps, results = [], []
        for _ in range(self.draw(st.integers(1, 3))):
            step, result = self.block([*xs, *results], dial, depth)
            steps.append(step)
            results.append(result)
        last, result = self.node(results)
        return Sequential((*steps, last)), result

    def loop(self, xs: list[str], dial: str, depth: int) -> tuple[Step, str]:
        before: list[Step] = []
        carried = self.wire("c")
        results = [carried]
        carry, options = {carried: self.draw(st.sampled_from(xs))}, {}
        if self.maybe():  # carried in place
            before.append(self.node([carry[carried]], carried)[0])
            carry = {carried: carried}
        seen, after = [carried], []
        if self.maybe():
            options["index"] = self.wire("i")
            seen.append(options["index"])
        if self.maybe():
            options["scan"] = {"line": Scan(self.wire("part"), 1)}
            seen.append(options["scan"]["line"].into)
        if self.maybe():
            turned = self.wire("d")
            after.append(Node(self.wire("node"), {"in": dial if self.maybe() else turned}, {"out": turned}, "turn"))
            carry[turned], dial = dial, turned
            seen.append(turned)
        if self.maybe():
            options["until"] = self.wire("stop")
            after.append(self.node([carried], options["until"], "stop")[0])
        if self.maybe():
            cost, top = self.wire("cost"), self.wire("top")
            after.append(self.node([carried, *seen], cost, "score")[0])
            options["best"] = Best(cost, {carried: top})
            results.append(top)
        if self.maybe():
            options["collect"] = {carried: Collect(self.wire("all"), 1, self.maybe())}
            results.append(options["collect"][carried].into)
        inner, got = self.block([*xs, *seen], dial, depth)
        body = Sequential((inner, self.node([got, *seen], carried)[0], *after))
        times = self.draw(st.sampled_from([1, 2, 3, "count"]))
        loop = Loop(body, times, carry, anytime=self.maybe(), name=self.wire("loop"), **options)
        last, result = self.node(results)
        return Sequential((*before, loop, last)), result

    def branch(self, xs: list[str], dial: str, depth: int) -> tuple[Step, str]:
        result, before, on, names = self.wire("y"), (), "word", ("a", "b")
        if self.maybe():
            ask, on = self.node([dial], component="ask")
            before, names = (ask,), ("true", "false")
        cases = {}
        for name in names:
            step, got = self.block(xs, dial, depth)
            cases[name] = Sequential((step, self.node([got, *self.some(xs)], result)[0]))
        return Sequential((*before, Branch(on, cases))), result

    def parallel(self, xs: list[str], dial: str, depth: int) -> tuple[Step, str]:
        made = [self.block(xs, dial, depth) for _ in range(self.draw(st.integers(1, 3)))]
        last, result = self.node([got for _, got in made])
        return Sequential((Parallel(tuple(step for step, _ in made)), last)), result

    def stream(self, xs: list[str], dial: str, depth: int) -> tuple[Step, str]:
        value = self.wire("v")
        inner, got = self.block([*xs, value], dial, depth)
        body = Sequential((inner, self.node([got, value], value)[0]))
        branches: list[Step] = [Loop(body, self.draw(st.integers(1, 3)), {value: "x0"}, name=self.wire("loop"))]
        streams, results = [], [value]
        for _ in range(self.draw(st.integers(1, 2))):  # the second consumer listens to the first
            into, total = self.wire("vs"), self.wire("sum")
            streams.append(Stream(value, into, self.policy(), new=self.wire("new") if self.maybe() else None))
            inner, got = self.block([*xs, into, total], dial, depth)
            heard = [got, total, into, *([streams[-1].new] if streams[-1].new else [])]
            body = Sequential((inner, self.node(heard, total)[0]))
            if self.maybe():  # in rounds, each of which goes on where the last one stopped
                stop, until = self.node([total], component="stop")
                once = Loop(Sequential((body, stop)), stream=into, carry=(total,), until=until, name=self.wire("loop"))
                branches.append(Loop(once, 2, {total: self.draw(st.sampled_from(xs))}, name=self.wire("loop")))
            else:
                branches.append(Loop(body, stream=into, carry={total: "x0"}, name=self.wire("loop")))
            results.append(total)
            value = total
        last, result = self.node(results)
        return Sequential((Parallel(tuple(self.draw(st.permutations(branches))), tuple(streams)), last)), result

    def policy(self) -> Any:
        size, other = self.draw(st.integers(1, 3)), self.draw(st.integers(0, 2))
        window = SlidingWindow(size, max(1, size - other))
        return self.draw(st.sampled_from([FixedChunks(size), LeftContext(size, other), window]))


@st.composite
def walks(draw: st.DrawFn, depth: int = 3) -> Walk:
    """A walk that is put together rightly."""
    builder = _Builder(draw)
    make = draw(st.sampled_from([builder.chain, builder.loop, builder.branch, builder.parallel, builder.stream]))
    step, result = make(["x0", "x1"], "dial", depth - 1)
    read = reads_of(step)
    return Walk("random", step, tuple(name for name in INPUTS if name in read), (result,))


@st.composite
def values_for(draw: st.DrawFn, walk: Walk) -> dict[str, Any]:
    """A request of one to three rows."""
    rows = draw(st.integers(1, 3))
    numbers = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    made: dict[str, Any] = {
        "x0": torch.randint(PRIME, (rows, 4), generator=numbers),
        "x1": torch.randint(PRIME, (rows, 4), generator=numbers),
        "line": torch.randint(PRIME, (rows, 3, 4), generator=numbers),
        "dial": torch.full((rows,), draw(st.integers(0, 3))),
        "count": draw(st.integers(1, 3)),
        "word": draw(st.sampled_from("ab")),
    }
    return {name: made.get(name, made["x0"]) for name in walk.inputs}
