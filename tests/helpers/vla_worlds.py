"""Tiny random policies of the pi0 family, whole families of them, and observations that they take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from mstar_plan.families.servable import Servable
from mstar_plan.families.vla import action_spec, pi_images, vla_servable
from mstar_plan.families.vla_actions import FlowActions
from mstar_plan.families.vla_observation import Eyes
from mstar_plan.models.vla.gemma import GemmaConfig
from mstar_plan.models.vla.normalise import Normaliser
from mstar_plan.models.vla.pi import PiPolicy
from mstar_plan.models.vla.pi_checkpoint import build_pi, pi_names
from mstar_plan.models.vla.pi_config import VARIANTS, PiConfig
from mstar_plan.models.vla.preprocess import pi05_prompt, task_line
from mstar_plan.models.vla.rtc import ChunkingConfig
from mstar_plan.models.vla.siglip import SiglipConfig

ROBOT_STATE, ROBOT_ACTION = 5, 4  # numbers of the toy robot
CAMERAS = ("observation.images.base", "observation.images.wrist")


def tiny_config(kind: str = "pi0", **changes: Any) -> PiConfig:
    """Sizes that run in about a millisecond."""
    config = PiConfig(
        kind=kind,  # type: ignore[arg-type]
        vision=SiglipConfig(16, 2, 2, 32, 28, 14),
        language=GemmaConfig(32, 2, 64, 4, 1, 8),
        expert=GemmaConfig(16, 2, 32, 4, 1, 8),
        vocabulary=300,
        chunk=5,
        action_width=6,
        state_width=6,
        steps=4,
    )
    return replace(config, **changes)


def tiny_pi(kind: str = "pi0", seed: int = 0, **changes: Any) -> PiPolicy:
    """A random policy, the same for the same seed."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        policy = build_pi(tiny_config(kind, **changes))
        for parameter in policy.parameters():
            torch.nn.init.normal_(parameter, std=0.2)
        for name, parameter in policy.named_parameters():
            if "scale" in name or ("norm" in name and "weight" in name):
                torch.nn.init.normal_(parameter, mean=1.0, std=0.1)
    return policy.eval().requires_grad_(False)


def observed(policy: PiPolicy, rows: int = 1, *, seed: int = 0, tokens: int = 7, cameras: int = 2) -> dict[str, Any]:
    """What a policy's `see` reads: the last camera of the last row is missing, and its prompt is two tokens shorter."""
    make = torch.Generator().manual_seed(seed)
    side = policy.config.vision.image_size
    made = {
        "images": torch.rand(rows, cameras, 3, side, side, generator=make) * 2 - 1,
        "image_mask": torch.ones(rows, cameras, dtype=torch.bool),
        "tokens": torch.randint(0, policy.config.vocabulary, (rows, tokens), generator=make),
        "token_mask": torch.ones(rows, tokens, dtype=torch.bool),
        "state": torch.randn(rows, policy.config.state_width, generator=make),
    }
    if rows > 1:
        made["image_mask"][-1, -1] = False
        made["token_mask"][-1, -2:] = False
    return {name: value for name, value in made.items() if name in policy.observes}


def published(policy: PiPolicy, *, transformers: bool = False) -> dict[str, torch.Tensor]:
    """A policy's weights under their published names: what loading it takes."""
    config, state, made = policy.config, policy.state_dict(), {}
    names = pi_names(config, transformers=transformers)
    names["embed.weight"] = names["embed.weight"][:1] if transformers else names["embed.weight"][1:]
    for ours, theirs in names.items():
        tensor = state[ours]
        if ours.rpartition(".")[2] in ("scale", "scale1", "scale2"):
            tensor = tensor - 1
        if "qkv" in ours and not ours.startswith("vision"):
            tower = config.language if ours.startswith("language") else config.expert
            inner = tower.kv_heads * tower.head_width
            parts = tensor.split([tower.heads * tower.head_width, inner, inner])
        else:
            parts = tensor.chunk(len(theirs))
        made |= {name: part.clone() for name, part in zip(theirs, parts, strict=True)}
    return made


def tokenize_bytes(text: str) -> list[int]:
    """One token a byte."""
    return [1, *text.encode()]


def tiny_actions(
    kind: str = "pi0", seed: int = 0, chunking: ChunkingConfig | None = None, **changes: Any
) -> FlowActions:
    """A tiny policy for a robot with two cameras, a state of 5 numbers and actions of 4 within [-3, 3]."""
    policy = tiny_pi(kind, seed, **changes)
    ends = {"q01": -2.0, "q99": 2.0, "min": -3.0, "max": 3.0}
    stats = {name: torch.full((ROBOT_ACTION,), value) for name, value in ends.items()}
    normaliser = Normaliser("quantiles", stats)
    eyes = Eyes(
        cameras=CAMERAS,
        state_names=tuple(f"joint{i}" for i in range(ROBOT_STATE)),
        images=pi_images(policy.config.vision.image_size),
        words=pi05_prompt if kind == "pi05" else lambda prompt, _: task_line(prompt),
        tokenize=tokenize_bytes,
        most_tokens=96,
        state=Normaliser("mean_std", {"mean": torch.zeros(ROBOT_STATE), "std": torch.ones(ROBOT_STATE)}),
        state_width=0 if kind == "pi05" else policy.config.state_width,
    )
    spec = action_spec(normaliser, ROBOT_ACTION, ("x", "y", "z", "grip"))
    return FlowActions(policy, eyes, spec, normaliser, chunking or ChunkingConfig(horizon=3))


def tiny_vla(name: str = "pi0", kind: str = "pi0", **changes: Any) -> Servable:
    """A tiny policy as a family, ready to be served."""
    return vla_servable(name, tiny_actions(kind, **changes), description="A tiny random policy.")


def dummy_pi(kind: str = "pi0", seed: int = 0) -> PiPolicy:
    """A random policy of the sizes that a LeRobot folder can name: openpi's dummy towers, and a tiny image tower."""
    dummy = VARIANTS["dummy"]
    vision = SiglipConfig(32, 1, 2, 128, 28, 14)
    return tiny_pi(kind, seed, vision=vision, language=dummy, expert=dummy)


def observation(seed: int = 0, prompt: str = "pick up the cup") -> Mapping[str, Any]:
    """What the toy robot sends, under openpi's names."""
    rng = np.random.default_rng(seed)
    return {
        "observation/image": rng.integers(0, 256, (30, 40, 3), dtype=np.uint8),
        "observation/wrist_image": rng.integers(0, 256, (28, 28, 3), dtype=np.uint8),
        "observation/state": rng.normal(size=ROBOT_STATE).astype(np.float32),
        "prompt": prompt,
    }
