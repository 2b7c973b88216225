"""HttpServer: the socket, the thread of the event loop, and a graceful end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

import uvicorn

from mstar_plan.errors import ConfigError, UnavailableError
from mstar_plan.families.servable import Servable
from mstar_plan.runtime.runtime import Runtime
from mstar_plan.serving.http.access import Tokens
from mstar_plan.serving.http.app import make_app, wrapped
from mstar_plan.serving.http.config import HttpConfig
from mstar_plan.serving.http.house import House

_log = logging.getLogger(__name__)

START_S = 30.0  # in which the loop must be up
LAST_WORDS_S = 1.0  # that answers which were cut off have to say so


class HttpServer:
    """Serves models over HTTP, in a thread of this process; a context manager that is ready inside.

    Args:
        servables: {name: model}; the names are those of the runtime's graphs. Whoever made them closes them.
        runtime: Runs their walks. Whoever made it closes it, after this server.
        config: Where and how.

    Raises:
        ConfigError: A model has another name than its graph in the runtime, or the file of tokens is wrong.
    """

    def __init__(self, servables: Mapping[str, Servable], runtime: Runtime, config: HttpConfig | None = None) -> None:
        self.config = config or HttpConfig()
        for name, servable in servables.items():
            if servable.name != name or name not in runtime.graphs:
                what = f"model {name!r} calls itself {servable.name!r}, and the runtime has {sorted(runtime.graphs)}"
                raise ConfigError(f"{what}; use one name", field="servables")
        self.house = House(servables, runtime, self.config)
        self._app = make_app(self.house)
        app, self._bounded = wrapped(self._app, self.house, Tokens.read(self.config.tokens))
        self._server = _Server(
            uvicorn.Config(
                app,
                http="h11",
                ws="websockets-sansio",
                ws_max_size=self.config.limits.body_bytes,
                ws_per_message_deflate=False,
                log_config=None,
                access_log=False,
                lifespan="off",
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=max(1, round(LAST_WORDS_S)),
            )
        )
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._address = ""
        self._stopping = threading.Lock()

    @property
    def address(self) -> str:
        """What clients connect to: host:port."""
        return self._address

    @property
    def url(self) -> str:
        """The address as a URL."""
        return f"http://{self._address}"

    def start(self) -> None:
        """Listens; when it returns, requests are answered.

        Raises:
            UnavailableError: The address cannot be had.
        """
        listening = self._bound()
        host, port = listening.getsockname()[:2]
        self._address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._thread = threading.Thread(target=self._run, args=(listening,), name="http-loop", daemon=True)
        self._thread.start()
        if not self._server.up.wait(START_S) or not self._server.started:
            raise UnavailableError(f"the server at {self._address} did not start; its log has more")
        _log.info("listening at %s", self.url)

    def stop(self, grace_s: float | None = None) -> None:
        """Takes no new requests, lets those in flight end, then takes back what is left, and closes the socket.

        Args:
            grace_s: Seconds; the config's if None. Stopping twice does nothing.
        """
        with self._stopping:
            thread, self._thread = self._thread, None
            if thread is None:
                return
            self.house.closing = self._bounded.closing = True
            deadline = time.monotonic() + (self.config.grace_s if grace_s is None else grace_s)
            self._wait_idle(deadline)
            if self._busy():
                _log.warning("%d requests are taken back", max(self.house.running, self._bounded.under_way))
                why = UnavailableError("the server is shutting down, and took the request back; ask another one")
                if self._loop is not None:
                    with contextlib.suppress(RuntimeError):
                        self._loop.call_soon_threadsafe(self.house.close_all, why)
                self._wait_idle(time.monotonic() + LAST_WORDS_S)
            self._server.should_exit = True
            thread.join()
            self.house.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop(None if kind is None else 0)

    def _busy(self) -> bool:
        return bool(self._bounded.under_way or self.house.running)

    def _wait_idle(self, deadline: float) -> None:
        while self._busy() and time.monotonic() < deadline:
            time.sleep(0.01)

    def _bound(self) -> socket.socket:
        host, port = self.config.host, self.config.port
        listening = None
        try:
            family, kind, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            # The protocol is named, for else asyncio leaves Nagle's algorithm on: 40 ms for each small answer.
            listening = socket.socket(family, kind, socket.IPPROTO_TCP)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(where)
            listening.listen(256)
            return listening
        except OSError as error:
            if listening is not None:
                listening.close()
            raise UnavailableError(
                f"cannot listen at {host}:{port}: {error}; is the port taken?", field="port"
            ) from error

    def _run(self, listening: socket.socket) -> None:
        async def serve() -> None:
            self._loop = asyncio.get_running_loop()
            await self._server.serve(sockets=[listening])

        try:
            asyncio.run(serve())
        except BaseException:
            _log.critical("the HTTP server broke", exc_info=True)
            raise
        finally:
            self._server.up.set()
            listening.close()


class _Server(uvicorn.Server):
    """Says when it is up."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn."""
        await super().startup(sockets)
        self.up.set()
