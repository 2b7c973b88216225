"""The five steps that a walk is made of: Node, Sequential, Parallel, Loop and Branch. Frozen; names are the wires."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from mstar_plan.errors import WalkError
from mstar_plan.walks.stream import Stream

Names = tuple[str, ...] | Mapping[str, str]
Pairs = tuple[tuple[str, str], ...]


def _pairs(names: Names) -> Pairs:
    if isinstance(names, str):
        raise WalkError(f"{names!r} is one string where a tuple of names is needed; write ({names!r},)")
    return tuple(names.items()) if isinstance(names, Mapping) else tuple((name, name) for name in names)


def need_steps(where: str, steps: Iterable[Step]) -> tuple[Step, ...]:
    """Returns the steps as a tuple.

    Raises:
        WalkError: They are one step, or something among them is no step.
    """
    if not isinstance(steps, Iterable):
        raise WalkError(f"{where} needs a tuple of steps, but got {steps!r}; one step alone is written (step,)")
    made = tuple(steps)
    for step in made:
        if not isinstance(step, Step):
            raise WalkError(
                f"{where} holds a {type(step).__name__}, which is no step; use Node, Sequential, Parallel, Loop or "
                "Branch (a walk goes inside another through Walk.inline)"
            )
    return made


def _need_axis(what: str, dim: int) -> None:
    if isinstance(dim, bool) or not isinstance(dim, int) or dim < 1:
        raise WalkError(f"{what}.dim is {dim!r}; it needs a whole number >= 1, since axis 0 is the batch", field="dim")


@dataclass(frozen=True, eq=False)
class Node:
    """One call of one component.

    Attributes:
        name: Unique in its walk.
        reads: Wires that it reads; a mapping {port: wire} where the component's own port has another name.
        writes: Wires that it writes; likewise.
        component: Name of the component in the graph; the node's own name if empty.
    """

    name: str
    reads: Names
    writes: Names
    component: str = ""
    inputs: Pairs = field(init=False, repr=False)
    outputs: Pairs = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", _pairs(self.reads))
        object.__setattr__(self, "outputs", _pairs(self.writes))
        object.__setattr__(self, "component", self.component or self.name)
        if not self.name:
            raise WalkError(f"a node that writes {[wire for _, wire in self.outputs]} has no name; give it one")
        written = [wire for _, wire in self.outputs]
        if len(set(written)) != len(written):
            raise WalkError(f"node {self.name!r} writes a wire twice: {written}; give each output its own wire")


@dataclass(frozen=True, eq=False)
class Sequential:
    """Steps one after the other; none at all does nothing."""

    steps: tuple[Step, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", need_steps("Sequential", self.steps))


@dataclass(frozen=True, eq=False)
class Parallel:
    """Branches that may run side by side. A Stream is the one wire between branches that are running."""

    branches: tuple[Step, ...]
    streams: tuple[Stream, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "branches", need_steps("Parallel", self.branches))
        object.__setattr__(self, "streams", tuple(self.streams))


@dataclass(frozen=True)
class Collect:
    """How a Loop keeps a value of every iteration: stacked along a new axis `dim`, or (`concat`) joined along it.

    Statics are kept in a tuple.
    """

    into: str
    dim: int = 1
    concat: bool = False

    def __post_init__(self) -> None:
        _need_axis("Collect", self.dim)


@dataclass(frozen=True)
class Scan:
    """One slice an iteration: iteration i sees `into` = value.select(dim, i), a view of the value before the loop."""

    into: str
    dim: int = 1

    def __post_init__(self) -> None:
        _need_axis("Scan", self.dim)


@dataclass(frozen=True)
class Best:
    """What an iteration must be best at, and what is kept of it.

    Attributes:
        by: Wire [B] written by the body; smaller is better, NaN is never better.
        keep: {wire of the body: wire after the loop}, taken row by row from the best iteration.
    """

    by: str
    keep: Mapping[str, str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "keep", dict(self.keep))


@dataclass(frozen=True, eq=False)
class Loop:
    """Repeats its body.

    Attributes:
        body: The step to repeat.
        times: How often at most: a number, or the name of a value that gives it. None where `stream` gives it.
        carry: Wires that the body reads and rewrites. A mapping {wire: first} starts a wire from another's value.
        collect: {wire of the body: wire after the loop} for values of every iteration.
        scan: {wire before the loop: wire of the body} for one slice an iteration.
        index: Wire that holds the iteration number, int64 [B].
        until: Wire written by the body, bool [B] or a bool; the loop ends when all of it is true.
        best: Best-so-far over the iterations.
        stream: Stream wire that the loop consumes: one iteration a chunk.
        anytime: The loop may be ended between iterations by the request's soft time budget.
        limit: Largest count that a request may ask for; over it is an error, never clamped.
        name: What reports call it.
    """

    body: Step
    times: int | str | None = None
    carry: Names = ()
    collect: Mapping[str, str | Collect] = field(default_factory=dict)
    scan: Mapping[str, str | Scan] = field(default_factory=dict)
    index: str | None = None
    until: str | None = None
    best: Best | None = None
    stream: str | None = None
    anytime: bool = False
    limit: int | None = None
    name: str = "loop"
    carries: Pairs = field(init=False, repr=False)
    collects: tuple[tuple[str, Collect], ...] = field(init=False, repr=False)
    scans: tuple[tuple[str, Scan], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        collects = ((k, v if isinstance(v, Collect) else Collect(v)) for k, v in self.collect.items())
        scans = ((k, v if isinstance(v, Scan) else Scan(v)) for k, v in self.scan.items())
        need_steps(f"loop {self.name!r}", (self.body,))
        object.__setattr__(self, "carries", _pairs(self.carry))
        object.__setattr__(self, "collects", tuple(collects))
        object.__setattr__(self, "scans", tuple(scans))


@dataclass(frozen=True, eq=False)
class Branch:
    """The one data-dependent choice: runs the case that a value names.

    Attributes:
        on: Wire of a string, an integer or a bool; tensors must hold the same value in all B rows.
        cases: {value as text: step}; bools are "true" and "false". Only what every case writes is known afterwards.
    """

    on: str
    cases: Mapping[str, Step]

    def __post_init__(self) -> None:
        object.__setattr__(self, "cases", dict(self.cases))
        need_steps(f"branch on {self.on!r}", self.cases.values())


Step = Node | Sequential | Parallel | Loop | Branch


def children(step: Step) -> tuple[Step, ...]:
    """The steps directly inside a step."""
    match step:
        case Node():
            return ()
        case Sequential(steps):
            return steps
        case Parallel(branches):
            return branches
        case Loop():
            return (step.body,)
        case Branch(_, cases):
            return tuple(cases.values())


def every_step(step: Step) -> Iterator[Step]:
    """The step and all steps inside it, outermost first, in order of writing."""
    yield step
    for child in children(step):
        yield from every_step(child)


def nodes_of(step: Step) -> list[Node]:
    """All nodes inside a step, in order of writing."""
    return [s for s in every_step(step) if isinstance(s, Node)]


def reads_of(step: Step) -> set[str]:
    """All wires that a step reads, those that it writes itself included; a carry in place alone is no read."""
    names: set[str] = set()
    for s in every_step(step):
        match s:
            case Node():
                names |= {wire for _, wire in s.inputs}
            case Branch():
                names.add(s.on)
            case Loop():
                names |= {first for name, first in s.carries if name != first}
                names |= {n for n, _ in s.collects} | {n for n, _ in s.scans}
                names |= {s.times} if isinstance(s.times, str) else set()
                names |= {s.until} if s.until else set()
                names |= {s.best.by, *s.best.keep} if s.best else set()
            case Parallel():
                names |= {stream.value for stream in s.streams}
            case Sequential():
                pass
    return names


def writes_of(step: Step) -> set[str]:
    """All wires that nodes and loops inside a step write."""
    names: set[str] = set()
    for s in every_step(step):
        if isinstance(s, Node):
            names |= {wire for _, wire in s.outputs}
        elif isinstance(s, Loop):
            names |= {name for name, _ in s.carries} | {c.into for _, c in s.collects}
            names |= set(s.best.keep.values()) if s.best else set()
    return names
