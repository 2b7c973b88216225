"""The streaming loop as Orpheus published it, to compare with: it is not exact, and loses both ends of the speech."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from mstar_plan.models.orpheus.tokens import OrpheusTokens, deinterleave
from mstar_plan.models.snac.codec import Snac

WINDOW = 4  # frames that it decodes for each new one
FIRST_NUMBER = 10  # of <custom_token_k> that stand for codes


def published_codes(numbers: Iterable[int], tokens: OrpheusTokens) -> list[int]:
    """The codes that the published loop takes of numbers k of <custom_token_k>: only those above 0."""
    taken: list[int] = []
    for number in numbers:
        code = number - FIRST_NUMBER - len(taken) % tokens.frame * tokens.spacing
        if code > 0:
            taken.append(code)
    return taken


def books_of(codes: Sequence[int], tokens: OrpheusTokens, device: torch.device | str) -> list[Tensor]:
    """Codes in order of writing as [1, n] int64 of each book; what does not fill a frame is left out."""
    whole = codes[: len(codes) // tokens.frame * tokens.frame]
    return [torch.tensor([book], dtype=torch.int64, device=device) for book in deinterleave(whole)]


def published_chunks(codec: Snac, codes: Sequence[int], tokens: OrpheusTokens) -> Iterator[Tensor]:
    """What the published loop emits: of every four frames the second one's samples [n] in [-1, 1].

    It sends them as int16, 32767 times as large and cut off towards zero. A window with a code that is over
    `tokens.spacing` gives nothing.
    """
    size = codec.config.frame_samples
    for end in range(WINDOW * tokens.frame, len(codes) + 1, tokens.frame):
        window = codes[end - WINDOW * tokens.frame : end]
        if all(code <= tokens.spacing for code in window):
            audio_11n = codec.decode(books_of(window, tokens, codec.device))
            yield audio_11n[0, 0, size : 2 * size]
