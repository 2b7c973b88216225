"""The serve command as a process: its address, a plan, SIGTERM and exit code 0; its configuration."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request

import numpy as np
import pytest
import tritonclient.grpc

from mstar_plan.cli import main
from mstar_plan.commands.serve import ServeConfig
from mstar_plan.config import load
from mstar_plan.errors import ConfigError
from mstar_plan.models.toy import render
from mstar_plan.serving.client import PlanClient
from mstar_plan.types import Goal, Observation, PlanRequest, PlanStatus


def test_a_server_process_plans_and_ends_politely() -> None:
    command = [sys.executable, "-m", "mstar_plan.cli", "serve", "models=[toy]", "port=0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline().split()
        assert said[:3] == ["serving", "toy", "at"]
        frame = render(np.zeros(2))
        with PlanClient(said[3]) as client:
            assert client.plan(PlanRequest(Observation(frame[None]), Goal(frame=frame))).status is PlanStatus.COMPLETE
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_a_world_model_and_a_family_at_all_doors() -> None:
    command = [sys.executable, "-m", "mstar_plan.cli", "serve", "model=toy,silero", "port=0", "http_port=0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline().split()
        assert said[:4] == ["serving", "toy,", "silero", "at"]
        grpc_address, http_address = said[4], said[-1]
        with PlanClient(grpc_address) as client:
            assert [model.name for model in client.list_models()] == ["toy"]
        triton = tritonclient.grpc.InferenceServerClient(grpc_address)
        assert triton.is_model_ready("silero")
        assert triton.is_model_ready("toy")
        triton.close()
        with urllib.request.urlopen(f"{http_address}/v1/models", timeout=30) as answer:
            assert [model["id"] for model in json.load(answer)["data"]] == ["silero", "toy"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_words_for_families() -> None:
    words = ["model=smollm2, reach", "dtype=bfloat16", "families.smollm2.kv_tokens=128", "http_server.grace_s=2"]
    config = load("serve", words, ServeConfig)
    assert config.names == ("smollm2", "reach")
    assert config.family("smollm2").kv_tokens == 128
    assert config.family("assistant").dtype == "bfloat16"
    assert config.http_server.grace_s == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["model=smolm2"], "did you mean 'smollm2'"),
        (["model=toy", "families.hibari.threads=1"], "families.hibari is not served"),
        (["model=toy", "http_server.host=0.0.0.0"], "other machines may reach"),
    ],
)
def test_mistakes(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["models=[]"], ["models=[toy,toy]"], ["models=[reach,wall]", "weights=x.safetensors"]]
)
def test_models_that_make_no_sense(words: list[str]) -> None:
    with pytest.raises(ConfigError):
        load("serve", words, ServeConfig)
