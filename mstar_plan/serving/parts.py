"""Parts of a server: each is one service with the models behind it, which are tried out before they are ready."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from google.protobuf.descriptor import ServiceDescriptor

from mstar_plan.errors import ConfigError, MStarError
from mstar_plan.families.servable import Servable
from mstar_plan.rollout.episode import Episode
from mstar_plan.rollout.solver import PlanSolver
from mstar_plan.runtime.runtime import Runtime
from mstar_plan.serving.inference_service import InferenceService
from mstar_plan.serving.limits import ServerLimits
from mstar_plan.serving.planning_service import PlanningService
from mstar_plan.serving.proto.inference import inference_pb2
from mstar_plan.serving.proto.mstar.plan.v1 import planning_pb2
from mstar_plan.serving.served_models import ServedModels
from mstar_plan.serving.served_walks import ServedWalks
from mstar_plan.types import Goal, Observation

log = logging.getLogger(__name__)

PLANNING = planning_pb2.DESCRIPTOR.services_by_name["PlanningService"]
INFERENCE = inference_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
GREY = 127  # of the picture that models are warmed up with


class Served(Protocol):
    """Models by name, each ready or not."""

    def names(self) -> list[str]:
        """All names."""
        ...

    def problem(self, name: str) -> str | None:
        """Why a model is not ready; None if it is."""
        ...

    def mark(self, name: str, problem: str | None) -> None:
        """Says whether a model is ready (None) or why not."""
        ...


@dataclass(frozen=True, eq=False)
class Part:
    """One service.

    Attributes:
        service: Its description.
        methods: What answers its calls.
        served: The models behind it.
        try_out: Uses a model once, in at most so many seconds.
        calls: How many calls it has going on at one time, at most.
        drain: Tells it that the server is about to end.
    """

    service: ServiceDescriptor
    methods: object
    served: Served
    try_out: Callable[[str, float], None]
    calls: int
    drain: Callable[[], None] = lambda: None

    def ready(self, name: str) -> bool:
        """Whether a model is ready, or none of this part's."""
        return name not in self.served.names() or self.served.problem(name) is None


def make_parts(
    solvers: Mapping[str, PlanSolver],
    servables: Mapping[str, Servable],
    runtime: Runtime | None,
    limits: ServerLimits,
    *,
    reply_margin_s: float,
) -> tuple[Part, ...]:
    """The services of a server: planning, where there are solvers, and inference, where there are servables.

    Raises:
        ConfigError: There is no model, or one that the runtime does not have.
    """
    parts = []
    if solvers or not servables:
        parts.append(_planning(solvers, limits, reply_margin_s))
    if servables:
        if runtime is None:
            raise ConfigError(f"the server has the families {list(servables)}; give it their runtime", field="runtime")
        walks = ServedWalks(servables, runtime)
        service = InferenceService(walks, limits)
        calls = 2 * limits.max_concurrent_walks  # walks that are waited for, and streams
        parts.append(Part(INFERENCE, service, walks, walks.try_out, calls, service.drain))
    return tuple(parts)


def warm_up(parts: Sequence[Part], timeout_s: float) -> Iterator[tuple[Part, str]]:
    """Uses each model of each part once: the first use is slow, and no client should wait for it.

    Yields:
        Part and name of every model that has been tried; `served.problem` says what came of it.
    """
    for part in parts:
        for name in part.served.names():
            try:
                part.try_out(name, timeout_s)
            except Exception as error:  # any failure of a model must leave the others serving
                log.exception("model %s could not be warmed up", name)
                reason = str(error) if isinstance(error, MStarError) else "the server's log has more"
                part.served.mark(name, f"its warm-up failed: {reason}")
            else:
                part.served.mark(name, None)
            yield part, name


def _planning(solvers: Mapping[str, PlanSolver], limits: ServerLimits, reply_margin_s: float) -> Part:
    models = ServedModels(solvers)
    service = PlanningService(models, limits, reply_margin_s=reply_margin_s)

    def try_out(name: str, timeout_s: float) -> None:
        plan_once(solvers[name], timeout_s)

    return Part(PLANNING, service, models, try_out, limits.max_concurrent_calls)


def plan_once(solver: PlanSolver, timeout_s: float) -> None:
    """Makes one plan, from a grey picture to itself.

    Raises:
        MStarError: It failed.
    """
    spec = solver.spec
    picture = np.full((*spec.image_size, 3), GREY, np.uint8)
    state = np.zeros(spec.state_size, np.float32) if spec.state_size else None
    episode = Episode(spec, Goal(latent=solver.encode(picture)))
    request = episode.request(Observation(picture[None], state))
    solver.submit(request, deadline_s=timeout_s).result(timeout_s)
