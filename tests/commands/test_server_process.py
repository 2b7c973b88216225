"""A server process gives its address, tells why it ended, and never outlives its owner."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from mstar_plan.commands import server_process
from mstar_plan.commands.server_process import ServerProcess
from mstar_plan.errors import UnavailableError

READ_ARGS = "import sys, time, pathlib; args = dict(word.split('=', 1) for word in sys.argv[1:]);"
WRITE = "pathlib.Path(args['address_file']).write_text('127.0.0.1:1234');"


def python(code: str) -> Sequence[str]:
    return (sys.executable, "-c", READ_ARGS + code)


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_it_gives_the_address_and_stops() -> None:
    code = f"assert args['models'] == '[toy]'; {WRITE} time.sleep(60)"
    server = ServerProcess(["models=[toy]"], command=python(code))
    with server as address:
        assert address == "127.0.0.1:1234"
        pid = server.pid
        assert not gone(pid)
    assert gone(pid)


def test_one_that_ignores_the_polite_word_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_process, "STOP_TIMEOUT_S", 0.2)
    code = f"import signal; signal.signal(15, signal.SIG_IGN); {WRITE} time.sleep(60)"
    server = ServerProcess([], command=python(code))
    with server:
        pid = server.pid
    assert gone(pid)


def test_one_that_ends_says_why(tmp_path: Path) -> None:
    server = ServerProcess([], command=python("print('thinking'); sys.exit('no such model')"), log=tmp_path / "log")
    with pytest.raises(UnavailableError, match=r"ended with code 1: .*no such model"), server:
        pass
    assert "thinking" in (tmp_path / "log").read_text()


def test_one_that_is_never_ready_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_process, "START_TIMEOUT_S", 0.3)
    server = ServerProcess([], command=python("time.sleep(60)"))
    with pytest.raises(UnavailableError, match=r"not ready after .* it said nothing"), server:
        pass
    assert gone(server.pid)
