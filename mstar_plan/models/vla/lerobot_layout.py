"""Reads a policy's folder as LeRobot publishes it: config, weights, normalisers and features, strictly.

    config.json                                     type, features, sizes
    model.safetensors                               the weights, mostly with `model.` before their names
    policy_preprocessor.json  [+ *.safetensors]     steps before the model; statistics of what it normalises
    policy_postprocessor.json [+ *.safetensors]     steps after it
    [tokenizer.json, or tokenizer/tokenizer.json]

Folders of before LeRobot 0.4 have no processor files: their statistics are buffers among the weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from mstar_plan.errors import WeightsError, did_you_mean
from mstar_plan.models.vla.lerobot_layout_config import Feature, check_config, features_of, rules_of
from mstar_plan.models.vla.lerobot_layout_files import need_finite, read_json, read_tensors
from mstar_plan.models.vla.lerobot_layout_stats import Pipeline, Stats, normalisers_of, read_pipeline, split_buffers
from mstar_plan.models.vla.normalise import EPS, Normaliser
from mstar_plan.models.weights import MAX_BYTES

__all__ = ["ACTION", "STATE", "Feature", "PolicyFiles", "TokenizerSettings", "read_policy"]

CONFIG, WEIGHTS = "config.json", "model.safetensors"
BEFORE, AFTER = "policy_preprocessor.json", "policy_postprocessor.json"
ACTION, STATE = "action", "observation.state"
MAX_PROMPT_TOKENS = 4096


@dataclass(frozen=True)
class TokenizerSettings:
    """How a policy's prompt becomes tokens.

    Attributes:
        file: tokenizer.json of the folder; None where it brings none.
        name: What the policy calls its tokenizer; empty where it does not say.
        most: Tokens that a prompt is cut to.
        fill: Whether a shorter prompt is filled up to `most`, or only to the longest of its batch.
        fill_left: Fill at the left.
    """

    file: Path | None
    name: str
    most: int
    fill: bool
    fill_left: bool = False


@dataclass(frozen=True, eq=False)
class PolicyFiles:
    """A published policy as its folder holds it.

    Attributes:
        kind: pi0, pi05 or smolvla.
        config: config.json; all its keys are known.
        tensors: State of the model by published name, without the `model.` that a policy puts before all of them, and
            without normalisers. In the dtypes of the file.
        normalisers: {feature: how it is normalised}: inputs by their names, and "action".
        features: {name: what it is}: inputs, and "action".
        unmeasured: Features that should be normalised, but whose statistics the folder lacks (base models): their
            normaliser leaves them as they are.
        rename: {name of a robot's value: name of the policy's}.
        tokenizer: Of the prompt.
        folder: Where it is.
    """

    kind: str
    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    normalisers: Mapping[str, Normaliser]
    features: Mapping[str, Feature]
    tokenizer: TokenizerSettings
    folder: Path
    unmeasured: tuple[str, ...] = ()
    rename: Mapping[str, str] = field(default_factory=dict)

    @property
    def cameras(self) -> tuple[str, ...]:
        """Names of the pictures that it takes, in the order in which the model sees them."""
        return tuple(name for name, feature in self.features.items() if feature.kind == "VISUAL")


def read_policy(folder: Path) -> PolicyFiles:
    """Returns the policy of a folder.

    Raises:
        WeightsError: A file is absent, damaged or too large; a key, step or feature is unknown; a tensor holds NaN; or
            the policy asks for what is not computed here.
    """
    if not folder.is_dir():
        raise WeightsError(f"there is no folder {folder}; give the folder of a published policy", field="path")
    config = read_json(folder / CONFIG)
    kind = check_config(config, CONFIG)
    inputs = features_of(config.get("input_features"), f"{CONFIG} input_features")
    outputs = features_of(config.get("output_features"), f"{CONFIG} output_features")
    if outputs.get(ACTION, None) is None or outputs[ACTION].kind != "ACTION":
        known = did_you_mean(ACTION, outputs)
        raise WeightsError(f"{CONFIG} output_features lack {ACTION!r} of type ACTION{known}", field="output_features")
    features = inputs | {ACTION: outputs[ACTION]}
    tensors, stats = split_buffers(_weights(folder), features)
    before, after = (_pipeline(folder, name) for name in (BEFORE, AFTER))
    if (before is None) != (after is None):
        lacking = BEFORE if before is None else AFTER
        raise WeightsError(f"{folder} lacks {lacking}; give the folder of a whole policy", field="path")
    normalisers, unmeasured = _normalisers(config, features, stats, before, after)
    return PolicyFiles(
        kind=kind,
        config=config,
        tensors=_unwrapped(tensors),
        normalisers=normalisers,
        features=features,
        tokenizer=_tokenizer(folder, config, kind, before.tokenizer if before else {}),
        folder=folder,
        unmeasured=unmeasured,
        rename=before.rename if before else {},
    )


def _pipeline(folder: Path, name: str) -> Pipeline | None:
    return read_pipeline(folder, name) if (folder / name).exists() else None


def _weights(folder: Path) -> dict[str, Tensor]:
    """Every tensor under its name without what torch.compile puts into it; buffers of normalisers may be infinite."""
    tensors: dict[str, Tensor] = {}
    for full, tensor in read_tensors(folder / WEIGHTS, MAX_BYTES).items():
        name = full.replace("_orig_mod.", "")
        if name in tensors:
            raise WeightsError(f"{WEIGHTS} holds {name} twice, once compiled; keep one", field=name)
        tensors[name] = tensor
    return tensors


def _unwrapped(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    for name, tensor in tensors.items():
        need_finite(WEIGHTS, name, tensor)
    wrapped = bool(tensors) and all(name.startswith("model.") for name in tensors)
    return {name.removeprefix("model.") if wrapped else name: tensor for name, tensor in tensors.items()}


def _normalisers(
    config: Mapping[str, Any],
    features: Mapping[str, Feature],
    stats: Stats,
    before: Pipeline | None,
    after: Pipeline | None,
) -> tuple[dict[str, Normaliser], tuple[str, ...]]:
    if before is None or after is None:
        rules = rules_of(config.get("normalization_mapping"), f"{CONFIG} normalization_mapping")
        made, lacking = normalisers_of(features, rules, stats, EPS, WEIGHTS)
        return made, tuple(lacking)
    if stats:
        raise WeightsError(f"{WEIGHTS} holds normalisers beside {BEFORE}; keep one of the two", field="path")
    found = {name: each for name, each in before.normalisers.items() if name != ACTION}
    found |= {ACTION: after.normalisers[ACTION]} if ACTION in after.normalisers else {}
    names = {*before.unmeasured, *after.unmeasured}
    for name, normaliser in found.items():
        _check_width(name, features, normaliser)
    made = {name: found.get(name, Normaliser()) for name in features}
    return made, tuple(name for name in features if name in names)


def _check_width(name: str, features: Mapping[str, Feature], normaliser: Normaliser) -> None:
    if name not in features or features[name].kind == "VISUAL" or normaliser.width is None:
        return
    if normaliser.width != features[name].shape[-1]:
        have, want = normaliser.width, list(features[name].shape)
        raise WeightsError(f"statistics of {name} are for {have} numbers; {CONFIG} says {want}", field=name)


def _tokenizer(folder: Path, config: Mapping[str, Any], kind: str, step: Mapping[str, Any]) -> TokenizerSettings:
    usual = {"pi0": 48, "pi05": 200, "smolvla": 48}[kind]
    most = step.get("max_length", config.get("tokenizer_max_length", usual))
    if type(most) is not int or not 1 <= most <= MAX_PROMPT_TOKENS:
        raise WeightsError(
            f"prompts have at most {most!r} tokens; it needs 1 to {MAX_PROMPT_TOKENS}", field="tokenizer"
        )
    padding = step.get("padding", config.get("pad_language_to", "max_length"))
    side = step.get("padding_side", "right")
    if padding not in ("longest", "max_length") or side not in ("right", "left"):
        raise WeightsError(f"prompts are filled {padding!r} at the {side!r}; use longest or max_length, right or left")
    name = step.get("tokenizer_name") or config.get("vlm_model_name") or ""
    files = (folder / "tokenizer.json", folder / "tokenizer" / "tokenizer.json")
    file = next((path for path in files if path.is_file()), None)
    return TokenizerSettings(file, str(name), most, padding == "max_length", side == "left")
