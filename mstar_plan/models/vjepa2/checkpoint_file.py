"""Reads checkpoints of V-JEPA 2 from a local path, whatever their layout: tensors by part, with our names.

Layouts: the published bundle (torch.save of {"encoder", "predictor", ...}), transformers' VJEPA2Model (a folder with
config.json, or its safetensors), and safetensors with our own names. Nothing in a file is run: torch reads tensors
alone.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from mstar_plan.errors import WeightsError
from mstar_plan.models.vjepa2.infer import Known
from mstar_plan.models.vjepa2.key_maps import from_transformers, without_wrappers

ENCODERS = ("encoder", "target_encoder")  # the published loader takes the first
MAX_JSON_BYTES = 2**20
INDEX = "model.safetensors.index.json"


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """What a file holds.

    Attributes:
        path: Where it was read from.
        layout: "bundle", "transformers" or "safetensors".
        parts: {"encoder": tensors, "predictor": tensors} by our names; mapped from the file where it allows that.
        known: What the file says of sizes that shapes do not tell.
        ignored: What the file holds beside them.
    """

    path: Path
    layout: str
    parts: Mapping[str, Mapping[str, Tensor]]
    known: Known
    ignored: tuple[str, ...] = ()

    def part(self, name: str) -> Mapping[str, Tensor]:
        """The tensors of one part.

        Raises:
            WeightsError: The file has no such part.
        """
        if name not in self.parts:
            raise WeightsError(f"{self.path.name} holds no {name}; it has {sorted(self.parts)}", field=name)
        return self.parts[name]


def read_checkpoint(path: Path) -> Checkpoint:
    """Reads a file, or a folder in the layout of transformers.

    Raises:
        WeightsError: It is absent, empty, damaged, holds code, or holds no V-JEPA 2.
    """
    path = Path(path)
    if path.is_dir():
        return _from_folder(path)
    if not path.is_file():
        raise WeightsError(f"there is no checkpoint {path}; give the path of a file or folder on this machine")
    if path.stat().st_size == 0:
        raise WeightsError(f"{path.name} is empty; copy or download it again", field="path")
    if path.suffix == ".safetensors":
        return _sorted_out(path, _read_safetensors([path]), Known())
    return _from_bundle(path)


def _from_bundle(path: Path) -> Checkpoint:
    content = _load_pickle(path)
    if not isinstance(content, Mapping):
        raise WeightsError(
            f"{path.name} holds a {type(content).__name__}; a bundle holds encoder and predictor by name"
        )
    parts: dict[str, Mapping[str, Tensor]] = {}
    encoder = next((name for name in ENCODERS if isinstance(content.get(name), Mapping)), None)
    if encoder is not None:
        parts["encoder"] = without_wrappers(_tensors(path, content[encoder]))
    if isinstance(content.get("predictor"), Mapping):
        parts["predictor"] = without_wrappers(_tensors(path, content["predictor"]))
    if not parts:
        names = ", ".join(str(name) for name in list(content)[:5])
        raise WeightsError(
            f"{path.name} holds neither encoder nor predictor (it begins with {names}): it is no V-JEPA 2 bundle"
        )
    ignored = tuple(str(name) for name in content if name not in (encoder, "predictor"))
    return Checkpoint(path, "bundle", parts, Known(), ignored)


def _load_pickle(path: Path) -> Any:
    try:
        try:
            return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except RuntimeError as error:
            if "mmap can only be used" not in str(error):
                raise
            return torch.load(path, map_location="cpu", weights_only=True)  # the format of before 2020
    except pickle.UnpicklingError as error:
        raise WeightsError(
            f"{path.name} holds more than tensors, or is no checkpoint; it was not run. Save plain tensors "
            f"({str(error).splitlines()[0][:120]})",
            field="path",
        ) from error
    except (RuntimeError, OSError, EOFError, ValueError, KeyError) as error:
        cause = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        raise WeightsError(f"{path.name} is damaged or cut short; copy it again ({cause})", field="path") from error


def _tensors(path: Path, state: Mapping[str, Any]) -> dict[str, Tensor]:
    wrong = [str(name) for name, value in state.items() if not isinstance(value, Tensor)]
    if wrong:
        raise WeightsError(f"{path.name}: {wrong[0]} is no tensor; a state dict holds tensors alone", field=wrong[0])
    return dict(state)


def _from_folder(path: Path) -> Checkpoint:
    config, index = path / "config.json", path / INDEX
    files = sorted(path.glob("*.safetensors"))
    if index.is_file():
        names = _read_json(index).get("weight_map", {}).values()
        files = sorted({path / Path(str(name)).name for name in names})
    if not files:
        raise WeightsError(f"{path} holds no .safetensors file; give a folder as transformers saves it", field="path")
    told = _read_json(config) if config.is_file() else {}
    return _sorted_out(path, _read_safetensors(files), _from_config(told))


def _from_config(told: Mapping[str, Any]) -> Known:
    return Known(
        img_size=told.get("crop_size"),
        num_frames=told.get("frames_per_clip"),
        heads=told.get("num_attention_heads"),
        predictor_heads=told.get("pred_num_attention_heads"),
    )


def _read_json(path: Path) -> dict[str, Any]:
    if path.stat().st_size > MAX_JSON_BYTES:
        raise WeightsError(f"{path.name} has {path.stat().st_size} bytes; at most {MAX_JSON_BYTES} are read")
    try:
        content = json.loads(path.read_text())
    except ValueError as error:
        raise WeightsError(f"{path.name} is not JSON: {error}", field=path.name) from error
    if not isinstance(content, dict):
        raise WeightsError(f"{path.name} holds a {type(content).__name__}; an object is needed", field=path.name)
    return content


def _read_safetensors(files: list[Path]) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for each in files:
        try:
            with safe_open(each, framework="pt") as file:
                tensors |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
        except (SafetensorError, OSError) as error:
            raise WeightsError(f"{each.name} is damaged or cut short; copy it again ({error})", field="path") from error
    return tensors


def _sorted_out(path: Path, tensors: Mapping[str, Tensor], known: Known) -> Checkpoint:
    """Tells transformers' names from ours."""
    if any(".attention.query." in name for name in tensors):
        return Checkpoint(path, "transformers", from_transformers(tensors), known)
    parts = {
        part: {name.removeprefix(f"{part}."): value for name, value in tensors.items() if name.startswith(f"{part}.")}
        for part in ("encoder", "predictor")
    }
    ignored = tuple(name for name in tensors if not name.startswith(("encoder.", "predictor.")))
    found = {part: state for part, state in parts.items() if state}
    if not found:
        raise WeightsError(f"{path.name} holds neither encoder.* nor predictor.* tensors: it is no V-JEPA 2")
    return Checkpoint(path, "safetensors", found, replace(known), ignored)
