"""Who may use the server: tokens in the Authorization header, and no pages of other servers."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from mstar_plan.errors import ConfigError, MStarError
from mstar_plan.serving.http.errors import ForbiddenError, UnauthorisedError
from mstar_plan.serving.http.refusal import refuse
from mstar_plan.serving.server import is_local

FREE = ("/healthz", "/readyz")  # for whoever watches the machine
SCHEMES = ("bearer", "api-key")  # the second is what openpi's client sends
MAX_TOKENS, MAX_TOKEN, MIN_TOKEN = 1024, 512, 16
CLIENT = "mstar_client"  # key of a request's scope: name that fairness is kept by


class Tokens:
    """Tokens that clients may come with. Only their digests are kept, and none is ever logged.

    Args:
        tokens: The tokens; none lets everybody in.
    """

    def __init__(self, tokens: Iterable[str]) -> None:
        self._digests = [_digest(token) for token in tokens]

    @classmethod
    def read(cls, path: Path | None) -> Tokens:
        """Tokens of a file, one a line.

        Raises:
            ConfigError: It cannot be read, holds none, too many, or one that is too short or too long.
        """
        if path is None:
            return cls(())
        try:
            with path.open(encoding="utf-8") as file:
                lines = [line.strip() for line in file.read(MAX_TOKENS * (MAX_TOKEN + 2)).splitlines()]
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"http.tokens: {path} cannot be read: {error}", field="tokens") from None
        tokens = [line for line in lines if line and not line.startswith("#")]
        if not 1 <= len(tokens) <= MAX_TOKENS:
            raise ConfigError(f"http.tokens: {path} holds {len(tokens)}; it needs 1 to {MAX_TOKENS}", field="tokens")
        for number, token in enumerate(tokens, 1):
            if not MIN_TOKEN <= len(token) <= MAX_TOKEN:
                what = f"http.tokens: token {number} of {path} has {len(token)} characters"
                raise ConfigError(f"{what}; it needs {MIN_TOKEN} to {MAX_TOKEN}", field="tokens")
        return cls(tokens)

    def __bool__(self) -> bool:
        return bool(self._digests)

    def holder(self, authorization: str) -> str:
        """Name of the client that an Authorization header stands for, empty for anybody; always takes as long.

        Raises:
            UnauthorisedError: No token, or one that is not known.
        """
        if not self._digests:
            return ""
        scheme, _, token = authorization.partition(" ")
        given = _digest(token.strip() if scheme.lower() in SCHEMES else "")
        found = [number for number, known in enumerate(self._digests) if hmac.compare_digest(given, known)]
        if not found:
            what = "the token is not known" if token else "there is no token"
            raise UnauthorisedError(f"{what}; send the header Authorization: Bearer TOKEN", field="Authorization")
        return f"token-{found[0]}"


class Guarded:
    """Middleware that lets in who may use the server.

    Args:
        app: What answers.
        tokens: Who may.
        origins: Pages of other servers that may.
        local: Only this machine can connect, so that it must have been called by a name of this machine.
    """

    def __init__(self, app: ASGIApp, tokens: Tokens, origins: Sequence[str] = (), local: bool = False) -> None:
        self._app, self._tokens, self._origins = app, tokens, frozenset(origins)
        self._hosts = {urlsplit(origin).netloc for origin in origins}
        self._local = local and not tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] in ("http", "websocket") and scope["path"] not in FREE:
            headers = Headers(scope=scope)
            try:
                self._check_host(headers)
                self._check_origin(headers)
                scope[CLIENT] = self._tokens.holder(headers.get("authorization", ""))
            except MStarError as error:
                await refuse(error, scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check_host(self, headers: Headers) -> None:
        """A page may give this machine another name (DNS rebinding), and then ask it as if it were its own server."""
        host = headers.get("host", "")
        if self._local and host not in self._hosts and not is_local(_name_of(host)):
            what = f"this server is for its own machine alone, and was called by the name {host[:200]!r}"
            raise ForbiddenError(f"{what}; call it localhost, or add the name to its origins", field="Host")

    def _check_origin(self, headers: Headers) -> None:
        """Browsers let any page send requests here, and tell whose it is; programs send no Origin."""
        origin = headers.get("origin", "")
        if origin and origin not in self._origins and origin.partition("://")[2] != headers.get("host"):
            raise ForbiddenError(f"pages of {origin[:200]!r} may not use this server; see its origins", field="Origin")


def _name_of(host: str) -> str:
    """The name in a Host header, without its port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
