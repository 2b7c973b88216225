"""Times SNAC as a stream: our exact steps beside windows that are decoded anew, as the published loop does it.

python scripts/bench_snac.py [--frames 40] [--chunk 1] [--threads 2] [--device cpu] [--batch 1]

Prints for each way the seconds of compute for a second of speech, and the largest difference from the one-shot decode.
Random weights of the 24 kHz model's size: what it sounds like means nothing.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from mstar_plan.models.snac.codec import Snac
from mstar_plan.models.snac.config import SnacConfig
from mstar_plan.models.snac.stream import SnacStream


def cut(codes: Sequence[Tensor], config: SnacConfig, start: int, stop: int) -> list[Tensor]:
    """Codes of frames [start, stop)."""
    return [book[:, start * n : stop * n] for book, n in zip(codes, config.codes_per_frame, strict=True)]


def exact(codec: Snac, codes: Sequence[Tensor], chunk: int) -> Iterator[Tensor]:
    """Our stream."""
    stream, frames = SnacStream(codec), codes[0].shape[-1]
    state = stream.begin([None] * codes[0].shape[0])
    for start in range(0, frames, chunk):
        audio, state = stream.step(state, cut(codes, codec.config, start, start + chunk), start + chunk >= frames)
        yield audio


def windows(codec: Snac, codes: Sequence[Tensor], left: int, right: int) -> Iterator[Tensor]:
    """Every frame from a window with `left` and `right` frames of context; the ends have less."""
    frames, size = codes[0].shape[-1], codec.config.frame_samples
    for frame in range(frames):
        start = max(0, frame - left)
        audio = codec.decode(cut(codes, codec.config, start, min(frames, frame + right + 1)))[:, 0]
        yield audio[:, (frame - start) * size : (frame - start + 1) * size]


def main() -> None:
    """Runs every way once to warm up, then three times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("frames", 40), ("chunk", 1), ("threads", 2), ("batch", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--device", default="cpu")
    words = parser.parse_args()
    torch.set_num_threads(words.threads)
    torch.manual_seed(0)
    codec = Snac(SnacConfig()).eval().requires_grad_(False).to(words.device)
    config = codec.config
    codes = [
        torch.randint(0, config.codebook_size, (words.batch, words.frames * n), device=words.device)
        for n in config.codes_per_frame
    ]
    reach = config.first_frames
    ways: dict[str, Callable[[], Iterator[Tensor]]] = {
        "one shot": lambda: iter([codec.decode(codes)[:, 0]]),
        f"exact steps of {words.chunk}": lambda: exact(codec, codes, words.chunk),
        "windows of 1 + 1 + 2 (published)": lambda: windows(codec, codes, 1, 2),
        f"windows of {reach} + 1 + {reach}": lambda: windows(codec, codes, reach, reach),
    }
    seconds = words.batch * words.frames * config.frame_samples / config.sampling_rate
    with torch.inference_mode():
        whole = codec.decode(codes)[:, 0]
        for name, way in ways.items():
            times = []
            for _ in range(4):
                started = time.perf_counter()
                audio = torch.cat(list(way()), -1).cpu()
                times.append(time.perf_counter() - started)
            error = float((audio - whole.cpu()).abs().max())
            print(f"{name:<34} {min(times[1:]) / seconds:6.3f} s for a second of speech, off by {error:.2g}")


if __name__ == "__main__":
    main()
