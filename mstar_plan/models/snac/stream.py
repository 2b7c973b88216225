"""Decoding as a stream: a state that goes from step to step, and the component that steps many requests at once.

Nothing is decoded twice and nothing is lost: all that the steps give, put together, is the one-shot decode, from the
first sample to the last. The price is the decoder's look to the right: see `SnacConfig.lookahead`.

B requests, F new frames, n samples.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from mstar_plan.errors import ComponentError, WalkError
from mstar_plan.models.snac.codec import Snac
from mstar_plan.models.snac.noise import noise_between
from mstar_plan.walks.batch import Batch
from mstar_plan.walks.component import Batching, Outputs


@dataclass(frozen=True)
class Place:
    """Where one sequence stands.

    Attributes:
        seed: Of its noise; None for no noise.
        frames: That went in.
        noise: Values that each block of the decoder has taken.
        ended: Its last samples have come out.
    """

    seed: int | None
    frames: int = 0
    noise: tuple[int, ...] = ()
    ended: bool = False


@dataclass(frozen=True, eq=False)
class SnacState:
    """What is kept between two steps, of several sequences; they may be joined where they keep equally much.

    Attributes:
        kept: Tensors [B, ...] of the decoder's layers.
        places: One a sequence.
    """

    kept: tuple[Tensor, ...]
    places: tuple[Place, ...]

    def join_key(self) -> Hashable:
        """Shapes behind B, and whether there is noise: what a decoder step needs to be equal."""
        return tuple(each.shape[1:] for each in self.kept), self.places[0].seed is None

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Joins along B."""
        kept = tuple(torch.cat(each) for each in zip(*(part.kept for part in parts), strict=True))
        return cls(kept, tuple(place for part in parts for place in part.places))

    def split(self, sizes: Sequence[int]) -> list[SnacState]:
        """The inverse of `join`."""
        kept = zip(*(torch.split(each, list(sizes)) for each in self.kept), strict=True)
        places = iter(self.places)
        return [SnacState(tuple(k), tuple(next(places) for _ in range(n))) for k, n in zip(kept, sizes, strict=True)]


class SnacStream:
    """Steps sequences through a codec's decoder."""

    def __init__(self, codec: Snac) -> None:
        self.codec = codec

    def begin(self, seeds: Sequence[int | None]) -> SnacState:
        """The state before the first frame, of one sequence for each seed of noise (None: no noise); all or none."""
        assert len({seed is None for seed in seeds}) == 1, "sequences with and without noise take different steps"
        none = (0,) * len(self.codec.config.noise_per_frame)
        return SnacState(tuple(self.codec.decoder.begin(len(seeds))), tuple(Place(seed, 0, none) for seed in seeds))

    def step(self, state: SnacState, codes: Sequence[Tensor] | None, last: bool) -> tuple[Tensor, SnacState]:
        """The next samples.

        Args:
            state: Of the step before, or of `begin`.
            codes: [B, F codes_per_frame] of each book, int64; None for no new frame.
            last: The sequences end with these.

        Returns:
            Audio [B, n] that is certain now (n may be 0), and the state.

        Raises:
            InvalidInputError: Codes do not fit their books, or the sequences end within a window of attention.
        """
        config = self.codec.config
        if codes is None:
            z_BCT, frames = state.kept[0].new_zeros(len(state.places), config.width, 0), 0
        else:
            z_BCT = self.codec.latent(codes)
            frames = z_BCT.shape[-1] // config.vq_strides[0]
        used = [0] * len(config.noise_per_frame)

        def noise(block: int, steps: int) -> Tensor:
            used[block] = steps
            starts = [(place.seed or 0, place.noise[block]) for place in state.places]
            rows = [noise_between(config, seed, block, start, start + steps) for seed, start in starts]
            return torch.stack(rows)[:, None].to(z_BCT)

        silent = state.places[0].seed is None
        audio_B1n, kept = self.codec.decoder.stream(z_BCT, state.kept, None if silent else noise, last)
        places = tuple(
            replace(
                place,
                frames=place.frames + frames,
                noise=tuple(a + b for a, b in zip(place.noise, used, strict=True)),
                ended=last,
            )
            for place in state.places
        )
        return audio_B1n[:, 0], SnacState(tuple(kept), places)


