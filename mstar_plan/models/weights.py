"""Weight files: safetensors whose metadata tell how to rebuild and judge a model; read strictly, never unpickled."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from mstar_plan.errors import InvalidInputError, WeightsError, did_you_mean
from mstar_plan.types import ActionSpec

FORMAT = "mstar_plan.weights/1"
MAX_BYTES = 16 * 2**30  # over twice the largest published V-JEPA 2-AC; a larger file is refused before it is read
OPTIONAL = ("self_test",)  # metadata that files of before may lack

ConfigT = TypeVar("ConfigT")


@dataclass(frozen=True)
class WeightsInfo:
    """What a weight file says of itself.

    Attributes:
        name: Registry name of the model.
        architecture: Name in the registry's table of architectures.
        config: Fields of the architecture's configuration.
        action: Fields of the `ActionSpec` that it was trained with, as JSON gives them.
        description: One sentence for people.
        seed: Seed of the training; member i of an ensemble used seed + i.
        data_hash: SHA-256 of the training data.
        training: How it was trained: the configuration, times, iterations.
        evaluation: What was measured on it.
        self_test: Numbers that the model gives for a fixed input, compared when it is loaded; empty: not compared.
    """

    name: str
    architecture: str
    config: Mapping[str, Any]
    action: Mapping[str, Any] = field(default_factory=dict)
    description: str = ""
    seed: int = 0
    data_hash: str = ""
    training: Mapping[str, Any] = field(default_factory=dict)
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    self_test: Mapping[str, Any] = field(default_factory=dict)


def save_weights(
    path: Path, tensors: Mapping[str, Tensor], info: WeightsInfo, *, half: bool = True, keep: bool = False
) -> None:
    """Writes a weight file, whole or not at all.

    Args:
        path: Where to; folders are made.
        tensors: State of the model by name.
        info: Its metadata.
        half: Store floating point as float16: half the size, and an error far below that of the training.
        keep: Store every tensor in the dtype that it has, whatever `half` says.

    Raises:
        WeightsError: A tensor holds NaN or infinity, or does not fit float16; or the file cannot be written.
    """
    dtype = None if keep else torch.float16 if half else torch.float32
    stored = {name: _stored(name, tensor, dtype) for name, tensor in tensors.items()}
    metadata = {key: value if isinstance(value, str) else json.dumps(value) for key, value in asdict(info).items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    try:
        save_file(stored, partial, metadata={"format": FORMAT, **metadata})
        partial.chmod(0o644)
        partial.replace(path)
    except (OSError, SafetensorError) as error:
        raise WeightsError(f"{path} cannot be written: {error}; make room or choose another", field="path") from error
    finally:
        partial.unlink(missing_ok=True)


def add_evaluation(path: Path, evaluation: Mapping[str, Any]) -> None:
    """Writes more measurements into a weight file's metadata; the tensors stay as they are.

    Raises:
        WeightsError: The file is damaged or not one of this project's.
    """
    info, tensors = read_weights(path, dtype=None)
    save_weights(path, tensors, replace(info, evaluation={**info.evaluation, **evaluation}), keep=True)


def read_info(path: Path) -> WeightsInfo:
    """Returns the metadata of a weight file without reading its tensors.

    Raises:
        WeightsError: It is absent, too large, damaged, or not one of this project's.
    """
    _check_size(path)
    try:
        with safe_open(path, framework="pt") as file:
            return _parse(path, file.metadata() or {})
    except (SafetensorError, OSError) as error:
        raise _damaged(path, error) from error


def read_weights(path: Path, *, dtype: torch.dtype | None = torch.float32) -> tuple[WeightsInfo, dict[str, Tensor]]:
    """Returns metadata and tensors of a weight file.

    Args:
        path: The file.
        dtype: Of floating point; None keeps what is stored.

    Raises:
        WeightsError: It is absent, too large, damaged, not one of this project's, or holds NaN or infinity.
    """
    info = read_info(path)
    tensors: dict[str, Tensor] = {}
    try:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - not a mapping
                tensor = file.get_tensor(name)
                if tensor.is_floating_point():
                    tensor = tensor if dtype is None else tensor.to(dtype)
                    if not tensor.isfinite().all():
                        raise WeightsError(f"{path.name}: tensor {name} holds NaN or infinity; train anew", field=name)
                tensors[name] = tensor
    except (SafetensorError, OSError) as error:
        raise _damaged(path, error) from error
    return info, tensors


def load_state(module: nn.Module, tensors: Mapping[str, Tensor], info: WeightsInfo) -> None:
    """Copies tensors into a module, every name and shape as the module has them.

    A module on the meta device takes the tensors themselves, so that they are not held twice.

    Raises:
        WeightsError: A tensor is missing, unexpected or of another shape.
    """
    state = module.state_dict()
    what = f"weights of {info.name!r} ({info.architecture})"
    for name in sorted(state.keys() - tensors.keys()):
        raise WeightsError(f"{what} lack tensor {name}; the file and its config do not belong together", field=name)
    for name in sorted(tensors.keys() - state.keys()):
        raise WeightsError(f"{what} hold tensor {name}, which the model has not{did_you_mean(name, state)}", field=name)
    for name, tensor in tensors.items():
        if tensor.shape != state[name].shape:
            raise WeightsError(
                f"{what}: tensor {name} is {list(tensor.shape)}; its config asks for {list(state[name].shape)}",
                field=name,
            )
    module.load_state_dict(dict(tensors), assign=any(each.is_meta for each in module.parameters()))


def config_from_json(kind: type[ConfigT], info: WeightsInfo) -> ConfigT:
    """Returns the configuration dataclass that a file's metadata describes.

    Raises:
        WeightsError: A field is unknown, or a value is refused.
    """
    assert is_dataclass(kind)
    known = {each.name for each in fields(kind)}
    for key in info.config:
        if key not in known:
            raise WeightsError(f"config of {info.name!r} has unknown {key!r}{did_you_mean(key, known)}", field=key)
    try:
        return kind(**info.config)
    except (InvalidInputError, TypeError) as error:
        raise WeightsError(f"config of {info.name!r} is refused: {error}", field="config") from error


def action_to_json(action: ActionSpec) -> dict[str, Any]:
    """Returns the fields of an action specification as JSON can hold them."""
    return {
        "low": action.low.tolist(),
        "high": action.high.tolist(),
        "dt_s": action.dt_s,
        "names": list(action.names),
        "units": list(action.units),
        "max_delta": None if action.max_delta is None else action.max_delta.tolist(),
    }


def action_from_json(info: WeightsInfo) -> ActionSpec:
    """Returns the action specification of a file's metadata.

    Raises:
        WeightsError: It is missing or refused.
    """
    try:
        return ActionSpec(**info.action)
    except (InvalidInputError, TypeError) as error:
        raise WeightsError(f"action of {info.name!r} is refused: {error}", field="action") from error


def _stored(name: str, tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    tensor = tensor.detach().cpu().contiguous()
    if not tensor.is_floating_point():
        return tensor
    stored = tensor if dtype is None else tensor.to(dtype)
    if not stored.isfinite().all():
        raise WeightsError(f"tensor {name} holds NaN, infinity or more than float16's 65504; not saved", field=name)
    return stored


def _check_size(path: Path) -> None:
    if not path.is_file():
        raise WeightsError(f"there is no weight file {path}; give the path of a .safetensors file", field="path")
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise WeightsError(f"{path.name} has {size} bytes; at most {MAX_BYTES} are read", field="path")


def _parse(path: Path, metadata: Mapping[str, str]) -> WeightsInfo:
    if metadata.get("format") != FORMAT:
        found = metadata.get("format", "no format")
        raise WeightsError(f"{path.name} says {found!r}; this version reads {FORMAT!r} files", field="format")
    values: dict[str, Any] = {}
    for each in fields(WeightsInfo):
        if each.name not in metadata and each.name in OPTIONAL:
            continue
        if each.name not in metadata:
            raise WeightsError(f"{path.name} lacks metadata {each.name!r}; save it with save_weights", field=each.name)
        text = metadata[each.name]
        try:
            values[each.name] = text if each.type == "str" else json.loads(text)
        except json.JSONDecodeError as error:
            raise WeightsError(f"{path.name}: metadata {each.name!r} is not JSON: {error}", field=each.name) from error
    return WeightsInfo(**values)


def _damaged(path: Path, error: Exception) -> WeightsError:
    text = str(error)
    if "incomplete" in text.lower() or "invalid offset" in text.lower() or "too small" in text.lower():
        cause = "is cut short; copy or download it again"
    elif "header" in text.lower():
        cause = "is not a safetensors file; give a .safetensors file, not a pickle or an archive"
    else:
        cause = "cannot be read; check the file and its permissions"
    return WeightsError(f"{path.name} {cause} ({text})", field="path")
