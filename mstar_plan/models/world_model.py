"""The face that every world model shows to planning: encode, begin, predict, embed.

Shapes: B requests, K candidates, C context frames (now included), N latent tokens, D width, A action,
P proprioception, M metric width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from mstar_plan.types import ActionSpec


@dataclass(frozen=True, eq=False)
class ModelSpec:
    """What a world model takes and gives.

    Attributes:
        name: Registry name.
        image_size: (H_px, W_px) of the frames that it was trained on; others are refused.
        latent_shape: (N, D) of one encoded frame.
        action: Its actions, with bounds, units and dt.
        context_frames: C, frames that a rollout starts from, now included; 1 for models that see one frame.
        state_size: P, width of the proprioception that it needs; 0 for pixels alone.
        max_horizon: Longest rollout it may be asked for.
        threads: Torch threads of one operator that it is fastest with on a CPU; 0: all cores.
        half: Whether it can run in bfloat16.
        description: One sentence for people.
        contract: What must hold between robot and model beside all that, term by term; empty where nothing is said.
    """

    name: str
    image_size: tuple[int, int]
    latent_shape: tuple[int, int]
    action: ActionSpec
    context_frames: int = 1
    state_size: int = 0
    max_horizon: int = 64
    threads: int = 1
    half: bool = False
    description: str = ""
    contract: Mapping[str, str] = field(default_factory=dict)


@runtime_checkable
class WorldModel(Protocol):
    """A learned (or known) model of what the camera will see. Pure: no call changes the model."""

    spec: ModelSpec

    def encode(self, frames: Tensor) -> Tensor:
        """Encodes single frames [B, H_px, W_px, 3] uint8 to latents [B, N, D] float."""
        ...

    def begin(
        self, context: Tensor, actions: Tensor | None, state: Tensor | None, candidates: int, horizon: int
    ) -> tuple[Tensor, Tensor | None, Any]:
        """Starts a rollout of K = `candidates` sequences from a shared context.

        Args:
            context: [B, C, N, D] latents, oldest first, the last one is now.
            actions: [B, C-1, A] the action taken after each earlier frame; None where C is 1.
            state: [B, P] proprioception now; None where P is 0.
            candidates: K.
            horizon: Most steps that will be predicted; what a cache is laid out for.

        Returns:
            Latent [B, K, N, D] (may be an expanded view), state [B, K, P] or None, and a cache or None.
        """
        ...

    def predict(
        self, latent: Tensor, state: Tensor | None, action: Tensor, cache: Any
    ) -> tuple[Tensor, Tensor | None, Any]:
        """One step: latent [B, K, N, D], state [B, K, P] or None, action [B, K, A] in its units, and a cache.

        Returns:
            The next latent, state and cache.
        """
        ...

    def embed(self, latent: Tensor) -> Tensor:
        """Maps latents [..., N, D] to [..., M], the space in which Euclidean distance means 'how far to go'."""
        ...
