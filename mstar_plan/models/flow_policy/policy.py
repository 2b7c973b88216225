"""A small flow policy: the frozen encoder of a packaged world model sees, and a flow net says what to do.

Shapes: B requests, K proposals, S actions of a chunk, A action, L latent of one picture, W width.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from mstar_plan.errors import InvalidInputError, UnavailableError, WeightsError
from mstar_plan.models.flow_policy.network import FlowNet, FlowPolicyConfig
from mstar_plan.models.registry import PRETRAINED, load_model
from mstar_plan.models.weights import WeightsInfo, action_from_json, config_from_json, load_state, read_weights
from mstar_plan.models.world_model import WorldModel
from mstar_plan.types import ActionSpec

ARCHITECTURE = "flow_policy"
Encode = Callable[[Tensor], Tensor]


class FlowPolicy(nn.Module):
    """Proposes chunks of actions from a picture of now and a picture of the goal.

    Args:
        name: What requests call it.
        net: The flow.
        encoder: World model whose `encode` it sees with; it is not changed.
        action: What comes out.
        description: One sentence.
    """

    def __init__(
        self, name: str, net: FlowNet, encoder: WorldModel, action: ActionSpec, *, description: str = ""
    ) -> None:
        super().__init__()
        config = net.config
        size = (config.image_size, config.image_size)
        if encoder.spec.image_size != size or int(np.prod(encoder.spec.latent_shape)) != config.latent:
            found = f"sees {encoder.spec.image_size} and gives latents {encoder.spec.latent_shape}"
            what = f"encoder {encoder.spec.name!r} {found}; policy {name!r} needs {size} and {config.latent} numbers"
            raise WeightsError(f"{what}: take the encoder that it was trained with", field="encoder")
        self.name, self.net, self.encoder, self.action = name, net, encoder, action
        self.description = description

    @property
    def config(self) -> FlowPolicyConfig:
        """Its sizes."""
        return self.net.config

    @classmethod
    def from_weights(
        cls, info: WeightsInfo, tensors: Mapping[str, Tensor], encoder: WorldModel | None = None
    ) -> FlowPolicy:
        """Builds the policy that a weight file describes.

        Args:
            info: The file's metadata.
            tensors: Its tensors.
            encoder: In the place of the packaged one that the file names.

        Raises:
            WeightsError: Tensors or configuration are not those of this architecture, or the encoder is another one
                than it was trained with.
        """
        if info.architecture != ARCHITECTURE:
            raise WeightsError(f"{info.name!r} is a {info.architecture}, no {ARCHITECTURE}", field="architecture")
        config = config_from_json(FlowPolicyConfig, info)
        seeing = load_model(config.encoder) if encoder is None else encoder
        if config.encoder_digest not in ("", digest(seeing)):
            what = f"policy {info.name!r} was trained to see with another encoder than the {config.encoder!r} of today"
            raise WeightsError(f"{what}; train it anew: mstar-plan train env={info.name}", field="encoder_digest")
        net = FlowNet(config)
        load_state(net, tensors, info)
        return cls(info.name, net, seeing, action_from_json(info), description=info.description)

    def encode(self, frames: Tensor) -> Tensor:
        """Pictures [B, H_px, W_px, 3] uint8 to latents [B, L]."""
        return self.encoder.encode(frames).flatten(1)

    def propose(self, now: Tensor, goal: Tensor, noise_BKSA: Tensor, steps: int) -> Tensor:
        """The walk's loop written by hand, for training and comparison: chunks [B, K, S, A] in [-1, 1] units.

        Args:
            now: [B, L] latents of what is seen.
            goal: [B, L] latents of what is wanted.
            noise_BKSA: Where the flow starts.
            steps: N Euler steps.
        """
        context_BW = self.net.see(now, goal)
        x_BKSA = noise_BKSA
        for k in range(steps):
            time_B = torch.full((len(now),), 1.0 - k / steps, device=now.device)
            x_BKSA = x_BKSA - self.net.velocity(x_BKSA, time_B, context_BW) / steps
        return x_BKSA


def digest(model: WorldModel) -> str:
    """SHA-256 of a model's weights and buffers, by name; the same wherever it is.

    Raises:
        InvalidInputError: The model is no torch module, and so has none.
    """
    if not isinstance(model, nn.Module):
        raise InvalidInputError(f"model {model.spec.name!r} has no weights to tell it by", field="encoder")
    found = hashlib.sha256()
    kept = [*model.named_parameters(), *model.named_buffers()]  # inference layouts are buffers that no state holds
    for name, tensor in sorted(kept, key=lambda pair: pair[0]):
        found.update(name.encode())
        found.update(tensor.detach().float().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()


def load_flow_policy(name: str, *, weights: Path | None = None, device: str | torch.device = "cpu") -> FlowPolicy:
    """Returns a flow policy, ready for inference.

    Args:
        name: Of a packaged one, such as flow_reach.
        weights: File to use in its place.
        device: Where to put it.

    Raises:
        UnavailableError: There are no packaged weights of this name.
        WeightsError: The file is damaged, of another architecture, or belongs to another encoder.
        InvalidInputError: There is no such device.
    """
    path = weights or PRETRAINED / f"{name}.safetensors"
    if not path.is_file():
        raise UnavailableError(
            f"the weights of {name!r} are not at {path}; make them with: mstar-plan train env={name}", field="model"
        )
    policy = FlowPolicy.from_weights(*read_weights(path))
    try:
        return policy.to(device).eval().requires_grad_(False)
    except (RuntimeError, AssertionError) as error:  # torch raises either, by backend
        what = f"device is {str(device)!r}, which cannot be used here"
        raise InvalidInputError(f"{what}: use cpu, or cuda:0 where PyTorch has a GPU", field="device") from error
