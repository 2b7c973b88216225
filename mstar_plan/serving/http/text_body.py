"""What chat and completions ask for alike: how to write, as OpenAI and vLLM name it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from mstar_plan.errors import InvalidInputError, LimitExceededError
from mstar_plan.families.abilities import TextOptions, TextUsage, TokenLogprob
from mstar_plan.serving.http.body import Answer, Body, Finite, OpenAIBody
from mstar_plan.serving.http.config import HttpLimits

LEAST_LOGPROB = -9999.0  # stands for minus infinity, which JSON does not have
MAX_BIASES = 1024


class StreamOptions(Body):
    """How to stream."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class TextBody(OpenAIBody):
    """Fields that say how to write."""

    model: str
    max_tokens: int | None = None
    temperature: Finite | None = None
    top_p: Finite | None = None
    top_k: int | None = Field(None, description="-1 or 0: off")
    min_p: Finite | None = None
    repetition_penalty: Finite | None = None
    frequency_penalty: Finite | None = None
    presence_penalty: Finite | None = None
    seed: int | None = None
    stop: str | Annotated[list[str], Field(max_length=16)] | None = None
    n: int | None = None
    logit_bias: dict[str, Finite] | None = None
    ignore_eos: bool | None = Field(None, description="write on past the model's end token")
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    deadline_s: Finite | None = Field(None, description="seconds that the request may take")

    def wants_usage(self) -> bool:
        """Whether a stream ends with the tokens that were used.

        Raises:
            InvalidInputError: There are options of a stream, and no stream.
        """
        if self.stream_options is not None and not self.stream:
            raise InvalidInputError("stream_options are for stream: true alone", field="stream_options")
        return bool(self.stream_options and self.stream_options.include_usage)

    def options(self, limits: HttpLimits, **more: Any) -> TextOptions:
        """How to write, for a model; `more` are what chat and completions name differently.

        Raises:
            InvalidInputError: A value is out of range.
            LimitExceededError: More is asked for than the server gives.
        """
        most = more.pop("max_tokens", self.max_tokens)
        for name, value, limit in (("max_tokens", most, limits.max_tokens), ("n", self.n, limits.n)):
            if value is not None and value > limit:
                raise LimitExceededError(f"{name} is {value}; at most {limit} are given", field=name)
        if self.top_k is not None and self.top_k < -1:
            raise InvalidInputError(f"top_k is {self.top_k}; it needs -1 (off) or more", field="top_k")
        given = {
            name: getattr(self, name)
            for name in (
                "temperature", "top_p", "min_p", "repetition_penalty", "frequency_penalty", "presence_penalty", "seed",
                "n",
            )
            if getattr(self, name) is not None
        }  # fmt: skip
        stop = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return TextOptions(
            max_tokens=most,
            top_k=max(0, self.top_k or 0),
            stop=tuple(stop),
            logit_bias=_biases(self.logit_bias or {}),
            ignore_end=bool(self.ignore_eos),
            **given,
            **more,
        )


class PromptDetails(Answer):
    """Where the tokens of a prompt came from."""

    cached_tokens: int


class Usage(Answer):
    """Tokens of a request."""

    prompt_tokens: int
    completion_tokens: int | None = None
    total_tokens: int
    prompt_tokens_details: PromptDetails | None = None


def usage_of(used: list[TextUsage]) -> Usage:
    """Tokens of walks together."""
    read, written = sum(u.prompt_tokens for u in used), sum(u.completion_tokens for u in used)
    return Usage(
        prompt_tokens=read,
        completion_tokens=written,
        total_tokens=read + written,
        prompt_tokens_details=PromptDetails(cached_tokens=sum(u.cached_tokens for u in used)),
    )


def finite(logprob: float) -> float:
    """A log-probability as JSON can hold it."""
    return logprob if logprob > LEAST_LOGPROB else LEAST_LOGPROB


def top_of(token: TokenLogprob, count: int) -> tuple[tuple[str, int, float], ...]:
    """The likeliest tokens in a token's place, as many as were asked for."""
    return token.top[:count]


def _biases(given: dict[str, float]) -> dict[int, float]:
    if len(given) > MAX_BIASES:
        raise LimitExceededError(f"logit_bias has {len(given)} tokens; at most {MAX_BIASES}", field="logit_bias")
    biases = {}
    for key, bias in given.items():
        if not (key.isascii() and key.isdigit() and len(key) < 10):
            raise InvalidInputError(f"logit_bias has the key {key[:40]!r}; use ids of tokens", field="logit_bias")
        if not -100 <= bias <= 100:
            raise InvalidInputError(f"logit_bias of token {key} is {bias}; it needs -100 to 100", field="logit_bias")
        biases[int(key)] = bias
    return biases
