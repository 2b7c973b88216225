"""`mstar-plan serve`: the planning server, until it is told to stop."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import typer

from mstar_plan.build import PlanningConfig, Task, build_planning
from mstar_plan.commands.output import write_text
from mstar_plan.config import Section, load
from mstar_plan.errors import ConfigError
from mstar_plan.serving.server import PlanningServer, ServerConfig, serve_until_signal

PARENT_CHECK_S = 0.5


@dataclass(frozen=True, kw_only=True)
class ServeConfig(PlanningConfig):
    """What to serve, and where.

    Attributes:
        models: Files in `conf/task/`, each a model with what its planner is tuned to.
        task: For internal use: the one of `models` that this configuration is for.
        host: `server.host` by the shipped file; `port` and `insecure` likewise.
        port: 0 takes a free one.
        insecure: Listen where other machines can connect, without TLS.
        server: Where and how to listen.
        address_file: File to write the address to once the server is ready.
        stop_with_parent: Stop when the process that started this one is gone.
        log_level: What is logged to stderr.
    """

    models: tuple[str, ...]
    task: Annotated[Task | None, Section("task")] = None
    host: str = "127.0.0.1"
    port: int = 50051
    insecure: bool = False
    server: ServerConfig = field(default_factory=ServerConfig)
    address_file: Path | None = None
    stop_with_parent: bool = False
    log_level: Literal["debug", "info", "warning", "error"] = "warning"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.models or len(set(self.models)) != len(self.models):
            raise ConfigError(f"models is {list(self.models)}; name at least one, each once", field="models")
        if self.weights is not None and len(self.models) != 1:
            what = f"weights is for one model, but models is {list(self.models)}"
            raise ConfigError(f"{what}; write for example models=[reach]", field="weights")


def serve(words: Sequence[str]) -> None:
    """Serves until SIGTERM or SIGINT; then lets the plans that are in finish."""
    config = load("serve", words, ServeConfig)
    if config.task is not None:
        raise ConfigError("task is set by models; write for example models=[reach]", field="task")
    logging.basicConfig(level=config.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    with build_planning({name: _for_model(name, words) for name in config.models}) as planning:
        server = PlanningServer(planning.solvers, config.server)
        with server:
            typer.echo(f"serving {', '.join(config.models)} at {server.address}")
            if config.address_file is not None:
                _announce(server.address, config.address_file)
            if config.stop_with_parent:
                threading.Thread(target=_watch_parent, args=(os.getppid(),), daemon=True).start()
            serve_until_signal(server)


def _for_model(name: str, words: Sequence[str]) -> tuple[Task, PlanningConfig]:
    config = load("serve", [*words, f"task={name}"], ServeConfig)
    assert config.task is not None
    return config.task, config


def _announce(address: str, file: Path) -> None:
    """Writes the address whole or not at all: somebody is waiting for the file."""
    partial = file.with_name(f"{file.name}.partial")
    write_text(partial, address)
    partial.replace(file)


def _watch_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK_S)
    os.kill(os.getpid(), signal.SIGTERM)
