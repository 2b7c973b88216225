"""pi0.5 once more, slowly: one pass over prefix and actions in float64, straight from published tensors.

Nothing is cached, packed or fused: every token keeps its place, and a mask says who sees whom.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from mstar_plan.models.vla.pi_config import PiConfig

HEAD = "paligemma_with_expert."
VLM, EXPERT = f"{HEAD}paligemma.model.", f"{HEAD}gemma_expert.model."


class NaivePi05:
    """Weights under their published names; both towers have as many query heads."""

    def __init__(self, config: PiConfig, tensors: Mapping[str, Tensor]) -> None:
        self.config, self.tensors = config, {name: tensor.double() for name, tensor in tensors.items()}

    def linear(self, name: str, x: Tensor) -> Tensor:
        return functional.linear(x, self.tensors[f"{name}.weight"], self.tensors.get(f"{name}.bias"))

    def image(self, pixels: Tensor) -> Tensor:
        sizes, there = self.config.vision, f"{VLM}vision_tower.vision_model."

        def norm(name: str, x: Tensor) -> Tensor:
            weight, bias = self.tensors[f"{name}.weight"], self.tensors[f"{name}.bias"]
            return functional.layer_norm(x, x.shape[-1:], weight, bias, sizes.eps)

        def heads(x: Tensor) -> Tensor:
            return x.unflatten(-1, (sizes.heads, -1)).transpose(1, 2)

        patch = f"{there}embeddings.patch_embedding"
        z = functional.conv2d(pixels, self.tensors[f"{patch}.weight"], self.tensors[f"{patch}.bias"], sizes.patch_size)
        z = z.flatten(2).transpose(1, 2) + self.tensors[f"{there}embeddings.position_embedding.weight"]
        for i in range(sizes.depth):
            layer = f"{there}encoder.layers.{i}."
            h = norm(f"{layer}layer_norm1", z)
            q, k, v = (heads(self.linear(f"{layer}self_attn.{part}_proj", h)) for part in "qkv")
            scores = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).softmax(-1)
            z = z + self.linear(f"{layer}self_attn.out_proj", (scores @ v).transpose(1, 2).flatten(2))
            h = self.linear(f"{layer}mlp.fc1", norm(f"{layer}layer_norm2", z))
            z = z + self.linear(f"{layer}mlp.fc2", functional.gelu(h, approximate="tanh"))
        return self.linear(f"{VLM}multi_modal_projector.linear", norm(f"{there}post_layernorm", z))

    def prefix(self, images: Tensor, there: Tensor, tokens: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        seen = [self.image(images[:, i].double()) for i in range(images.shape[1])]
        text = self.tensors[f"{HEAD}paligemma.lm_head.weight"][tokens] * math.sqrt(self.config.language.width)
        patches = self.config.vision.patches
        return torch.cat([*seen, text], 1), torch.cat([there.repeat_interleave(patches, 1), mask], 1)

    def condition(self, time: float) -> Tensor:
        half = self.config.expert.width // 2
        low, high = self.config.min_period, self.config.max_period
        periods = [low * (high / low) ** (i / (half - 1)) for i in range(half)]
        angles = torch.tensor(
            [torch.tensor(time).item() * 2 * math.pi / period for period in periods], dtype=torch.float64
        )
        h = functional.silu(self.linear("time_mlp_in", torch.cat([angles.sin(), angles.cos()])))
        return functional.silu(self.linear("time_mlp_out", h))

    def velocity(self, x: Tensor, time: float, prefix: Tensor, seen: Tensor) -> Tensor:
        rows, p, s = len(x), prefix.shape[1], x.shape[1]
        here = torch.cat([seen, torch.ones(rows, s, dtype=torch.bool)], 1)
        positions = here.cumsum(1) - 1
        sees = here[:, None, None].expand(rows, 1, p + s, -1).clone()
        sees[:, :, :p, p:] = False
        condition, streams = self.condition(time), [prefix, self.linear("action_in_proj", x)]
        for i in range(self.config.expert.depth):
            streams = self._layer(i, streams, condition, positions, sees)
        scale, shift, _ = self.linear(f"{EXPERT}norm.dense", condition).chunk(3)
        return self.linear("action_out_proj", self._rms(streams[1]) * (1 + scale) + shift)

    def _layer(self, i: int, streams: list[Tensor], condition: Tensor, positions: Tensor, sees: Tensor) -> list[Tensor]:
        towers = (f"{VLM}language_model.layers.{i}.", f"{EXPERT}layers.{i}.")
        sizes, lengths = self.config.expert, [stream.shape[1] for stream in streams]
        q, k, v, gates = [], [], [], []
        for tower, stream in zip(towers, streams, strict=True):
            h, gate = self._norm(f"{tower}input_layernorm", stream, condition)
            gates.append(gate)
            for made, part in ((q, "q"), (k, "k"), (v, "v")):
                heads = self.linear(f"{tower}self_attn.{part}_proj", h).unflatten(-1, (-1, sizes.head_width))
                made.append(heads.transpose(1, 2))
        keys, values = (self._shared(torch.cat(made, 2)) for made in (k, v))
        turned_q, turned_k = self._turn(torch.cat(q, 2), positions), self._turn(keys, positions)
        scores = turned_q @ turned_k.transpose(-1, -2) / math.sqrt(sizes.head_width)
        out = (scores.masked_fill(~sees, -2.38e38).softmax(-1) @ values).transpose(1, 2).flatten(2).split(lengths, 1)
        after = []
        for tower, stream, part, gate in zip(towers, streams, out, gates, strict=True):
            z = stream + self.linear(f"{tower}self_attn.o_proj", part) * gate
            h, gate2 = self._norm(f"{tower}post_attention_layernorm", z, condition)
            hidden = functional.gelu(self.linear(f"{tower}mlp.gate_proj", h), approximate="tanh")
            hidden = hidden * self.linear(f"{tower}mlp.up_proj", h)
            after.append(z + self.linear(f"{tower}mlp.down_proj", hidden) * gate2)
        return after

    def _norm(self, name: str, x: Tensor, condition: Tensor) -> tuple[Tensor, Tensor]:
        if f"{name}.dense.weight" not in self.tensors:
            return self._rms(x) * (1 + self.tensors[f"{name}.weight"]), torch.ones(())
        scale, shift, gate = self.linear(f"{name}.dense", condition).chunk(3)
        return self._rms(x) * (1 + scale) + shift, gate

    def _rms(self, x: Tensor) -> Tensor:
        return x / (x.square().mean(-1, keepdim=True) + self.config.expert.eps).sqrt()

    def _shared(self, x: Tensor) -> Tensor:
        return x.repeat_interleave(self.config.expert.heads // x.shape[1], 1)

    def _turn(self, x: Tensor, positions: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        angles = positions[:, None, :, None] / self.config.expert.theta ** (torch.arange(half).double() / half)
        one, two = x[..., :half], x[..., half:]
        cos, sin = angles.cos(), angles.sin()
        return torch.cat([one * cos - two * sin, two * cos + one * sin], -1)

    def act(self, noise: Tensor, steps: int, prefix: Tensor, seen: Tensor) -> Tensor:
        x = noise.double()
        for k in range(steps):
            x = x - self.velocity(x, 1.0 - k / steps, prefix, seen) / steps
        return x
