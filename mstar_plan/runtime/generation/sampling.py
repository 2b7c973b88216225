"""Which token comes next: penalties, filters and the draw, one row at a time; a draw is a function of its seed alone.

Shapes: V vocabulary.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np
import torch
from torch import Tensor

from mstar_plan.errors import ComponentError
from mstar_plan.runtime.generation.text import TextOptions

COLD = 1e-4  # a temperature below is greedy: logits divided by it would leave float32's range
FIRST_LOOK = 256  # likeliest tokens that top-p looks at before it sorts all of them


def uniform(seed: int, answer: int, step: int) -> float:
    """A number in [0, 1) that is a function of its arguments alone (Philox, Salmon et al. 2011)."""
    generator = np.random.Generator(
        np.random.Philox(key=np.array([seed & (2**64 - 1), answer], np.uint64), counter=step)
    )
    return float(generator.random())


def penalise(logits_V: Tensor, options: TextOptions, prompt: Iterable[int], written: Mapping[int, int]) -> Tensor:
    """Returns the logits with biases and penalties; the same tensor where there are none.

    Args:
        logits_V: Of the next token.
        options: Which penalties.
        prompt: Distinct tokens of the prompt.
        written: How often each token was written.

    The repetition penalty divides positive logits and multiplies negative ones (CTRL); frequency and presence
    penalties are subtracted (OpenAI's definition).
    """
    repeated, counted = options.repetition_penalty != 1.0, options.frequency_penalty or options.presence_penalty
    if not (repeated or counted or options.logit_bias):
        return logits_V
    logits_V = logits_V.clone()
    if options.logit_bias:
        ids = [token for token in options.logit_bias if 0 <= token < len(logits_V)]
        logits_V[ids] += torch.tensor([options.logit_bias[token] for token in ids]).to(logits_V)
    if repeated:
        ids = sorted({*prompt, *written})
        seen = logits_V[ids]
        factor = options.repetition_penalty
        logits_V[ids] = torch.where(seen > 0, seen / factor, seen * factor)
    if counted and written:
        ids = list(written)
        counts = torch.tensor([float(written[token]) for token in ids]).to(logits_V)
        logits_V[ids] -= options.frequency_penalty * counts + options.presence_penalty
    return logits_V


def candidates(logits_V: Tensor, options: TextOptions) -> tuple[Tensor | None, Tensor]:
    """What may be drawn: token ids [C] (None: all V, in order) and their probabilities [C], which sum to one.

    Temperature first, then top-k, then top-p (of what is left, the fewest whose probabilities reach p; Holtzman et
    al. 2019), then min-p (Nguyen et al. 2024).
    """
    scaled_V = logits_V / options.temperature
    if not options.top_k and options.top_p >= 1.0:
        probabilities = scaled_V.softmax(-1)
        ids = None
        if options.min_p:
            keep = probabilities >= options.min_p * probabilities.max()
            ids, probabilities = keep.nonzero()[:, 0], probabilities[keep]
        return ids, probabilities / probabilities.sum()
    total = len(scaled_V)
    most = min(options.top_k or total, total)
    values, ids = scaled_V.topk(min(most, FIRST_LOOK))
    mass = (values - scaled_V.logsumexp(-1)).exp() if most == total else None
    if len(ids) < most and (mass is None or float(mass.sum()) < options.top_p):
        values, ids = scaled_V.topk(most)
        mass = None
    probabilities = values.softmax(-1) if mass is None else mass
    if options.top_p < 1.0:
        keep = probabilities.cumsum(-1) - probabilities < options.top_p
        keep[0] = True
        ids, probabilities = ids[keep], probabilities[keep]
    if options.min_p:
        keep = probabilities >= options.min_p * probabilities.max()
        ids, probabilities = ids[keep], probabilities[keep]
    return ids, probabilities / probabilities.sum()


def draw(logits_V: Tensor, options: TextOptions, answer: int, step: int) -> int:
    """The next token's id.

    Raises:
        ComponentError: No logit is finite.
    """
    if options.temperature < COLD:
        token = int(logits_V.argmax())
        if not math.isfinite(float(logits_V[token])):
            raise ComponentError("the model gave logits that are not finite; its weights may be damaged")
        return token
    ids, probabilities = candidates(logits_V, options)
    cumulative = probabilities.double().cumsum(-1)
    end = float(cumulative[-1])
    if not math.isfinite(end):
        raise ComponentError("the model gave logits that are not finite; its weights may be damaged")
    assert options.seed is not None
    place = uniform(options.seed, answer, step) * end
    index = min(int(torch.searchsorted(cumulative, place, right=True)), len(cumulative) - 1)
    return index if ids is None else int(ids[index])


def log_probabilities(logits_V: Tensor, token: int, most: int) -> tuple[float, list[tuple[int, float]]]:
    """Of the chosen token and of the `most` likeliest, by the model's own logits."""
    log_V = logits_V.float().log_softmax(-1)
    if not most:
        return float(log_V[token]), []
    values, ids = log_V.topk(min(most, len(log_V)))
    return float(log_V[token]), list(zip(ids.tolist(), values.tolist(), strict=True))


def count(tokens: Iterable[int]) -> Counter[int]:
    """How often each token is there."""
    return Counter(tokens)
