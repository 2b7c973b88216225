"""A golden case as its folder holds it, and the comparison of tensors with what it expects."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from mstar_plan.errors import WeightsError
from mstar_plan.models.vjepa2.config import TransformerConfig

ConfigT = TypeVar("ConfigT", bound=TransformerConfig)

TOLERANCE = {"atol": 1e-5, "rtol": 1e-4}  # of a case that does not say its own
# Settings of the reference that this project has in one way only: name -> the value that it needs.
ONLY = {
    "use_rope": True,
    "is_frame_causal": True,
    "use_mask_tokens": True,
    "use_silu": False,
    "use_SiLU": False,
    "hidden_act": "gelu",
}


@dataclass(frozen=True)
class Comparison:
    """One expected tensor against ours.

    Attributes:
        tensor: Its name in the case.
        error: Largest absolute difference; infinite where shapes differ or a value is NaN.
        ok: Within the case's tolerance everywhere; ids and masks are equal.
        note: Why not, where a number does not tell.
    """

    tensor: str
    error: float
    ok: bool
    note: str = ""


@dataclass(frozen=True, eq=False)
class GoldenCase:
    """A folder of `case.json`, `io.safetensors` and mostly `weights.safetensors`.

    Attributes:
        folder: Where it is.
        name: What it calls itself.
        config: Its configuration.
        io: Inputs and expected values by name: in.*, out.*, mid.*.
        atol: Absolute tolerance.
        rtol: Tolerance in parts of the expected value.
    """

    folder: Path
    name: str
    config: Mapping[str, Any]
    io: Mapping[str, Tensor]
    atol: float
    rtol: float

    def input(self, name: str) -> Tensor:
        """The tensor in.NAME.

        Raises:
            WeightsError: The case lacks it.
        """
        if f"in.{name}" not in self.io:
            raise WeightsError(f"case {self.name} lacks tensor in.{name}", field=name)
        return self.io[f"in.{name}"]

    def has(self, *names: str) -> bool:
        """Whether all these tensors are there, by full name."""
        return all(name in self.io for name in names)

    def weights(self, file: str = "weights.safetensors") -> dict[str, Tensor]:
        """The tensors of a safetensors file of the case.

        Raises:
            WeightsError: It is absent or damaged.
        """
        return _tensors(self.folder / file)

    def compare(self, name: str, actual: Tensor) -> Comparison:
        """Compares with the tensor of this full name."""
        expected = self.io[name]
        if actual.shape != expected.shape:
            note = f"shape {list(actual.shape)}; expected {list(expected.shape)}"
            return Comparison(name, math.inf, False, note)
        if expected.numel() == 0:
            return Comparison(name, 0.0, True)
        if not expected.is_floating_point():
            different = int((actual.to(expected.dtype) != expected).sum())
            return Comparison(name, float(different > 0), different == 0, f"{different} differ" if different else "")
        error = (actual.double() - expected.double()).abs()
        ok = bool((error <= self.atol + self.rtol * expected.double().abs()).all())  # NaN is in no tolerance
        return Comparison(name, math.inf if error.isnan().any() else float(error.max()), ok)


@dataclass(frozen=True)
class CaseResult:
    """What came of a case.

    Attributes:
        name: Of the case.
        kind: Which check ran; empty where none knows it.
        comparisons: Every tensor that was compared.
        unchecked: Expected tensors that no check knows.
        failure: Why it could not run to its end; empty if it did.
    """

    name: str
    kind: str = ""
    comparisons: tuple[Comparison, ...] = field(default=())
    unchecked: tuple[str, ...] = ()
    failure: str = ""

    @property
    def skipped(self) -> bool:
        """Whether no check knows it."""
        return not self.kind and not self.failure

    @property
    def ok(self) -> bool:
        """Whether it ran and everything was within tolerance."""
        return not self.failure and bool(self.comparisons) and all(each.ok for each in self.comparisons)

    @property
    def error(self) -> float:
        """The largest error of all tensors."""
        return max((each.error for each in self.comparisons), default=0.0)


def load_case(folder: Path) -> GoldenCase:
    """Reads a case.

    Raises:
        WeightsError: case.json is absent, or a file is damaged.
    """
    try:
        text = json.loads((folder / "case.json").read_text())
        atol, rtol = (float(text.get("tolerance", {}).get(name, TOLERANCE[name])) for name in ("atol", "rtol"))
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise WeightsError(f"{folder}/case.json cannot be used: {error!r}", field="case") from error
    io = folder / "io.safetensors"
    name, config = str(text.get("case", folder.name)), text.get("config") or {}
    return GoldenCase(folder, name, config, _tensors(io) if io.is_file() else {}, atol, rtol)


def sized(kind: type[ConfigT], config: Mapping[str, Any], **changes: Any) -> ConfigT:
    """The sizes of a network from a reference's configuration; settings that do not size it are left out.

    Raises:
        WeightsError: A setting asks for what this project does not compute.
    """
    for name, needed in ONLY.items():
        if name in config and config[name] != needed:
            raise WeightsError(f"config.{name} is {config[name]!r}; only {needed!r} is computed here", field=name)
    known = {each.name for each in dataclasses.fields(kind)}
    return kind(**{name: value for name, value in config.items() if name in known} | changes)


def numbered(case: GoldenCase, prefix: str) -> Iterator[tuple[str, int]]:
    """Full names of tensors that are a prefix and a number, with that number."""
    for name in sorted(case.io):
        digits = name.removeprefix(prefix)
        if digits != name and digits.isdecimal():
            yield name, int(digits)


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        tensors: dict[str, Tensor] = load_file(path)
    except (OSError, SafetensorError) as error:
        raise WeightsError(f"{path} cannot be read: {error}", field="path") from error
    return tensors


def double_frames(frames: Tensor, copies: int) -> Tensor:
    """Single frames [T, 3, H_px, W_px] as clips [T, 3, copies, H_px, W_px] of one tubelet each."""
    return torch.stack([frames] * copies, 2)
