"""A small joint-embedding predictive world model on pixels: encoder, action-conditioned predictor, distance head.

The idea is LeCun's JEPA (2022): predict the latent of what comes next, never the pixels. One file holds an ensemble of
independently trained members; each is one latent token, so that an ensemble is planned with as one model.

Shapes: B requests, K candidates, C context frames (1), N members (latent tokens), D width, A action, R = B K rows,
M metric width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mstar_plan.errors import ConfigError
from mstar_plan.models.layers.mlp import Mlp, StackedMlp
from mstar_plan.models.layers.patch_encoder import PatchEncoder
from mstar_plan.models.weights import WeightsInfo, action_from_json, config_from_json, load_state
from mstar_plan.models.world_model import ModelSpec
from mstar_plan.types import ActionSpec


@dataclass(frozen=True)
class JepaConfig:
    """Sizes of one member, and how many there are.

    Attributes:
        image_size: Side of the square frames in pixels.
        patch: Side of an encoder patch in pixels; it divides `image_size`.
        width: Channels of the encoder's grid.
        blocks: Residual convolutions of the encoder.
        hidden: Width of the encoder's last hidden layer.
        latent: D, width of a member's latent.
        actions: A.
        predictor: Widths of the predictor's hidden layers.
        head: Widths of the distance head's hidden layers and of its output; empty for no head.
        members: N, independently trained members.
        max_horizon: Longest rollout it may be asked for.
    """

    image_size: int = 64
    patch: int = 8
    width: int = 64
    blocks: int = 2
    hidden: int = 256
    latent: int = 16
    actions: int = 2
    predictor: tuple[int, ...] = (256, 256)
    head: tuple[int, ...] = ()
    members: int = 1
    max_horizon: int = 32

    def __post_init__(self) -> None:
        object.__setattr__(self, "predictor", tuple(self.predictor))
        object.__setattr__(self, "head", tuple(self.head))
        for name, value in asdict(self).items():
            values = value if isinstance(value, tuple) else (value,)
            if any(v < (0 if name == "blocks" else 1) for v in values):
                raise ConfigError(f"{name} is {value}; it needs positive whole numbers", field=name)
        if self.image_size % self.patch:
            raise ConfigError(f"patch is {self.patch}; it must divide image_size {self.image_size}", field="patch")
        if not self.predictor:
            raise ConfigError("predictor is empty; give the width of at least one hidden layer", field="predictor")


class JepaMember(nn.Module):
    """One trainable member; parameters carry its seed's randomness.

    Args:
        config: Sizes; `members` is ignored.
    """

    def __init__(self, config: JepaConfig) -> None:
        super().__init__()
        d = config.latent
        self.encoder = PatchEncoder(
            image_size=config.image_size,
            patch=config.patch,
            width=config.width,
            blocks=config.blocks,
            hidden=config.hidden,
            latent=d,
        )
        self.predictor = Mlp((d + config.actions, *config.predictor, d), norm=True, zero_last=True)
        self.head = Mlp((d, *config.head)) if config.head else None

    def step(self, latent: Tensor, action: Tensor) -> Tensor:
        """Predicts the next latent [..., D] from latent [..., D] and action [..., A]."""
        change: Tensor = self.predictor(torch.cat([latent, action], dim=-1))
        return latent + change


class Jepa(nn.Module):
    """The ensemble for inference, a `WorldModel`: members' predictors and heads are batched products over N.

    Args:
        name: Registry name.
        config: Sizes.
        action: The actions that it was trained with.
        members: `config.members` trained members; their weights are copied.
        description: One sentence for people.
    """

    def __init__(
        self,
        name: str,
        config: JepaConfig,
        action: ActionSpec,
        members: Sequence[JepaMember],
        *,
        description: str = "",
    ) -> None:
        super().__init__()
        assert len(members) == config.members
        self.config = config
        self.encoders = nn.ModuleList(member.encoder.folded() for member in members)
        self.predictor = StackedMlp([member.predictor for member in members])
        heads = [member.head for member in members if member.head is not None]
        self.head = StackedMlp(heads) if heads else None
        self.spec = ModelSpec(
            name=name,
            image_size=(config.image_size, config.image_size),
            latent_shape=(config.members, config.latent),
            action=action,
            max_horizon=config.max_horizon,
            description=description,
        )

    @classmethod
    def from_weights(cls, info: WeightsInfo, tensors: Mapping[str, Tensor]) -> Jepa:
        """Builds the model that a weight file describes.

        Raises:
            WeightsError: The tensors or the configuration are not those of this architecture.
        """
        config = config_from_json(JepaConfig, info)
        members = nn.ModuleList(JepaMember(config) for _ in range(config.members))
        load_state(members, tensors, info)
        return cls(info.name, config, action_from_json(info), list(members), description=info.description)  # type: ignore[arg-type]

    def encode(self, frames: Tensor) -> Tensor:
        """Encodes frames [B, H_px, W_px, 3] uint8 to latents [B, N, D]."""
        return torch.stack([encoder(frames) for encoder in self.encoders], dim=1)

    def begin(
        self, context: Tensor, actions: Tensor | None, state: Tensor | None, candidates: int, horizon: int
    ) -> tuple[Tensor, Tensor | None, Any]:
        """Starts K rollouts from the newest latent of [B, C, N, D]: a view [B, K, N, D], no state, no cache."""
        del actions, state, horizon
        return context[:, -1, None].expand(-1, candidates, -1, -1), None, None

    def predict(
        self, latent: Tensor, state: Tensor | None, action: Tensor, cache: Any
    ) -> tuple[Tensor, Tensor | None, Any]:
        """One step from latent [B, K, N, D] and action [B, K, A]; state and cache pass through."""
        b, k, n, d = latent.shape
        z_NRD = latent.permute(2, 0, 1, 3).reshape(n, b * k, d)  # no copy for what the last step returned
        a_NRA = action.reshape(1, b * k, -1).expand(n, -1, -1)
        next_NRD: Tensor = self.predictor(torch.cat([z_NRD, a_NRA], dim=-1), z_NRD)
        return next_NRD.view(n, b, k, d).permute(1, 2, 0, 3), state, cache

    def embed(self, latent: Tensor) -> Tensor:
        """Maps latents [..., N, D] to [..., M]: the members' head outputs side by side, or the latents over sqrt(N D).

        Without a head the Euclidean distance is the root of the mean squared difference of latents.
        """
        n, d = latent.shape[-2:]
        if self.head is None:
            return latent.flatten(-2) / math.sqrt(n * d)
        rows = latent.reshape(-1, n, d)
        out_NRM: Tensor = self.head(rows.transpose(0, 1))
        return out_NRM.transpose(0, 1).reshape(*latent.shape[:-2], -1)
