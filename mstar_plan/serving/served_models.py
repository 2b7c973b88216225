"""The models that a server offers, by name, and whether each is ready."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from mstar_plan.errors import ConfigError, InvalidInputError, NotFoundError, UnavailableError, did_you_mean
from mstar_plan.rollout.solver import PlanSolver
from mstar_plan.serving.messages import encode_action_spec
from mstar_plan.serving.proto.mstar.plan.v1 import planning_pb2 as pb

MAX_NAME = 80  # characters of an unknown name that are repeated to its sender
WARMING_UP = "it is warming up; try again in a second"


class ServedModels:
    """Solvers by name. A model is ready once its warm-up has succeeded. Thread-safe.

    Args:
        solvers: {name: solver}, at least one.

    Raises:
        ConfigError: There is none, or a name is empty.
    """

    def __init__(self, solvers: Mapping[str, PlanSolver]) -> None:
        if not solvers or not all(solvers):
            raise ConfigError(f"the server has the models {list(solvers)}; give it at least one, each with a name")
        self._solvers = dict(solvers)
        self._lock = threading.Lock()
        self._problems: dict[str, str | None] = dict.fromkeys(solvers, WARMING_UP)

    def names(self) -> list[str]:
        """All names."""
        return list(self._solvers)

    def items(self) -> list[tuple[str, PlanSolver]]:
        """All (name, solver), whether ready or not."""
        return list(self._solvers.items())

    def problem(self, name: str) -> str | None:
        """Why a model is not ready; None if it is."""
        with self._lock:
            return self._problems[name]

    def infos(self) -> list[pb.ModelInfo]:
        """Describes every model."""
        return [_info(name, solver, self.problem(name)) for name, solver in self._solvers.items()]

    def mark(self, name: str, problem: str | None) -> None:
        """Says whether a model is ready (None) or why not."""
        with self._lock:
            self._problems[name] = problem

    def ready(self, asked: str) -> tuple[str, PlanSolver]:
        """Returns name and solver of the model that a client asks for; asking for none is enough where there is one.

        Raises:
            NotFoundError: There is no such model.
            InvalidInputError: None is asked for, and there are several.
            UnavailableError: It is not ready.
        """
        names = ", ".join(sorted(self._solvers))
        if not asked and len(self._solvers) > 1:
            raise InvalidInputError(f"the server has the models {names}; say which", field="model")
        name = asked or next(iter(self._solvers))
        if name not in self._solvers:
            what = f"there is no model {shortened(name)!r}{did_you_mean(name[:MAX_NAME], self._solvers)}"
            raise NotFoundError(what, field="model", details={"models": names})
        problem = self.problem(name)
        if problem is not None:
            raise UnavailableError(f"model {name!r} is not ready: {problem}", field="model")
        return name, self._solvers[name]


def shortened(name: str) -> str:
    """A name that a client sent, of a length that can be said."""
    return name if len(name) <= MAX_NAME else f"{name[:MAX_NAME]}..."


def _info(name: str, solver: PlanSolver, problem: str | None) -> pb.ModelInfo:
    spec, limits, defaults = solver.spec, solver.limits, solver.defaults
    return pb.ModelInfo(
        name=name,
        description=spec.description,
        image_height=spec.image_size[0],
        image_width=spec.image_size[1],
        latent_tokens=spec.latent_shape[0],
        latent_width=spec.latent_shape[1],
        action=encode_action_spec(spec.action),
        context_frames=spec.context_frames,
        state_size=spec.state_size,
        limits=pb.PlanLimits(
            max_horizon=limits.max_horizon,
            max_iterations=limits.max_iterations,
            max_samples=limits.max_samples,
            max_soft_time_s=limits.max_soft_time_s,
        ),
        defaults=pb.PlanDefaults(horizon=defaults.horizon, iterations=defaults.iterations, samples=defaults.samples),
        ready=problem is None,
        message=problem or "",
        contract=dict(spec.contract),
    )
