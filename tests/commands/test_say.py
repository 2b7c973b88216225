"""`mstar-plan say`: a WAV file with all samples, and a line on how long it took."""

from __future__ import annotations

import wave

import numpy as np
import pytest
import toy_catalogue

from mstar_plan.cli import main


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mstar_plan.families.catalogue.FAMILIES", toy_catalogue.CATALOGUE)


def test_it_writes_every_sample(capsys, tmp_path):
    out = tmp_path / "hum.wav"
    assert main(["say", "abc", "model=hummer", "voice=high", "--out", str(out)]) == 0
    with wave.open(str(out)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (1000, 1, 2)
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    assert len(samples) == 30
    assert set(samples.tolist()) == {round(0.5 * 32767)}
    assert "0.03 s of speech" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["model=writer"], "has no speech, but text"),
        (["model=hummer", "--out", "hum.mp3"], "name a .wav file"),
        (["model=hummer", "--out", "nowhere/hum.wav"], "there is no folder"),
    ],
)
def test_mistakes(capsys, words, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["say", "abc", *words]) == 2
    assert said in capsys.readouterr().err
