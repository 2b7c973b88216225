"""A plain multi-layer perceptron, and the same one stacked over the members of an ensemble for inference.

Shapes: N members, R rows, I inputs, O outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import cast

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
        self.alone = len(members) == 1  # one plain product is a quarter faster than a batch of one
        self.depth = len(members[0].linears)
        self.normed = len(members[0].norms) > 0
        for i in range(self.depth):
            self._keep(f"weight{i}", [member.linears[i].get_parameter("weight").t() for member in members])
            self._keep(f"bias{i}", [member.linears[i].get_parameter("bias") for member in members])
            if self.normed and i < self.depth - 1:
                self._keep(f"scale{i}", [member.norms[i].get_parameter("weight") for member in members])
                self._keep(f"shift{i}", [member.norms[i].get_parameter("bias") for member in members])

    def forward(self, x_NRI: Tensor, residual_NRO: Tensor | None = None) -> Tensor:
        """Maps [N, R, I] to [N, R, O], plus `residual_NRO` if given."""
        if self.alone:
            residual = None if residual_NRO is None else residual_NRO[0]
            return self._chain(x_NRI[0], residual, torch.addmm)[None]
        return self._chain(x_NRI, residual_NRO, torch.baddbmm)

    def _chain(self, x: Tensor, residual: Tensor | None, product: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Tensor:
        kept = cast("dict[str, Tensor]", self._buffers)  # looked up once a step: a tenth of a small model's time
        for i in range(self.depth - 1):
            x = product(kept[f"bias{i}"], x, kept[f"weight{i}"])
            if self.normed:
                x = self._normalise(x, kept[f"scale{i}"], kept[f"shift{i}"])
            x = functional.silu(x, inplace=True)
        weight, bias = kept[f"weight{self.depth - 1}"], kept[f"bias{self.depth - 1}"]
        if residual is None:
            return product(bias, x, weight)
        return product(residual, x, weight).add_(bias)

    def _normalise(self, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        if self.alone:
            return functional.layer_norm(x, x.shape[-1:], scale, shift)
        return torch.addcmul(shift, functional.layer_norm(x, x.shape[-1:]), scale)

    def _keep(self, name: str, values: Sequence[Tensor]) -> None:
        """Keeps one member's [I, O] or [O] as it is, those of more as [N, I, O] or [N, 1, O]."""
        value = values[0].detach()
        if not self.alone:
            value = torch.stack([each.detach() if each.ndim == 2 else each.detach()[None] for each in values])
        self.register_buffer(name, value.contiguous().clone(), persistent=False)
