"""Published weights of pi0 and pi0.5, read strictly: every tensor is used or known to be unused, and none is missing.

Two layouts are known: LeRobot's and openpi's (`paligemma_with_expert.*`, with or without `model.` before all names) and
transformers' (`model.vlm.*`, `model.dit.*`, `embed_action_time.*`). Token embeddings may be stored under their own
name, under that of the tied head, or under both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from mstar_plan.errors import WeightsError, did_you_mean
from mstar_plan.models.vla.gemma import gemma_names
from mstar_plan.models.vla.pi import PiPolicy
from mstar_plan.models.vla.pi0 import Pi0Policy
from mstar_plan.models.vla.pi05 import Pi05Policy
from mstar_plan.models.vla.pi_config import PiConfig
from mstar_plan.models.vla.siglip import SiglipConfig, siglip_names

Names = dict[str, tuple[str, ...]]

LEROBOT, TRANSFORMERS = "paligemma_with_expert.", "model.vlm."
# Heads and embeddings that the policies never look at, and the norm behind a prefix that nobody reads.
UNUSED = re.compile(
    r"paligemma_with_expert\.gemma_expert\.(lm_head|model\.embed_tokens)\.weight|model\.dit\.embed_tokens\.weight|"
    r"(paligemma_with_expert\.paligemma\.model|model\.vlm)\.language_model\.norm\.weight|"
    r"(paligemma_with_expert\.paligemma\.model|model\.vlm)\.vision_tower\.(vision_model\.)?head\..*"
)
VISION_HEADS = {1152: 16, 1024: 16, 768: 12, 384: 6, 192: 3, 32: 2}  # by width, of big_vision's SigLIP and ViT towers
SCALES = re.compile(r"(.*\.)?scale[12]?")  # of ours: stored as w, used as 1 + w


def build_pi(config: PiConfig) -> PiPolicy:
    """An untrained policy of these sizes."""
    return Pi0Policy(config) if config.kind == "pi0" else Pi05Policy(config)


def fit_sizes(config: PiConfig, tensors: Mapping[str, Tensor]) -> PiConfig:
    """The sizes that a LeRobot configuration leaves out, from the weights: those of the image tower and the vocabulary.

    Raises:
        WeightsError: The tower's tensors are missing or no tower's, or its width is not a published one's.
    """
    tensors = _unwrapped(tensors)
    there = f"{LEROBOT}paligemma.model.vision_tower.vision_model."
    first, second = f"{there}embeddings.patch_embedding.weight", f"{there}encoder.layers.0.mlp.fc1.weight"
    for name, axes in ((first, 4), (second, 2)):
        if name not in tensors or tensors[name].ndim != axes:
            raise WeightsError(
                f"the weights lack tensor {name} of {axes} axes; is this a {config.kind} policy?", field=name
            )
    width, patch = tensors[first].shape[0], tensors[first].shape[-1]
    if width not in VISION_HEADS:
        raise WeightsError(f"an image tower of width {width} is not known; known: {sorted(VISION_HEADS)}", field=first)
    depth = sum(
        re.fullmatch(rf"{re.escape(there)}encoder\.layers\.\d+\.mlp\.fc1\.weight", name) is not None for name in tensors
    )
    vision = SiglipConfig(width, depth, VISION_HEADS[width], tensors[second].shape[0], config.vision.image_size, patch)
    embeddings = pi_names(config, transformers=False)["embed.weight"]
    vocabulary = next((len(tensors[name]) for name in embeddings if name in tensors), config.vocabulary)
    return replace(config, vision=vision, vocabulary=vocabulary)


def load_pi(config: PiConfig, tensors: Mapping[str, Tensor]) -> PiPolicy:
    """Builds a policy, and gives it published weights as float32.

    Raises:
        WeightsError: A tensor is missing, unknown, of another shape, or holds NaN.
    """
    state = pi_state(config, tensors)
    with torch.device("meta"):
        policy = build_pi(config)
    for name, have in policy.state_dict().items():
        if state[name].shape != have.shape:
            what = f"tensor {name} is {list(state[name].shape)} in the file; the config asks for {list(have.shape)}"
            raise WeightsError(f"{what}: the weights are of another size", field=name)
    policy.load_state_dict(state, assign=True)
    return policy.eval().requires_grad_(False)


def pi_state(config: PiConfig, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state of a policy, under our names, from published tensors.

    Raises:
        WeightsError: A tensor is missing or unknown, or those that stand in one of ours do not go together.
    """
    tensors = _unwrapped(tensors)
    names = pi_names(config, transformers=any(name.startswith(TRANSFORMERS) for name in tensors))
    embeddings = names.pop("embed.weight")
    state, used = {"embed.weight": _embedding(embeddings, tensors)}, {each for each in embeddings if each in tensors}
    for ours, theirs in names.items():
        for name in theirs:
            if name not in tensors:
                raise WeightsError(
                    f"the weights lack tensor {name}{did_you_mean(name, _near(name, tensors))}", field=name
                )
        used |= set(theirs)
        state[ours] = _put_together(ours, [tensors[name] for name in theirs], theirs)
    for name in tensors:
        if name not in used and not UNUSED.fullmatch(name):
            known = {each for theirs in names.values() for each in theirs}
            what = f"the weights hold tensor {name}, which {config.kind} has not"
            raise WeightsError(f"{what}{did_you_mean(name, _near(name, known))}", field=name)
    return state


