"""Networks and world models from checkpoints: strict, with a report of every tensor that does not fit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from mstar_plan.errors import ConfigError, WeightsError
from mstar_plan.models.vjepa2.ac_predictor import ACPredictor
from mstar_plan.models.vjepa2.checkpoint_file import Checkpoint, read_checkpoint
from mstar_plan.models.vjepa2.config import EncoderConfig
from mstar_plan.models.vjepa2.contract import ModelContract
from mstar_plan.models.vjepa2.encoder import VJEPA2Encoder
from mstar_plan.models.vjepa2.infer import (
    Known,
    ac_predictor_config,
    encoder_config,
    masked_predictor_config,
    nearest_encoder,
)
from mstar_plan.models.vjepa2.masked_predictor import VJEPA2MaskedPredictor
from mstar_plan.models.vjepa2.world_model import VJEPA2AC, VJEPA2ACConfig
from mstar_plan.types import ActionSpec

UNUSED = ("pos_embed", "predictor_pos_embed")  # of the published files; rotary networks have none
SHOWN = 3

NetworkT = TypeVar("NetworkT", bound=nn.Module)


@dataclass(frozen=True)
class LoadReport:
    """What became of a checkpoint's tensors.

    Attributes:
        source: Name of the file.
        layout: How it was laid out.
        nearest: The named encoder size that is most like it.
        dtype: Of the loaded weights.
        parameters: How many numbers were loaded.
        ignored: Names in the file that nothing was done with.
        missing: Names that the networks need and the file has not.
        unexpected: Names of the file's networks that these have not.
        misshaped: "name: shape in the file, shape needed".
    """

    source: str
    layout: str
    nearest: str = ""
    dtype: str = ""
    parameters: int = 0
    ignored: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    misshaped: tuple[str, ...] = ()

    def problem(self) -> str:
        """What does not fit, in one line; empty if all does."""
        kinds = {"missing": self.missing, "unexpected": self.unexpected, "misshaped": self.misshaped}
        said = [
            f"{len(names)} {kind} ({', '.join(names[:SHOWN])}{', ...' if len(names) > SHOWN else ''})"
            for kind, names in kinds.items()
            if names
        ]
        return "; ".join(said)


def load_encoder(
    path: Path, known: Known | None = None, dtype: torch.dtype | None = None
) -> tuple[VJEPA2Encoder, LoadReport]:
    """Loads the encoder of a checkpoint.

    Args:
        path: File or folder on this machine.
        known: What shapes do not tell.
        dtype: Of the weights; None keeps the file's.

    Raises:
        WeightsError: It does not fit, is damaged, or holds NaN.
    """
    checkpoint, told = _read(path, known)
    config = encoder_config(checkpoint.part("encoder"), told)
    loader = _Loader(checkpoint, dtype)
    encoder = loader.fill("encoder", _empty(VJEPA2Encoder, config))
    return encoder, loader.report(config)


def load_masked_predictor(
    path: Path, known: Known | None = None, dtype: torch.dtype | None = None
) -> tuple[VJEPA2Encoder, VJEPA2MaskedPredictor, LoadReport]:
    """Loads encoder and masked predictor of a checkpoint; see `load_encoder`."""
    checkpoint, told = _read(path, known)
    config = encoder_config(checkpoint.part("encoder"), told)
    predictor_config = masked_predictor_config(checkpoint.part("predictor"), config, told)
    loader = _Loader(checkpoint, dtype)
    encoder = loader.fill("encoder", _empty(VJEPA2Encoder, config))
    predictor = loader.fill("predictor", _empty(VJEPA2MaskedPredictor, predictor_config))
    return encoder, predictor, loader.report(config)


def load_world_model(
    path: Path,
    known: Known | None = None,
    dtype: torch.dtype | None = None,
    *,
    name: str = "vjepa2_ac",
    contract: ModelContract | None = None,
    max_translation_m: float = 0.075,
) -> tuple[VJEPA2AC, LoadReport]:
    """Loads encoder and action-conditioned predictor as a world model to plan with.

    Args:
        path: File or folder on this machine.
        known: What shapes do not tell.
        dtype: Of the weights; None keeps the file's.
        name: What the model is called.
        contract: What must hold between robot and model; the published one by default.
        max_translation_m: Bound of each coordinate of a move.

    Raises:
        WeightsError: It does not fit, is damaged, or holds NaN.
    """
    checkpoint, told = _read(path, known)
    if not any(each.startswith("action_encoder.") for each in checkpoint.part("predictor")):
        raise WeightsError(
            f"{checkpoint.path.name} holds a predictor without action_encoder: it cannot plan; give a V-JEPA 2-AC file",
            field="predictor",
        )
    config = encoder_config(checkpoint.part("encoder"), told)
    predictor_config = ac_predictor_config(checkpoint.part("predictor"), config, told)
    contract = contract or ModelContract()
    try:
        whole = VJEPA2ACConfig(config, predictor_config, contract)
    except ConfigError as error:
        raise WeightsError(f"{checkpoint.path.name}: {error}") from error
    loader = _Loader(checkpoint, dtype)
    encoder = loader.fill("encoder", _empty(VJEPA2Encoder, config))
    predictor = loader.fill("predictor", _empty(ACPredictor, predictor_config))
    report = loader.report(config)
    spec = published_actions(predictor_config.action_embed_dim, max_translation_m, contract.frame_dt_s)
    model = VJEPA2AC(name, whole, spec, encoder, predictor, description=f"V-JEPA 2-AC from {checkpoint.path.name}.")
    return model.eval().requires_grad_(False), report


def published_actions(size: int, max_translation_m: float, dt_s: float) -> ActionSpec:
    """Actions of V-JEPA 2-AC: moves in metres, turns in radians from the left, change of the gripper's closedness.

    Raises:
        WeightsError: The model has another number of them.
    """
    if size != 7:
        raise WeightsError(f"the predictor takes {size} action values; V-JEPA 2-AC takes 7: it is another model")
    high = np.array([max_translation_m] * 3 + [np.pi] * 3 + [1.0], np.float32)
    names = ("dx", "dy", "dz", "drx", "dry", "drz", "dgripper")
    return ActionSpec(-high, high, dt_s, names, ("m",) * 3 + ("rad",) * 3 + ("1",))


def _read(path: Path, known: Known | None) -> tuple[Checkpoint, Known]:
    checkpoint = read_checkpoint(path)
    told = {name: value for name, value in vars(known or Known()).items() if value}
    return checkpoint, replace(checkpoint.known, **told)


def _empty(kind: type[NetworkT], config: Any) -> NetworkT:
    """A network without storage; its tensors come from the file."""
    with torch.device("meta"):
        return kind(config)


class _Loader:
    """Fills networks from a checkpoint, and keeps account."""

    def __init__(self, checkpoint: Checkpoint, dtype: torch.dtype | None) -> None:
        self.checkpoint, self.dtype = checkpoint, dtype
        self.ignored = list(checkpoint.ignored)
        self.missing: list[str] = []
        self.unexpected: list[str] = []
        self.misshaped: list[str] = []
        self.parameters = 0
        self.loaded: torch.dtype | None = None

    def fill(self, part: str, network: NetworkT) -> NetworkT:
        """Gives a network the tensors of a part, one by one, so that no more than them is held."""
        state, needed = dict(self.checkpoint.part(part)), network.state_dict()
        self.ignored += [f"{part}.{name}" for name in UNUSED if state.pop(name, None) is not None]
        self.missing += [f"{part}.{name}" for name in needed if name not in state]
        self.unexpected += [f"{part}.{name}" for name in state if name not in needed]
        tensors: dict[str, Tensor] = {}
        for name, tensor in state.items():
            if name not in needed:
                continue
            if tensor.numel() == needed[name].numel() and tensor.squeeze().shape == needed[name].squeeze().shape:
                tensors[name] = self._cast(part, name, tensor.reshape(needed[name].shape))
            else:
                shapes = f"{list(tensor.shape)}, needed {list(needed[name].shape)}"
                self.misshaped.append(f"{part}.{name}: {shapes}")
        if not (self.missing or self.misshaped):
            network.load_state_dict(tensors, assign=True, strict=False)
        return network.eval().requires_grad_(False)

    def _cast(self, part: str, name: str, tensor: Tensor) -> Tensor:
        if not tensor.is_floating_point():
            return tensor
        if not bool(tensor.isfinite().all()):
            raise WeightsError(f"{self.checkpoint.path.name}: tensor {part}.{name} holds NaN or infinity", field=name)
        self.parameters += tensor.numel()
        wanted = self.dtype or (torch.float32 if tensor.dtype == torch.float16 else tensor.dtype)
        self.loaded = wanted
        return tensor.to(wanted)

    def report(self, encoder: EncoderConfig) -> LoadReport:
        """The account.

        Raises:
            WeightsError: Something is missing, unexpected or misshaped.
        """
        report = LoadReport(
            source=self.checkpoint.path.name,
            layout=self.checkpoint.layout,
            nearest=nearest_encoder(encoder.embed_dim, encoder.depth),
            dtype=str(self.loaded).removeprefix("torch."),
            parameters=self.parameters,
            ignored=tuple(self.ignored),
            missing=tuple(self.missing),
            unexpected=tuple(self.unexpected),
            misshaped=tuple(self.misshaped),
        )
        problem = report.problem()
        if problem:
            raise WeightsError(
                f"{report.source} does not fit: {problem}; its sizes are nearest to {report.nearest!r}", field="path"
            )
        return report
