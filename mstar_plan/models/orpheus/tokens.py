"""The tokens of an Orpheus model: how a prompt is framed, and how what it writes becomes frames of codes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mstar_plan.errors import WeightsError
from mstar_plan.models.snac.config import SnacConfig

# Where the codes of a frame stand among its tokens, by book: the tree is read depth first.
LAYOUT = ((0,), (1, 4), (2, 3, 5, 6))
_FRAME = sum(len(places) for places in LAYOUT)


@dataclass(frozen=True)
class OrpheusTokens:
    """Token ids; the defaults are those of the published 3B models (canopyai/Orpheus-TTS).

    Attributes:
        before: Ids before the text: start of human.
        after: Ids behind it: end of text, end of human, start of the answer, start of speech.
        end: Id that ends the speech.
        first_code: Id of code 0 at place 0 of a frame.
        spacing: Ids of each place of a frame; place j begins `j * spacing` later.
        codes: Codes of a book, at most `spacing`.
    """

    before: tuple[int, ...] = (128259,)
    after: tuple[int, ...] = (128009, 128260, 128261, 128257)
    end: int = 128258
    first_code: int = 128266
    spacing: int = 4096
    codes: int = 4096

    def __post_init__(self) -> None:
        if not 1 <= self.codes <= self.spacing:
            raise WeightsError(f"a book has {self.codes} codes in {self.spacing} ids; use 1 to that", field="codes")

    @property
    def frame(self) -> int:
        """Tokens of a frame."""
        return _FRAME

    @property
    def size(self) -> int:
        """Ids that a vocabulary must have."""
        highest = self.first_code + self.frame * self.spacing
        return max(highest, self.end + 1, *(each + 1 for each in (*self.before, *self.after)))

    def prompt(self, text: Sequence[int]) -> list[int]:
        """Ids that ask for the speech of a text."""
        return [*self.before, *text, *self.after]

    def code(self, token: int, place: int) -> int | None:
        """The code that a token stands for at this place of a frame; None if it is none there."""
        code = token - self.first_code - place * self.spacing
        return code if 0 <= code < self.codes else None

    def token(self, code: int, place: int) -> int:
        """The token of a code at this place of a frame."""
        return self.first_code + place * self.spacing + code

    def fits(self, config: SnacConfig) -> None:
        """Raises WeightsError where a codec does not have the books that the frames are made for."""
        books = tuple(len(places) for places in LAYOUT)
        if config.codes_per_frame != books or config.codebook_size < self.codes:
            raise WeightsError(
                f"the codec has {config.codes_per_frame} codes a frame, of {config.codebook_size}; the tokens need "
                f"{books}, of {self.codes}",
                field="vq_strides",
            )


def deinterleave(codes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """The codes of whole frames in order of writing, by book, coarsest first."""
    starts = range(0, len(codes), _FRAME)
    return tuple(tuple(codes[start + place] for start in starts for place in places) for places in LAYOUT)


def interleave(books: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """The inverse of `deinterleave`."""
    codes = [0] * sum(len(book) for book in books)
    for places, book in zip(LAYOUT, books, strict=True):
        for i, code in enumerate(book):
            codes[i // len(places) * _FRAME + places[i % len(places)]] = code
    return tuple(codes)


@dataclass(frozen=True)
class Heard:
    """What has been heard of an answer.

    Attributes:
        open: Codes of the frame that is not whole yet.
        whole: Codes by book of the frames that the last tokens made whole; empty if none.
        ended: The answer has ended.
        ignored: Tokens that were no code where they stood; the end token does not count.
    """

    open: tuple[int, ...] = ()
    whole: tuple[tuple[int, ...], ...] = ()
    ended: bool = False
    ignored: int = 0


def hear(heard: Heard, written: Iterable[int], ended: bool, tokens: OrpheusTokens) -> Heard:
    """Goes on with new tokens: a code is kept where its place is due, and everything else is left out.

    A frame that is not whole when the answer ends is left out, too.
    """
    codes, ignored = list(heard.open), heard.ignored
    for token in written:
        code = tokens.code(token, len(codes) % tokens.frame)
        if code is None:
            ignored += token != tokens.end
        else:
            codes.append(code)
    whole = len(codes) // tokens.frame * tokens.frame
    books = deinterleave(codes[:whole]) if whole else ()
    return Heard(tuple(codes[whole:]), books, ended, ignored)
