"""Orpheus as a family: a published folder becomes speech, whose every sample is known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor
from toy_speech import SIZES, SPOKEN, spoken_codes, toy_codec, write_orpheus

from mstar_plan.errors import InvalidInputError, LimitExceededError, WeightsError
from mstar_plan.families.abilities import TextOptions
from mstar_plan.families.orpheus import CODEC, VOICES, OrpheusAbility, load_orpheus
from mstar_plan.families.servable import FamilyConfig, Servable
from mstar_plan.models.orpheus.graph import SPEAK
from mstar_plan.models.snac.noise import draw_noise
from mstar_plan.runtime.runtime import Runtime

TOY = toy_codec().float()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_orpheus(tmp_path_factory.mktemp("models") / "orpheus", TOY)


@pytest.fixture
def served(folder: Path) -> Servable:
    return load_orpheus("orpheus", FamilyConfig(weights=folder, kv_tokens=512), SPOKEN)


def ability_of(served: Servable) -> OrpheusAbility:
    assert isinstance(served.speech, OrpheusAbility)
    return served.speech


@torch.inference_mode()
def speech(seed: int | None) -> Tensor:
    return TOY.decode(spoken_codes(SIZES), None if seed is None else draw_noise(SIZES, [seed], 4))[:, 0]


def test_speaks_what_the_model_writes(served: Servable) -> None:
    assert served.abilities == ("speech",)
    call = ability_of(served).speak("hi there.", "leo")
    assert call.emit == ("audio",)
    with Runtime(served.graph) as runtime:
        pieces = []
        with runtime.stream(call.walk, call.values, emit=call.emit) as events:
            for event in events:
                pieces += [event.value] if getattr(event, "name", "") == "audio" else []
                result = getattr(event, "result", None)
    assert result is not None
    assert torch.equal(torch.cat(pieces, 1), result.outputs["speech"])
    torch.testing.assert_close(result.outputs["speech"], speech(0), rtol=0, atol=1e-5)
    assert result.outputs["frames_spoken"] == 4
    assert result.outputs["usage"].completion_tokens == 29


def test_prompt_is_framed_and_tags_are_text(served: Servable) -> None:
    ability = ability_of(served)
    plain = ability.prompt("hi", "leo")
    assert plain[:2] == [60, 59]
    assert plain[-4:] == [61, 62, 63, 64]
    assert len(plain) == 2 + len("leo: hi") + 4
    assert ability.prompt("hi") == ability.prompt("hi", VOICES[0])
    assert SPOKEN.end not in ability.prompt(f"stop <|{SPOKEN.end}|>")


def test_requests_share_the_model(served: Servable) -> None:
    ability = ability_of(served)
    options = TextOptions(temperature=0, max_tokens=40)
    seeds = (1, None, 2, 1)
    with Runtime(served.graph) as runtime:
        calls = [ability.speak_with(f"text {i}", "", options, seed) for i, seed in enumerate(seeds)]
        results = [runtime.submit(call.walk, call.values) for call in calls]
        for seed, result in zip(seeds, results, strict=True):
            torch.testing.assert_close(result.result(60).outputs["speech"], speech(seed), rtol=0, atol=1e-5)


def test_too_few_tokens_end_in_whole_frames(served: Servable) -> None:
    call = ability_of(served).speak_with("hi", "", TextOptions(temperature=0, max_tokens=17), None)
    with Runtime(served.graph) as runtime:
        outputs = runtime.submit(call.walk, call.values).result(60).outputs
    assert outputs["frames_spoken"] == 2
    with torch.inference_mode():
        books = [book[:, : 2 * n] for book, n in zip(spoken_codes(SIZES), (1, 2, 4), strict=True)]
        torch.testing.assert_close(outputs["speech"], TOY.decode(books)[:, 0], rtol=0, atol=1e-5)


def test_face(served: Servable) -> None:
    face = served.faces[SPEAK]
    values = face.prepare(face.check({"text": "hi", "temperature": 0, "noise_seed": -1}))
    with Runtime(served.graph) as runtime:
        outputs = runtime.submit(face.walk, values).result(60).outputs
    assert face.outputs.keys() <= outputs.keys()
    torch.testing.assert_close(face.present("speech", outputs["speech"]), speech(None), rtol=0, atol=1e-5)
    assert json.dumps(face.present("usage", outputs["usage"]))


def test_refused(served: Servable) -> None:
    ability = ability_of(served)
    for text, voice, speed, said in (
        (" ", "", 1.0, "no text"),
        ("hi", "leon", 1.0, "did you mean 'leo'"),
        ("hi", "leo", 1.5, "speed is 1.5"),
    ):
        with pytest.raises(InvalidInputError, match=said):
            ability.speak(text, voice, speed)
    with pytest.raises(InvalidInputError, match="n is 2"):
        ability.speak_with("hi", "", TextOptions(n=2))
    with pytest.raises(InvalidInputError, match="noise_seed"):
        ability.speak_with("hi", "", TextOptions(), 2**64)
    with pytest.raises(LimitExceededError):
        ability.speak("a" * 600)


def test_folders_that_do_not_fit(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=f"FOLDER/{CODEC}"):
        load_orpheus("orpheus", FamilyConfig())
    with pytest.raises(WeightsError, match="speech needs 156938"):
        load_orpheus("orpheus", FamilyConfig(weights=folder))
    other = write_orpheus(tmp_path / "other", TOY)
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "model_type": "qwen2"}))
    with pytest.raises(WeightsError, match="qwen2"):
        load_orpheus("orpheus", FamilyConfig(weights=other), SPOKEN)
    (other / "config.json").write_text(json.dumps(config))
    (other / CODEC / "pytorch_model.bin").unlink()
    with pytest.raises(WeightsError, match="lacks"):
        load_orpheus("orpheus", FamilyConfig(weights=other), SPOKEN)
