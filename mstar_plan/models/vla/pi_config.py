"""Sizes of a pi0 or pi0.5 policy, and how published configurations tell them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from mstar_plan.errors import ConfigError, did_you_mean
from mstar_plan.models.vla.gemma import GemmaConfig
from mstar_plan.models.vla.siglip import SiglipConfig

GELU = ("gelu_pytorch_tanh", "gelu_new")
NAMES = {  # of sizes that all forms share: theirs -> ours; the later one counts
    "chunk_size": "chunk",
    "max_action_dim": "action_width",
    "max_state_dim": "state_width",
    "num_steps": "steps",
    "num_inference_steps": "steps",
}
VARIANTS: Mapping[str, GemmaConfig] = {  # of openpi's gemma.py
    "gemma_2b": GemmaConfig(2048, 18, 16384, 8, 1, 256),
    "gemma_300m": GemmaConfig(1024, 18, 4096, 8, 1, 256),
    "dummy": GemmaConfig(64, 4, 128, 8, 1, 16),  # openpi's own, for tests
}


@dataclass(frozen=True, kw_only=True)
class PiConfig:
    """A policy of the pi0 family.

    Attributes:
        kind: pi0 has a state token, and its actions are mixed with the time; pi0.5 reads the state in its prompt, and
            its norms follow the time.
        vision: Image tower.
        language: Tower of the prefix.
        expert: Tower of the actions; as many layers, and equal key-value heads.
        vocabulary: Token ids of the prompt.
        chunk: S, actions of one answer.
        action_width: Of padded actions.
        state_width: Of the padded state.
        steps: Euler steps where a request does not say.
        min_period: Shortest period of the time embedding.
        max_period: Longest.
        exact_time: Work the time embedding out in float64, as openpi and LeRobot do; transformers does in float32.
    """

    kind: Literal["pi0", "pi05"]
    vision: SiglipConfig = field(default_factory=SiglipConfig)
    language: GemmaConfig = VARIANTS["gemma_2b"]
    expert: GemmaConfig = VARIANTS["gemma_300m"]
    vocabulary: int = 257152
    chunk: int = 50
    action_width: int = 32
    state_width: int = 32
    steps: int = 10
    min_period: float = 4e-3
    max_period: float = 4.0
    exact_time: bool = True

    def __post_init__(self) -> None:
        if self.kind not in ("pi0", "pi05"):
            raise ConfigError(f"policy kind is {self.kind!r}; use pi0 or pi05", field="kind")
        for name in ("vocabulary", "chunk", "action_width", "state_width", "steps"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ConfigError(f"{name} is {value!r}; it needs a whole number of at least 1", field=name)
        if not 0 < self.min_period < self.max_period < math.inf:
            what = f"time periods {self.min_period} to {self.max_period} are no positive range"
            raise ConfigError(what, field="min_period")
        if self.expert.width % 2:
            raise ConfigError(f"expert width {self.expert.width} is odd; the time embedding needs it even")
        shared = ("depth", "kv_heads", "head_width", "theta")
        for name in shared:
            ours, theirs = getattr(self.language, name), getattr(self.expert, name)
            if ours != theirs:
                what = f"the prefix has {name} {ours}, the action expert {theirs}"
                raise ConfigError(f"{what}; they attend together, so they need to be equal", field=name)


def read_pi_config(kind: Literal["pi0", "pi05"], config: Mapping[str, Any]) -> PiConfig:
    """The sizes that a published configuration tells.

    Three forms are known: LeRobot's (`paligemma_variant`, `action_expert_variant`, `image_resolution`), transformers'
    (`vlm_config`, `dit_config`), and sizes spelt out (`paligemma`, `action_expert`, `vision`, `vocab_size`).

    Raises:
        ConfigError: A size is missing or refused, or it asks for what is not computed here.
    """
    try:
        if "vlm_config" in config:
            sizes = _transformers_sizes(config)
        elif "paligemma" in config:
            sizes = _plain_sizes(config)
        else:
            sizes = _lerobot_sizes(config)
    except KeyError as error:
        raise ConfigError(f"the policy's configuration lacks {error}", field="config") from error
    sizes |= {ours: config[theirs] for theirs, ours in NAMES.items() if theirs in config}
    for name in ("min_period", "max_period"):
        if name in config:
            sizes[name] = float(config[name])
    for name in ("use_visual_memory", "use_proprioceptive_memory"):
        if config.get(name):
            raise ConfigError(f"config.{name} is true; observation memory is not computed here", field=name)
    return PiConfig(kind=kind, **sizes)


def _lerobot_sizes(config: Mapping[str, Any]) -> dict[str, Any]:
    side = config.get("image_resolution", (224, 224))
    if len(side) != 2 or side[0] != side[1]:
        raise ConfigError(f"image_resolution is {side}; it needs a square", field="image_resolution")
    towers = {
        "language": config.get("paligemma_variant", "gemma_2b"),
        "expert": config.get("action_expert_variant", "gemma_300m"),
    }
    for name, variant in towers.items():
        if variant not in VARIANTS:
            raise ConfigError(f"{name} variant is {variant!r}{did_you_mean(str(variant), VARIANTS)}", field=name)
    return {
        **{name: VARIANTS[variant] for name, variant in towers.items()},
        "vision": SiglipConfig(image_size=int(side[0])),
    }


def _plain_sizes(config: Mapping[str, Any]) -> dict[str, Any]:
    def tower(sizes: Mapping[str, Any]) -> GemmaConfig:
        names = ("width", "depth", "mlp_dim", "num_heads", "num_kv_heads", "head_dim")
        return GemmaConfig(*[sizes[name] for name in names])

    return {
        "language": tower(config["paligemma"]),
        "expert": tower(config["action_expert"]),
        "vision": _vision(config["vision"]),
        "vocabulary": config["vocab_size"],
    }


def _transformers_sizes(config: Mapping[str, Any]) -> dict[str, Any]:
    vlm = config["vlm_config"]
    return {
        "language": _gemma(vlm["text_config"]),
        "expert": _gemma(config["dit_config"]),
        "vision": _vision(vlm["vision_config"]),
        "vocabulary": vlm["text_config"]["vocab_size"],
        "exact_time": False,
    }


def _gemma(sizes: Mapping[str, Any]) -> GemmaConfig:
    _need_gelu(sizes, "hidden_act")
    _need_gelu(sizes, "hidden_activation")
    rope = sizes.get("rope_parameters") or {}
    if rope.get("rope_type", "default") != "default" or sizes.get("rope_scaling"):
        raise ConfigError("a scaled rotary embedding is not computed here", field="rope_parameters")
    heads = sizes["num_attention_heads"]
    return GemmaConfig(
        width=sizes["hidden_size"],
        depth=sizes["num_hidden_layers"],
        hidden=sizes["intermediate_size"],
        heads=heads,
        kv_heads=sizes.get("num_key_value_heads", heads),
        head_width=sizes.get("head_dim", 256),
        theta=float(rope.get("rope_theta", sizes.get("rope_theta", 10000.0))),
        eps=float(sizes.get("rms_norm_eps", 1e-6)),
    )


def _vision(sizes: Mapping[str, Any]) -> SiglipConfig:
    _need_gelu(sizes, "hidden_act")
    return SiglipConfig(
        width=sizes["hidden_size"],
        depth=sizes["num_hidden_layers"],
        heads=sizes["num_attention_heads"],
        hidden=sizes["intermediate_size"],
        image_size=sizes.get("image_size", 224),
        patch_size=sizes.get("patch_size", 14),
        eps=float(sizes.get("layer_norm_eps", 1e-6)),
    )


def _need_gelu(sizes: Mapping[str, Any], name: str) -> None:
    value = sizes.get(name)
    if value is not None and value not in GELU:
        raise ConfigError(f"{name} is {value!r}; only gelu_pytorch_tanh is computed here", field=name)
