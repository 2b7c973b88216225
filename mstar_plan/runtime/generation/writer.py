"""Writer: the component that reads prompts and writes answers, for all requests that are under way at once.

Each call of it is one step of one request: a chunk of its prompt, or one more token of each of its answers. The runtime
hands over the steps of all requests that wait, whatever they are at, and they share one pass of the model. So a request
joins and leaves between steps, and a long prompt holds nobody up: of all prompts together, a step reads a bounded
number of tokens.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence as Rows
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from torch import Tensor

from mstar_plan.errors import CancelledError, InvalidInputError, LimitExceededError, MStarError
from mstar_plan.runtime.failure import as_error
from mstar_plan.runtime.generation.attention import way_to_attend
from mstar_plan.runtime.generation.grammar import Grammar, Grammars
from mstar_plan.runtime.generation.kv_pool import PAGE, KVPool
from mstar_plan.runtime.generation.sampling import draw, log_probabilities, penalise
from mstar_plan.runtime.generation.sequence import Sequence, pages_for
from mstar_plan.runtime.generation.text import TextDelta, TextOptions, TokenLogprob
from mstar_plan.runtime.generation.vocabulary import Vocabulary
from mstar_plan.runtime.generation.writing import Answer, Writing
from mstar_plan.walks.batch import Batch
from mstar_plan.walks.cache import SequenceCache
from mstar_plan.walks.component import Batching, Outputs


class TokenModel(Protocol):
    """A model that writes tokens."""

    @property
    def device(self) -> torch.device:
        """Where it is."""
        ...

    def forward(self, tokens_M: Tensor, cache: SequenceCache, rows_R: Tensor | None) -> Tensor:
        """[M] new tokens of several sequences to [R, V] float32 logits, of those rows whose next token is wanted."""
        ...


@dataclass(frozen=True)
class WriterConfig:
    """Bounds of writing.

    Attributes:
        context: Most tokens of a prompt and its answer.
        default_tokens: Most tokens of an answer where the request does not say.
        chunk: Tokens of prompts that one step reads while nobody writes.
        shared_chunk: Likewise while somebody writes, and waits meanwhile.
        wait_s: Seconds that a request may wait for room in the pool.
        attention: How sequences attend: sliced, gathered, flex, or auto.
    """

    context: int
    default_tokens: int = 1024
    chunk: int = 512
    shared_chunk: int = 128
    wait_s: float = 30.0
    attention: str = "auto"


@dataclass(frozen=True, eq=False)
class _Work:
    """What one step does for one sequence: reads tokens; `logits`: and writes the next one."""

    writing: Writing
    answer: Answer
    tokens: Rows[int]
    logits: bool


@dataclass(eq=False)
class _Step:
    """What a step has given to one request."""

    deltas: list[TextDelta] = field(default_factory=list)
    error: MStarError | None = None


class Writer:
    """Component "step": port `writing`; gives `deltas` (tuple of TextDelta), `done` (bool) and `usage` (TextUsage).

    Args:
        model: Computes logits.
        pool: Room for keys and values.
        vocabulary: Of the model.
        config: Bounds.
    """

    inputs = ("writing",)
    outputs = ("deltas", "done", "usage")
    batching = Batching.RAGGED

    def __init__(self, model: TokenModel, pool: KVPool, vocabulary: Vocabulary, config: WriterConfig) -> None:
        self.model, self.pool, self.vocabulary, self.config = model, pool, vocabulary, config
        self._step = way_to_attend(config.attention, pool)
        self._grammars: Grammars | None = None

    def open(self, prompt: Rows[int], options: TextOptions) -> Writing:
        """Takes room for a request, in the caller's thread; it may wait for it.

        Raises:
            InvalidInputError: The prompt is empty, or a grammar is none.
            LimitExceededError: Prompt and answer are longer than the context, or than the pool.
            OverloadedError: There was no room in time.
        """
        left = self.config.context - len(prompt)
        if not prompt:
            raise InvalidInputError("the prompt has no token; write something", field="prompt")
        if left < 1 or (options.max_tokens or 1) > left:
            raise LimitExceededError(
                f"the prompt has {len(prompt)} tokens and the answer may have {options.max_tokens or 1}; the model's "
                f"context is {self.config.context} in all",
                field="max_tokens" if left >= 1 else "prompt",
            )
        shared, others = len(prompt) // PAGE, options.n - 1
        room = (self.pool.pages + others * (shared - 1) - (others > 0)) // options.n * PAGE - len(prompt)  # see below
        most = options.max_tokens or max(1, min(self.config.default_tokens, left, room))
        seed = options.seed if options.seed is not None else secrets.randbits(63)
        options = replace(options, max_tokens=most, seed=seed)
        grammar = self._grammar(options)
        length = len(prompt) + most
        each = pages_for(length) - shared + 1
        spare = others * each + 1 if others else 0
        sequence = Sequence.open(self.pool, prompt, length, spare, self.config.wait_s)
        return Writing(prompt, sequence, options, self.vocabulary, grammar)

    def __call__(self, batch: Batch) -> Outputs:
        """One step of one request alone."""
        [answer] = self.run([batch])
        if isinstance(answer, MStarError):
            raise answer
        return answer

    @torch.inference_mode()
    def run(self, batches: Rows[Batch]) -> list[Outputs | MStarError]:
        """One step of several requests. What goes wrong in one answer is the answer to its request alone."""
        writings: list[Writing] = [batch["writing"] for batch in batches]
        steps = {writing.number: _Step() for writing in writings}
        with self.pool.step():
            work = self._plan([writing for writing in writings if not writing.released])
            if work:
                logits_RV = self._forward(work)
                for row, item in enumerate(item for item in work if item.logits):
                    step = steps[item.writing.number]
                    try:
                        step.deltas += self._write(item, logits_RV[row])
                    except Exception as raised:  # the step has been taken: nobody may run it again
                        step.error = as_error("writing", raised)
        return [self._answer(writing, steps[writing.number]) for writing in writings]

    def _answer(self, writing: Writing, step: _Step) -> Outputs | MStarError:
        if writing.released:
            return CancelledError("the request has been taken back")
        if step.error is not None:
            return step.error
        done = not writing.reading and not writing.open
        return {"deltas": tuple(step.deltas), "done": done, "usage": writing.usage}

    def _plan(self, writings: Rows[Writing]) -> list[_Work]:
        work = [
            _Work(writing, answer, (answer.next,), True)
            for writing in writings
            if not writing.reading
            for answer in writing.open
        ]
        budget = self.config.shared_chunk if work else self.config.chunk
        for writing in sorted((w for w in writings if w.reading), key=lambda w: w.number):
            answer = writing.answers[0]
            at, count = len(answer.sequence), min(writing.reading, budget)
            if count:
                work.append(_Work(writing, answer, writing.prompt[at : at + count], count == writing.reading))
                budget -= count
        return work

    def _forward(self, work: Rows[_Work]) -> Tensor:
        for item in work:
            item.answer.sequence.reserve(len(item.tokens))
        cache = self._step(self.pool, [(item.answer.sequence, len(item.tokens)) for item in work])
        tokens = [token for item in work for token in item.tokens]
        last, rows = -1, []
        for item in work:
            last += len(item.tokens)
            if item.logits:
                rows.append(last)
        device = self.model.device
        wanted = torch.tensor(rows, device=device) if rows else None
        logits_RV = self.model.forward(torch.tensor(tokens, device=device), cache, wanted)
        for item in work:
            item.answer.sequence.extend(item.tokens)
        return logits_RV.cpu()

    def _write(self, item: _Work, logits_V: Tensor) -> list[TextDelta]:
        """The next token of an answer; where the prompt has just been read, the first token of each."""
        writing, answers = item.writing, [item.answer]
        if not item.answer.written and not writing.reading and writing.options.n > 1:
            writing.fork()
            answers = writing.answers
        return [self._next(writing, answer, logits_V) for answer in answers]

    def _next(self, writing: Writing, answer: Answer, logits_V: Tensor) -> TextDelta:
        options, ends = writing.options, self.vocabulary.ends
        chosen_V = penalise(logits_V, options, writing.distinct, answer.counts)
        if answer.grammar is not None:
            chosen_V = answer.grammar.mask(chosen_V)
        if options.ignore_end:
            chosen_V = chosen_V.index_fill(0, torch.tensor(sorted(ends)), -torch.inf)
        token = draw(chosen_V, options, answer.index, answer.written)
        answer.note(token)
        text = "" if token in ends else answer.text.add(token)
        if answer.text.stopped or token in ends or (answer.grammar is not None and answer.grammar.complete):
            answer.finish = "stop"
        elif answer.written == options.max_tokens:
            answer.finish = "length"
        if answer.finish is not None:
            text += answer.text.end()
            answer.finish = "stop" if answer.text.stopped else answer.finish
            answer.sequence.release()
        probability = () if options.logprobs is None else (self._logprob(logits_V, token, options.logprobs),)
        return TextDelta(answer.index, text, (token,), probability, answer.finish)

    def _logprob(self, logits_V: Tensor, token: int, most: int) -> TokenLogprob:
        own, likeliest = log_probabilities(logits_V, token, most)
        top = tuple((self.vocabulary.text_of(other), other, value) for other, value in likeliest)
        return TokenLogprob(self.vocabulary.text_of(token), token, own, top)

    def _grammar(self, options: TextOptions) -> Grammar | None:
        if options.json_schema is None and options.grammar is None:
            return None
        if self._grammars is None:
            self._grammars = Grammars(self.vocabulary)
        if options.json_schema is not None:
            return self._grammars.of_schema(options.json_schema)
        return self._grammars.of_lark(options.grammar or "")
