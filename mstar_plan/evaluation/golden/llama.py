"""A Llama decoder: logits, greedy answers with and without a repetition penalty, and what top-p leaves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from mstar_plan.evaluation.golden.case import Comparison, GoldenCase
from mstar_plan.models.llama.config import LlamaConfig
from mstar_plan.models.llama.decoder import LlamaDecoder
from mstar_plan.runtime.generation.kv_pool import KVPool, KVShape
from mstar_plan.runtime.generation.paged_step import SlicedStep
from mstar_plan.runtime.generation.sampling import candidates, draw, penalise
from mstar_plan.runtime.generation.sequence import Sequence as Past
from mstar_plan.runtime.generation.text import TextOptions

REPETITION_PENALTY, TEMPERATURE, TOP_P = 1.3, 0.6, 0.8  # of the cases, unless their `runs` say others


def check_llama(case: GoldenCase) -> Iterator[Comparison]:
    """Rows of in.input_ids without their padding, in.long_ids; out.logits_row0, out.greedy*, out.step_logits_row0."""
    lm = _Model(case)
    rows = _rows(case)
    runs = case.config.get("runs", {})
    penalty = float(runs.get("repetition_penalty", REPETITION_PENALTY))
    if case.has("out.logits_row0"):
        yield case.compare("out.logits_row0", lm.logits(rows[0])[None])
    if case.has("out.long_logits_last", "in.long_ids"):
        count = case.io["out.long_logits_last"].shape[1]
        yield case.compare("out.long_logits_last", lm.logits(case.input("long_ids")[0].tolist())[None, -count:])
    for name, factor in (("out.greedy", 1.0), ("out.greedy_rep", penalty)):
        if case.has(name):
            yield case.compare(name, _answers(case, lm, rows, case.io[name], factor))
    if case.has("out.step_logits_row0"):
        count = len(case.io["out.step_logits_row0"])
        yield case.compare("out.step_logits_row0", lm.answer(rows[0], count, 1.0)[1])
    if case.has("out.top_p_probs"):
        yield case.compare("out.top_p_probs", _left(lm, rows[0], penalty, runs))


class _Model:
    def __init__(self, case: GoldenCase) -> None:
        self.config = LlamaConfig.from_published(case.config)
        self._decoder = LlamaDecoder(self.config, case.weights())
        self.end = int(case.config.get("eos_token_id", -1))

    def logits(self, tokens: Sequence[int]) -> Tensor:
        """[L, V] after every token."""
        past = self._past(len(tokens))
        past.reserve(len(tokens))
        cache = SlicedStep(past.pool, [(past, len(tokens))])
        return self._decoder.forward(torch.tensor(tokens), cache, torch.arange(len(tokens)))

    def answer(
        self, prompt: Sequence[int], most: int, penalty: float, padding: Sequence[int] = ()
    ) -> tuple[list[int], Tensor]:
        """Greedy tokens after a prompt, and the raw logits [n, V] that they were chosen by.

        The reference's repetition penalty counts padding as written: so it is given here.
        """
        past, options = self._past(len(prompt) + most), TextOptions(temperature=0, repetition_penalty=penalty)
        new, written, logits = list(prompt), list[int](), list[Tensor]()
        while len(written) < most and self.end not in written:
            past.reserve(len(new))
            last = torch.tensor([len(new) - 1])
            logits_V = self._decoder.forward(torch.tensor(new), SlicedStep(past.pool, [(past, len(new))]), last)[0]
            past.extend(new)
            logits.append(logits_V)
            counts = {token: written.count(token) for token in written}
            new = [draw(penalise(logits_V, options, {*prompt, *padding}, counts), options, 0, len(written))]
            written += new
        return written, torch.stack(logits)

    def _past(self, length: int) -> Past:
        shape = KVShape(self.config.num_hidden_layers, self.config.num_key_value_heads, self.config.head_dim)
        return Past.open(KVPool(shape, length + 16), [0], length)


def _rows(case: GoldenCase) -> list[list[int]]:
    ids, mask = case.input("input_ids"), case.input("attention_mask").bool()
    return [row[keep].tolist() for row, keep in zip(ids, mask, strict=True)]


def _answers(case: GoldenCase, lm: _Model, rows: list[list[int]], expected: Tensor, penalty: float) -> Tensor:
    """[B, L + new]: the padded prompts with their answers, padded at the end as the reference does."""
    ids = case.input("input_ids")
    out = torch.full_like(expected, int(case.config.get("pad_token_id") or 0))
    out[:, : ids.shape[1]] = ids
    for row, prompt in enumerate(rows):
        written, _ = lm.answer(prompt, expected.shape[1] - ids.shape[1], penalty, ids[row].tolist())
        out[row, ids.shape[1] : ids.shape[1] + len(written)] = torch.tensor(written)
    return out


def _left(lm: _Model, prompt: list[int], penalty: float, runs: Any) -> Tensor:
    """[V] probabilities of the first new token after all filters."""
    options = TextOptions(
        temperature=float(runs.get("temperature", TEMPERATURE)),
        top_p=float(runs.get("top_p", TOP_P)),
        repetition_penalty=penalty,
    )
    logits_V = lm.logits(prompt)[-1]
    ids, probabilities = candidates(penalise(logits_V, options, set(prompt), {}), options)
    return probabilities if ids is None else torch.zeros_like(logits_V).index_copy(0, ids, probabilities)
