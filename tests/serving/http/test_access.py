"""Access: tokens in constant time, no pages of other servers, no names that are not this machine's."""

from __future__ import annotations

import logging
from pathlib import Path

import httpx
import openai
import pytest
from http_world import World, http_world
from openai import OpenAI
from openpi_client.websocket_client_policy import WebsocketClientPolicy
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from mstar_plan.errors import ConfigError
from mstar_plan.serving.http.access import Tokens
from mstar_plan.serving.http.errors import UnauthorisedError

TOKEN, OTHER = "correct-horse-battery-staple", "another-token-of-some-length"


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text(f"# for the lab\n\n{OTHER}\n  {TOKEN}\n")
    return path


def test_only_who_has_a_token_gets_in(tokens: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with http_world(tokens=tokens) as world:
        for path in ("/v1/models", "/metrics", "/docs", "/openapi.json", "/v1/walks", "/nowhere"):
            got = httpx.get(world.url + path)
            assert (got.status_code, got.headers["www-authenticate"]) == (401, "Bearer")
            assert got.json()["error"]["type"] == "authentication_error"
        for path in ("/healthz", "/readyz"):
            assert httpx.get(world.url + path).status_code == 200
        for token in (TOKEN, OTHER):
            with OpenAI(base_url=f"{world.url}/v1", api_key=token) as client:
                assert len(client.models.list().data) == 6
        for wrong in (TOKEN[:-1], TOKEN + "x", "*"):
            with OpenAI(base_url=f"{world.url}/v1", api_key=wrong) as client, pytest.raises(openai.AuthenticationError):
                client.models.list()
        assert httpx.get(f"{world.url}/v1/models", headers={"Authorization": f"Basic {TOKEN}"}).status_code == 401
    ours = [each for each in caplog.records if each.name.split(".")[0] in ("mstar_plan", "uvicorn")]
    assert ours
    assert not [each for each in ours if TOKEN[:-1] in each.getMessage()]


@pytest.mark.filterwarnings("ignore:connect.. must be used as a context manager:DeprecationWarning")
def test_robots_need_a_token_too(tokens: Path) -> None:
    with http_world(tokens=tokens) as world:
        with pytest.raises(InvalidStatus) as found, connect(f"ws://{world.server.address}/"):
            pass
        assert found.value.response.status_code == 401
        policy = WebsocketClientPolicy("127.0.0.1", world.port, api_key=TOKEN)
        assert policy.get_server_metadata()["model"] == "driver"
        policy._ws.close()


def test_pages_of_other_servers_are_kept_out(world: World) -> None:
    evil = {"Origin": "http://evil.example"}
    got = httpx.post(f"{world.url}/v1/audio/transcriptions", headers=evil)
    assert (got.status_code, got.json()["error"]["param"]) == (403, "Origin")
    with pytest.raises(InvalidStatus) as found, connect(f"ws://{world.server.address}/", origin="http://evil.example"):  # type: ignore[arg-type]
        pass
    assert found.value.response.status_code == 403
    assert httpx.get(f"{world.url}/v1/models", headers={"Origin": "null"}).status_code == 403
    assert httpx.get(f"{world.url}/v1/models", headers={"Origin": world.url}).status_code == 200
    with http_world(origins=("http://evil.example",)) as other:
        assert httpx.get(f"{other.url}/v1/models", headers=evil).status_code == 200


def test_a_foreign_name_for_this_machine_is_refused(world: World) -> None:
    for host in ("evil.example:80", "evil.example", "[::", ""):
        got = httpx.get(f"{world.url}/v1/models", headers={"Host": host})
        assert got.status_code in (400, 403), host
    for host in ("localhost", "127.0.0.1:99", "[::1]:5"):
        assert httpx.get(f"{world.url}/v1/models", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "holds 0"), ("# nothing\n\n", "holds 0"), ("short\n", "5 characters"), ("x" * 600, "600 characters")],
)
def test_files_that_hold_no_good_tokens(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "tokens"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said) as found:
        Tokens.read(path)
    assert "'short'" not in str(found.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        Tokens.read(tmp_path / "none")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00" * 20)
    with pytest.raises(ConfigError, match="cannot be read"):
        Tokens.read(tmp_path / "binary")


def test_holders_are_told_apart_for_fairness() -> None:
    tokens = Tokens([OTHER, TOKEN])
    assert tokens.holder(f"Bearer {OTHER}") == "token-0"
    assert tokens.holder(f"bearer  {TOKEN}") == "token-1"
    assert tokens.holder(f"Api-Key {TOKEN}") == "token-1"
    for header in ("", "Bearer", "Bearer ", f"Bearer {TOKEN} {TOKEN}", TOKEN, "Bearer \udcff"):
        with pytest.raises(UnauthorisedError):
            tokens.holder(header)
    assert Tokens([]).holder("") == ""
