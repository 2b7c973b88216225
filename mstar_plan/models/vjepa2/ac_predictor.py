"""The action-conditioned predictor of V-JEPA 2-AC, whole sequences at once: for training and as the reference.

Shapes: B batch, T frames, N patches of a frame, S tokens of a frame, D width of the encoder, A action.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mstar_plan.errors import InvalidInputError
from mstar_plan.models.vjepa2.blocks import KeyValue, Table, init_weights, make_blocks
from mstar_plan.models.vjepa2.config import ACPredictorConfig
from mstar_plan.models.vjepa2.rope import patch_places, rope_table


class ACPredictor(nn.Module):
    """Predicts the tokens of frame t + 1 at frame t, from frames, actions and states up to t.

    Args:
        config: Its sizes.
    """

    def __init__(self, config: ACPredictorConfig) -> None:
        super().__init__()
        self.config = config
        width, actions = config.predictor_embed_dim, config.action_embed_dim
        self.predictor_embed = nn.Linear(config.embed_dim, width)
        self.action_encoder = nn.Linear(actions, width)
        self.state_encoder = nn.Linear(actions, width)
        self.extrinsics_encoder = nn.Linear(max(1, actions - 1), width)
        self.predictor_blocks = make_blocks(config)
        self.predictor_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.predictor_proj = nn.Linear(width, config.embed_dim)
        init_weights(self, self.predictor_blocks)

    def forward(self, tokens: Tensor, actions: Tensor, states: Tensor, extrinsics: Tensor | None = None) -> Tensor:
        """Predicts the next frame at every frame.

        Args:
            tokens: [B, T N, D] encoder tokens.
            actions: [B, T, A] the action taken at each frame.
            states: [B, T, A] the robot's state at each frame.
            extrinsics: [B, T, A - 1] of the camera; only for predictors that use them.

        Returns:
            [B, T N, D].

        Raises:
            InvalidInputError: A shape is wrong, or there are more frames than it was built for.
        """
        config = self.config
        frames = self._check(tokens, actions, states, extrinsics)
        patches = self.predictor_embed(tokens.reshape(tokens.shape[0], frames, -1, config.embed_dim))
        conditions = [self.action_encoder(actions), self.state_encoder(states)]
        if extrinsics is not None:
            conditions.append(self.extrinsics_encoder(extrinsics))
        x = torch.cat([*(each[:, :, None] for each in conditions), patches], 2).flatten(1, 2)
        table = step_table(config, torch.arange(frames, device=x.device))
        mask = None if frames == 1 else frame_causal_mask(frames, config.sequence_per_frame, x.device)
        for block in self.predictor_blocks:
            x = block(x, table, mask)
        x = x.view(x.shape[0], frames, -1, config.width)[:, :, config.condition_tokens :].flatten(1, 2)
        out: Tensor = self.predictor_proj(self.predictor_norm(x))
        return out

    def step(
        self, tokens: Tensor, action: Tensor, state: Tensor, past: Sequence[KeyValue] = ()
    ) -> tuple[Tensor, list[KeyValue]]:
        """One more frame behind those whose keys and values are kept: what `forward` says of its last frame.

        Exact, since no frame sees a later one. Differentiable; `Rollout` is its fast form for inference.

        Args:
            tokens: [B, N, D] of the frame.
            action: [B, A] taken at it.
            state: [B, A] at it.
            past: What the last call returned; empty for the first frame.

        Returns:
            Prediction [B, N, D] of the next frame; keys and values [B, heads, (t + 1) S, C], a pair for each block.

        Raises:
            InvalidInputError: There are more frames than it was built for.
        """
        config = self.config
        frame = past[0][0].shape[2] // config.sequence_per_frame if past else 0
        if frame >= config.max_frames:
            raise InvalidInputError(f"frame {frame}; this predictor takes 1..{config.max_frames}", field="horizon")
        conditions = [self.action_encoder(action)[:, None], self.state_encoder(state)[:, None]]
        x = torch.cat([*conditions, self.predictor_embed(tokens)], 1)
        table = step_table(config, torch.tensor([frame], device=x.device))
        seen = []
        for i, block in enumerate(self.predictor_blocks):
            x, pair = block.step(x, table, None, past[i] if past else None)  # type: ignore[operator]
            seen.append(pair)
        return self.predictor_proj(self.predictor_norm(x[:, config.condition_tokens :])), seen

    def _check(self, tokens: Tensor, actions: Tensor, states: Tensor, extrinsics: Tensor | None) -> int:
        config = self.config
        frames = actions.shape[1] if actions.ndim == 3 else 0
        batch, size = tokens.shape[0], config.action_embed_dim
        needed = {
            "tokens": (tokens, (batch, frames * config.tokens_per_frame, config.embed_dim)),
            "actions": (actions, (batch, frames, size)),
            "states": (states, (batch, frames, size)),
        }
        if config.use_extrinsics != (extrinsics is not None):
            raise InvalidInputError(
                f"this predictor {'needs' if config.use_extrinsics else 'takes no'} extrinsics", field="extrinsics"
            )
        if extrinsics is not None:
            needed["extrinsics"] = (extrinsics, (batch, frames, size - 1))
        for name, (value, shape) in needed.items():
            if tuple(value.shape) != shape:
                raise InvalidInputError(f"{name} has shape {list(value.shape)}; it needs {list(shape)}", field=name)
        if not 1 <= frames <= config.max_frames:
            raise InvalidInputError(f"{frames} frames; this predictor takes 1..{config.max_frames}", field="actions")
        return frames


def step_table(config: ACPredictorConfig, frames: Tensor) -> Table:
    """Rotary table [T S, C] of whole frames: conditions turn on the frame axis alone, patches on all three.

    Columns are scaled by rows / columns, as published.
    """
    rows, columns = config.grid
    _, row, column = patch_places(torch.arange(config.tokens_per_frame, device=frames.device), config.grid)
    nowhere = torch.zeros(config.condition_tokens, device=frames.device)
    row = torch.cat([nowhere, row.to(torch.float32)])
    column = torch.cat([nowhere, column * (rows / columns)])
    count, per_frame = frames.shape[0], config.sequence_per_frame
    return rope_table(
        frames.repeat_interleave(per_frame), row.repeat(count), column.repeat(count), config.width // config.num_heads
    )


def frame_causal_mask(frames: int, per_frame: int, device: torch.device | None = None) -> Tensor:
    """Bool [T S, T S]: a token sees those of its own frame and of earlier ones."""
    frame = torch.arange(frames, device=device).repeat_interleave(per_frame)
    return frame[:, None] >= frame[None, :]
