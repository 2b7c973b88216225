"""The config.json of a published policy: which keys it may hold, which of them must be off, and its features.

The keys are those of LeRobot's `configuration_{pi0,pi05,smolvla}.py`, from the first release of each to 0.6.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from mstar_plan.errors import WeightsError, did_you_mean

FeatureKind = Literal["VISUAL", "STATE", "ACTION", "ENV", "LANGUAGE", "REWARD"]
MAX_FEATURES = 64
MAX_SIDE = 65536  # of an axis of a feature

KINDS = ("pi0", "pi05", "smolvla")
# Keys that say how to train, where to publish and on what to run: they do not change what comes out.
_ELSEWHERE = """
    type n_obs_steps device use_amp push_to_hub repo_id private tags license pretrained_path pretrained_revision
    revision checkpoint compile_model compile_mode gradient_checkpointing freeze_vision_encoder train_expert_only
    train_state_proj optimizer_lr optimizer_betas optimizer_eps optimizer_weight_decay optimizer_grad_clip_norm
    optimizer_fused optimizer_foreach scheduler_warmup_steps scheduler_decay_steps scheduler_decay_lr
    time_sampling_beta_alpha time_sampling_beta_beta time_sampling_scale time_sampling_offset load_vlm_weights
    rtc_training_max_delay attention_implementation dtype use_cache
"""
_SHARED = """
    input_features output_features normalization_mapping chunk_size n_action_steps max_state_dim max_action_dim
    empty_cameras tokenizer_max_length min_period max_period rtc_config action_feature_names relative_exclude_joints
    adapt_to_pi_aloha use_delta_joint_actions_aloha use_relative_actions use_peft num_steps resize_imgs_with_padding
"""
_OWN = {
    "pi0": "paligemma_variant action_expert_variant num_inference_steps image_resolution proj_width",
    "pi05": """paligemma_variant action_expert_variant num_inference_steps image_resolution use_visual_memory
        use_proprioceptive_memory memory_frames memory_stride memory_temporal_attention_every""",
    "smolvla": """vlm_model_name add_image_special_tokens attention_mode prefix_length pad_language_to num_expert_layers
        num_vlm_layers self_attn_every_n_layers expert_width_multiplier""",
}
KEYS: Mapping[str, frozenset[str]] = {k: frozenset((_ELSEWHERE + _SHARED + own).split()) for k, own in _OWN.items()}
# Keys that would change what comes out in a way that is not computed here.
OFF = (
    "adapt_to_pi_aloha",
    "use_delta_joint_actions_aloha",
    "use_relative_actions",
    "use_peft",
    "use_visual_memory",
    "use_proprioceptive_memory",
)
RULES = ("MEAN_STD", "MIN_MAX", "QUANTILES", "QUANTILE10", "IDENTITY")


@dataclass(frozen=True)
class Feature:
    """One value that a policy takes or gives.

    Attributes:
        kind: What it is; pictures are VISUAL.
        shape: Of one value: [D], or [C, H_px, W_px] of a picture.
    """

    kind: FeatureKind
    shape: tuple[int, ...]


def check_config(config: Mapping[str, Any], where: str) -> str:
    """Returns the policy's kind, one of `KINDS`.

    Raises:
        WeightsError: The kind or a key is unknown, or a key asks for what is not computed here.
    """
    kind = config.get("type")
    if kind not in KINDS:
        near = did_you_mean(kind, KINDS) if isinstance(kind, str) else f"; known: {', '.join(KINDS)}"
        raise WeightsError(f"{where} is of type {kind!r}{near}", field="type")
    for name in config:
        if name not in KEYS[kind]:
            raise WeightsError(f"{where} of a {kind} policy has unknown key {name!r}{did_you_mean(name, KEYS[kind])}")
    for name in OFF:
        if config.get(name):
            raise WeightsError(f"{where} asks for {name}, which is not computed here; take another policy", field=name)
    if config.get("n_obs_steps", 1) != 1:
        what = f"{where} asks for n_obs_steps {config['n_obs_steps']!r}"
        raise WeightsError(f"{what}; only 1 is computed here", field="n_obs_steps")
    return str(kind)


def features_of(entries: object, where: str) -> dict[str, Feature]:
    """Returns the features that a JSON object names; none where it is null.

    Raises:
        WeightsError: One has no known type, or no shape of whole numbers.
    """
    if entries is None:
        return {}
    if not isinstance(entries, Mapping) or len(entries) > MAX_FEATURES:
        raise WeightsError(f"{where} must be an object of at most {MAX_FEATURES} features", field="features")
    return {str(name): _feature(entry, f"{where}.{name}") for name, entry in entries.items()}


def _feature(entry: object, where: str) -> Feature:
    if not isinstance(entry, Mapping):
        raise WeightsError(f"{where} is {entry!r}; it needs type and shape", field="features")
    kind, shape = entry.get("type"), entry.get("shape")
    if kind not in get_args(FeatureKind):
        near = did_you_mean(str(kind), get_args(FeatureKind))
        raise WeightsError(f"{where} has type {kind!r}{near}", field="features")
    fits = isinstance(shape, list) and 1 <= len(shape) <= 4
    if not fits or not all(type(size) is int and 1 <= size <= MAX_SIDE for size in cast("list[Any]", shape)):
        raise WeightsError(f"{where} has shape {shape!r}; it needs up to 4 whole numbers >= 1", field="features")
    return Feature(cast("FeatureKind", kind), tuple(cast("list[int]", shape)))


def rules_of(mapping: object, where: str) -> dict[str, str]:
    """Returns {kind of feature: rule in lower case} of a normalisation mapping; none where it is null.

    Raises:
        WeightsError: A kind or a rule is unknown.
    """
    if mapping is None:
        return {}
    if not isinstance(mapping, Mapping):
        raise WeightsError(f"{where} is {mapping!r}; it needs an object of rules", field="normalization_mapping")
    for kind, rule in mapping.items():
        if kind not in get_args(FeatureKind):
            raise WeightsError(f"{where} has unknown kind {kind!r}{did_you_mean(kind, get_args(FeatureKind))}")
        if rule not in RULES:
            raise WeightsError(f"{where}.{kind} is {rule!r}{did_you_mean(str(rule), RULES)}", field=kind)
    return {kind: rule.lower() for kind, rule in mapping.items()}
