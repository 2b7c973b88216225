"""Penalties and filters equal transformers', and a draw is a function of its seed alone."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from transformers import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from mstar_plan.errors import ComponentError
from mstar_plan.runtime.generation.sampling import candidates, draw, log_probabilities, penalise, uniform
from mstar_plan.runtime.generation.text import TextOptions


def logits(size: int = 1000, seed: int = 0) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)) * 3


def spread(options: TextOptions, of: torch.Tensor) -> torch.Tensor:
    ids, probabilities = candidates(of, options)
    return probabilities if ids is None else torch.zeros_like(of).index_copy(0, ids, probabilities)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("top_k", [0, 1, 7, 600])
@pytest.mark.parametrize("top_p", [0.05, 0.6, 0.999, 1.0])
def test_filters_leave_what_transformers_leaves(temperature: float, top_k: int, top_p: float) -> None:
    of, ids = logits(), torch.zeros(1, 1, dtype=torch.long)
    want = TemperatureLogitsWarper(temperature)(ids, of[None])
    if top_k:
        want = TopKLogitsWarper(top_k)(ids, want)
    if top_p < 1:
        want = TopPLogitsWarper(top_p)(ids, want)
    got = spread(TextOptions(temperature=temperature, top_k=top_k, top_p=top_p), of)
    torch.testing.assert_close(got, want.softmax(-1)[0], atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("min_p", [0.01, 0.3])
def test_min_p(min_p: float) -> None:
    of = logits()
    want = MinPLogitsWarper(min_p)(torch.zeros(1, 1, dtype=torch.long), of[None]).softmax(-1)[0]
    torch.testing.assert_close(spread(TextOptions(min_p=min_p), of), want, atol=1e-6, rtol=1e-4)


def test_repetition_penalty() -> None:
    of, prompt, written = logits(), [3, 5, 5, 9], [9, 11]
    want = RepetitionPenaltyLogitsProcessor(1.3)(torch.tensor([prompt + written]), of[None])[0]
    got = penalise(of, TextOptions(repetition_penalty=1.3), set(prompt), Counter(written))
    torch.testing.assert_close(got, want)


def test_frequency_presence_and_bias() -> None:
    of = torch.zeros(6)
    options = TextOptions(frequency_penalty=0.5, presence_penalty=0.25, logit_bias={0: 2.0, 99: 1.0})
    got = penalise(of, options, {5}, Counter([1, 1, 1, 2]))
    assert got.tolist() == [2.0, -1.75, -0.75, 0.0, 0.0, 0.0]
    assert of.abs().sum() == 0
    assert penalise(of, TextOptions(), {5}, Counter([1])) is of


def test_a_draw_is_a_function_of_seed_answer_and_step() -> None:
    options = TextOptions(temperature=1.0, seed=4)
    drawn = [draw(logits(), options, 0, step) for step in range(50)]
    assert drawn == [draw(logits(), options, 0, step) for step in range(50)]
    assert drawn != [draw(logits(), options, 1, step) for step in range(50)]
    assert drawn != [draw(logits(), TextOptions(temperature=1.0, seed=5), 0, step) for step in range(50)]
    assert uniform(-1, 0, 0) == uniform(2**64 - 1, 0, 0)


def test_draws_follow_the_probabilities() -> None:
    of = torch.tensor([0.1, 0.2, 0.3, 0.4]).log()
    options = TextOptions(temperature=1.0, seed=0)
    counts = torch.bincount(torch.tensor([draw(of, options, 0, step) for step in range(4000)]), minlength=4) / 4000
    torch.testing.assert_close(counts, of.exp(), atol=0.03, rtol=0)


def test_greedy_is_the_likeliest_and_nothing_finite_is_an_error() -> None:
    assert draw(logits(), TextOptions(temperature=0), 0, 0) == int(logits().argmax())
    for temperature in (0.0, 1.0):
        with pytest.raises(ComponentError, match="not finite"):
            draw(torch.full((5,), float("nan")), TextOptions(temperature=temperature, seed=0), 0, 0)


@pytest.mark.parametrize("temperature", [1e-300, 1e-40, 1e-5])
def test_next_to_no_temperature_is_greedy(temperature: float) -> None:
    of = logits() * 1e4
    assert draw(of, TextOptions(temperature=temperature, seed=0), 0, 0) == int(of.argmax())


def test_seeds_differ_in_every_bit() -> None:
    drawn = {uniform(seed, 0, 0) for seed in (2**63, 2**63 + 1, 2**64 - 1, 2**64 - 2, 0, 1)}
    assert len(drawn) == 6


def test_what_a_grammar_forbids_is_never_drawn() -> None:
    of = torch.full((1000,), -float("inf"))
    of[[3, 700]] = torch.tensor([0.0, 1.0])
    for options in (TextOptions(seed=1), TextOptions(seed=1, top_k=50), TextOptions(seed=1, top_p=0.9999, min_p=1e-9)):
        assert {draw(of, options, 0, step) for step in range(60)} == {3, 700}


def test_log_probabilities() -> None:
    own, top = log_probabilities(logits(), 7, 3)
    want = logits().log_softmax(-1)
    assert own == pytest.approx(float(want[7]))
    assert [token for token, _ in top] == want.topk(3).indices.tolist()
    assert log_probabilities(logits(), 7, 0) == (own, [])
    assert sum(torch.tensor([value for _, value in log_probabilities(logits(12), 7, 20)[1]]).exp()) == pytest.approx(1)
