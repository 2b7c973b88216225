"""Metrics of the HTTP server in Prometheus' text form, and the middleware that counts its requests."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mstar_plan.errors import MStarError
from mstar_plan.serving.http.errors import HUNG_UP

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

MODEL = "mstar_model"  # keys that routes set in a request's scope, for its counting
BEGAN = "mstar_began"


class Metrics:
    """What one server counts; servers side by side do not share it. Thread-safe."""

    def __init__(self) -> None:
        self._registry = each = CollectorRegistry()
        self.requests = Counter(
            "mstar_http_requests", "Requests that have ended", ("route", "model", "code"), registry=each
        )
        self.seconds = Histogram(
            "mstar_http_seconds",
            "Time of requests, to the last byte",
            ("route", "model"),
            buckets=SECONDS,
            registry=each,
        )
        self.under_way = Gauge("mstar_http_requests_under_way", "Requests that are being answered", registry=each)
        self.tokens = Counter("mstar_tokens_written", "Tokens written", ("model",), registry=each)
        self.prompt_tokens = Counter("mstar_tokens_read", "Tokens of prompts", ("model",), registry=each)
        self.first = Histogram(
            "mstar_first_output_seconds",
            "Time to the first token or the first audio of a request",
            ("model", "kind"),
            buckets=SECONDS,
            registry=each,
        )
        self.batch = Histogram(
            "mstar_batch_size",
            "Most requests that shared a call with a request",
            ("model",),
            buckets=SIZES,
            registry=each,
        )
        self.errors = Counter("mstar_errors", "Errors that requests ended with", ("reason",), registry=each)
        self.robots = Gauge("mstar_robots", "Open websockets", registry=each)
        self.actions = Histogram(
            "mstar_action_seconds",
            "Time from an observation to its actions",
            ("model",),
            buckets=SECONDS,
            registry=each,
        )

    def failed(self, error: MStarError) -> None:
        """A request has ended with an error."""
        self.errors.labels(error.reason).inc()

    def first_output(self, scope: Scope, kind: str) -> None:
        """A request gives its first token or audio now."""
        seconds = time.monotonic() - scope.get(BEGAN, time.monotonic())
        self.first.labels(scope.get(MODEL, ""), kind).observe(seconds)

    def text(self) -> bytes:
        """All of it, for Prometheus to read."""
        return generate_latest(self._registry)


class Counted:
    """Middleware that counts and times every HTTP request, and notes when it began.

    Args:
        app: What answers.
        metrics: Where it is counted.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope[BEGAN] = began = time.monotonic()
        code = HUNG_UP  # if it ends without an answer, nobody was there to take it

        async def noting(message: Message) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code = message["status"]
            await send(message)

        self._metrics.under_way.inc()
        try:
            await self._app(scope, receive, noting)
        finally:
            self._metrics.under_way.dec()
            route, model = _route(scope), scope.get(MODEL, "")
            code = HUNG_UP if scope.get("mstar_hung_up") else code
            self._metrics.requests.labels(route, model, str(code)).inc()
            self._metrics.seconds.labels(route, model).observe(time.monotonic() - began)


def _route(scope: Scope) -> str:
    """Path of the route that answered, with its parameters' names: a bounded number of values."""
    return str(getattr(scope.get("route"), "path", "other"))
