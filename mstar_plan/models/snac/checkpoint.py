"""Published codec folders: config.json beside pytorch_model.bin or model.safetensors, read without trust."""

from __future__ import annotations

import json
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from mstar_plan.errors import WeightsError
from mstar_plan.models.snac.codec import Snac
from mstar_plan.models.snac.config import SnacConfig
from mstar_plan.models.weights import WeightsInfo, load_state

MAX_BYTES, MAX_JSON_BYTES = 4 * 2**30, 2**20
FILES = ("model.safetensors", "pytorch_model.bin")
# Endings of a tensor that weight norm has taken apart: (magnitude, direction), of now and of before torch 2.
APART = ((".parametrizations.weight.original0", ".parametrizations.weight.original1"), (".weight_g", ".weight_v"))


def load_snac(folder: Path, device: str | torch.device = "cpu") -> Snac:
    """Reads a published folder.

    Raises:
        WeightsError: It lacks a file, or one is damaged or of other sizes than its config says.
    """
    config = SnacConfig.from_published(_read_json(folder / "config.json"))
    return build_snac(config, _read_tensors(folder)).to(device)


def build_snac(config: SnacConfig, tensors: Mapping[str, Tensor]) -> Snac:
    """Makes a codec of tensors under their published names.

    Raises:
        WeightsError: One is missing, unknown, of another shape or not finite.
    """
    folded = fold_weight_norm(tensors)
    for name, tensor in folded.items():
        if not bool(tensor.isfinite().all()):
            raise WeightsError(f"the codec's tensor {name} holds NaN or infinity; get it anew", field=name)
    with torch.device("meta"):
        codec = Snac(config)
    load_state(codec, folded, WeightsInfo("snac", "snac", {}))
    return codec.eval().requires_grad_(False)


def fold_weight_norm(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Every pair of magnitude and direction as the one weight that it stands for (Salimans and Kingma 2016), float32.

    Raises:
        WeightsError: One of a pair is missing, or their shapes do not fit.
    """
    folded = {name: tensor.float() for name, tensor in tensors.items()}
    for magnitude_end, direction_end in APART:
        for full in [name for name in folded if name.endswith((magnitude_end, direction_end))]:
            stem = full.removesuffix(magnitude_end).removesuffix(direction_end)
            if full.endswith(direction_end) and stem + magnitude_end in tensors:
                continue  # with its partner
            magnitude, direction = folded.pop(stem + magnitude_end, None), folded.pop(stem + direction_end, None)
            if magnitude is None or direction is None:
                raise WeightsError(f"the codec's tensor {full} lacks its partner of weight norm", field=full)
            if direction.ndim != 3 or magnitude.shape != (direction.shape[0], 1, 1):
                raise WeightsError(
                    f"the codec's tensor {stem} has a magnitude {list(magnitude.shape)} for a direction "
                    f"{list(direction.shape)}; it needs one number for each of its first axis",
                    field=full,
                )
            folded[f"{stem}.weight"] = direction * (magnitude / direction.norm(dim=(1, 2), keepdim=True))
    return folded


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file() or path.stat().st_size > MAX_JSON_BYTES:
        raise WeightsError(f"{path} is not there, or over {MAX_JSON_BYTES} bytes", field="weights")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise WeightsError(f"{path} is no JSON: {error}; get it anew", field="weights") from error
    if not isinstance(values, dict):
        raise WeightsError(f"{path} holds no JSON object", field="weights")
    return values


def _read_tensors(folder: Path) -> dict[str, Tensor]:
    path = next((folder / name for name in FILES if (folder / name).is_file()), None)
    if path is None or path.stat().st_size > MAX_BYTES:
        raise WeightsError(f"{folder} lacks {' or '.join(FILES)}, or it is over {MAX_BYTES} bytes", field="weights")
    if path.suffix == ".safetensors":
        try:
            return dict(load_file(path))
        except (OSError, SafetensorError) as error:
            raise WeightsError(f"{path} is damaged: {error}; get it anew", field="weights") from error
    return _unpickled(path)


def _unpickled(path: Path) -> dict[str, Tensor]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except pickle.UnpicklingError as error:
        raise WeightsError(f"{path} holds more than tensors; it was refused and not run", field="weights") from error
    except Exception as error:  # damaged bytes raise whatever the reader meets first
        raise WeightsError(f"{path} is damaged: {error!r}; get it anew", field="weights") from error
    if not isinstance(content, Mapping) or not all(isinstance(each, Tensor) for each in content.values()):
        raise WeightsError(f"{path} is no plain table of tensors", field="weights")
    size = path.stat().st_size
    for name, tensor in content.items():
        if tensor.layout != torch.strided or tensor.numel() * tensor.element_size() > size:
            raise WeightsError(f"{path}: tensor {name} is larger than the file", field="weights")
    return {str(name): tensor for name, tensor in content.items()}
