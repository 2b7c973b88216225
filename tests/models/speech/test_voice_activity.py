"""Voice activity: what the package's own code says of the same audio, in whatever parts it comes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from speech_parts import activity, noise, silence, spoken

from mstar_plan.errors import ComponentError, ConfigError, UnavailableError, WeightsError
from mstar_plan.models.speech import voice_activity
from mstar_plan.models.speech.voice_activity import BLOCK, FRAME, VoiceActivity, VoiceActivityConfig


@pytest.fixture
def package() -> Iterator[object]:
    """The package; importing it sets torch's number of threads."""
    threads = torch.get_num_threads()
    import silero_vad

    yield silero_vad
    torch.set_num_threads(threads)


def test_it_says_what_the_package_says(package: object) -> None:
    audio = np.concatenate([silence(0.5), spoken("Hello there, how are you?"), noise(1.0)])
    network = package.load_silero_vad(onnx=True)  # type: ignore[attr-defined]
    want = network.audio_forward(torch.from_numpy(audio), 16_000)[0].numpy()
    found, _ = activity().probabilities(audio)
    assert found.shape == want.shape
    assert np.abs(found - want).max() < 1e-3
    assert found.max() > 0.9


@pytest.mark.parametrize("size", [1, 3, 50, BLOCK + 1])
def test_the_parts_in_which_audio_comes_do_not_matter(size: int) -> None:
    audio = np.tile(np.concatenate([spoken("Good morning."), silence(0.3)]), 3 if size < BLOCK else 12)
    whole, _ = activity().probabilities(audio)
    heard, parts = None, []
    for start in range(0, len(audio), size * FRAME):
        part, heard = activity().probabilities(audio[start : start + size * FRAME], heard)
        parts.append(part)
    assert len(whole) == -(-len(audio) // FRAME)
    assert np.abs(np.concatenate(parts) - whole).max() < 1e-4


def test_silence_noise_and_tones_are_no_speech() -> None:
    tone = (0.3 * np.sin(np.arange(32_000) * 0.1)).astype(np.float32)
    for audio in (silence(2), noise(2), tone):
        assert activity().probabilities(audio)[0].max() < 0.35
    assert activity().probabilities(np.zeros(0, np.float32))[0].shape == (0,)


def test_values_that_are_no_probabilities_are_the_component_s_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    class Session:
        def run(self, names: list[str], feed: dict[str, np.ndarray]) -> list[np.ndarray]:
            return [np.full(len(feed["input"]), np.nan, np.float32), feed["h"], feed["c"]]

    monkeypatch.setattr(activity(), "_session", Session())
    with pytest.raises(ComponentError, match="no probabilities"):
        activity().probabilities(silence(0.1))


def test_weights_that_are_not_there_or_of_another_kind_are_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "garbage.onnx").write_bytes(b"garbage" * 10)
    with pytest.raises(WeightsError, match="cannot be loaded"):
        VoiceActivity(VoiceActivityConfig(weights=tmp_path / "garbage.onnx"))
    other = voice_activity.packaged_weights().with_name("silero_vad_16k_op15.onnx")
    with pytest.raises(WeightsError, match="has inputs"):
        VoiceActivity(VoiceActivityConfig(weights=other))
    monkeypatch.setattr(voice_activity, "PACKAGE", "no_such_package_at_all")
    with pytest.raises(UnavailableError, match="pip install silero-vad"):
        VoiceActivity()
    with pytest.raises(ConfigError, match="threads"):
        VoiceActivityConfig(threads=0)
