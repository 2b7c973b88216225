"""The controllers that can be evaluated, each opened with what it needs: a server, a model here, or nothing."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Literal

from mstar_plan.build import PlanningConfig, Task, build_baseline, build_planning
from mstar_plan.build_policy import PolicyConfig, opened_policy
from mstar_plan.commands.server_process import ServerProcess
from mstar_plan.config import narrow
from mstar_plan.errors import ConfigError
from mstar_plan.evaluation.runner import MakeController
from mstar_plan.rollout.controller import PlanningController
from mstar_plan.rollout.controller_config import ControllerConfig
from mstar_plan.rollout.policy_controller import PolicyController
from mstar_plan.serving.client import PlanClient

ControllerName = Literal["grpc", "local", "policy", "rerank", "refine", "random", "noop", "oracle"]
GOALS: Mapping[ControllerName, Literal["image", "state"]] = {  # what each is told of the goal
    "grpc": "image",
    "local": "image",
    "policy": "image",
    "rerank": "image",
    "refine": "image",
    "random": "image",
    "noop": "image",
    "oracle": "state",
}
PLANNING = ("grpc", "local")  # those that plan with a world model


@contextlib.contextmanager
def open_controller(
    kind: ControllerName,
    task: Task,
    config: PlanningConfig,
    control: ControllerConfig,
    *,
    words: Sequence[str] = (),
    address: str = "",
    policy: PolicyConfig | None = None,
) -> Iterator[MakeController]:
    """Opens a controller, and closes it at the end.

    Args:
        kind: Which one.
        task: Whose model plans.
        config: How to plan.
        control: How plans become actions.
        words: Of the command line: what of them concerns planning goes to the server that is started.
        address: Of a running server; empty starts one.
        policy: Who proposes, for `policy`, `rerank` and `refine`; None: the task's own.

    Yields:
        What makes the controller, given the environment.

    Raises:
        ConfigError: `address` is given, and words that only the server could follow.
        UnavailableError: No server, weights or device.
    """
    if kind == "grpc":
        with _server(task, words, address) as found, PlanClient(found) as client:
            client.wait_ready(model=task.name)
            with contextlib.closing(client.controller(model=task.name, config=control)) as controller:
                yield lambda env: controller
    elif kind == "local":
        import_module("torch._dynamo")  # a GL context that is made before its first import can crash it
        with build_planning({task.name: (task, config)}) as planning:
            yield lambda env: PlanningController(planning.solvers[task.name], control)
    elif kind in ("policy", "rerank", "refine"):
        import_module("torch._dynamo")  # as above
        with opened_policy(task, config, policy or PolicyConfig(), kind) as solver:
            yield lambda env: PolicyController(solver, control)
    else:
        yield lambda env: build_baseline(kind, env)


@contextlib.contextmanager
def _server(task: Task, words: Sequence[str], address: str) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="mstar-plan-") as folder:
        shared = narrow(words, PlanningConfig, Path(folder))
        if not address:
            with ServerProcess([f"models=[{task.name}]", *shared]) as started:
                yield started
            return
        own = [word for word in shared if not word.startswith("config")]
        if own:
            raise ConfigError(f"{own[0]} is for the server at {address}, which is running already: drop one of the two")
        yield address
