"""A linear layer for inference with what follows it in the same kernel: exact GELU, or adding a residual.

On a CPU the fused kernels are oneDNN's, which torch.compile uses too; the weight is laid out for them once. Elsewhere,
and where a build of torch lacks them, plain operators give the same to rounding.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

FUSED_DTYPES = (torch.float32, torch.bfloat16)


def has_fused_kernels(weight: Tensor) -> bool:
    """Whether oneDNN's fused kernels can be used with this weight."""
    if weight.device.type != "cpu" or weight.dtype not in FUSED_DTYPES or not torch._C._has_mkldnn:
        return False
    return all(hasattr(torch.ops.mkldnn, name) for name in ("_linear_pointwise", "_reorder_linear_weight"))


class FusedLinear:
    """y = f(x W^T + b), f being nothing or GELU; or y = x W^T + b + residual.

    Args:
        weight: [O, I]; copied if it is laid out anew.
        bias: [O] or None.
        activation: What follows.
        rows: About how many rows of x a call will have; the layout is chosen for it.
    """

    __slots__ = ("activation", "bias", "fused", "weight")

    def __init__(
        self, weight: Tensor, bias: Tensor | None, activation: Literal["none", "gelu"] = "none", *, rows: int = 512
    ) -> None:
        weight = weight.detach()
        self.fused = has_fused_kernels(weight)
        self.activation = activation
        self.bias = None if bias is None else bias.detach()
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight, rows) if self.fused else weight

    def __call__(self, x: Tensor) -> Tensor:
        """Maps contiguous [..., I] to [..., O]."""
        if self.fused:
            out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, self.activation, [], "none")
            return out
        y = functional.linear(x, self.weight, self.bias)
        return functional.gelu(y) if self.activation == "gelu" else y

    def plus(self, x: Tensor, residual: Tensor) -> Tensor:
        """x [..., I] to [..., O], plus residual [..., O]; no activation."""
        if self.fused:
            out: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, residual, self.weight, self.bias, "add")
            return out
        return residual + functional.linear(x, self.weight, self.bias)
