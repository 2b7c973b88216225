"""The speaker: its pieces are the package's one shot, they stay in bounds, and mistakes are told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from speech_parts import package, speaker

from mstar_plan.errors import ComponentError, ConfigError, InvalidInputError, WeightsError
from mstar_plan.models.speech.speaker import LONGEST_PHONEMES, Speaker, SpeakerConfig
from mstar_plan.models.speech.voice_activity import packaged_weights


def pieces(engine: Speaker, phonemes: str, speed: float = 1.0, seed: int = 0) -> list[np.ndarray]:
    made = engine.frames(phonemes, "heart", speed, seed)
    return [engine.piece(made, number) for number in range(engine.pieces(made))]


@pytest.mark.parametrize(("piece_frames", "speed"), [(1, 1.0), (7, 0.5), (32, 2.0), (33, 1.0), (4096, 1.3)])
def test_pieces_are_the_package_s_one_shot(monkeypatch: pytest.MonkeyPatch, piece_frames: int, speed: float) -> None:
    engine = speaker()
    monkeypatch.setattr(engine, "config", SpeakerConfig(piece_frames=piece_frames))
    [phonemes] = engine.phonemes("How are you today?", "heart")
    one_shot = package().from_phonemes(phonemes, speed=speed, seed=5)
    made = np.concatenate(pieces(engine, phonemes, speed, seed=5))
    assert made.shape == one_shot.shape
    assert np.abs(made - one_shot).max() <= 1e-5
    assert 0.05 < np.abs(made).max() <= 1


def test_the_same_seed_is_the_same_audio_and_another_is_not() -> None:
    [phonemes] = speaker().phonemes("Yes.", "heart")
    first, again, other = (np.concatenate(pieces(speaker(), phonemes, seed=seed)) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("text", ["🙂", "你好", "", "...", "—"])
def test_what_has_no_sound_gives_no_phonemes(text: str) -> None:
    assert speaker().phonemes(text, "heart") == ()


def test_runs_are_bounded_and_lose_nothing() -> None:
    text = "word " * 300
    runs = speaker().phonemes(text, "heart")
    assert max(map(len, runs)) <= LONGEST_PHONEMES
    assert len(runs) > 2
    assert "".join(runs).count("ɜɹd") == 300
    assert max(map(len, speaker().phonemes("x" * 2000, "heart"))) <= LONGEST_PHONEMES


def test_samples_out_of_bounds_are_cut_off_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = speaker()
    [phonemes] = engine.phonemes("Loud.", "heart")
    made = engine.frames(phonemes, "heart", 1.0, 0)
    loud = replace(made, harmonic=made.harmonic + 4, rough=made.rough + 4, free=made.free + 4)
    monkeypatch.setattr(engine, "clipped", 0)
    samples = np.concatenate([engine.piece(loud, number) for number in range(engine.pieces(loud))])
    assert np.abs(samples).max() == 1
    assert engine.clipped == int((np.abs(samples) == 1).sum()) > 0


def test_values_that_are_not_finite_are_the_component_s_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = speaker()
    [phonemes] = engine.phonemes("No.", "heart")
    made = engine.frames(phonemes, "heart", 1.0, 0)
    broken = replace(made, free=np.full_like(made.free, np.nan))
    with pytest.raises(ComponentError, match="not finite"):
        engine.piece(broken, 0)

    class Session:
        def run(self, names: None, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
            return [np.full((1, 601, 9), np.nan, np.float32)] * 5 + [np.zeros((1, 9), np.float32)]

    monkeypatch.setattr(package(), "sess", Session())
    with pytest.raises(ComponentError, match="not finite"):
        engine.frames(phonemes, "heart", 1.0, 0)


def test_only_voices_on_this_machine_are_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert speaker().voice("") == speaker().voices[0] == "heart"
    with pytest.raises(InvalidInputError, match="no voice 'haert'; did you mean 'heart'"):
        speaker().voice("haert")
    (tmp_path / "bf_emma.int8.onnx").write_bytes(Path(package().model_path).read_bytes())
    monkeypatch.setenv("HIBARI_HOME", str(tmp_path))
    assert Speaker().voices == ("heart", "emma")


@pytest.mark.parametrize("kind", ["absent", "garbage", "another"])
def test_weights_of_another_kind_are_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "voice.onnx"
    if kind == "garbage":
        path.write_bytes(b"garbage" * 100)
    with pytest.raises(WeightsError, match=r"voice|inputs"):
        Speaker(SpeakerConfig(weights=packaged_weights() if kind == "another" else path))


@pytest.mark.parametrize("field", ["threads", "piece_frames"])
@pytest.mark.parametrize("value", [0, 5000])
def test_settings_check_themselves(field: str, value: int) -> None:
    with pytest.raises(ConfigError, match=field):
        SpeakerConfig(**{field: value})