@dataclass(frozen=True)
class FrameChunks:
    """A stream's first chunk is just long enough to be heard, later ones have `size` items.

    Attributes:
        first: Items of the first chunk.
        size: Items of the others.
    """

    first: int
    size: int = 1

    def __post_init__(self) -> None:
        for name in ("first", "size"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise WalkError(f"FrameChunks.{name} is {value!r}; it needs at least 1", field=name)

    def next_chunk(self, emitted: int, available: int, closed: bool) -> tuple[int, int, int] | None:
        """See `ChunkPolicy`."""
        want = self.size if emitted else self.first
        new = min(want, available - emitted)
        if new == want or (closed and new > 0):
            return emitted, emitted + new, new
        return None


@dataclass(frozen=True)
class Frames:
    """One item of a stream of codes.

    Attributes:
        codes: Of each book, coarsest first, for one frame or several; empty where the end comes without a new one.
        last: The sequence ends with it.
    """

    codes: tuple[tuple[int, ...], ...] = ()
    last: bool = False


class SnacStep:
    """Component: ports `frames` (tuple of `Frames`) and `sound` (SnacState of one sequence); gives `audio` [1, n] and
    `sound`.

    Calls of several requests are decoded together where they bring equally many frames and stand equally far.
    """

    inputs = ("frames", "sound")
    outputs = ("audio", "sound")
    batching = Batching.RAGGED

    def __init__(self, stream: SnacStream) -> None:
        self.stream = stream

    def __call__(self, batch: Batch) -> Outputs:
        """One request alone."""
        return self.run([batch])[0]

    @torch.inference_mode()
    def run(self, batches: Sequence[Batch]) -> list[Outputs]:
        """Several requests."""
        parts = [_joined(batch["frames"]) for batch in batches]
        groups: dict[Hashable, list[int]] = {}
        for i, (part, batch) in enumerate(zip(parts, batches, strict=True)):
            sizes = tuple(len(book) for book in part.codes)
            groups.setdefault((sizes, part.last, batch["sound"].join_key()), []).append(i)
        answers: list[Outputs] = [{}] * len(batches)
        for members in groups.values():
            together = self._together([parts[i] for i in members], [batches[i]["sound"] for i in members])
            for i, answer in zip(members, together, strict=True):
                answers[i] = answer
        return answers

    def _together(self, parts: Sequence[Frames], states: Sequence[SnacState]) -> list[Outputs]:
        last, codes = parts[0].last, None
        if any(place.ended for state in states for place in state.places):
            raise ComponentError("more frames came after the last one; a stream of codes ends once")
        if last and not (parts[0].codes or all(state.places[0].frames for state in states)):
            raise ComponentError("the speech ended before its first whole frame; allow more tokens, or another text")
        if parts[0].codes:
            device = self.stream.codec.device
            codes = [torch.tensor(rows, device=device) for rows in zip(*(part.codes for part in parts), strict=True)]
        state = SnacState.join(states) if len(states) > 1 else states[0]
        audio_Bn, state = self.stream.step(state, codes, last)
        each = state.split([1] * len(states))
        return [{"audio": a, "sound": s} for a, s in zip(torch.split(audio_Bn, 1), each, strict=True)]


def _joined(items: Sequence[Frames]) -> Frames:
    """One item of several."""
    if len(items) == 1:
        return items[0]
    books = zip(*(item.codes for item in items if item.codes), strict=True)
    return Frames(tuple(tuple(code for codes in book for code in codes) for book in books), items[-1].last)
