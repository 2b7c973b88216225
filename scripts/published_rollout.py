"""The published way to roll V-JEPA 2-AC out, as the baseline of bench_rollout.py: correct, and without any reuse.

It does what facebookresearch/vjepa2 does at c2963a4 (src/models/ac_predictor.py, src/models/utils/modules.py,
notebooks/utils): every step runs the predictor on the whole sequence so far under a bool mask, rotary sines and cosines
are computed anew in every layer, action and state tokens go through the projections by themselves, and poses are
composed row by row with SciPy on the CPU. Its speed was compared with the original's (docs/benchmarks.md).
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.spatial.transform import Rotation
from torch import Tensor
from torch.nn import functional

from mstar_plan.models.vjepa2.ac_predictor import ACPredictor, frame_causal_mask
from mstar_plan.models.vjepa2.blocks import Attention, Block


def turn(x: Tensor, position: Tensor) -> Tensor:
    """Rotates x [..., S, C] by positions [S], sines and cosines computed here."""
    omega = torch.arange(x.shape[-1] // 2, dtype=x.dtype, device=x.device)
    omega = 1.0 / 10000 ** (omega / (x.shape[-1] / 2.0))
    angle = torch.einsum("s,f->sf", position.to(x.dtype), omega)
    sin, cos = angle.sin().repeat(1, 2), angle.cos().repeat(1, 2)
    even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
    return x * cos + torch.stack((-odd, even), -1).flatten(-2) * sin


class PublishedPredictor:
    """The predictor's published forward pass over the weights of an `ACPredictor`."""

    def __init__(self, predictor: ACPredictor) -> None:
        self.predictor, self.config = predictor, predictor.config
        self.mask = frame_causal_mask(self.config.max_frames, self.config.sequence_per_frame)

    def __call__(self, tokens: Tensor, actions: Tensor, states: Tensor) -> Tensor:
        """Predictions [B, T N, D] for tokens [B, T N, D], actions and states [B, T, A]."""
        net, config = self.predictor, self.config
        x = net.predictor_embed(tokens)
        batch, frames, width = x.shape[0], actions.shape[1], x.shape[2]
        conditions = [net.action_encoder(actions)[:, :, None], net.state_encoder(states)[:, :, None]]
        x = torch.cat([*conditions, x.view(batch, frames, -1, width)], 2).flatten(1, 2)
        mask = self.mask[: x.shape[1], : x.shape[1]]
        for block in net.predictor_blocks:
            x = self._block(block, x, mask, frames)
        x = x.view(batch, frames, -1, width)[:, :, config.condition_tokens :].flatten(1, 2)
        return net.predictor_proj(net.predictor_norm(x))

    def _block(self, block: Block, x: Tensor, mask: Tensor, frames: int) -> Tensor:
        x = x + self._attention(block.attn, block.norm1(x), mask, frames)
        return x + block.mlp(block.norm2(x))

    def _attention(self, attention: Attention, x: Tensor, mask: Tensor, frames: int) -> Tensor:
        batch, length, width = x.shape
        parts = x.view(batch, frames, -1, width)
        conditions = [self._condition(attention, parts[:, :, i], frames) for i in range(self.config.condition_tokens)]
        patches = self._patches(attention, parts[:, :, self.config.condition_tokens :].flatten(1, 2), frames)
        merged = []
        for i in range(3):
            pieces = [each[i].unflatten(2, (frames, -1)) for each in (*conditions, patches)]
            merged.append(torch.cat(pieces, 3).flatten(2, 3))
        y = functional.scaled_dot_product_attention(*merged, attn_mask=mask)
        return attention.proj(y.transpose(1, 2).reshape(batch, length, width))

    def _heads(self, attention: Attention, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return attention.qkv(x).unflatten(-1, (3, attention.num_heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)

    def _condition(self, attention: Attention, x: Tensor, frames: int) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of one action or state token a frame: only the first axis turns."""
        q, k, v = self._heads(attention, x)
        part = 2 * (q.shape[-1] // 3 // 2)
        when = torch.arange(frames)
        q, k = (torch.cat([turn(each[..., :part], when), each[..., part:]], -1) for each in (q, k))
        return q, k, v

    def _patches(self, attention: Attention, x: Tensor, frames: int) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self._heads(attention, x)
        rows, columns = self.config.grid
        ids = torch.arange(frames * rows * columns)
        frame = ids // (rows * columns)
        row = (ids - frame * rows * columns) // columns
        column = (ids - frame * rows * columns - row * columns) * (rows / columns)
        part = 2 * (q.shape[-1] // 3 // 2)
        rotated = []
        for each in (q, k):
            axes = each.split([part, part, part, each.shape[-1] - 3 * part], -1)
            turned = [turn(axis, place) for axis, place in zip(axes[:3], (frame, row, column), strict=True)]
            rotated.append(torch.cat([*turned, axes[3]], -1))
        return rotated[0], rotated[1], v


def next_pose(pose: Tensor, action: Tensor) -> Tensor:
    """Composes poses [K, 7] with actions [K, 7] row by row."""
    pose_np, action_np = pose.float().numpy(), action.float().numpy()
    old = [Rotation.from_euler("xyz", row).as_matrix() for row in pose_np[:, 3:6]]
    turned = [Rotation.from_euler("xyz", row).as_matrix() for row in action_np[:, 3:6]]
    angles = [Rotation.from_matrix(t @ o).as_euler("xyz") for t, o in zip(turned, old, strict=True)]
    grip = np.clip(pose_np[:, 6:] + action_np[:, 6:], 0, 1)
    joined = np.concatenate([pose_np[:, :3] + action_np[:, :3], np.stack(angles), grip], -1)
    return torch.from_numpy(joined).to(pose.dtype)


def rollout(
    predictor: PublishedPredictor, context: Tensor, past: tuple[Tensor, Tensor], pose: Tensor, actions: Tensor
) -> Tensor:
    """Predicts along candidates, the whole sequence anew at every step.

    Args:
        predictor: The network.
        context: [C, N, D] latents, the last one now.
        past: Actions and states [C - 1, 7] of the frames before.
        pose: [7] now.
        actions: [K, H, 7].

    Returns:
        [K, H, N, D] predicted latents.
    """
    k, horizon = actions.shape[:2]
    frames = context[None].repeat(k, 1, 1, 1)
    poses = torch.cat([past[1], pose[None]])[None].repeat(k, 1, 1)
    taken = past[0].to(actions.dtype)[None].repeat(k, 1, 1)
    for h in range(horizon):
        taken = torch.cat([taken, actions[:, h, None]], 1)
        given = taken.to(context.dtype), poses.to(context.dtype)
        new = predictor(frames.flatten(1, 2), *given)[:, -context.shape[1] :]
        new = functional.layer_norm(new, (new.shape[-1],))
        frames = torch.cat([frames, new[:, None]], 1)
        poses = torch.cat([poses, next_pose(poses[:, -1], actions[:, h])[:, None]], 1)
    return frames[:, context.shape[0] :]
