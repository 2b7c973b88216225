"""Spans of speech: found where the probabilities say so, whatever these are, and put together to windows."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mstar_plan.errors import ConfigError
from mstar_plan.models.speech.spans import SpanConfig, listening_windows, speech_spans

RATE, FRAME = 16_000, 512
BARE = SpanConfig(least_speech_s=0.0, least_silence_s=0.0, margin_s=0.0)


def frames(*levels: float) -> np.ndarray:
    return np.array(levels, np.float32)


def spans(probabilities: np.ndarray, config: SpanConfig = BARE) -> list[tuple[int, int]]:
    """In frames."""
    found = speech_spans(probabilities, FRAME, len(probabilities) * FRAME, RATE, config)
    return [(start // FRAME, stop // FRAME) for start, stop in found]


def test_speech_begins_at_one_threshold_and_ends_below_a_lower_one() -> None:
    assert spans(frames(0.1, 0.4, 0.6, 0.4, 0.6, 0.4, 0.3, 0.4, 0.1)) == [(2, 6)]
    assert spans(frames(0.9, 0.9)) == [(0, 2)]
    assert spans(frames(0.4, 0.4)) == []
    assert spans(frames()) == []


def test_a_short_pause_is_part_of_speech_and_a_click_is_none() -> None:
    config = SpanConfig(least_speech_s=0.1, least_silence_s=0.1, margin_s=0.0)
    pause = [0.9] * 5 + [0.0] * 2 + [0.9] * 5
    assert spans(frames(*pause, *[0.0] * 4), config) == [(0, 12)]
    apart = [0.9] * 5 + [0.0] * 4 + [0.9] * 5
    assert spans(frames(*apart), config) == [(0, 5), (9, 14)]
    assert spans(frames(0, 0, 0.9, 0.9, 0, 0, 0, 0), config) == []


def test_margins_do_not_overlap_nor_leave_the_audio() -> None:
    config = SpanConfig(least_speech_s=0.0, least_silence_s=0.0, margin_s=1.0)
    found = speech_spans(frames(0, 0.9, 0, 0.9, 0), FRAME, 5 * FRAME - 100, RATE, config)
    assert found == ((0, 5 * FRAME // 2), (5 * FRAME // 2, 5 * FRAME - 100))


def test_long_speech_is_cut_where_it_is_least_likely() -> None:
    probabilities = np.full(100, 0.9, np.float32)
    probabilities[22] = 0.6
    config = SpanConfig(least_silence_s=0.2, least_speech_s=0, margin_s=0, longest_s=1.0)  # 31 frames
    found = spans(probabilities, config)
    assert found[0] == (0, 22)
    assert found[-1][1] == 100
    assert all(a[1] == b[0] for a, b in pairwise(found))
    assert max(stop - start for start, stop in found) <= 31


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.floats(0, 1, width=32), max_size=120),
    st.integers(0, 511),
    st.sampled_from([0.0, 0.05, 0.2]),
    st.sampled_from([0.0, 0.1]),
)
def test_spans_are_in_order_and_hold_all_that_is_surely_speech(
    levels: list[float], missing: int, silence_s: float, margin_s: float
) -> None:
    samples = max(0, len(levels) * FRAME - missing)
    config = SpanConfig(least_speech_s=0.0, least_silence_s=silence_s, margin_s=margin_s, longest_s=1.5)
    found = speech_spans(frames(*levels), FRAME, samples, RATE, config)
    edges = [edge for span in found for edge in span]
    assert edges == sorted(edges)
    assert all(0 <= start < stop <= samples for start, stop in found)
    for at, level in enumerate(levels):
        middle = at * FRAME + FRAME // 2
        if level >= config.begin and middle < samples:
            assert any(start <= middle < stop for start, stop in found)
    longest = 1.5 + 2 * margin_s
    assert all((stop - start) / RATE <= longest for start, stop in found)


def test_windows_hold_neighbours_and_are_not_too_long() -> None:
    seconds = [(0, 2), (3, 5), (9, 12), (12, 36), (36, 40), (40, 41)]
    found = listening_windows([(a * RATE, b * RATE) for a, b in seconds], RATE)
    assert [(a / RATE, b / RATE) for a, b in found] == [(0, 5), (9, 36), (36, 41)]
    assert listening_windows([], RATE) == ()


@pytest.mark.parametrize(
    "settings_",
    [{"begin": 0.2}, {"end": 0.0}, {"begin": 1.0}, {"margin_s": -1}, {"longest_s": 0.5}, {"least_silence_s": -0.1},
     {"longest_s": float("nan")}, {"margin_s": float("nan")}],
)  # fmt: skip
def test_settings_check_themselves(settings_: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        SpanConfig(**settings_)
