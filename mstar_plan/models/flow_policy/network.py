"""The flow of a small policy: from noise, time and what is seen to the velocity of a chunk of actions.

Shapes: B requests, K proposals, S actions of a chunk, A action, L latent of one picture, W width, R = B K rows.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from mstar_plan.errors import ConfigError
from mstar_plan.models.layers.mlp import Mlp

TIME_PERIODS = (4e-3, 4.0)  # shortest and longest, as pi0 has them


@dataclass(frozen=True)
class FlowPolicyConfig:
    """Sizes of a flow policy.

    Attributes:
        encoder: World model whose encoder it sees with.
        encoder_digest: SHA-256 of that encoder's weights; empty: not compared.
        image_size: Side of the square pictures in pixels.
        latent: L, numbers of one encoded picture.
        chunk: S.
        actions: A.
        width: W, of the residual stream.
        blocks: Residual blocks.
        frequencies: Sine and cosine pairs that tell the time.
        steps: Euler steps where a request does not say.
    """

    encoder: str
    encoder_digest: str = ""
    image_size: int = 64
    latent: int = 16
    chunk: int = 12
    actions: int = 2
    width: int = 256
    blocks: int = 3
    frequencies: int = 16
    steps: int = 10

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if isinstance(value, int) and value < 1:
                raise ConfigError(f"{name} is {value}; it needs a whole number of at least 1", field=name)
        if not self.encoder:
            raise ConfigError("encoder is empty; name the world model whose encoder the policy sees with")


def time_features(time_R: Tensor, frequencies: int) -> Tensor:
    """Sines and cosines [R, 2 F] of times in [0, 1], their periods spread evenly in the logarithm (pi0, openpi)."""
    shortest, longest = TIME_PERIODS
    share = torch.linspace(0, 1, frequencies, device=time_R.device)
    angle_RF = time_R[:, None] * (2 * math.pi / shortest) * (shortest / longest) ** share
    return torch.cat([angle_RF.sin(), angle_RF.cos()], dim=1)


class _Block(nn.Module):
    """x + W2 silu(W1 norm(x) + V condition)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.condition = nn.Linear(width, width, bias=False)
        self.enter, self.leave = nn.Linear(width, width), nn.Linear(width, width)
        nn.init.zeros_(self.leave.weight)
        nn.init.zeros_(self.leave.bias)

    def forward(self, x_RW: Tensor, condition_RW: Tensor) -> Tensor:
        hidden = functional.silu(self.enter(self.norm(x_RW)) + self.condition(condition_RW))
        return x_RW + self.leave(hidden)  # type: ignore[no-any-return]


class FlowNet(nn.Module):
    """Velocity of a flow from noise (time 1) to actions (time 0), conditioned on two pictures' latents.

    Args:
        config: Sizes.
    """

    def __init__(self, config: FlowPolicyConfig) -> None:
        super().__init__()
        self.config = config
        w, flat = config.width, config.chunk * config.actions
        self.register_buffer("latent_mean", torch.zeros(config.latent))
        self.register_buffer("latent_std", torch.ones(config.latent))
        self.context = Mlp((3 * config.latent, w, w), norm=True)
        self.time = nn.Linear(2 * config.frequencies, w)
        self.enter = nn.Linear(flat, w)
        self.blocks = nn.ModuleList(_Block(w) for _ in range(config.blocks))
        self.norm, self.leave = nn.LayerNorm(w), nn.Linear(w, flat)

    def see(self, now_BL: Tensor, goal_BL: Tensor) -> Tensor:
        """What the flow needs of the two pictures: [B, W]."""
        mean, std = self.get_buffer("latent_mean"), self.get_buffer("latent_std")
        now_BL, goal_BL = (now_BL - mean) / std, (goal_BL - mean) / std
        context: Tensor = self.context(torch.cat([now_BL, goal_BL, goal_BL - now_BL], dim=1))
        return context

    def velocity(self, x_BKSA: Tensor, time_B: Tensor, context_BW: Tensor) -> Tensor:
        """The velocity [B, K, S, A] at x; all proposals of a request stand at the same time."""
        condition_BW = context_BW + self.time(time_features(time_B, self.config.frequencies))
        x_RI = x_BKSA.flatten(2).flatten(0, 1)
        condition_RW = condition_BW.repeat_interleave(x_BKSA.shape[1], dim=0)
        condition_RW = functional.silu(condition_RW)
        h_RW = self.enter(x_RI)
        for block in self.blocks:
            h_RW = block(h_RW, condition_RW)
        v_RI: Tensor = self.leave(self.norm(h_RW))
        return v_RI.view(x_BKSA.shape)
