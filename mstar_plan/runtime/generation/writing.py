"""Writing: what one request for text has read and written so far, and all that it holds; released with the request."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence as Tokens

from mstar_plan.runtime.generation.grammar import Grammar
from mstar_plan.runtime.generation.sequence import Sequence
from mstar_plan.runtime.generation.text import FinishReason, TextOptions, TextUsage
from mstar_plan.runtime.generation.vocabulary import AnswerText, Vocabulary

_numbers = itertools.count()


class Answer:
    """One of a request's answers.

    Args:
        index: Which.
        sequence: Its past.
        text: Its text as it grows.
        grammar: What it must fit, or None.
    """

    def __init__(self, index: int, sequence: Sequence, text: AnswerText, grammar: Grammar | None) -> None:
        self.index, self.sequence, self.text, self.grammar = index, sequence, text, grammar
        self.written = 0
        self.counts: Counter[int] = Counter()
        self.next = -1  # written, but not read yet
        self.finish: FinishReason | None = None

    def note(self, token: int) -> None:
        """A token has been chosen."""
        self.next = token
        self.written += 1
        self.counts[token] += 1
        if self.grammar is not None:
            self.grammar.accept(token)


class Writing:
    """One request. It is used by one step at a time; `release` may come from anywhere.

    Args:
        prompt: Tokens to read.
        sequence: Of the first answer, with room for all of it; what the pool knew of the prompt is read already.
        options: How to write; the seed and the number of tokens are known.
        vocabulary: Of the model.
        grammar: What answers must fit, or None.
    """

    def __init__(
        self,
        prompt: Tokens[int],
        sequence: Sequence,
        options: TextOptions,
        vocabulary: Vocabulary,
        grammar: Grammar | None = None,
    ) -> None:
        self.prompt, self.options = tuple(prompt), options
        self.distinct = frozenset(prompt) if options.repetition_penalty != 1.0 else frozenset()
        self.cached = len(sequence)
        self.number = next(_numbers)  # in the order of coming
        self.released = False
        self._vocabulary = vocabulary
        self.answers = [Answer(0, sequence, self._text(), grammar)]

    @property
    def reading(self) -> int:
        """Tokens of the prompt that are still to be read."""
        return 0 if self.answers[0].written else len(self.prompt) - len(self.answers[0].sequence)

    @property
    def open(self) -> list[Answer]:
        """Answers that have not ended."""
        return [answer for answer in self.answers if answer.finish is None]

    @property
    def usage(self) -> TextUsage:
        """Tokens so far."""
        return TextUsage(len(self.prompt), self.cached, sum(answer.written for answer in self.answers))

    def fork(self) -> None:
        """The prompt has been read: every answer goes its own way from here, over the same pages."""
        first, options = self.answers[0], self.options
        assert options.max_tokens is not None
        for index in range(1, options.n):
            sequence = first.sequence.fork(len(self.prompt) + options.max_tokens)
            grammar = first.grammar.copy() if first.grammar is not None else None
            self.answers.append(Answer(index, sequence, self._text(), grammar))

    def release(self) -> None:
        """Gives back all that it holds, as soon as no step is at it; calling it again does nothing."""
        self.released = True
        self.answers[0].sequence.pool.between_steps(self._let_go)

    def _let_go(self) -> None:
        for answer in self.answers:
            answer.sequence.release()

    def _text(self) -> AnswerText:
        return AnswerText(self._vocabulary.reader(), self.options.stop)
