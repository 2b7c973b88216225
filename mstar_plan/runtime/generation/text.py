"""What a request for text asks for and what it gets: options, deltas, log-probabilities and usage."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from mstar_plan.errors import InvalidInputError

FinishReason = Literal["stop", "length", "tool_calls"]
MAX_STOPS, MAX_STOP_CHARACTERS = 16, 256
MAX_ANSWERS = 16
MAX_TOP_LOGPROBS = 20
MAX_BIAS = 1e6


@dataclass(frozen=True, eq=False)
class TextOptions:
    """How to write. Each family refuses what it cannot do.

    Attributes:
        max_tokens: Most tokens to write; None: what is left of the context, or the server's limit.
        temperature: 0 is greedy, and so is anything below 1e-4.
        top_k: 0 is off.
        top_p: 1 is off.
        min_p: 0 is off; tokens less likely than this part of the likeliest one are left out.
        repetition_penalty: 1 is off; over the prompt and what was written (Keskar et al. 2019, CTRL).
        frequency_penalty: 0 is off; by how often it was written.
        presence_penalty: 0 is off; by whether it was written.
        seed: Of this request's draws; None: one is drawn.
        stop: Texts before which writing ends; they are not part of the answer.
        logprobs: How many alternatives to report a token; None: nothing is reported, 0: the chosen one alone.
        json_schema: The answer must be JSON that fits it; {} for any JSON object.
        grammar: The answer must fit this Lark grammar.
        n: How many answers, all from one reading of the prompt.
        echo: The prompt is part of the answer; for the wire to add.
        logit_bias: {token id: what is added to its logit}.
        ignore_end: Write on past the model's end token, for benchmarks.
    """

    max_tokens: int | None = None
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    json_schema: Mapping[str, Any] | None = None
    grammar: str | None = None
    n: int = 1
    echo: bool = False
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    ignore_end: bool = False

    def __post_init__(self) -> None:
        for name, low, high in _BOUNDS:
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and low <= value <= high):
                raise InvalidInputError(f"{name} is {value}; it needs {low:g} to {high:g}", field=name)
        if self.top_p == 0 or self.repetition_penalty == 0:
            name = "top_p" if self.top_p == 0 else "repetition_penalty"
            raise InvalidInputError(f"{name} is 0; it needs more than 0", field=name)
        if len(self.stop) > MAX_STOPS or not all(0 < len(text) <= MAX_STOP_CHARACTERS for text in self.stop):
            what = f"stop has {len(self.stop)} texts of {[len(text) for text in self.stop]} characters"
            raise InvalidInputError(
                f"{what}; at most {MAX_STOPS} of 1 to {MAX_STOP_CHARACTERS} characters are taken", field="stop"
            )
        if self.json_schema is not None and self.grammar is not None:
            raise InvalidInputError("json_schema and grammar are both set; choose one", field="grammar")
        if self.ignore_end and not (self.json_schema is None and self.grammar is None):
            raise InvalidInputError("ignore_end and a grammar are both set; a grammar ends", field="ignore_end")
        if not all(abs(bias) <= MAX_BIAS for bias in self.logit_bias.values()):  # NaN, too
            raise InvalidInputError(
                f"logit_bias holds NaN or more than {MAX_BIAS:g}; send smaller numbers", field="logit_bias"
            )


_BOUNDS: tuple[tuple[str, float, float], ...] = (
    ("max_tokens", 1, 2**20),
    ("temperature", 0, 100),
    ("top_k", 0, 2**20),
    ("top_p", 0, 1),
    ("min_p", 0, 1),
    ("repetition_penalty", 0, 100),
    ("frequency_penalty", -100, 100),
    ("presence_penalty", -100, 100),
    ("seed", -(2**63), 2**64 - 1),
    ("logprobs", 0, MAX_TOP_LOGPROBS),
    ("n", 1, MAX_ANSWERS),
)


@dataclass(frozen=True)
class TokenLogprob:
    """One written token: its text, id and log-probability, and those of the likeliest, most likely first."""

    text: str
    token: int
    logprob: float
    top: tuple[tuple[str, int, float], ...] = ()


@dataclass(frozen=True)
class TextDelta:
    """What one step added to one answer.

    Attributes:
        index: Which of the n answers.
        text: New text; may be empty while a character or a possible stop text is not complete yet.
        tokens: Ids of the new tokens.
        logprobs: One a token, if asked for.
        finish: Why the answer ended with this step; None while it goes on.
    """

    index: int
    text: str
    tokens: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    finish: FinishReason | None = None


@dataclass(frozen=True)
class TextUsage:
    """Tokens of a request: read (of these from the cache of prompts) and written (over all answers)."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
