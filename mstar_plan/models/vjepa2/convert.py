"""From published V-JEPA 2 weights to a weight file of this project."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

from torch import Tensor

from mstar_plan.errors import WeightsError
from mstar_plan.models.vjepa2.checkpoint import Checkpoint, load_world_model, open_checkpoint
from mstar_plan.models.vjepa2.infer import LoadOptions
from mstar_plan.models.vjepa2.report import LoadReport
from mstar_plan.models.weights import WeightsInfo, action_to_json, read_weights, save_weights


def convert(source: Path, target: Path, options: LoadOptions, *, force: bool = False) -> LoadReport:
    """Writes a weight file, whole or not at all.

    Args:
        source: Bundle or folder.
        target: File to write; it ends in .safetensors.
        options: How to read the source; `dtype` is what is stored, `self_test` puts a golden vector into the file.
        force: Write over a file that is there.

    Returns:
        How the source's tensors fit.

    Raises:
        WeightsError: The source cannot be used, or the target is there already.
        ConfigError: An option does not fit.
    """
    if target.suffix != ".safetensors":
        raise WeightsError(f"target is {target.name}; it needs to end in .safetensors", field="target")
    if target.exists() and not force:
        raise WeightsError(f"{target} is there already; choose another, or force=true", field="target")
    checkpoint = open_checkpoint(source, options)
    tensors, info = _world(checkpoint) if checkpoint.report.kind == "vjepa2_ac" else _networks(checkpoint)
    save_weights(target, tensors, info, keep=True)
    return checkpoint.report


def add_self_test(path: Path) -> None:
    """Puts a golden vector into a weight file of a world model, in the place of the one that it has.

    Raises:
        WeightsError: The file is damaged, or holds no world model.
    """
    model = load_world_model(path, LoadOptions(self_test=False))
    info, tensors = read_weights(path, dtype=None)
    save_weights(path, tensors, replace(info, self_test=model.digest()), keep=True)


def _world(checkpoint: Checkpoint) -> tuple[dict[str, Tensor], WeightsInfo]:
    model = checkpoint.build_world_model()
    info = WeightsInfo(
        name=model.spec.name,
        architecture="vjepa2_ac",
        config=asdict(model.config),
        action=action_to_json(model.spec.action),
        description=model.spec.description,
        training={"converted_from": checkpoint.report.file, "layout": checkpoint.report.layout},
        self_test=model.digest() if checkpoint.options.self_test else {},
    )
    return dict(model.state_dict()), info


def _networks(checkpoint: Checkpoint) -> tuple[dict[str, Tensor], WeightsInfo]:
    tensors: dict[str, Tensor] = {}
    config = {}
    if checkpoint.encoder is not None:
        config["encoder"] = asdict(checkpoint.encoder)
        state = checkpoint.build_encoder().state_dict()
        tensors |= {f"encoder.{name}": tensor for name, tensor in state.items()}
    if checkpoint.predictor is not None:
        if checkpoint.report.kind == "predictor" and "action_embed_dim" in asdict(checkpoint.predictor):
            raise WeightsError(f"{checkpoint.report.file} holds no encoder; a world model needs one", field="encoder")
        config["predictor"] = asdict(checkpoint.predictor)
        state = checkpoint.build_masked_predictor().state_dict()
        tensors |= {f"predictor.{name}": tensor for name, tensor in state.items()}
    info = WeightsInfo(
        name=f"vjepa2_{checkpoint.report.nearest.partition(' ')[0]}",
        architecture="vjepa2",
        config=config,
        description=f"V-JEPA 2, {checkpoint.report.file}",
        training={"converted_from": checkpoint.report.file, "layout": checkpoint.report.layout},
    )
    return tensors, info
