"""Published tensors of SmolVLA under our names: every one has a place, and every place gets one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mstar_plan.errors import WeightsError, did_you_mean
from mstar_plan.models.vla.lerobot_layout import PolicyFiles
from mstar_plan.models.vla.lerobot_layout_files import read_json
from mstar_plan.models.vla.siglip import siglip_names
from mstar_plan.models.vla.smolvla import SmolVLAPolicy
from mstar_plan.models.vla.smolvla_config import PUBLISHED, SmolVLAConfig, smolvla_config

VLM, EXPERT = "vlm_with_expert.vlm.model.", "vlm_with_expert.lm_expert."
MIX = "action_time_mlp_in"
# Tensors of the language model that acting does not read.
UNREAD = ("vlm_with_expert.vlm.lm_head.weight", f"{VLM}text_model.norm.weight")
VLM_CONFIG = "vlm_config.json"  # beside config.json, where the language model is none of `PUBLISHED`
MARKS = ("<fake_token_around_image>", "<global-img>")


def smolvla_names(config: SmolVLAConfig) -> dict[str, tuple[str, ...]]:
    """Published names by ours; several are stacked along axis 0 in their order. Without the two parts of `MIX`."""
    names = siglip_names(config.vision, f"{VLM}vision_model.", "vision.tower.")
    names["vision.connector.weight"] = (f"{VLM}connector.modality_projection.proj.weight",)
    names["embed.weight"] = (f"{VLM}text_model.embed_tokens.weight",)
    for i in range(config.layers):
        names |= _layer(f"language.{i}.", f"{VLM}text_model.layers.{i}.", reads_prefix=False)
        beside = config.expert_of(i)
        if beside is not None:
            own = not config.attends_itself(i)
            names |= _layer(f"expert.layers.{beside}.", f"{EXPERT}layers.{beside}.", reads_prefix=own)
    names["expert.scale"] = (f"{EXPERT}norm.weight",)
    ours = {"state_in": "state_proj", "action_in": "action_in_proj", "action_out": "action_out_proj"}
    for here, there in (ours | {"mix_out": "action_time_mlp_out"}).items():
        names |= {f"{here}.{kind}": (f"{there}.{kind}",) for kind in ("weight", "bias")}
    return names


def _layer(here: str, there: str, *, reads_prefix: bool) -> dict[str, tuple[str, ...]]:
    attention = f"{there}self_attn."
    names = {
        f"{here}scale1": (f"{there}input_layernorm.weight",),
        f"{here}scale2": (f"{there}post_attention_layernorm.weight",),
        f"{here}out.weight": (f"{attention}o_proj.weight",),
        f"{here}gate_up.weight": (f"{there}mlp.gate_proj.weight", f"{there}mlp.up_proj.weight"),
        f"{here}down.weight": (f"{there}mlp.down_proj.weight",),
    }
    if reads_prefix:
        return names | {f"{here}{part}.weight": (f"{attention}{part}_proj.weight",) for part in "qkv"}
    return names | {f"{here}qkv.weight": tuple(f"{attention}{part}_proj.weight" for part in "qkv")}


def load_smolvla(
    config: SmolVLAConfig, tensors: Mapping[str, Tensor], dtype: torch.dtype = torch.float32
) -> SmolVLAPolicy:
    """Returns the policy with these published tensors, ready to act.

    Args:
        config: Its sizes.
        tensors: By published name, without `model.` before it.
        dtype: Of the layers.

    Raises:
        WeightsError: A tensor is missing, unknown or of another shape.
    """
    with torch.device("meta"):
        policy = SmolVLAPolicy(config)
    wanted = {name: each.shape for name, each in policy.state_dict().items()}
    names = smolvla_names(config)
    known = {each for group in names.values() for each in group} | {f"{MIX}.weight", f"{MIX}.bias", *UNREAD}
    for name in tensors:
        if name not in known:
            raise WeightsError(f"the weights hold {name}, which SmolVLA has not{_near(name, known)}", field=name)
    for name in sorted(known - set(UNREAD)):
        if name not in tensors:
            raise WeightsError(f"the weights lack {name}; config and weights do not belong together", field=name)
    made = {ours: _stacked(ours, [tensors[each] for each in group], wanted[ours]) for ours, group in names.items()}
    width = config.expert_width
    mixed = _stacked(MIX, [tensors[f"{MIX}.weight"]], torch.Size((width, 2 * width)))
    made |= {"mix_action.weight": mixed[:, :width].contiguous(), "mix_time.weight": mixed[:, width:].contiguous()}
    made["mix_time.bias"] = _stacked(f"{MIX}.bias", [tensors[f"{MIX}.bias"]], torch.Size((width,)))
    policy.load_state_dict(made, assign=True)
    policy.requires_grad_(False).eval()
    if dtype != torch.float32:
        policy.set_dtype(dtype)
    return policy


def _stacked(name: str, parts: list[Tensor], shape: torch.Size) -> Tensor:
    fits = all(part.ndim == len(shape) and part.shape[1:] == shape[1:] for part in parts)
    if not fits or sum(part.shape[0] for part in parts) != shape[0]:
        what = f"{name} is made of {[list(part.shape) for part in parts]}; its config asks for {list(shape)}"
        raise WeightsError(f"{what}; config and weights do not belong together", field=name)
    return torch.cat([part.to(torch.float32) for part in parts])


def _near(name: str, known: set[str]) -> str:
    return did_you_mean(name, known).partition(" (known")[0].partition("; known")[0]


def read_smolvla_config(files: PolicyFiles) -> SmolVLAConfig:
    """Returns the sizes of a published folder's policy.

    Raises:
        WeightsError: The folder does not say them: its language model is not known, and it has no `vlm_config.json`.
    """
    name = str(files.config.get("vlm_model_name", "HuggingFaceTB/SmolVLM2-500M-Video-Instruct"))
    vlm: Mapping[str, Any]
    if (files.folder / VLM_CONFIG).is_file():
        vlm = read_json(files.folder / VLM_CONFIG)
    elif name in PUBLISHED:
        vlm = PUBLISHED[name]
    else:
        cure = f"put its configuration into {VLM_CONFIG} beside config.json"
        raise WeightsError(f"vlm_model_name is {name!r}{did_you_mean(name, PUBLISHED)}; {cure}", field="vlm_model_name")
    marks = _image_marks(files.tokenizer.file) if files.config.get("add_image_special_tokens") else None
    return smolvla_config({"num_vlm_layers": 16} | dict(files.config), vlm, marks)


def _image_marks(tokenizer: Path | None) -> tuple[int, int] | None:
    """Ids of `MARKS` in a tokenizer.json."""
    if tokenizer is None:
        return None
    added = read_tokens(tokenizer)
    if not all(mark in added for mark in MARKS):
        raise WeightsError(f"{tokenizer.name} lacks {' or '.join(MARKS)}, which the policy puts around pictures")
    return added[MARKS[0]], added[MARKS[1]]


def read_tokens(tokenizer: Path) -> dict[str, int]:
    """Returns {text: id} of the tokens that a tokenizer.json adds to its vocabulary.

    Raises:
        WeightsError: The file is too large or damaged.
    """
    entries = read_json(tokenizer, most_bytes=64 * 2**20).get("added_tokens") or []
    good = isinstance(entries, list) and all(isinstance(each, dict) for each in entries)
    if not good or not all(isinstance(e.get("content"), str) and type(e.get("id")) is int for e in entries):
        raise WeightsError(f"{tokenizer.name} has damaged added_tokens; copy it again", field="tokenizer")
    return {each["content"]: each["id"] for each in entries}
