"""Files with V-JEPA 2 weights, opened without trust: what tensors they hold, in which layout; nothing is run.

Layouts: the published bundle (torch.save of `encoder` or `target_encoder` and `predictor`), the transformers folder
(config.json and safetensors, maybe in shards), and this project's own safetensors.
"""

from __future__ import annotations

import functools
import json
import pickle
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from mstar_plan.errors import WeightsError
from mstar_plan.models.vjepa2.key_maps import UNUSED, Parts, Stored, is_transformers, put, split_parts, without_prefixes
from mstar_plan.models.weights import FORMAT, WeightsInfo, read_info

Layout = Literal["bundle", "transformers", "weights"]

TORCH_ENDINGS = (".pt", ".pth", ".tar", ".bin")
MAX_JSON_BYTES = 16 * 2**20
ST_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


@dataclass(frozen=True, eq=False)
class Source:
    """What a path holds.

    Attributes:
        path: The file or folder.
        layout: How it is laid out.
        parts: The tensors of "encoder" and "predictor", under our names.
        ignored: Names that are there and not used.
        config: What config.json says; empty without one.
        info: Metadata of a file of this project.
        encoder_key: Where a bundle that has several encoders, or may have, had the one that is used.
    """

    path: Path
    layout: Layout
    parts: Parts
    ignored: tuple[str, ...] = ()
    config: Mapping[str, Any] | None = None
    info: WeightsInfo | None = None
    encoder_key: str = ""


def open_source(path: Path) -> Source:
    """Opens a file or folder.

    Raises:
        WeightsError: It is absent, empty, cut short, holds code, or holds no weights; nothing of it has been run.
    """
    if path.is_dir():
        return _open_folder(path)
    if not path.is_file():
        raise WeightsError(f"there is nothing at {path}; give a local path (nothing is downloaded)", field="path")
    if path.stat().st_size == 0:
        raise WeightsError(f"{path.name} is empty (0 bytes); copy or download it again", field="path")
    if path.suffix == ".safetensors":
        return _open_safetensors(path)
    if path.suffix in TORCH_ENDINGS:
        return _open_bundle(path)
    raise WeightsError(
        f"{path.name} ends in {path.suffix!r}; give a .pt, .pth or .safetensors file, or a folder", field="path"
    )


def _open_folder(folder: Path) -> Source:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        return _open_shards(folder, index)
    whole = folder / "model.safetensors"
    files = [whole] if whole.is_file() else sorted(folder.glob("*.safetensors"))
    files = files or sorted(p for p in folder.iterdir() if p.suffix in TORCH_ENDINGS and p.is_file())
    if not files:
        raise WeightsError(
            f"{folder} holds no weights; it needs model.safetensors (or an index of shards) or one .pt file",
            field="path",
        )
    if len(files) > 1:
        names = ", ".join(each.name for each in files[:4])
        raise WeightsError(f"{folder} holds {len(files)} weight files ({names}); give the path of one", field="path")
    return open_source(files[0])


def _open_shards(folder: Path, index: Path) -> Source:
    table = _json(index).get("weight_map")
    if not isinstance(table, dict) or not table:
        raise WeightsError(f"{index.name} has no weight_map; download it again", field="path")
    tensors: dict[str, Stored] = {}
    for shard in sorted({str(each) for each in table.values()}):
        if Path(shard).name != shard or not (folder / shard).is_file():
            raise WeightsError(f"{index.name} names {shard!r}, which is not in {folder}; download all shards")
        tensors.update(_stored(folder / shard))
    lacking = sorted(table.keys() - tensors.keys())
    if lacking:
        raise WeightsError(f"the shards lack {len(lacking)} of {len(table)} tensors, {lacking[0]} first; download anew")
    return _flat(index, tensors)


def _open_safetensors(path: Path) -> Source:
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise WeightsError(
            f"{path.name} is no whole safetensors file ({error}); copy or download it again", field="path"
        ) from error
    if metadata.get("format") == FORMAT:
        info = read_info(path)
        parts, ignored = split_parts(_stored(path))
        return Source(path, "weights", parts, tuple(ignored), None, info)
    return _flat(path, _stored(path))


def _flat(path: Path, tensors: Mapping[str, Stored]) -> Source:
    """A flat file, with config.json beside it where it is of the transformers layout."""
    parts, ignored = split_parts(tensors)
    if not is_transformers(tensors):
        return Source(path, "bundle", parts, tuple(ignored))
    beside = path.parent / "config.json"
    return Source(path, "transformers", parts, tuple(ignored), _json(beside) if beside.is_file() else None)


