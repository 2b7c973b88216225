"""Sizes of SmolVLA, from a published policy's config and the configuration of its language model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from mstar_plan.errors import ConfigError, WeightsError, did_you_mean
from mstar_plan.models.vla.siglip import SiglipConfig

MAX_SIZE = 1_000_000
# Where a policy names its language model alone: the sizes that its weights do not show.
PUBLISHED: Mapping[str, Mapping[str, Any]] = {
    f"HuggingFaceTB/{name}": {
        "text_config": {
            "hidden_size": width,
            "intermediate_size": hidden,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "head_dim": 64,
            "num_hidden_layers": depth,
            "vocab_size": 49280,
        },
        "vision_config": {
            "hidden_size": 768,
            "intermediate_size": 3072,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "image_size": 512,
            "patch_size": 16,
        },
        "scale_factor": 4,
    }
    for name, width, hidden, heads, kv_heads, depth in (
        ("SmolVLM2-500M-Video-Instruct", 960, 2560, 15, 5, 32),
        ("SmolVLM2-256M-Video-Instruct", 576, 1536, 9, 3, 30),
    )
}


@dataclass(frozen=True)
class SmolVLAConfig:
    """Sizes of the model.

    Attributes:
        vision: Of the picture tower.
        shuffle: Side of the square of patches that become one token.
        width: D of the prefix's layers.
        hidden: F of their MLPs.
        layers: How many of them.
        heads: Of queries, in both kinds of layers.
        kv_heads: Of keys and values.
        head_width: Of one head.
        vocabulary: Token ids that prompts may have.
        eps: Of the root mean square norms.
        expert_scale: Width of the expert, in parts of D.
        expert_layers: How many layers the expert has; 0: one beside each of the prefix's.
        self_every: Every how many layers the actions attend to themselves too; 0: nowhere. The others attend to the
            prefix alone.
        mode: "self_attn": the actions attend to themselves in all layers.
        chunk: S, actions of one answer.
        state_width: Padded width of a state.
        action_width: A, padded width of an action.
        steps: Of the flow.
        min_period: Of the time's embedding.
        max_period: Likewise.
        prefix_length: Prefixes are padded to it; -1: they are not.
        image_marks: Token ids (before, global) around each picture's tokens; None: no marks.
    """

    vision: SiglipConfig = field(default_factory=SiglipConfig)
    shuffle: int = 4
    width: int = 960
    hidden: int = 2560
    layers: int = 16
    heads: int = 15
    kv_heads: int = 5
    head_width: int = 64
    vocabulary: int = 49280
    eps: float = 1e-5
    expert_scale: float = 0.75
    expert_layers: int = 0
    self_every: int = 2
    mode: Literal["cross_attn", "self_attn"] = "cross_attn"
    chunk: int = 50
    state_width: int = 32
    action_width: int = 32
    steps: int = 10
    min_period: float = 4e-3
    max_period: float = 4.0
    prefix_length: int = -1
    image_marks: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        positive = (
            "shuffle", "width", "hidden", "layers", "heads", "kv_heads", "head_width", "vocabulary", "chunk",
            "state_width", "action_width", "steps",
        )  # fmt: skip
        for name in positive:
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= MAX_SIZE:
                raise ConfigError(f"smolvla.{name} is {value!r}; it needs a whole number of at least 1", field=name)
        if self.heads % self.kv_heads or self.head_width % 2:
            what = f"{self.heads} heads over {self.kv_heads} of keys, each {self.head_width} wide"
            raise ConfigError(f"smolvla has {what}; heads must divide, and their width be even", field="heads")
        if not 0 < self.min_period < self.max_period:
            what = f"periods {self.min_period} to {self.max_period}"
            raise ConfigError(f"smolvla has {what}; the first must be positive and the smaller", field="min_period")
        if not 0 < self.eps < 1 or not 0 < self.expert_scale <= 8:
            what = f"eps {self.eps} and expert_scale {self.expert_scale}"
            raise ConfigError(f"smolvla has {what}; eps must be in (0, 1), the scale in (0, 8]", field="eps")
        if self.mode not in ("cross_attn", "self_attn"):
            known = did_you_mean(self.mode, ("cross_attn", "self_attn"))
            raise ConfigError(f"smolvla.mode is {self.mode!r}{known}", field="mode")
        if (self.vision.image_size // self.vision.patch_size) % self.shuffle:
            side = self.vision.image_size // self.vision.patch_size
            what = f"{side} x {side} patches do not divide into squares of {self.shuffle}"
            raise ConfigError(f"smolvla's {what}", field="shuffle")
        self._check_expert()

    def _check_expert(self) -> None:
        if self.expert_width % 2:
            what = f"expert is {self.expert_width} wide; the time's embedding needs an even width"
            raise ConfigError(f"smolvla's {what}", field="expert_scale")
        if self.expert_layers < 0 or (self.expert_layers and self.layers % self.expert_layers):
            what = f"{self.layers} layers do not divide among {self.expert_layers} of the expert"
            raise ConfigError(f"smolvla's {what}", field="expert_layers")
        for layer in range(self.layers):
            expert = self.expert_of(layer)
            if expert is None:
                if self.attends_itself(layer):
                    what = f"layer {layer} should attend to the actions, but has no layer of the expert"
                    raise ConfigError(f"smolvla's {what}; change self_every", field="self_every")
            elif self.attends_itself(layer) == self._reads_prefix(expert) and self.expert_width != self.kv_width:
                what = f"layer {expert} of the expert does not fit layer {layer} of the prefix"
                raise ConfigError(f"smolvla's {what}; change self_every or expert_layers", field="expert_layers")

    @property
    def expert_width(self) -> int:
        """E, width of the expert."""
        return int(self.width * self.expert_scale)

    @property
    def expert_hidden(self) -> int:
        """Width of the expert's MLPs: 8/3 of its width, rounded up to a multiple of 256."""
        return 256 * ((4 * int(2 * self.expert_width / 3) + 255) // 256)

    @property
    def kv_width(self) -> int:
        """Width of all keys of a token."""
        return self.kv_heads * self.head_width

    @property
    def stride(self) -> int:
        """Every how many layers there is one of the expert."""
        return self.layers // self.expert_layers if self.expert_layers else 1

    def expert_of(self, layer: int) -> int | None:
        """Which layer of the expert stands beside a layer of the prefix; None: the actions pass by."""
        return layer // self.stride if layer % self.stride == 0 else None

    def attends_itself(self, layer: int) -> bool:
        """Whether the actions attend to themselves and the prefix in a layer; else to the prefix alone."""
        return self.mode == "self_attn" or (self.self_every > 0 and layer % self.self_every == 0)

    def _reads_prefix(self, expert: int) -> bool:
        """Whether a layer of the expert is built to make its keys from those of the prefix."""
        return self.mode == "cross_attn" and not (self.self_every > 0 and expert % self.self_every == 0)


# Names of a published policy's config: ours.
_POLICY = {
    "chunk_size": "chunk",
    "max_state_dim": "state_width",
    "max_action_dim": "action_width",
    "num_steps": "steps",
    "self_attn_every_n_layers": "self_every",
    "expert_width_multiplier": "expert_scale",
    "attention_mode": "mode",
    "min_period": "min_period",
    "max_period": "max_period",
    "prefix_length": "prefix_length",
}
# Settings of the language model that are computed in one way only.
_ONLY = {"attention_bias": False, "mlp_bias": False, "hidden_act": "silu", "num_channels": 3}


def smolvla_config(
    policy: Mapping[str, Any], vlm: Mapping[str, Any], image_marks: tuple[int, int] | None = None
) -> SmolVLAConfig:
    """Returns the sizes that a policy's config and its language model's configuration (transformers' SmolVLM) give.

    Args:
        policy: chunk_size, num_vlm_layers and so on; other keys are left out.
        vlm: text_config, vision_config and scale_factor.
        image_marks: Token ids around pictures, where the policy wants them.

    Raises:
        WeightsError: A size is missing, or a setting asks for what is not computed here.
        ConfigError: Sizes do not fit together.
    """
    text, vision = (_part(vlm, name) for name in ("text_config", "vision_config"))
    for name, needed in _ONLY.items():
        for part in (text, vision):
            if name in part and part[name] != needed and not (name == "hidden_act" and part is vision):
                raise WeightsError(f"{name} is {part[name]!r}; only {needed!r} is computed here", field=name)
    if vision.get("hidden_act", "gelu_pytorch_tanh") != "gelu_pytorch_tanh":
        what = f"vision hidden_act is {vision['hidden_act']!r}"
        raise WeightsError(f"{what}; only 'gelu_pytorch_tanh' is computed here", field="hidden_act")
    if policy.get("add_image_special_tokens") and image_marks is None:
        raise WeightsError("the policy puts marks around pictures, but its tokenizer is not there to name them")
    width, heads = _size(text, "hidden_size"), _size(text, "num_attention_heads")
    layers, experts = (int(policy.get(name, -1)) for name in ("num_vlm_layers", "num_expert_layers"))
    depth = _size(text, "num_hidden_layers")
    kept: dict[str, Any] = {ours: policy[theirs] for theirs, ours in _POLICY.items() if theirs in policy}
    return SmolVLAConfig(
        vision=SiglipConfig(
            width=_size(vision, "hidden_size"),
            depth=_size(vision, "num_hidden_layers"),
            heads=_size(vision, "num_attention_heads"),
            hidden=_size(vision, "intermediate_size"),
            image_size=_size(vision, "image_size"),
            patch_size=_size(vision, "patch_size"),
            eps=float(vision.get("layer_norm_eps", 1e-6)),
        ),
        shuffle=_size(vlm, "scale_factor"),
        width=width,
        hidden=_size(text, "intermediate_size"),
        layers=min(layers, depth) if layers > 0 else depth,
        heads=heads,
        kv_heads=int(text.get("num_key_value_heads", heads)),
        head_width=int(text.get("head_dim") or width // heads),
        vocabulary=_size(text, "vocab_size"),
        eps=float(text.get("rms_norm_eps", 1e-5)),
        expert_layers=max(experts, 0),
        image_marks=image_marks if policy.get("add_image_special_tokens") else None,
        **{name: value for name, value in kept.items() if name != "self_every"},
        self_every=max(int(kept.get("self_every", 2)), 0),
    )


def _part(vlm: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    if not isinstance(vlm.get(name), Mapping):
        raise WeightsError(f"the language model's configuration lacks {name}{did_you_mean(name, vlm)}", field=name)
    part: Mapping[str, Any] = vlm[name]
    return part


def _size(part: Mapping[str, Any], name: str) -> int:
    value = part.get(name)
    if type(value) is not int:
        raise WeightsError(f"{name} is {value!r} in the language model's configuration; a whole number is needed")
    return value
