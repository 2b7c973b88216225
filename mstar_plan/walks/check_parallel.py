"""Checks what runs side by side: streams have one producer and one consumer and no cycle, and nothing races."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from mstar_plan.errors import WalkError
from mstar_plan.walks.step import Loop, Parallel, Step, every_step, nodes_of, reads_of, writes_of
from mstar_plan.walks.stream import Stream


def streams_into(parallel: Parallel, branch: Step) -> list[Stream]:
    """The streams of a Parallel that a loop of this branch consumes."""
    loops = {s.stream for s in every_step(branch) if isinstance(s, Loop) and s.stream}
    return [s for s in parallel.streams if s.into in loops]


def streams_of(parallel: Parallel, branch: Step) -> list[Stream]:
    """The streams of a Parallel that a node of this branch produces."""
    written = {wire for node in nodes_of(branch) for _, wire in node.outputs}
    return [s for s in parallel.streams if s.value in written]


def check_streams(parallel: Parallel, taken: Collection[str], outer: Sequence[Stream]) -> None:
    """Raises WalkError where a stream has not just one producing branch and one consuming loop, or would hide a wire.

    Args:
        parallel: What to check.
        taken: Wires that are written where it stands.
        outer: Streams of other Parallels that are open there.
    """
    waits: dict[int, set[int]] = {i: set() for i in range(len(parallel.branches))}
    names = [s.into for s in (*outer, *parallel.streams)]
    for stream in parallel.streams:
        if names.count(stream.into) > 1:
            raise WalkError(
                f"two streams go into {stream.into!r}; give each a name and a consuming loop of its own",
                field=stream.into,
            )
        if stream.into in taken:
            raise WalkError(f"stream into {stream.into!r} hides a value of that name; use another", field=stream.into)
        producer, consumer = _ends(parallel, stream)
        waits[consumer].add(producer)
    _check_acyclic(parallel, waits)


def _ends(parallel: Parallel, stream: Stream) -> tuple[int, int]:
    """Numbers of the branches that produce and that consume a stream."""
    made = [i for i, branch in enumerate(parallel.branches) if stream in streams_of(parallel, branch)]
    used = [i for i, branch in enumerate(parallel.branches) if stream in streams_into(parallel, branch)]
    loops = [s for b in parallel.branches for s in every_step(b) if isinstance(s, Loop) and s.stream == stream.into]
    if len(made) != 1:
        raise WalkError(
            f"stream of {stream.value!r} has {len(made)} producing branches; a node of exactly one must write it",
            field=stream.value,
        )
    if len(loops) != 1:
        raise WalkError(
            f"stream into {stream.into!r} has {len(loops)} consuming loops; one Loop needs stream={stream.into!r}",
            field=stream.into,
        )
    if made == used:
        raise WalkError(
            f"stream of {stream.value!r} stays in one branch; producer and consumer must be two", field=stream.value
        )
    return made[0], used[0]


def _check_acyclic(parallel: Parallel, waits: dict[int, set[int]]) -> None:
    left = dict(waits)
    while left:
        free = [i for i, on in left.items() if not on & left.keys()]
        if not free:
            names = ", ".join(f"{s.value!r} -> {s.into!r}" for s in parallel.streams)
            raise WalkError(f"streams form a cycle ({names}): each branch would wait for the other; cut one of them")
        for i in free:
            del left[i]


def check_races(parallel: Parallel, known: Collection[str]) -> None:
    """Raises WalkError where a branch reads what its neighbour writes: the result would depend on who is first."""
    reads = [reads_of(b) - (writes_of(b) - set(known)) for b in parallel.branches]
    writes = [writes_of(b) for b in parallel.branches]
    for i, read in enumerate(reads):
        for j, write in enumerate(writes):
            crossing = sorted(read & write) if i != j else []
            if not crossing:
                continue
            back = sorted(reads[j] & writes[i])
            if back:
                raise WalkError(
                    f"parallel branches form a cycle: one reads {crossing[0]!r}, the other {back[0]!r}, each writing "
                    "the other's; put them in one Sequential",
                    field=crossing[0],
                )
            raise WalkError(
                f"a parallel branch reads {crossing[0]!r}, which its neighbour writes; use a Stream, or a Sequential",
                field=crossing[0],
            )
