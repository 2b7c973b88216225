"""The only place that wires: configuration in; models, graphs, one runtime, solvers and controllers out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Annotated, Literal, Self

import gymnasium
import numpy as np
import torch

from mstar_plan.build_families import LoadedFamily, cores, load_families, with_families
from mstar_plan.config import Section
from mstar_plan.errors import ConfigError, InvalidInputError, UnavailableError
from mstar_plan.evaluation.baselines import NoOpController, RandomController
from mstar_plan.evaluation.episode import Env, step_seconds
from mstar_plan.evaluation.oracle import OracleController
from mstar_plan.families.servable import FamilyConfig, Servable
from mstar_plan.families.world import world_servable
from mstar_plan.models.registry import load_model, load_model_file
from mstar_plan.models.world_model import ModelSpec, WorldModel
from mstar_plan.rollout.limits import MIB, PlanLimits
from mstar_plan.rollout.objective import ObjectiveConfig
from mstar_plan.rollout.plan_walk import plan_graph
from mstar_plan.rollout.planner import PLANNER_CONFIGS, PlannerConfig
from mstar_plan.rollout.solver import PlanSolver
from mstar_plan.runtime.memory import free_bytes
from mstar_plan.runtime.placement import Placement, PlacementConfig
from mstar_plan.runtime.runtime import Runtime, RuntimeConfig
from mstar_plan.types import ActionSpec, Controller, FloatArray, ImageArray
from mstar_plan.walks.graph import Graph


@dataclass(frozen=True)
class Task:
    """What belongs together; a file in `conf/task/`, which may also `tune` planners and objectives.

    Attributes:
        name: What the served model is called; the file's name.
        model: Name in the registry of models.
        env: Id for `gymnasium.make`; empty where there is no environment.
    """

    name: str
    model: str
    env: str = ""


@dataclass(frozen=True, kw_only=True)
class PlanningConfig:
    """How to plan with one model. `placement`, `runtime`, `device` and `threads` are common to all models of a process.

    Attributes:
        planner: The search.
        objective: What a plan costs.
        placement: Which worker runs which node.
        runtime: Bounds of the queue, and how calls are joined.
        limits: The most that one request may ask for.
        weights: Weight file to use in the place of the packaged one.
        device: Torch device of the models, such as cpu or cuda:0; auto takes a GPU if there is one.
        threads: Torch threads of one operator. 0: what the models say they are fastest with, measured: one for small
            ones, all cores for token grids.
        dtype: Of the weights: float32, or bfloat16 for models that can.
        self_test: Compare a model, when it is loaded, with the golden vector in its weight file, if there is one.
    """

    planner: Annotated[PlannerConfig, Section("planner", PLANNER_CONFIGS)]
    objective: Annotated[ObjectiveConfig, Section("objective")]
    placement: Annotated[PlacementConfig, Section("placement")]
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)
    limits: PlanLimits = field(default_factory=PlanLimits)
    weights: Path | None = None
    device: str = "auto"
    threads: int = 0
    dtype: Literal["float32", "bfloat16"] = "float32"
    self_test: bool = True

    def __post_init__(self) -> None:
        if self.threads < 0:
            raise ConfigError(f"threads is {self.threads}; it needs at least 0", field="threads")
        if self.dtype not in ("float32", "bfloat16"):
            raise ConfigError(f"dtype is {self.dtype!r}; use float32 or bfloat16", field="dtype")


@dataclass(frozen=True, eq=False)
class Planning:
    """Models that are ready to plan with, and families beside them; a context manager that ends their runtime.

    Attributes:
        runtime: The one runtime that all share.
        models: {name: world model}.
        solvers: {name: solver}.
        families: {name: family}.
        servables: {name: what any wire may run walks of}: the families, and the world models' planning walks.
    """

    runtime: Runtime
    models: Mapping[str, WorldModel]
    solvers: Mapping[str, PlanSolver]
    families: Mapping[str, Servable] = field(default_factory=dict)
    servables: Mapping[str, Servable] = field(default_factory=dict)

    def close(self, *, drain: bool = True) -> None:
        """Lets the requests that are in finish, or cancels them, and ends the runtime. Twice does nothing."""
        self.runtime.close(drain=drain)
        for family in self.families.values():
            if family.close is not None:
                family.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close(drain=kind is None)


def build_model(task: Task, config: PlanningConfig) -> WorldModel:
    """Loads the world model of a task.

    Raises:
        NotFoundError: There is no such model.
        UnavailableError: Its weights are not installed.
        WeightsError: The weight file is damaged or of another architecture.
    """
    device = pick_device(config.device)
    model = (
        load_model(task.model, device=device, self_test=config.self_test)
        if config.weights is None
        else load_model_file(
            config.weights, device=device, self_test=config.self_test, dtype=getattr(torch, config.dtype)
        )
    )
    return model if config.dtype == "float32" else to_half(model)


def build_graph(task: Task, config: PlanningConfig) -> Graph:
    """Loads a task's model and returns its graph: components, and the walks of planning over them."""
    return plan_graph(build_model(task, config), config.planner, config.objective, task.name)


