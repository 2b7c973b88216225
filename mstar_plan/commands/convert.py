"""`mstar-plan convert SOURCE TARGET`: published V-JEPA 2 weights to a weight file of this project."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
import typer

from mstar_plan.commands.output import make_folder
from mstar_plan.config import load
from mstar_plan.models.vjepa2.convert import convert as write
from mstar_plan.models.vjepa2.infer import LoadOptions


@dataclass(frozen=True)
class ConvertConfig:
    """How to read the source. What is null is told from the file, or from the named configuration that is like it.

    Attributes:
        dtype: What is stored; keep leaves it as the source has it.
        img_size: Side of the pictures in pixels.
        num_frames: Frames of the longest clip.
        num_heads: Attention heads of the encoder.
        predictor_heads: Attention heads of the predictor.
        context_frames: Frames that a plan of the world model starts from.
        max_translation_m: Bound of an action's change of position, on each axis.
        name: What the world model is called.
        strict: Refuse tensors that the networks do not have.
        self_test: Put a golden vector into the file, for later loads to compare.
        force: Write over a file that is there.
    """

    dtype: Literal["keep", "float32", "bfloat16", "float16"] = "keep"
    img_size: int | None = None
    num_frames: int | None = None
    num_heads: int | None = None
    predictor_heads: int | None = None
    context_frames: int = 1
    max_translation_m: float = 0.075
    name: str = "vjepa2_ac"
    strict: bool = True
    self_test: bool = True
    force: bool = False


def convert(source: Path, target: Path, words: Sequence[str]) -> None:
    """Converts, and prints how the tensors fit."""
    config = load("convert", words, ConvertConfig)
    options = LoadOptions(
        dtype=None if config.dtype == "keep" else getattr(torch, config.dtype),
        img_size=config.img_size,
        num_frames=config.num_frames,
        num_heads=config.num_heads,
        predictor_heads=config.predictor_heads,
        context_frames=config.context_frames,
        max_translation_m=config.max_translation_m,
        name=config.name,
        strict=config.strict,
        self_test=config.self_test,
    )
    make_folder(target.parent)
    report = write(source, target, options, force=config.force)
    for line in report.lines():
        typer.echo(line)
    typer.echo(f"written to {target}, {target.stat().st_size / 1e6:,.1f} MB")
