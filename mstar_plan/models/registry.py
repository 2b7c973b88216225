"""The names of models: which can be loaded, from what, and how good they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn

from mstar_plan.errors import InvalidInputError, NotFoundError, UnavailableError, WeightsError, did_you_mean
from mstar_plan.models.weights import read_info, read_weights
from mstar_plan.models.world_model import ModelSpec, WorldModel

# Architecture -> "module:Class". Those that have weights build from them with `from_weights(info, tensors)`.
ARCHITECTURES: Mapping[str, str] = {
    "toy": "mstar_plan.models.toy:ToyWorld",
    "jepa": "mstar_plan.models.jepa:Jepa",
    "vjepa2_ac": "mstar_plan.models.vjepa2.world_model:VJEPA2AC",
}
# Model -> its architecture if it needs no weights, else None: its weights are packaged as pretrained/NAME.safetensors.
MODELS: Mapping[str, str | None] = {
    "toy": "toy",
    **dict.fromkeys(("reach", "wall", "push", "vjepa2_reach", "vjepa2_wall", "vjepa2_push")),
    "vjepa2_ac": None,
}
# Models whose weights are too large to package -> how to get them.
TO_CONVERT: Mapping[str, str] = {
    "vjepa2_ac": "make FILE of the published ones with `mstar-plan convert`, then say weights=FILE"
}
PRETRAINED = Path(__file__).parent / "pretrained"


@dataclass(frozen=True)
class ModelCard:
    """What there is to know of a model before it is used.

    Attributes:
        name: What `load_model` takes.
        description: One sentence.
        inputs: What it takes and gives; None where its weights are not there.
        evaluation: What was measured on it, as its weight file says.
        file_bytes: Size of the weight file; 0 for models without one.
    """

    name: str
    description: str
    inputs: ModelSpec | None
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    file_bytes: int = 0


def load_model(name: str, *, device: str | torch.device | None = None, self_test: bool = True) -> WorldModel:
    """Returns the model of this name, ready for inference.

    Args:
        name: One of `MODELS`.
        device: Where to put it; the CPU by default.
        self_test: Compare what it computes with the golden vector in its file, if there is one.

    Raises:
        NotFoundError: There is no such name; the message lists those that there are.
        UnavailableError: Its weight file is not installed.
        WeightsError: Its weight file is damaged, or it fails its self-test.
        InvalidInputError: There is no such device.
    """
    if name not in MODELS:
        raise NotFoundError(f"there is no model {name!r}{did_you_mean(name, MODELS)}", field="model")
    architecture = MODELS[name]
    if architecture is None:
        return load_model_file(_weight_file(name), device=device, self_test=self_test)
    return _ready(_class(architecture)(name), device)


def load_model_file(
    path: Path,
    *,
    device: str | torch.device | None = None,
    self_test: bool = True,
    dtype: torch.dtype | None = torch.float32,
) -> WorldModel:
    """Returns the model that a weight file holds, ready for inference.

    Args:
        path: The file.
        device: Where to put it; the CPU by default.
        self_test: Compare what it computes with the golden vector in the file, if there is one.
        dtype: Of its weights; None keeps what is stored.

    Raises:
        WeightsError: The file is absent, damaged, of an architecture that is not known here, or fails its self-test.
        InvalidInputError: There is no such device.
    """
    info, tensors = read_weights(path, dtype=dtype)
    if info.architecture not in ARCHITECTURES:
        tail = did_you_mean(info.architecture, ARCHITECTURES)
        raise WeightsError(f"{path.name} is of architecture {info.architecture!r}{tail}", field="architecture")
    build = getattr(_class(info.architecture), "from_weights", None)
    if build is None:
        raise WeightsError(f"{path.name} says {info.architecture!r}, which has no weights", field="architecture")
    model = _ready(build(info, tensors), device)
    verify = getattr(model, "verify", None)
    if self_test and verify is not None:
        verify(info.self_test)
    return model


def list_models() -> list[ModelCard]:
    """Returns a card of every model, those without installed weights too (`inputs` is None there)."""
    return [_card(name) for name in MODELS]


def _card(name: str) -> ModelCard:
    path = PRETRAINED / f"{name}.safetensors"
    if MODELS[name] is None and not path.is_file():
        return ModelCard(name, f"not installed: {TO_CONVERT.get(name, f'{path.name} is missing')}", None)
    spec = load_model(name).spec
    if MODELS[name] is not None:
        return ModelCard(name, spec.description, spec)
    return ModelCard(name, spec.description, spec, read_info(path).evaluation, path.stat().st_size)


def _weight_file(name: str) -> Path:
    path = PRETRAINED / f"{name}.safetensors"
    if not path.is_file() and name in TO_CONVERT:
        raise UnavailableError(f"the weights of {name!r} are not packaged; {TO_CONVERT[name]}", field="model")
    if not path.is_file():
        raise UnavailableError(
            f"the weights of {name!r} are not at {path}; make them with: mstar-plan train env={name}", field="model"
        )
    return path


def _class(architecture: str) -> Any:
    module, _, name = ARCHITECTURES[architecture].partition(":")
    return getattr(import_module(module), name)


def _ready(model: WorldModel, device: str | torch.device | None) -> WorldModel:
    assert isinstance(model, nn.Module)
    try:
        ready: WorldModel = model.to(device or "cpu").eval().requires_grad_(False)
    except (RuntimeError, AssertionError) as error:  # torch raises either, by backend
        what = f"device is {str(device)!r}, which cannot be used here"
        raise InvalidInputError(f"{what}: use cpu, or cuda:0 where PyTorch has a GPU", field="device") from error
    return ready
