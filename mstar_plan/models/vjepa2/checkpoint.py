"""V-JEPA 2 and V-JEPA 2-AC from local files: strict, memory-mapped, cast one by one; layouts: `checkpoint_file`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from mstar_plan.errors import ConfigError, InvalidInputError, WeightsError
from mstar_plan.models.vjepa2.ac_predictor import ACPredictor
from mstar_plan.models.vjepa2.checkpoint_file import Source, open_source
from mstar_plan.models.vjepa2.config import (
    AC_PREDICTORS,
    ENCODERS,
    ACPredictorConfig,
    EncoderConfig,
    MaskedPredictorConfig,
    TransformerConfig,
)
from mstar_plan.models.vjepa2.contract import ModelContract
from mstar_plan.models.vjepa2.encoder import VJEPA2Encoder
from mstar_plan.models.vjepa2.infer import MASKED_PREDICTORS, LoadOptions, infer_encoder, infer_predictor, nearest
from mstar_plan.models.vjepa2.key_maps import Stored
from mstar_plan.models.vjepa2.masked_predictor import VJEPA2MaskedPredictor
from mstar_plan.models.vjepa2.report import LoadReport
from mstar_plan.models.vjepa2.world_model import VJEPA2AC, VJEPA2ACConfig
from mstar_plan.models.weights import action_from_json, config_from_json
from mstar_plan.types import POSE_UNITS, ActionSpec

ModuleT = TypeVar("ModuleT", bound=nn.Module)

DEFAULT = LoadOptions()
ACTION_NAMES = ("dx", "dy", "dz", "drx", "dry", "drz", "dgripper")


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """An opened file whose tensors fit; weights are read when a network is built.

    Attributes:
        source: The file.
        options: What the caller asked for.
        encoder: Sizes of the encoder; None without one.
        predictor: Sizes of the predictor; None without one.
        report: How the tensors fit.
    """

    source: Source
    options: LoadOptions
    encoder: EncoderConfig | None
    predictor: MaskedPredictorConfig | ACPredictorConfig | None
    report: LoadReport

    def build_encoder(self) -> VJEPA2Encoder:
        """The encoder with its weights, ready for inference."""
        config = self.encoder
        if config is None:
            raise self._lacks("encoder")
        return self._build("encoder", lambda: VJEPA2Encoder(config))

    def build_masked_predictor(self) -> VJEPA2MaskedPredictor:
        """The predictor of masked tokens with its weights, ready for inference."""
        config = self.predictor
        if not isinstance(config, MaskedPredictorConfig):
            raise self._lacks("masked predictor")
        return self._build("predictor", lambda: VJEPA2MaskedPredictor(config))

    def build_ac_predictor(self) -> ACPredictor:
        """The action-conditioned predictor with its weights, ready for inference."""
        config = self.predictor
        if not isinstance(config, ACPredictorConfig):
            raise self._lacks("action-conditioned predictor")
        return self._build("predictor", lambda: ACPredictor(config))

    def world_config(self) -> VJEPA2ACConfig:
        """Sizes and contract of the world model.

        Raises:
            WeightsError: The file holds none.
        """
        if self.source.info is not None and self.source.info.architecture == "vjepa2_ac":
            return config_from_json(VJEPA2ACConfig, self.source.info)
        if self.encoder is None or not isinstance(self.predictor, ACPredictorConfig):
            raise self._lacks("world model (encoder and action-conditioned predictor)")
        contract = ModelContract(frame_copies=self.encoder.tubelet_size)
        return VJEPA2ACConfig(self.encoder, self.predictor, contract, self.options.context_frames)

    def action_spec(self) -> ActionSpec:
        """The actions of the world model."""
        if self.source.info is not None:
            return action_from_json(self.source.info)
        assert isinstance(self.predictor, ACPredictorConfig)
        return published_action(self.predictor.action_embed_dim, self.options.max_translation_m)

    def build_world_model(self) -> VJEPA2AC:
        """The world model with its weights, ready for inference."""
        config = self.world_config()
        info = self.source.info
        name, text = (info.name, info.description) if info else (self.options.name, f"V-JEPA 2-AC, {self.report.file}")
        action = self.action_spec()
        try:
            config.check(action)
        except ConfigError as error:
            raise WeightsError(f"{self.report.file}: {error}", field=error.field) from error
        encoder, predictor = self.build_encoder(), self.build_ac_predictor()
        model = VJEPA2AC(name, config, action, encoder, predictor, description=text).eval().requires_grad_(False)
        if info is not None and self.options.self_test:
            model.verify(info.self_test)
        return model

    def _build(self, part: str, make: Callable[[], ModuleT]) -> ModuleT:
        with torch.device("meta"):
            module = make()
        stored = self.source.parts[part]
        state = {name: self._read(f"{part}.{name}", stored[name]) for name in module.state_dict()}
        module.load_state_dict(state, assign=True)
        return module.eval().requires_grad_(False)

    def _read(self, name: str, stored: Stored) -> Tensor:
        tensor = stored.read().detach()
        if not tensor.is_floating_point():
            raise WeightsError(
                f"{self.report.file}: tensor {name} is {tensor.dtype}; weights are floating point", field=name
            )
        if self.options.dtype is not None:
            tensor = tensor.to(self.options.dtype)
        if not tensor.isfinite().all():
            raise WeightsError(
                f"{self.report.file}: tensor {name} holds NaN, infinity or more than {tensor.dtype} can hold; "
                "get the file anew, or load it as float32",
                field=name,
            )
        return tensor.contiguous()

    def _lacks(self, what: str) -> WeightsError:
        return WeightsError(f"{self.report.file} ({self.report.kind}) holds no {what}; give a file that does")


def open_checkpoint(path: Path, options: LoadOptions = DEFAULT) -> Checkpoint:
    """Opens a bundle, a transformers folder or a weight file, and checks that its tensors fit.

    Raises:
        WeightsError: It is damaged, of another architecture, or its tensors do not fit.
        ConfigError: An option does not fit.
    """
    source = open_source(path)
    if not source.parts:
        raise WeightsError(f"{path.name} holds no tensors of an encoder or predictor; give a V-JEPA 2 file")
    try:
        encoder, predictor = _sizes(source, options)
    except WeightsError as error:
        raise WeightsError(f"{path.name}: {error}", field=error.field) from error
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"{path.name}: sizes cannot be used: {error}; check the options") from error
    report = _report(path, source, options, encoder, predictor)
    report.check(strict=options.strict)
    return Checkpoint(source, options, encoder, predictor, report)


def load_encoder(path: Path, options: LoadOptions = DEFAULT) -> VJEPA2Encoder:
    """The encoder of a file; see `open_checkpoint` for errors."""
    return open_checkpoint(path, options).build_encoder()


def load_masked_predictor(path: Path, options: LoadOptions = DEFAULT) -> VJEPA2MaskedPredictor:
    """The predictor of masked tokens of a file; see `open_checkpoint` for errors."""
    return open_checkpoint(path, options).build_masked_predictor()


def load_world_model(path: Path, options: LoadOptions = DEFAULT) -> VJEPA2AC:
    """The world model of a file; see `open_checkpoint` for errors."""
    return open_checkpoint(path, options).build_world_model()


def published_action(width: int, max_translation_m: float) -> ActionSpec:
    """Actions of V-JEPA 2-AC: change of position and rotation in the robot's base frame, and of gripper closedness.

    Raises:
        WeightsError: The predictor takes actions of another width.
    """
    if width != len(ACTION_NAMES):
        raise WeightsError(
            f"the predictor takes actions of width {width}; those of V-JEPA 2-AC have {len(ACTION_NAMES)} "
            f"({', '.join(ACTION_NAMES)}); convert the model with an action specification of its own",
            field="action_encoder",
        )
    high = np.array([max_translation_m] * 3 + [math.pi] * 3 + [1.0], np.float32)
    return ActionSpec(-high, high, ModelContract().frame_dt_s, ACTION_NAMES, POSE_UNITS)


def _sizes(
    source: Source, options: LoadOptions
) -> tuple[EncoderConfig | None, MaskedPredictorConfig | ACPredictorConfig | None]:
    if source.info is not None:
        return _said_sizes(source)
    shapes = {part: {name: each.shape for name, each in state.items()} for part, state in source.parts.items()}
    encoder = infer_encoder(shapes["encoder"], options, source.config) if "encoder" in shapes else None
    predictor = None
    if "predictor" in shapes:
        predictor = infer_predictor(shapes["predictor"], encoder, options, source.config)
    return encoder, predictor


def _said_sizes(source: Source) -> tuple[EncoderConfig | None, MaskedPredictorConfig | ACPredictorConfig | None]:
    info = source.info
    assert info is not None
    if info.architecture == "vjepa2_ac":
        config = config_from_json(VJEPA2ACConfig, info)
        return config.encoder, config.predictor
    if info.architecture != "vjepa2":
        raise WeightsError(f"it is of architecture {info.architecture!r}; give one of V-JEPA 2", field="architecture")
    try:
        encoder, predictor = info.config.get("encoder"), info.config.get("predictor")
        return (
            EncoderConfig(**encoder) if encoder else None,
            MaskedPredictorConfig(**predictor) if predictor else None,
        )
    except (InvalidInputError, TypeError, AttributeError) as error:
        raise WeightsError(f"its config is refused: {error}", field="config") from error


def _report(
    path: Path,
    source: Source,
    options: LoadOptions,
    encoder: EncoderConfig | None,
    predictor: MaskedPredictorConfig | ACPredictorConfig | None,
) -> LoadReport:
    needed = _needed(encoder, predictor)
    found = {f"{part}.{name}": each for part, state in source.parts.items() for name, each in state.items()}
    used = [found[name] for name in needed if name in found]
    count = sum(math.prod(each.shape) for each in used)
    dtypes = sorted({str(options.dtype or each.dtype).removeprefix("torch.") for each in used})
    sizes = (math.prod(each.shape) * (options.dtype or each.dtype).itemsize for each in used)
    return LoadReport(
        file=path.name,
        layout=source.layout,
        kind=_kind(encoder, predictor),
        nearest=_nearest(encoder, predictor),
        dtype=" and ".join(dtypes),
        parameters=count,
        bytes=sum(sizes),
        missing=tuple(sorted(needed.keys() - found.keys())),
        unexpected=tuple(sorted(found.keys() - needed.keys())),
        misshaped=tuple(
            f"{name}: {list(found[name].shape)}, needed {list(shape)}"
            for name, shape in needed.items()
            if name in found and found[name].shape != shape
        ),
        ignored=source.ignored,
        encoder_key=source.encoder_key,
    )


def _needed(
    encoder: EncoderConfig | None, predictor: MaskedPredictorConfig | ACPredictorConfig | None
) -> Mapping[str, tuple[int, ...]]:
    parts: dict[str, nn.Module] = {}
    with torch.device("meta"):
        if encoder is not None:
            parts["encoder"] = VJEPA2Encoder(encoder)
        if isinstance(predictor, ACPredictorConfig):
            parts["predictor"] = ACPredictor(predictor)
        elif predictor is not None:
            parts["predictor"] = VJEPA2MaskedPredictor(predictor)
    return {
        f"{part}.{name}": tuple(tensor.shape)
        for part, module in parts.items()
        for name, tensor in module.state_dict().items()
    }


def _kind(encoder: EncoderConfig | None, predictor: TransformerConfig | None) -> str:
    if predictor is None:
        return "encoder"
    if encoder is None:
        return "predictor"
    return "vjepa2_ac" if isinstance(predictor, ACPredictorConfig) else "vjepa2"


def _nearest(encoder: EncoderConfig | None, predictor: TransformerConfig | None) -> str:
    tables: list[tuple[Mapping[str, Any], TransformerConfig | None]] = [
        (ENCODERS, encoder),
        (AC_PREDICTORS if isinstance(predictor, ACPredictorConfig) else MASKED_PREDICTORS, predictor),
    ]
    return " + ".join(nearest(table, each.width, each.depth) for table, each in tables if each is not None)