def pi_names(config: PiConfig, *, transformers: bool) -> Names:
    """Published names of each of our tensors; those of one are stacked along axis 0, those of `embed` alternatives."""
    adaptive = config.kind == "pi05"
    if transformers:
        vlm, vision, expert = TRANSFORMERS, f"{TRANSFORMERS}vision_tower.", "model.dit."
        embeddings: tuple[str, ...] = (f"{vlm}language_model.embed_tokens.weight", "lm_head.weight")
    else:
        vlm, expert = f"{LEROBOT}paligemma.model.", f"{LEROBOT}gemma_expert.model."
        vision = f"{vlm}vision_tower.vision_model."
        embeddings = (f"{vlm}language_model.embed_tokens.weight", f"{LEROBOT}paligemma.lm_head.weight")
    names: Names = {"embed.weight": embeddings}
    names |= siglip_names(config.vision, vision, "vision.")
    names |= gemma_names(config.language, f"{vlm}language_model.", "language.", adaptive=False, final=False)
    names |= gemma_names(config.expert, expert, "expert.", adaptive=adaptive, final=True)
    inner = "embed_action_time." if transformers else ""
    linears = {"projector": f"{vlm}multi_modal_projector.linear", "action_in": f"{inner}action_in_proj"}
    linears["action_out"] = "action_out_proj"
    if adaptive:
        linears |= {"time_in": "time_mlp_in", "time_out": "time_mlp_out"}
    else:
        linears |= {"state_in": f"{inner}state_proj"}
        linears |= {"mix_in": f"{inner}action_time_mlp_in", "mix_out": f"{inner}action_time_mlp_out"}
    for ours, theirs in linears.items():
        names |= {f"{ours}.{kind}": (f"{theirs}.{kind}",) for kind in ("weight", "bias")}
    return names


def _unwrapped(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Without the `model.` that a LeRobot policy puts before all names."""
    wrapped = f"model.{LEROBOT}"
    if not any(name.startswith(wrapped) for name in tensors):
        return tensors
    return {name.removeprefix("model."): tensor for name, tensor in tensors.items()}


def _embedding(names: tuple[str, ...], tensors: Mapping[str, Tensor]) -> Tensor:
    found = [name for name in names if name in tensors]
    if not found:
        raise WeightsError(f"the weights lack the token embeddings: neither {' nor '.join(names)}", field=names[0])
    first = tensors[found[0]]
    for name in found[1:]:
        if tensors[name].shape != first.shape or not torch.equal(tensors[name], first):
            raise WeightsError(f"{found[0]} and {name} are tied, but differ; keep the first", field=name)
    return _checked(found[0], first)


def _put_together(ours: str, parts: list[Tensor], theirs: tuple[str, ...]) -> Tensor:
    checked = [_checked(name, part) for name, part in zip(theirs, parts, strict=True)]
    if len({part.shape[1:] for part in checked}) > 1:
        shapes = ", ".join(f"{name} {list(part.shape)}" for name, part in zip(theirs, checked, strict=True))
        raise WeightsError(f"tensors that belong together do not fit: {shapes}", field=theirs[0])
    whole = torch.cat(checked) if len(checked) > 1 else checked[0]
    return whole + 1 if SCALES.fullmatch(ours) else whole


def _checked(name: str, tensor: Tensor) -> Tensor:
    tensor = tensor.detach().to(torch.float32)
    if not bool(tensor.isfinite().all()):
        raise WeightsError(f"tensor {name} holds NaN or infinity; download it again", field=name)
    return tensor


def _near(name: str, known: Mapping[str, Tensor] | set[str]) -> list[str]:
    """Names that end alike: a list of all would be thousands."""
    tail = name.rpartition(".")[0].rpartition(".")[2]
    return sorted(each for each in known if tail in each)[:8]
