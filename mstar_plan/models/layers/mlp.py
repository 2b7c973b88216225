"""A plain multi-layer perceptron, and the same one stacked over the members of an ensemble for inference.

Shapes: N members, R rows, I inputs, O outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional


class Mlp(nn.Module):
    """Linear layers with SiLU between them, each after a LayerNorm if asked for.

    Args:
        sizes: Widths from input to output, two at least.
        norm: Normalise before each SiLU.
        zero_last: Start the last layer at zero, so that a residual branch starts as nothing.
    """

    def __init__(self, sizes: Sequence[int], *, norm: bool = False, zero_last: bool = False) -> None:
        super().__init__()
        self.linears = nn.ModuleList(nn.Linear(i, o) for i, o in pairwise(sizes))
        self.norms = nn.ModuleList(nn.LayerNorm(size) for size in sizes[1:-1] if norm)
        if zero_last:
            for parameter in self.linears[-1].parameters():
                nn.init.zeros_(parameter)

    def forward(self, x: Tensor) -> Tensor:
        """Maps [..., I] to [..., O]."""
        for i, linear in enumerate(self.linears[:-1]):
            x = linear(x)
            x = functional.silu(self.norms[i](x) if self.norms else x)
        result: Tensor = self.linears[-1](x)
        return result


class StackedMlp(nn.Module):
    """N equally built MLPs as one batched product a layer; weights are copied and laid out for it.

    Args:
        members: MLPs of equal sizes.
    """

    def __init__(self, members: Sequence[Mlp]) -> None:
        super().__init__()
        self.depth = len(members[0].linears)
        self.normed = len(members[0].norms) > 0
        for i in range(self.depth):
            layers = [member.linears[i] for member in members]
            weights = [layer.get_parameter("weight").detach().t() for layer in layers]
            self._keep(f"weight{i}", torch.stack(weights))  # [N, I, O]
            self._keep(f"bias{i}", torch.stack([layer.get_parameter("bias").detach()[None] for layer in layers]))
            if self.normed and i < self.depth - 1:
                norms = [member.norms[i] for member in members]
                self._keep(f"scale{i}", torch.stack([norm.get_parameter("weight").detach()[None] for norm in norms]))
                self._keep(f"shift{i}", torch.stack([norm.get_parameter("bias").detach()[None] for norm in norms]))

    def forward(self, x_NRI: Tensor, residual_NRO: Tensor | None = None) -> Tensor:
        """Maps [N, R, I] to [N, R, O], plus `residual_NRO` if given."""
        for i in range(self.depth - 1):
            x_NRI = torch.baddbmm(self.get_buffer(f"bias{i}"), x_NRI, self.get_buffer(f"weight{i}"))
            if self.normed:
                x_NRI = functional.layer_norm(x_NRI, x_NRI.shape[-1:])
                x_NRI = torch.addcmul(self.get_buffer(f"shift{i}"), x_NRI, self.get_buffer(f"scale{i}"))
            x_NRI = functional.silu(x_NRI, inplace=True)
        weight, bias = self.get_buffer(f"weight{self.depth - 1}"), self.get_buffer(f"bias{self.depth - 1}")
        if residual_NRO is None:
            return torch.baddbmm(bias, x_NRI, weight)
        return torch.baddbmm(residual_NRO, x_NRI, weight).add_(bias)

    def _keep(self, name: str, value: Tensor) -> None:
        self.register_buffer(name, value.contiguous(), persistent=False)
