"""Executors: who owns the workers. LocalExecutor has one thread for each placement group, in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import torch

from mstar_plan.errors import ConfigError, UnavailableError
from mstar_plan.runtime.flight import Arrival, Route
from mstar_plan.runtime.placement import Placement
from mstar_plan.runtime.request import Job, Request
from mstar_plan.runtime.scheduler import SchedulerConfig
from mstar_plan.runtime.worker import Worker
from mstar_plan.walks.graph import Graph

OnValue = Callable[[str, Any], None]


@runtime_checkable
class Movable(Protocol):
    """A component that can be put on a device in place, as `torch.nn.Module` can."""

    def to(self, device: torch.device) -> Any:
        """Moves its weights."""
        ...


class Executor(Protocol):
    """Runs jobs on the groups of a placement."""

    def start(self, graphs: Mapping[str, Graph], placement: Placement) -> None:
        """Makes everything ready; called once, before any job.

        Raises:
            UnavailableError: A device that the placement names is not there.
        """
        ...

    def submit(self, job: Job, request: Request, on_value: OnValue | None = None) -> None:
        """Takes a job, and ends its request in time: with a result or with one of our errors.

        Args:
            job: What to run; its graph, walk and inputs have been checked.
            request: What to end. Once it is done (the caller cancelled, say), the job is forgotten.
            on_value: Called with (wire, value) for each value of the wires in `job.emit`, from any thread.
        """
        ...

    def close(self) -> None:
        """Ends all workers; what still runs ends with UnavailableError. Calling it again does nothing."""
        ...


class LocalExecutor:
    """One worker thread for each group.

    Args:
        config: How waiting calls are chosen.
    """

    def __init__(self, config: SchedulerConfig | None = None) -> None:
        self._config = config or SchedulerConfig()
        self._workers: dict[str, Worker] = {}
        self._routes: dict[tuple[str, str], tuple[Route, Worker, list[Worker]]] = {}

    def start(self, graphs: Mapping[str, Graph], placement: Placement) -> None:
        """See `Executor`."""
        for name, group in placement.groups.items():
            device = group.torch_device
            _check_device(name, device)
            self._workers[name] = Worker(name, self._config, device=device, threads=group.threads)
        for graph_name, graph in graphs.items():
            for walk_name, walk in graph.walks.items():
                owners = {n.name: self._workers[placement.group(graph_name, walk_name, n.name)] for n in walk.nodes}
                components = {n.name: graph.components[n.component] for n in walk.nodes}
                everyone = list(dict.fromkeys(owners.values()))
                first = everyone[0] if everyone else next(iter(self._workers.values()))
                self._routes[graph_name, walk_name] = (Route.of(walk, components, owners), first, everyone)
        _move_components(graphs, placement)
        for worker in self._workers.values():
            worker.start()

    def submit(self, job: Job, request: Request, on_value: OnValue | None = None) -> None:
        """See `Executor`."""
        route, first, everyone = self._routes[job.graph, job.walk]

        def forget() -> None:
            for worker in everyone:
                worker.drop(request)

        request.on_cancel(forget)
        arrival = Arrival(job, request, route, _only(job.emit, on_value) if on_value is not None else None)
        if not (job.here and first.lend(arrival)):
            first.send(arrival)

    def close(self) -> None:
        """See `Executor`."""
        for worker in self._workers.values():
            worker.stop()


def _only(wires: frozenset[str], on_value: OnValue) -> OnValue:
    def write(wire: str, value: Any) -> None:
        if wire in wires:
            on_value(wire, value)

    return write


def _move_components(graphs: Mapping[str, Graph], placement: Placement) -> None:
    """Puts every component that can move on the device of the group that runs it."""
    homes: dict[int, tuple[str, torch.device]] = {}
    for (graph, walk, node), group in placement.table.items():
        device = placement.groups[group].torch_device
        name = next(n.component for n in graphs[graph].walks[walk].nodes if n.name == node)
        component = graphs[graph].components[name]
        if device is None or not isinstance(component, Movable):
            continue
        home, on = homes.setdefault(id(component), (group, device))
        if on != device:
            raise ConfigError(
                f"component {name!r} would have to be on {on} for group {home!r} and on {device} for group {group!r}; "
                "place its nodes on one device, or make a copy of it",
                field="nodes",
            )
        component.to(device)


def _check_device(group: str, device: torch.device | None) -> None:
    if device is None:
        return
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise UnavailableError(
            f"group {group!r} wants device {str(device)!r}, which this machine does not offer: "
            f"{str(error).splitlines()[0]}"
        ) from error
