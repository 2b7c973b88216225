"""Where the HTTP server listens, who may use it, and what it takes at most."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from pathlib import Path

from mstar_plan.errors import ConfigError
from mstar_plan.serving.server import is_local

_BOUNDS: dict[str, tuple[float, float]] = {"port": (0, 2**16 - 1), "grace_s": (0.1, 3600)}


@dataclass(frozen=True)
class HttpLimits:
    """Bounds on one request and on the server as a whole; whatever is over one is refused, never clamped.

    Attributes:
        body_bytes: Of one request's body, or one message of a websocket.
        image_pixels: Of all images of one request together, checked before they are decoded.
        images: In one request.
        audio_s: Length of one recording, in seconds.
        text_characters: Of a text to speak, and of one text to embed.
        prompts: Texts of one request to `/v1/completions` or `/v1/embeddings`.
        n: Answers of one request.
        max_tokens: Tokens of one answer that may be asked for.
        tools: Functions that one request may offer.
        concurrent_requests: Requests at one time; the next is told to come again.
        robots: Websockets that are open at one time.
        request_s: Longest time that a request may take, in seconds.
        read_s: Seconds without a byte after which a body that is still coming is given up.
        stall_s: Seconds without a byte taken after which the reader of an answer is given up.
    """

    body_bytes: int = 32 * 2**20
    image_pixels: int = 16 * 2**20
    images: int = 16
    audio_s: float = 1800.0
    text_characters: int = 16384
    prompts: int = 256
    n: int = 16
    max_tokens: int = 65536
    tools: int = 128
    concurrent_requests: int = 64
    robots: int = 64
    request_s: float = 600.0
    read_s: float = 30.0
    stall_s: float = 60.0

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if not (math.isfinite(value) and value > 0):
                raise ConfigError(f"limits.{item.name} is {value}; it needs a positive number", field=item.name)


@dataclass(frozen=True)
class HttpConfig:
    """Where and how the HTTP server listens.

    Attributes:
        host: Address to listen at. One that other machines reach is refused without `tokens`, unless `insecure` is set.
            There is no TLS: on a network that is not yours, put a proxy that has it in front, for tokens can be read on
            the way.
        port: 0 takes a free one.
        insecure: Listen without tokens where other machines can connect.
        tokens: File of the tokens that clients may come with (`Authorization: Bearer TOKEN`), one a line; empty lines
            and those that begin with # do not count. None: everybody who can connect may use it.
        origins: Web pages of other servers that may use this one from a browser, as `https://host[:port]`.
        grace_s: Seconds that requests in flight are given to end when the server stops.
        limits: What is taken at most.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    insecure: bool = False
    tokens: Path | None = None
    origins: tuple[str, ...] = ()
    grace_s: float = 5.0
    limits: HttpLimits = field(default_factory=HttpLimits)

    def __post_init__(self) -> None:
        for name, (low, high) in _BOUNDS.items():
            if not low <= getattr(self, name) <= high:
                raise ConfigError(f"http.{name} is {getattr(self, name)}; it needs {low:g} to {high:g}", field=name)
        if self.host.startswith("unix:"):
            raise ConfigError(f"http.host is {self.host!r}; give an address, such as 127.0.0.1", field="host")
        if not (self.insecure or self.tokens is not None or is_local(self.host)):
            raise ConfigError(
                f"http.host is {self.host!r}, which other machines may reach: use 127.0.0.1 (and a tunnel), or a file "
                "of tokens, or insecure=true if everyone on that network may use every model",
                field="host",
            )
