"""`mstar-plan serve`: the planning server, until it is told to stop."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from mstar_plan.build import Planning, PlanningConfig, Task, build_planning, pick_device
from mstar_plan.commands.output import write_text
from mstar_plan.config import Section, load, options
from mstar_plan.errors import ConfigError, did_you_mean
from mstar_plan.families.catalogue import families as catalogue
from mstar_plan.families.servable import FamilyConfig
from mstar_plan.serving.http.config import HttpConfig
from mstar_plan.serving.server import PlanningServer, ServerConfig, serve_until_signal

PARENT_CHECK_S = 0.5


@dataclass(frozen=True, kw_only=True)
class ServeConfig(PlanningConfig):
    """What to serve, and where.

    Attributes:
        models: What to serve: files in `conf/task/`, each a model with what its planner is tuned to, and names of
            families. `mstar-plan models` lists both.
        model: The same as one word with commas, such as smollm2,reach; it takes the place of `models`.
        families: {name: how to load it} for families that are not to be loaded as `device` and `dtype` say.
        task: For internal use: the one of `models` that this configuration is for.
        host: `server.host` by the shipped file; `port` and `insecure` likewise. HTTP has its own, `http_server.host`.
        port: Of gRPC; 0 takes a free one.
        http: Whether HTTP and websockets are served, too; auto: where there is a family.
        http_port: Of HTTP; 0 takes a free one.
        tokens: File of the tokens that HTTP clients must come with; None: none are asked for.
        insecure: Listen where other machines can connect, without TLS.
        server: Where and how to listen for gRPC.
        http_server: Where and how to listen for HTTP.
        address_file: File to write the address of gRPC to once the server is ready; HTTP's is its second line.
        stop_with_parent: Stop when the process that started this one is gone.
        log_level: What is logged to stderr.
    """

    models: tuple[str, ...]
    model: str = ""
    families: Mapping[str, FamilyConfig] = field(default_factory=dict)
    task: Annotated[Task | None, Section("task")] = None
    host: str = "127.0.0.1"
    port: int = 50051
    http: Literal["auto", "on", "off"] = "auto"
    http_port: int = 8000
    tokens: Path | None = None
    insecure: bool = False
    server: ServerConfig = field(default_factory=ServerConfig)
    http_server: HttpConfig = field(default_factory=HttpConfig)
    address_file: Path | None = None
    stop_with_parent: bool = False
    log_level: Literal["debug", "info", "warning", "error"] = "warning"

    def __post_init__(self) -> None:
        super().__post_init__()
        names = self.names
        if not names or len(set(names)) != len(names):
            raise ConfigError(f"models is {list(names)}; name at least one, each once", field="models")
        if self.weights is not None and len(names) != 1:
            what = f"weights is for one model, but models is {list(names)}"
            raise ConfigError(f"{what}; write for example models=[reach]", field="weights")
        for name in self.families:
            if name not in names:
                raise ConfigError(f"families.{name} is not served{did_you_mean(name, names)}", field="families")

    @property
    def names(self) -> tuple[str, ...]:
        """What to serve."""
        return tuple(name.strip() for name in self.model.split(",")) if self.model else self.models

    def family(self, name: str) -> FamilyConfig:
        """How to load a family."""
        found = self.families.get(name, FamilyConfig(dtype=self.dtype, threads=self.threads, device=self.device))
        return replace(found, device=pick_device(found.device), weights=found.weights or self.weights)


def serve(words: Sequence[str]) -> None:
    """Serves until SIGTERM or SIGINT; then lets the requests that are in finish."""
    config = load("serve", words, ServeConfig)
    if config.task is not None:
        raise ConfigError("task is set by models; write for example models=[reach]", field="task")
    logging.basicConfig(level=config.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    tasks = options("task")
    known = catalogue()
    families = [name for name in config.names if name not in tasks and name in known]
    if not any(word.startswith("config_dir=") for word in words):  # which may bring tasks of its own
        _check_names(config.names, {*tasks, *known})
    plans = {name: _for_model(name, words) for name in config.names if name not in families}
    with (
        build_planning(plans, {name: config.family(name) for name in families}) as planning,
        PlanningServer(
            planning.solvers, config.server, servables=planning.servables, runtime=planning.runtime
        ) as server,
        _http(config, planning) as http,
    ):
        typer.echo(f"serving {', '.join(config.names)} at {server.address}{f' and http://{http}' if http else ''}")
        if config.address_file is not None:
            _announce("\n".join([server.address, *([http] if http else [])]), config.address_file)
        if config.stop_with_parent:
            threading.Thread(target=_watch_parent, args=(os.getppid(),), daemon=True).start()
        serve_until_signal(server)


@contextmanager
def _http(config: ServeConfig, planning: Planning) -> Iterator[str]:
    """The HTTP server beside, where it is wanted; gives its address, empty where it is not."""
    if config.http == "off" or (config.http == "auto" and not planning.families):
        yield ""
        return
    from mstar_plan.serving.http.server import HttpServer  # noqa: PLC0415 - its libraries are an extra

    with HttpServer(planning.servables, planning.runtime, config.http_server) as server:
        yield server.address


def _check_names(names: Sequence[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            what = f"models has {name!r}, which is neither a task nor a family"
            raise ConfigError(f"{what}{did_you_mean(name, known)}", field="models")


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
