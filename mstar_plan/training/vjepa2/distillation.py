"""First stage: the encoder learns to say, in tokens, what a trained encoder of the same task says in one vector.

The teacher saw pixels and actions alone, so no label enters here either.

Shapes: S frames, N tokens, D width of a token, Z width of the teacher's latent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from mstar_plan.errors import ConfigError
from mstar_plan.models.vjepa2.rope import patch_places, rope_table
from mstar_plan.models.vjepa2.world_model import VJEPA2AC
from mstar_plan.training.schedule import learning_rate_factor
from mstar_plan.training.vjepa2.targets import TokenTargets

Frames = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class DistillationConfig:
    """How the encoder is trained.

    Attributes:
        iterations: Batches; the learning rate is annealed over them.
        batch: Frames an iteration.
        learning_rate: Peak of AdamW's.
        weight_decay: AdamW's.
        warmup: Iterations.
        clip: Largest gradient norm.
    """

    iterations: int = 15000
    batch: int = 64
    learning_rate: float = 2e-3
    weight_decay: float = 1e-4
    warmup: int = 300
    clip: float = 1.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value >= (0 if name in ("weight_decay", "warmup") else 1e-12):
                raise ConfigError(f"{name} is {value}; it needs a positive number", field=name)


def distil(
    model: VJEPA2AC,
    frames: Frames,
    latents: Tensor,
    targets: TokenTargets,
    config: DistillationConfig,
    *,
    seed: int = 0,
    report: Callable[[int, float], None] | None = None,
) -> None:
    """Trains `model.encoder` in place.

    Args:
        model: Whose encoder it is.
        frames: [S, H_px, W_px, 3].
        latents: [S, Z] the teacher's, of the same frames.
        targets: From latents to tokens.
        config: How.
        seed: Of the batches.
        report: Gets the iterations done and the loss, about a hundred times.
    """
    rng = np.random.default_rng([seed, 2])
    parameters = list(model.encoder.parameters())
    optimiser = torch.optim.AdamW(parameters, config.learning_rate, betas=(0.9, 0.99), weight_decay=config.weight_decay)
    order = np.empty(0, dtype=np.int64)
    every = max(1, config.iterations // 100)
    for iteration in range(config.iterations):
        if len(order) < config.batch:
            order = np.concatenate([order, rng.permutation(len(frames))])
        index, order = order[: config.batch], order[config.batch :]
        factor = learning_rate_factor(iteration, iteration / config.iterations, warmup=config.warmup)
        for group in optimiser.param_groups:
            group["lr"] = config.learning_rate * factor
        said = still_tokens(model, torch.from_numpy(frames[index]))
        loss = functional.mse_loss(said, targets(latents[index]))
        optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(parameters, config.clip)
        optimiser.step()
        if report is not None and (iteration + 1) % every == 0:
            report(iteration + 1, float(loss.detach()))


def still_tokens(model: VJEPA2AC, frames: Tensor) -> Tensor:
    """What `model.encode` says of frames [B, H_px, W_px, 3] uint8, faster where many are encoded for training.

    The copies of a frame in its tubelet are the same, so the patch weights are summed over them first, and patches are
    cut by hand: at this size a convolution over time costs as much as half of the blocks.
    """
    encoder = model.encoder
    config, weight = encoder.config, encoder.patch_embed.proj.weight
    (rows, columns), p = config.grid, config.patch_size
    weight = weight.sum(2) if weight.ndim == 5 else weight
    contract = model.config.contract
    mean, std = (weight.new_tensor(each).repeat(p * p) for each in (contract.pixel_mean, contract.pixel_std))
    x = frames.view(-1, rows, p, columns, p, 3).permute(0, 1, 3, 2, 4, 5).reshape(-1, rows * columns, p * p * 3)
    x = (x.to(weight.dtype) / 255 - mean) / std
    x = functional.linear(x, weight.permute(0, 2, 3, 1).flatten(1), encoder.patch_embed.proj.bias)
    table = rope_table(*patch_places(torch.arange(rows * columns), config.grid), config.embed_dim // config.num_heads)
    for block in encoder.blocks:
        x = block(x, table)
    return model.normalize(encoder.norm(x))


@torch.no_grad()
def encode_all(encode: Callable[[Tensor], Tensor], frames: Frames, *, batch: int = 256) -> Tensor:
    """Encodes frames [S, H_px, W_px, 3] batch by batch."""
    return torch.cat([encode(torch.from_numpy(frames[i : i + batch])) for i in range(0, len(frames), batch)])