def build_planning(
    configs: Mapping[str, tuple[Task, PlanningConfig]], families: Mapping[str, FamilyConfig] | None = None
) -> Planning:
    """Wires a runtime that plans with several models, and runs several families beside them.

    Args:
        configs: {name: (task, config)}; what is common to all is taken from the first.
        families: {name in the catalogue: how to load it}.

    Raises:
        ConfigError: There is nothing to serve, or the placement does not fit.
        UnavailableError: Weights or a device are missing.
    """
    if not configs and not families:
        raise ConfigError("there is no model to plan with; name at least one", field="models")
    loaded = load_families(families or {})
    models = {name: build_model(task, config) for name, (task, config) in configs.items()}
    graphs = {
        name: plan_graph(models[name], config.planner, config.objective, name) for name, (_, config) in configs.items()
    }
    runtime = _runtime(graphs, models, [config for _, config in configs.values()], loaded)
    limits = {name: with_memory(config.limits, config.device) for name, (_, config) in configs.items()}
    footprints = {name: getattr(model, "rollout_bytes", None) for name, model in models.items()}
    solvers = {
        name: PlanSolver(
            models[name].spec,
            runtime,
            config.planner,
            limits=limits[name],
            graph=name,
            footprint=footprints[name],
        )
        for name, (_, config) in configs.items()
    }
    worlds = {
        name: world_servable(name, graphs[name], models[name].spec, limits=limits[name], footprint=footprints[name])
        for name in configs
    }
    servables = {name: family.servable for name, family in loaded.items()}
    return Planning(runtime, models, solvers, servables, {**servables, **worlds})


def _runtime(
    graphs: Mapping[str, Graph],
    models: Mapping[str, WorldModel],
    configs: Sequence[PlanningConfig],
    families: Mapping[str, LoadedFamily],
) -> Runtime:
    """The one runtime; what is common to all world models is taken from the first."""
    placement = None
    if configs:
        common = configs[0]
        threads = common.threads or max(pick_threads(model.spec) for model in models.values())
        torch.set_num_threads(threads)
        placement = Placement.from_config(place(common.placement, common.device, threads), graphs)
    everything = {**graphs, **{name: family.servable.graph for name, family in families.items()}}
    return Runtime(
        everything,
        placement=with_families(placement, families),
        config=configs[0].runtime if configs else None,
    )


def pick_device(name: str) -> str:
    """The device of a name; "auto" takes a GPU if there is one."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return name


def to_half(model: WorldModel) -> WorldModel:
    """The model with weights in bfloat16.

    Raises:
        ConfigError: It cannot run so.
    """
    if not model.spec.half:
        raise ConfigError(f"model {model.spec.name!r} runs in float32 alone; leave dtype out", field="dtype")
    assert isinstance(model, torch.nn.Module)
    return model.to(torch.bfloat16)


def pick_threads(spec: ModelSpec) -> int:
    """Torch threads that a model is fastest with; 0 in its description means all cores."""
    return spec.threads or cores()


def with_memory(limits: PlanLimits, device: str) -> PlanLimits:
    """Fills in half of the memory that is free on the device, where the limits leave it open and it is known."""
    free = free_bytes(pick_device(device))
    if limits.max_memory_mb or free is None:
        return limits
    return replace(limits, max_memory_mb=max(1, free // (2 * MIB)))


def place(config: PlacementConfig, device: str, threads: int) -> PlacementConfig:
    """Fills in device and threads where a placement leaves them open."""
    device = pick_device(device)
    groups = {
        name: replace(group, device=group.device or device, threads=group.threads or threads)
        for name, group in config.groups.items()
    }
    return replace(config, groups=groups)


def build_env(task: Task) -> Env:
    """Makes the environment of a task.

    Raises:
        ConfigError: The task has none, or Gymnasium does not know it.
        UnavailableError: It cannot be made on this machine, for want of a renderer for one.
    """
    if not task.env:
        raise ConfigError(f"task {task.name!r} has no environment; choose env=reach, wall or push", field="env")
    try:
        return gymnasium.make(task.env)
    except gymnasium.error.Error as error:
        raise ConfigError(f"task {task.name!r} has env {task.env!r}: {error}", field="env") from error
    except (ImportError, RuntimeError) as error:
        raise UnavailableError(f"{task.env} cannot be made: {error}; `mstar-plan doctor` may tell why") from error


def action_spec(env: Env) -> ActionSpec:
    """Describes the actions of an environment."""
    space, inner = env.action_space, env.unwrapped
    if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1:
        raise InvalidInputError(f"the environment's actions are {space}; a one-dimensional Box is needed", field="env")
    return ActionSpec(
        low=space.low,
        high=space.high,
        dt_s=step_seconds(env),
        names=getattr(inner, "action_names", ()),
        units=getattr(inner, "action_units", ()),
    )


def build_baseline(kind: str, env: Env) -> Controller:
    """Makes a controller that needs no model: `random`, `noop`, or `oracle`, which plans in the simulator itself."""
    action = action_spec(env)
    if kind == "oracle":
        return OracleController(env.unwrapped, action)
    return RandomController(action) if kind == "random" else NoOpController(action)


def frame_encoder(model: WorldModel) -> Callable[[ImageArray], FloatArray]:
    """Returns what encodes one frame [H_px, W_px, 3] uint8 to its latent [N, D], outside of any runtime."""

    def encode(frame: ImageArray) -> FloatArray:
        with torch.inference_mode():
            latent: FloatArray = model.encode(torch.from_numpy(np.ascontiguousarray(frame))[None])[0].float().numpy()
        return latent

    return encode
