"""The walks that the inference protocol offers: which model and walk a name means, and whether it is ready."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from mstar_plan.errors import ConfigError, InvalidInputError, NotFoundError, UnavailableError, did_you_mean
from mstar_plan.families.face import REQUIRED, WalkFace
from mstar_plan.families.servable import Servable
from mstar_plan.runtime.runtime import Runtime
from mstar_plan.serving.served_models import MAX_NAME, WARMING_UP, shortened
from mstar_plan.walks.component import release

VERSION = "1"  # the only one of every model


@dataclass(frozen=True, eq=False)
class Target:
    """What a request asks for.

    Attributes:
        asked: The name that it used.
        model: Name of the model, which is that of its graph, too.
        servable: The model.
        face: Of the walk.
    """

    asked: str
    model: str
    servable: Servable
    face: WalkFace


class ServedWalks:
    """Models by name, each with its public walks. A model is ready once a walk of it has been run. Thread-safe.

    Args:
        servables: {name: model}.
        runtime: Has the graph of each under the same name. Whoever made it closes it.

    Raises:
        ConfigError: It lacks one, or a face is of a walk that is not there.
    """

    def __init__(self, servables: Mapping[str, Servable], runtime: Runtime) -> None:
        self._servables, self.runtime = dict(servables), runtime
        self._lock = threading.Lock()
        self._problems: dict[str, str | None] = dict.fromkeys(servables, WARMING_UP)
        for name, servable in servables.items():
            if name not in runtime.graphs:
                raise ConfigError(f"the runtime has no graph {name!r}{did_you_mean(name, runtime.graphs)}", field=name)
            for walk, face in servable.faces.items():
                if face.walk not in runtime.graphs[name].walks:
                    what = f"model {name!r} offers {walk!r}, but its graph has no walk {face.walk!r}"
                    raise ConfigError(f"{what}{did_you_mean(face.walk, runtime.graphs[name].walks)}", field=name)

    def names(self) -> list[str]:
        """All names of models."""
        return list(self._servables)

    def problem(self, name: str) -> str | None:
        """Why a model is not ready; None if it is."""
        with self._lock:
            return self._problems[name]

    def mark(self, name: str, problem: str | None) -> None:
        """Says whether a model is ready (None) or why not."""
        with self._lock:
            self._problems[name] = problem

    def find(self, asked: str, version: str = "", walk: str = "") -> Target:
        """Returns the model and walk that a client names: NAME (its first walk), NAME/WALK, or NAME and a walk.

        Raises:
            NotFoundError: There is no such model, walk or version.
            InvalidInputError: Two walks are named.
        """
        name, _, inner = (asked, "", "") if asked in self._servables else asked.rpartition("/")
        if name not in self._servables:
            unknown = asked.partition("/")[0] or asked
            hint = did_you_mean(unknown[:MAX_NAME], self._servables)
            raise NotFoundError(f"there is no model {shortened(unknown)!r}{hint}", field="model_name")
        if version not in ("", VERSION):
            what = f"model {name!r} has no version {shortened(version)!r}"
            raise NotFoundError(f"{what}; leave it out, or ask for {VERSION!r}", field="model_version")
        if walk and inner and walk != inner:
            what = f"the name asks for walk {shortened(inner)!r} and the parameter for {shortened(walk)!r}"
            raise InvalidInputError(f"{what}; say one", field="walk")
        return Target(asked, name, self._servables[name], self._face(name, walk or inner))

    def ready(self, target: Target) -> Target:
        """Returns the target if its model is ready.

        Raises:
            UnavailableError: It is not.
        """
        problem = self.problem(target.model)
        if problem is not None:
            raise UnavailableError(f"model {target.model!r} is not ready: {problem}", field="model_name")
        return target

    def try_out(self, name: str, timeout_s: float) -> None:
        """Runs a model's first walk on values that work: the first run is slow, and no client should wait for it.

        Raises:
            MStarError: It failed.
        """
        for face in list(self._servables[name].faces.values())[:1]:
            sample = {key: port.sample() for key, port in face.inputs.items() if port.default is REQUIRED}
            values = face.prepare(face.check(sample))
            try:
                request = self.runtime.submit(face.walk, values, graph=name, deadline_s=timeout_s)
            except BaseException:
                release(values.values())
                raise
            request.result(timeout_s)

    def _face(self, model: str, walk: str) -> WalkFace:
        faces = self._servables[model].faces
        if not faces or (walk and walk not in faces):
            what = f"model {model!r} offers no walk {shortened(walk)!r}" if walk else f"model {model!r} offers no walk"
            raise NotFoundError(f"{what}{did_you_mean(walk[:MAX_NAME], faces)}", field="walk")
        return faces[walk] if walk else next(iter(faces.values()))