def _open_bundle(path: Path) -> Source:
    content = _torch_load(path)
    if not isinstance(content, Mapping):
        raise WeightsError(f"{path.name} holds a {type(content).__name__}; a bundle is a dict", field="path")
    if "encoder" not in content and "target_encoder" not in content and "predictor" not in content:
        tensors = {str(name): value for name, value in content.items() if isinstance(value, Tensor)}
        if not tensors:
            names = ", ".join(sorted(map(str, content))[:5]) or "nothing"
            raise WeightsError(
                f"{path.name} holds {names}; a bundle has encoder (or target_encoder) and predictor", field="path"
            )
        return _flat(path, {name: _in_memory(path, name, value) for name, value in tensors.items()})
    first = "target_encoder" if content.get("encoder") is None else "encoder"
    used = {"encoder": first, "predictor": "predictor"}
    ignored = [str(name) for name in content if name not in used.values()]
    parts: Parts = {}
    for part, key in used.items():
        if content.get(key) is None:
            continue
        state = content[key]
        if not isinstance(state, Mapping):
            raise WeightsError(f"{path.name}: {key} is a {type(state).__name__}; it needs to be a dict", field=key)
        for full, value in state.items():
            name = without_prefixes(str(full))
            if UNUSED.match(name) or not isinstance(value, Tensor):
                ignored.append(f"{key}.{full}")
            else:
                put(parts.setdefault(part, {}), name, _in_memory(path, f"{key}.{full}", value))
    return Source(path, "bundle", parts, tuple(ignored), encoder_key=first if "encoder" in parts else "")


def _torch_load(path: Path) -> Any:
    """Reads tensors and plain containers alone; a file of the zip format is mapped, not read."""
    archive = zipfile.is_zipfile(path)
    with path.open("rb") as file:
        head = file.read(2)
    if head == b"PK" and not archive:
        raise WeightsError(f"{path.name} is cut short; copy or download it again", field="path")
    try:
        with warnings.catch_warnings(action="ignore"):  # about pickle protocols; what cannot be read raises
            return torch.load(path, map_location="cpu", weights_only=True, mmap=archive)
    except pickle.UnpicklingError as error:
        found = re.search(r"(?:GLOBAL|class|type|function) ([\w.]+\.[\w.]+)", str(error))
        if found:
            raise WeightsError(
                f"{path.name} holds code ({found[1]}) beside tensors; it was refused and not run: "
                "save a plain dict of tensors instead",
                field="path",
            ) from error
        raise WeightsError(
            f"{path.name} is no torch checkpoint of plain tensors, or is damaged; nothing of it was run: "
            "copy it again, or save a plain dict of tensors",
            field="path",
        ) from error
    except Exception as error:  # damaged bytes raise whatever the decoder meets first
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> WeightsError:
    text = (str(error).splitlines() or [type(error).__name__])[0][:120]
    return WeightsError(f"{path.name} is no whole torch checkpoint ({text}); copy or download it again", field="path")


def _in_memory(path: Path, name: str, tensor: Tensor) -> Stored:
    """Refuses what is larger unpacked than the file: a view that repeats itself would fill any memory."""
    if tensor.layout != torch.strided or tensor.numel() * tensor.element_size() > path.stat().st_size:
        raise WeightsError(f"{path.name}: tensor {name} has {tensor.numel()} elements, more than the file holds")
    return Stored(tuple(tensor.shape), tensor.dtype, lambda: tensor)


def _stored(path: Path) -> dict[str, Stored]:
    return dict(_each_stored(path))


def _each_stored(path: Path) -> Iterator[tuple[str, Stored]]:
    try:
        file = safe_open(path, framework="pt")  # stays open: tensors are read when they are asked for
        for name in file.keys():  # type: ignore[no-untyped-call]  # noqa: SIM118 - not a mapping
            piece = file.get_slice(name)  # type: ignore[no-untyped-call]
            dtype = ST_DTYPES.get(piece.get_dtype())
            if dtype is None:
                raise WeightsError(f"{path.name}: tensor {name} is {piece.get_dtype()}; convert it to F32, F16 or BF16")
            yield name, Stored(tuple(piece.get_shape()), dtype, functools.partial(file.get_tensor, name))
    except (SafetensorError, OSError) as error:
        raise WeightsError(
            f"{path.name} is no whole safetensors file ({error}); copy or download it again", field="path"
        ) from error


def _json(path: Path) -> Mapping[str, Any]:
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            raise WeightsError(f"{path.name} has {path.stat().st_size} bytes; at most {MAX_JSON_BYTES} are read")
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise WeightsError(f"{path.name} is no JSON: {error}; download it again", field="path") from error
    if not isinstance(value, dict):
        raise WeightsError(f"{path.name} is a {type(value).__name__}; it needs to be an object", field="path")
    return value
