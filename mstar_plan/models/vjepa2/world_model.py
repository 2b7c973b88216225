"""V-JEPA 2-AC as a world model to plan with: frames to token grids, token grids and actions to the next ones.

Shapes: B requests, K candidates, C context frames, N patches of a frame, D width, A action, P state.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from mstar_plan.errors import ConfigError, WeightsError
from mstar_plan.models.vjepa2.ac_predictor import ACPredictor
from mstar_plan.models.vjepa2.config import ACPredictorConfig, EncoderConfig
from mstar_plan.models.vjepa2.contract import ModelContract
from mstar_plan.models.vjepa2.encoder import VJEPA2Encoder
from mstar_plan.models.vjepa2.memory import rollout_bytes
from mstar_plan.models.vjepa2.pose import compute_new_pose, past_poses
from mstar_plan.models.vjepa2.rollout import Rollout
from mstar_plan.models.vjepa2.self_test import compare, digest
from mstar_plan.models.weights import WeightsInfo, action_from_json, config_from_json, load_state
from mstar_plan.models.world_model import ModelSpec
from mstar_plan.types import ActionSpec


@dataclass(frozen=True)
class VJEPA2ACConfig:
    """Everything that a V-JEPA 2-AC weight file says beside its tensors.

    Attributes:
        encoder: Sizes of the encoder.
        predictor: Sizes of the predictor.
        contract: What must hold between robot and model.
        context_frames: C, frames that a rollout starts from, now included.
    """

    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    predictor: ACPredictorConfig = field(default_factory=ACPredictorConfig)
    contract: ModelContract = field(default_factory=ModelContract)
    context_frames: int = 1

    def __post_init__(self) -> None:
        parts = {"encoder": EncoderConfig, "predictor": ACPredictorConfig, "contract": ModelContract}
        for name, kind in parts.items():
            value = getattr(self, name)
            object.__setattr__(self, name, kind(**value) if isinstance(value, Mapping) else value)
        if self.encoder.embed_dim != self.predictor.embed_dim or self.encoder.grid != self.predictor.grid:
            raise ConfigError("encoder and predictor do not fit: embed_dim, img_size and patch_size must be the same")

    def check(self, action: ActionSpec) -> None:
        """Refuses sizes and actions that do not agree with the contract.

        Raises:
            ConfigError: They do not.
        """
        self.contract.check_inside(self.encoder.tubelet_size if self.encoder.num_frames > 1 else None, action)
        if action.size != self.predictor.action_embed_dim:
            what = f"actions have {action.size} values, the predictor takes {self.predictor.action_embed_dim}"
            raise ConfigError(f"{what}; give the actions that it was trained with", field="action")


class VJEPA2AC(nn.Module):
    """The world model; a `WorldModel`.

    Args:
        name: Registry name.
        config: Sizes and contract.
        action: Its actions.
        encoder: The encoder.
        predictor: The predictor.
        description: One sentence for people.
    """

    def __init__(
        self,
        name: str,
        config: VJEPA2ACConfig,
        action: ActionSpec,
        encoder: VJEPA2Encoder,
        predictor: ACPredictor,
        *,
        description: str = "",
    ) -> None:
        super().__init__()
        self.config, self.encoder, self.predictor = config, encoder, predictor
        pose = config.contract.state == "pose"
        self.spec = ModelSpec(
            name=name,
            image_size=config.encoder.img_size,
            latent_shape=(config.encoder.tokens_per_frame, config.encoder.embed_dim),
            action=action,
            context_frames=config.context_frames,
            state_size=config.predictor.action_embed_dim if pose else 0,
            max_horizon=config.predictor.max_frames - config.context_frames + 1,
            threads=0,
            half=True,
            description=description,
            contract=config.contract.terms(config.encoder.img_size, action, config.context_frames),
        )
        self._laid_out: tuple[Hashable, Rollout] | None = None

    @classmethod
    def from_weights(cls, info: WeightsInfo, tensors: Mapping[str, Tensor]) -> Self:
        """Builds the model that a weight file describes.

        Raises:
            WeightsError: The tensors or the configuration are not those of this architecture.
        """
        config, action = config_from_json(VJEPA2ACConfig, info), action_from_json(info)
        try:
            config.check(action)
        except ConfigError as error:
            raise WeightsError(f"weights of {info.name!r}: {error}", field=error.field) from error
        with torch.device("meta"):  # takes the tensors themselves
            parts = nn.ModuleDict(
                {"encoder": VJEPA2Encoder(config.encoder), "predictor": ACPredictor(config.predictor)}
            )
        load_state(parts, tensors, info)
        encoder, predictor = parts["encoder"], parts["predictor"]
        assert isinstance(encoder, VJEPA2Encoder)
        assert isinstance(predictor, ACPredictor)
        return cls(info.name, config, action, encoder, predictor, description=info.description)

    def encode(self, frames: Tensor) -> Tensor:
        """Encodes single frames [B, H_px, W_px, 3] uint8 to [B, N, D]: each repeated to fill a tubelet, normed."""
        return self.normalize(self.encoder(self.preprocess(frames)))

    def preprocess(self, frames: Tensor) -> Tensor:
        """Frames [B, H_px, W_px, 3] uint8 to what the encoder takes."""
        contract, weight = self.config.contract, self.predictor.predictor_embed.weight
        pixels = frames.permute(0, 3, 1, 2).float() / 255
        mean, std = (pixels.new_tensor(each).view(3, 1, 1) for each in (contract.pixel_mean, contract.pixel_std))
        pixels = ((pixels - mean) / std).to(weight.dtype)
        if self.config.encoder.num_frames > 1:
            pixels = pixels[:, :, None].expand(-1, -1, contract.frame_copies, -1, -1)
        return pixels

    def normalize(self, latent: Tensor) -> Tensor:
        """The layer norm without weights that tokens go through, if the contract says so."""
        if not self.config.contract.normalize_latents:
            return latent
        return functional.layer_norm(latent, latent.shape[-1:])

    def begin(
        self, context: Tensor, actions: Tensor | None, state: Tensor | None, candidates: int, horizon: int
    ) -> tuple[Tensor, Tensor | None, Any]:
        """Computes the past once for all candidates; see `WorldModel`.

        Args:
            context: [B, C, N, D].
            actions: [B, C - 1, A].
            state: [B, P] now; earlier states follow from it and the actions.
            candidates: K.
            horizon: H, frames that the cache is laid out for.

        Returns:
            A view [B, K, N, D] of the newest frame, states [B, K, P], and the cache.
        """
        context = context.to(self.dtype)  # latents that come back from a client are float32
        past = None if state is None or actions is None else past_poses(state, actions)
        cache = self._rollout().begin(context, actions, past, candidates, horizon)
        latent = context[:, -1, None].expand(-1, candidates, -1, -1)
        return latent, None if state is None else state[:, None].expand(-1, candidates, -1), cache

    def predict(
        self, latent: Tensor, state: Tensor | None, action: Tensor, cache: Any
    ) -> tuple[Tensor, Tensor | None, Any]:
        """One frame for all candidates; see `WorldModel`."""
        predicted, cache = self._rollout().step(latent, action, state, cache)
        return predicted, None if state is None else compute_new_pose(state, action), cache

    def rollout_bytes(self, candidates: int, horizon: int) -> int:
        """Bytes that rolling K candidates out over H frames holds at its peak, weights and pictures apart."""
        rollout = self._rollout()
        return rollout_bytes(
            self.config.predictor,
            candidates,
            horizon,
            rollout.rows,
            self.predictor.predictor_embed.weight.element_size(),
        )

    def predict_once(self, latent: Tensor, action: Tensor, state: Tensor) -> Tensor:
        """One frame from tokens [B, N, D], action [B, A] and state [B, A], not laid out for speed."""
        return self.normalize(self.predictor.step(latent, action, state)[0])

    def digest(self) -> dict[str, Any]:
        """What this model makes of a fixed picture; see `self_test`."""
        return digest(self, self.predictor.predictor_embed.weight.device)

    def verify(self, recorded: Mapping[str, Any]) -> None:
        """Compares with the golden vector that its file holds, if any.

        Raises:
            WeightsError: They differ: preprocessing or weights are not those that it was saved with.
        """
        compare(recorded, self.digest, self.spec.name)

    @property
    def image_size(self) -> tuple[int, int]:
        """(H_px, W_px) of its pictures."""
        return self.config.encoder.img_size

    @property
    def pose_size(self) -> int:
        """A, width of an action and of a state."""
        return self.config.predictor.action_embed_dim

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights."""
        return self.predictor.predictor_embed.weight.dtype

    def _rollout(self) -> Rollout:
        """The predictor laid out for rollouts: made, and its chunk size measured, when it is first needed."""
        weight = self.predictor.predictor_embed.weight
        key = (weight.device, weight.dtype, weight.data_ptr())
        if self._laid_out is None or self._laid_out[0] != key:
            rollout = Rollout(self.predictor, normalize=self.config.contract.normalize_latents)
            rollout.tune()
            self._laid_out = (key, rollout)
        return self._laid_out[1]

    def embed(self, latent: Tensor) -> Tensor:
        """Maps latents [..., N, D] to [..., N D] float32: distances are taken over all channels of all tokens."""
        return latent.flatten(-2).float()
