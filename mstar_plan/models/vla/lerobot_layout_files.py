"""Reads the JSON and safetensors files of a published policy's folder: bounded, checked, and never unpickled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from mstar_plan.errors import WeightsError

MAX_JSON_BYTES = 4 * 2**20
MAX_STATS_BYTES = 64 * 2**20
MAX_TENSORS = 20_000


def need_file(path: Path, most_bytes: int) -> Path:
    """Returns the path of a file that is there and not too large.

    Raises:
        WeightsError: It is not.
    """
    if not path.is_file():
        raise WeightsError(f"{path.parent} lacks {path.name}; give the folder of a whole policy", field="path")
    size = path.stat().st_size
    if size > most_bytes:
        raise WeightsError(f"{path.name} has {size} bytes; at most {most_bytes} are read", field="path")
    return path


def read_json(path: Path, most_bytes: int = MAX_JSON_BYTES) -> dict[str, Any]:
    """Returns the object that a JSON file of at most so many bytes holds.

    Raises:
        WeightsError: It is absent, too large, no JSON object, names a key twice, or holds NaN.
    """
    need_file(path, most_bytes)

    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is no JSON number")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) != len(pairs):
            names = [name for name, _ in pairs]
            raise ValueError(f"key {next(n for n in names if names.count(n) > 1)!r} is there twice")
        return made

    try:
        value = json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse, object_pairs_hook=once)
    except (OSError, ValueError, RecursionError) as error:
        raise WeightsError(f"{path.name} cannot be used: {error}; copy it again", field="path") from error
    if not isinstance(value, dict):
        raise WeightsError(f"{path.name} holds a {type(value).__name__}; a JSON object is needed", field="path")
    return value


def read_tensors(path: Path, most_bytes: int) -> dict[str, Tensor]:
    """Returns the tensors of a safetensors file, in the dtypes that it has.

    Raises:
        WeightsError: It is absent, too large, cut short, no safetensors file, or holds too many tensors.
    """
    need_file(path, most_bytes)
    try:
        with safe_open(path, framework="pt") as file:
            names = list(file.keys())
            if len(names) > MAX_TENSORS:
                raise WeightsError(f"{path.name} holds {len(names)} tensors; at most {MAX_TENSORS} are read")
            return {name: file.get_tensor(name) for name in names}
    except (SafetensorError, OSError) as error:
        cure = "copy it again, or give a .safetensors file and no pickle"
        raise WeightsError(f"{path.name} is damaged or no safetensors file ({error}); {cure}", field="path") from error


def need_finite(where: str, name: str, tensor: Tensor) -> None:
    """Refuses a tensor of another kind than numbers, or one that holds NaN or infinity.

    Raises:
        WeightsError: It does.
    """
    if tensor.dtype == torch.bool or tensor.is_complex():
        raise WeightsError(f"{where}: tensor {name} is {tensor.dtype}; numbers are needed", field=name)
    if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
        raise WeightsError(f"{where}: tensor {name} holds NaN or infinity; take another copy", field=name)


def file_inside(folder: Path, name: object, where: str) -> Path:
    """Returns the path of a file of the folder by its plain name.

    Raises:
        WeightsError: The name leads elsewhere, or is no name.
    """
    plain = isinstance(name, str) and Path(name).name == name and not {"\\", "\0"} & set(name)
    if not isinstance(name, str) or not plain or name in ("", ".."):
        raise WeightsError(f"{where} names file {name!r}; only a plain name in the same folder is read", field="path")
    return folder / name
