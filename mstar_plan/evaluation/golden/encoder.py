"""The video encoder and its form for still pictures."""

from __future__ import annotations

from collections.abc import Iterator

from mstar_plan.evaluation.golden.case import Comparison, GoldenCase, sized
from mstar_plan.models.vjepa2.config import EncoderConfig
from mstar_plan.models.vjepa2.encoder import VJEPA2Encoder


def check_encoder(case: GoldenCase) -> Iterator[Comparison]:
    """Every in.video_X or in.image* with an out.X; blocks in mid.*; kept tokens of in.mask in out.masked_X."""
    encoder = VJEPA2Encoder(sized(EncoderConfig, case.config))
    encoder.load_state_dict(case.weights())
    for full in sorted(name for name in case.io if name.startswith(("in.video", "in.image"))):
        name = full.removeprefix("in.").removeprefix("video_")
        pixels = case.io[full]
        states = encoder.hidden_states(pixels)
        if case.has(f"out.{name}"):
            yield case.compare(f"out.{name}", states[-1])
        if case.has(f"mid.patch_embed_{name}"):
            yield case.compare(f"mid.patch_embed_{name}", states[0])
        for block in range(encoder.config.depth):
            if case.has(f"mid.block{block}_{name}"):
                yield case.compare(f"mid.block{block}_{name}", states[block + 1])
        mask = next((each for each in (f"in.mask_{name}", "in.mask") if case.has(each)), None)
        if mask and case.has(f"out.masked_{name}"):
            yield case.compare(f"out.masked_{name}", encoder(pixels, case.io[mask]))
