"""A planning server in a process of its own, that ends with the one who started it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from mstar_plan.errors import UnavailableError

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0


class ServerProcess:
    """Starts `mstar-plan serve` on a free port of this machine; a context manager that gives the address.

    Args:
        words: `key=value` words for `serve`: which models, which planner.
        log: File that the server's messages go to; a temporary one by default.
        command: Program that is started instead of `mstar-plan serve`.
    """

    def __init__(self, words: Sequence[str], *, log: Path | None = None, command: Sequence[str] = ()) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="mstar-plan-")
        self._address_file = Path(self._folder.name) / "address"
        self._log = log or Path(self._folder.name) / "server.log"
        self._command = [
            *(command or (sys.executable, "-m", "mstar_plan.cli", "serve")),
            *words,
            "port=0",
            f"address_file={self._address_file}",
            "stop_with_parent=true",
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> str:
        """Starts the server and waits until it is SERVING.

        Returns:
            Its address, host:port.

        Raises:
            UnavailableError: It ended, or was not ready in time; with the last line that it said.
        """
        environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, env=environment)
        try:
            return self._wait_for_address(self._process)
        except BaseException:
            self._stop()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stops the server: politely first, then for certain."""
        self._stop()

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        assert self._process is not None
        return self._process.pid

    def _wait_for_address(self, process: subprocess.Popen[bytes]) -> str:
        end = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < end:
            if self._address_file.exists():
                return self._address_file.read_text().strip()
            if process.poll() is not None:
                raise UnavailableError(f"the server ended with code {process.returncode}: {self._last_words()}")
            time.sleep(0.02)
        raise UnavailableError(f"the server was not ready after {START_TIMEOUT_S:.0f} s: {self._last_words()}")

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def _stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._folder.cleanup()
