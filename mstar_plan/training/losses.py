"""Losses of a latent world model: predict the next latents, and keep the latents from collapsing.

Shapes: B windows, W frames of a window, K = W-1 steps, D latent, A action, S samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from mstar_plan.errors import ConfigError
from mstar_plan.models.jepa import JepaMember

KNOTS, KNOT_LIMIT, PROJECTIONS = 17, 5.0, 128  # of the Epps-Pulley integral


@dataclass(frozen=True)
class LossConfig:
    """Weights of the terms; the rollout error has weight 1.

    Attributes:
        inverse: Inverse dynamics: the action must be readable from two successive latents.
        variance: Hinge that keeps each dimension's standard deviation at 1 (VICReg).
        covariance: Decorrelation of the dimensions (VICReg).
        sigreg: Gaussian latents, the regulariser of LeJEPA and LeWorldModel; an alternative to the two above.
        slowness: Small changes between successive latents.
    """

    inverse: float = 1.0
    variance: float = 1.0
    covariance: float = 0.04
    sigreg: float = 0.0
    slowness: float = 0.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value >= 0:
                raise ConfigError(f"{name} is {value}; a weight is at least 0", field=name)
        if self.variance == 0 and self.sigreg == 0:
            raise ConfigError("variance and sigreg are both 0, so latents would collapse; keep one", field="variance")


def total_loss(
    member: JepaMember, inverse: nn.Module, latents: Tensor, actions: Tensor, config: LossConfig
) -> tuple[Tensor, dict[str, float]]:
    """Returns the weighted sum and its terms, for latents [B, W, D] of successive frames, actions [B, K, A] between."""
    flat = latents.flatten(0, 1)
    terms = {"rollout": (1.0, rollout_loss(member, latents, actions))}
    if config.inverse:
        terms["inverse"] = (config.inverse, inverse_dynamics_loss(inverse, latents, actions))
    if config.variance:
        terms["variance"] = (config.variance, variance_loss(flat))
    if config.covariance:
        terms["covariance"] = (config.covariance, covariance_loss(flat))
    if config.sigreg:
        terms["sigreg"] = (config.sigreg, sigreg_loss(flat))
    if config.slowness:
        terms["slowness"] = (config.slowness, slowness_loss(latents))
    total = torch.stack([weight * value for weight, value in terms.values()]).sum()
    return total, {name: float(value.detach()) for name, (_, value) in terms.items()}


def rollout_loss(member: JepaMember, latents: Tensor, actions: Tensor) -> Tensor:
    """Mean squared error of the predictor fed with its own predictions, over the K steps of each window.

    The gradient also flows through the targets: with an anti-collapse term neither a stop-gradient nor an EMA encoder
    is needed (LeJEPA, arXiv 2511.08544).
    """
    predicted, errors = latents[:, 0], []
    for k in range(actions.shape[1]):
        predicted = member.step(predicted, actions[:, k])
        errors.append(functional.mse_loss(predicted, latents[:, k + 1]))
    return torch.stack(errors).mean()


def inverse_dynamics_loss(inverse: nn.Module, latents: Tensor, actions: Tensor) -> Tensor:
    """Mean squared error of the action read from two successive latents (Pathak et al. 2017, arXiv 1705.05363)."""
    read = inverse(torch.cat([latents[:, :-1], latents[:, 1:]], dim=-1))
    return functional.mse_loss(read, actions)


def variance_loss(z_SD: Tensor) -> Tensor:
    """Mean hinge of each dimension's standard deviation below 1 (VICReg, arXiv 2105.04906, eq. 1)."""
    return torch.relu(1.0 - torch.sqrt(z_SD.var(dim=0) + 1e-4)).mean()


def covariance_loss(z_SD: Tensor) -> Tensor:
    """Sum of squared off-diagonal covariances over D (VICReg, arXiv 2105.04906, eq. 3)."""
    centred = z_SD - z_SD.mean(dim=0)
    covariance = centred.T @ centred / (len(z_SD) - 1)
    off_diagonal = covariance - torch.diag(covariance.diag())
    return off_diagonal.pow(2).sum() / z_SD.shape[1]


def sigreg_loss(z_SD: Tensor) -> Tensor:
    """Epps-Pulley distance to N(0, 1) on random projections (SIGReg of LeJEPA, arXiv 2511.08544).

    The squared difference of the empirical characteristic function to exp(-t^2/2), weighted by the same Gaussian,
    integrated over t by the trapezoid rule, times S. New directions are drawn at every call.
    """
    drawn = torch.randn(z_SD.shape[1], PROJECTIONS, device=z_SD.device, dtype=z_SD.dtype)
    directions = functional.normalize(drawn, dim=0)
    t = torch.linspace(-KNOT_LIMIT, KNOT_LIMIT, KNOTS, device=z_SD.device, dtype=z_SD.dtype)
    gaussian = torch.exp(-t.square() / 2)
    angles = (z_SD @ directions)[..., None] * t  # [S, projections, knots]
    squared = (angles.cos().mean(dim=0) - gaussian).square() + angles.sin().mean(dim=0).square()
    return len(z_SD) * torch.trapezoid(squared * gaussian, t, dim=-1).mean()


def slowness_loss(latents: Tensor) -> Tensor:
    """Mean squared change between successive latents (slow feature analysis, Wiskott and Sejnowski 2002)."""
    return functional.mse_loss(latents[:, 1:], latents[:, :-1])
