"""Every line of curl in docs/endpoints.md does what the page says, against real models on a real server."""

from __future__ import annotations

import re
import subprocess
import wave
from collections.abc import Iterator

import pytest
from doc_blocks import DOCS

from mstar_plan.build import build_planning
from mstar_plan.families.servable import FamilyConfig
from mstar_plan.serving.http.config import HttpConfig
from mstar_plan.serving.http.server import HttpServer

PAGE = (DOCS / "endpoints.md").read_text()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    families = {name: FamilyConfig(kv_tokens=4096) for name in ("smollm2", "assistant")}
    with (
        build_planning({}, families) as planning,
        HttpServer(planning.servables, planning.runtime, HttpConfig(port=0)) as server,
    ):
        yield server.address


def lines() -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S)
    text = "\n".join(blocks).replace("\\\n", " ")
    return [line for line in text.splitlines() if line.startswith("curl ")]


def test_lines_of_curl(address, tmp_path):
    answers = {}
    for line in lines():
        command = line.replace("curl ", "curl -sS --max-time 60 ", 1).replace("127.0.0.1:8000", address)
        done = subprocess.run(
            command, shell=True, cwd=tmp_path, capture_output=True, text=True, timeout=90, check=False
        )
        assert done.returncode == 0, f"{line}: {done.stderr}"
        assert '"error"' not in done.stdout, f"{line}: {done.stdout}"
        answers[line] = done.stdout

    def said(*parts: str) -> list[str]:
        found = [out for line, out in answers.items() if all(part in line for part in parts)]
        assert found, parts
        return found

    assert '"smollm2"' in said("/v1/models")[0]
    assert "robot" in said("chat/completions", "What is a robot")[0].lower()
    assert said("chat/completions", '"stream": true')[0].rstrip().endswith("[DONE]")
    assert '"finish_reason":"length"' in said("/v1/completions")[0].replace(": ", ":")
    assert "reached its goal" in said("transcriptions")[0].lower()
    assert '"answers"' in said("walks/smollm2/generate")[0]
    assert "data:" in said("walks/smollm2/generate", '"stream"')[0]
    with wave.open(str(tmp_path / "speech.wav")) as file:
        assert file.getframerate() == 24000


DOORS = "/v1/models /v1/chat/completions /v1/completions /v1/audio/speech /v1/audio/transcriptions /v1/walks"
MORE = "/v1/realtime/robot/openpi /metrics /healthz /readyz ModelStreamInfer"


@pytest.mark.parametrize("door", [*DOORS.split(), *MORE.split()])
def test_every_door_is_documented(door):
    assert door in PAGE
