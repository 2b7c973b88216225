"""Layers of the codec; each runs over a whole sequence, or over the next part of one with what it kept of before.

A layer that looks to the right can give an output only when the inputs that it depends on are there. `stream` gives
what is certain, and keeps what later outputs need; with `last` the sequence ends, and the rest comes out. What all
calls give, put together, is what `forward` gives for the whole.

B requests, C channels, T steps at the layer's rate.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - its usual name

from mstar_plan.errors import InvalidInputError
from mstar_plan.models.snac.config import DILATIONS, HEAD_WIDTH, KERNEL, upsampling_pad


class Streaming:
    """What a layer that sees neighbours can do besides `forward`."""

    slots = 1  # tensors [B, ...] that it keeps

    def begin(self, like: Tensor) -> list[Tensor]:
        """What is kept before the first step, for as many rows as `like` has."""
        raise NotImplementedError

    def stream(self, x_BCT: Tensor, kept: Sequence[Tensor], last: bool) -> tuple[Tensor, list[Tensor]]:
        """The outputs that are certain now, and what is kept for the next step."""
        raise NotImplementedError


class Snake(nn.Module):
    """x + sin(alpha x)^2 / alpha, with an alpha for each channel (Ziyin et al. 2020)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(1, channels, 1))

    def forward(self, x_BCT: Tensor) -> Tensor:
        """Element by element."""
        squares_BCT = torch.sin(self.alpha * x_BCT).square()
        return torch.addcmul(x_BCT, squares_BCT, (self.alpha + 1e-9).reciprocal())


class Conv(nn.Conv1d, Streaming):
    """A convolution as long as its input, with zeros around it."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int = 1, *, dilation: int = 1, groups: int = 1, bias: bool = True
    ) -> None:
        self.reach = (kernel - 1) * dilation
        pad = self.reach // 2
        super().__init__(inputs, outputs, kernel, padding=pad, dilation=dilation, groups=groups, bias=bias)

    def forward(self, x_BCT: Tensor) -> Tensor:
        """[B, C, T] to [B, C', T]; T may be 0."""
        return super().forward(x_BCT) if x_BCT.shape[-1] else self._nothing(x_BCT)

    def begin(self, like: Tensor) -> list[Tensor]:
        """The zeros at the left."""
        return [like.new_zeros(like.shape[0], self.in_channels, self.reach // 2)]

    def stream(self, x_BCT: Tensor, kept: Sequence[Tensor], last: bool) -> tuple[Tensor, list[Tensor]]:
        """See `Streaming`; the inputs that later outputs still see are kept."""
        x_BCT = torch.cat([kept[0], x_BCT], -1)
        if last:
            x_BCT = F.pad(x_BCT, (0, self.reach // 2))
        if x_BCT.shape[-1] <= self.reach:
            return self._nothing(x_BCT), [x_BCT]
        y_BCT = F.conv1d(x_BCT, self.weight, self.bias, dilation=self.dilation, groups=self.groups)
        return y_BCT, [x_BCT[..., x_BCT.shape[-1] - self.reach :]]

    def _nothing(self, x_BCT: Tensor) -> Tensor:
        return x_BCT.new_zeros(x_BCT.shape[0], self.out_channels, 0)


class Upsample(nn.ConvTranspose1d, Streaming):
    """A transposed convolution that makes every step to `rate` steps, each from two neighbours.

    It is computed as one matrix product over pairs of neighbours: torch's own is several times slower on short parts.
    """

    def __init__(self, inputs: int, outputs: int, rate: int) -> None:
        self.rate, self.left = rate, upsampling_pad(rate)
        super().__init__(inputs, outputs, 2 * rate, rate, padding=self.left, output_padding=rate % 2)
        self._matrix: tuple[Tensor, Tensor] | None = None
        self.register_load_state_dict_post_hook(_forget)  # type: ignore[no-untyped-call]

    def forward(self, x_BCT: Tensor, output_size: list[int] | None = None) -> Tensor:
        """[B, C, T] to [B, C', T rate]; `output_size` is torch's, and not for use."""
        assert output_size is None
        y_BCT, _ = self.stream(x_BCT, self.begin(x_BCT), True)
        return y_BCT

    def begin(self, like: Tensor) -> list[Tensor]:
        """Nothing, which also tells the first step that it is the first."""
        return [like.new_zeros(like.shape[0], self.in_channels, 0)]

    def stream(self, x_BCT: Tensor, kept: Sequence[Tensor], last: bool) -> tuple[Tensor, list[Tensor]]:
        """See `Streaming`; the last input is kept."""
        first = not kept[0].shape[-1]
        if not x_BCT.shape[-1] and (first or not last):
            return x_BCT.new_zeros(x_BCT.shape[0], self.out_channels, 0), [kept[0]]
        x_BCT = F.pad(x_BCT, (1, 0)) if first else torch.cat([kept[0], x_BCT], -1)
        if last:
            x_BCT = F.pad(x_BCT, (0, 1))
        y_BCT = self._between(x_BCT)
        start = self.left if first else 0
        stop = y_BCT.shape[-1] - (self.left - self.rate % 2 if last else 0)
        return y_BCT[..., start:stop], [x_BCT[..., -1:]]

    def _between(self, x_BCT: Tensor) -> Tensor:
        """[B, C, T + 1] to [B, C', T rate]: what each step and the one before it give."""
        weight = self.weight
        if self._matrix is None or self._matrix[0].data_ptr() != weight.data_ptr() or weight.requires_grad:
            halves = weight.view(self.in_channels, self.out_channels, 2, self.rate)
            matrix = halves.permute(1, 3, 2, 0).reshape(self.out_channels * self.rate, 2 * self.in_channels)
            self._matrix = weight.data, matrix
        pairs = torch.cat([x_BCT[..., 1:], x_BCT[..., :-1]], 1)
        batch, _, steps = pairs.shape
        y = torch.matmul(self._matrix[1], pairs).view(batch, self.out_channels, self.rate, steps)
        y_BCT = y.transpose(2, 3).flatten(2)
        return y_BCT if self.bias is None else y_BCT + self.bias[:, None]


def _forget(module: nn.Module, _keys: object) -> None:
    assert isinstance(module, Upsample)
    module._matrix = None


class ResidualUnit(nn.Module, Streaming):
    """Two convolutions beside a way around them."""

    slots = 2

    def __init__(self, channels: int, dilation: int, groups: int) -> None:
        super().__init__()
        self.block = nn.Sequential(
            Snake(channels),
            Conv(channels, channels, KERNEL, dilation=dilation, groups=groups),
            Snake(channels),
            Conv(channels, channels),
        )

    def forward(self, x_BCT: Tensor) -> Tensor:
        """As long as its input."""
        y_BCT: Tensor = self.block(x_BCT)
        return x_BCT + y_BCT

    def begin(self, like: Tensor) -> list[Tensor]:
        """Of the wide convolution, and of the way around it."""
        return [*self.wide.begin(like), like.new_zeros(like.shape[0], self.wide.in_channels, 0)]

    def stream(self, x_BCT: Tensor, kept: Sequence[Tensor], last: bool) -> tuple[Tensor, list[Tensor]]:
        """See `Streaming`; the way around waits for the convolution."""
        y_BCT, wide = self.wide.stream(self.block[0](x_BCT), kept[:1], last)
        around_BCT = torch.cat([kept[1], x_BCT], -1)
        count = y_BCT.shape[-1]
        y_BCT = around_BCT[..., :count] + self.block[3](self.block[2](y_BCT))
        return y_BCT, [*wide, around_BCT[..., count:]]

    @property
    def wide(self) -> Conv:
        """The convolution that sees neighbours."""
        wide = self.block[1]
        assert isinstance(wide, Conv)
        return wide


class Noise(nn.Module):
    """Adds noise that is scaled by the signal: x + noise W x."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.linear = Conv(channels, channels, bias=False)

    def forward(self, x_BCT: Tensor, noise_B1T: Tensor) -> Tensor:
        """Noise is given from outside."""
        scale_BCT: Tensor = self.linear(x_BCT)
        return x_BCT + noise_B1T * scale_BCT


class EncoderBlock(nn.Module):
    """Residual units, then one step of `rate`; twice the channels."""

    def __init__(self, channels: int, rate: int, groups: int) -> None:
        super().__init__()
        down = nn.Conv1d(channels, 2 * channels, 2 * rate, rate, padding=upsampling_pad(rate))
        units = [ResidualUnit(channels, dilation, groups) for dilation in DILATIONS]
        self.block = nn.Sequential(*units, Snake(channels), down)

    def forward(self, x_BCT: Tensor) -> Tensor:
        """[B, C, T] to [B, 2 C, T / rate]."""
        y_BCT: Tensor = self.block(x_BCT)
        return y_BCT


class WindowAttention(nn.Module, Streaming):
    """Attention within windows that lie side by side, with rotary positions (Su et al. 2021) inside each window."""

    def __init__(self, channels: int, window: int) -> None:
        super().__init__()
        self.window, self.heads = window, channels // HEAD_WIDTH
        self.norm = nn.LayerNorm(channels)
        self.to_qkv = nn.Linear(channels, 3 * channels, bias=False)
        self.to_out = nn.Linear(channels, channels, bias=False)
        self.rel_pos = _Frequencies()

    def forward(self, x_BCT: Tensor) -> Tensor:
        """T is a multiple of the window."""
        batch, channels, steps = x_BCT.shape
        qkv = self.to_qkv(self.norm(x_BCT.transpose(1, 2)))
        # [3, B, windows, heads, steps of a window, width of a head]
        q, k, v = qkv.view(batch, -1, self.window, 3, self.heads, HEAD_WIDTH).permute(3, 0, 1, 4, 2, 5)
        angles = torch.arange(self.window, device=x_BCT.device).to(x_BCT.dtype)[:, None] * self.rel_pos.inv_freq
        y = F.scaled_dot_product_attention(_turn(q, angles), _turn(k, angles), v)
        y_BTC: Tensor = self.to_out(y.transpose(2, 3).reshape(batch, steps, channels))
        return x_BCT + y_BTC.transpose(1, 2)

    def begin(self, like: Tensor) -> list[Tensor]:
        """Nothing."""
        return [like.new_zeros(like.shape[0], self.norm.normalized_shape[0], 0)]

    def stream(self, x_BCT: Tensor, kept: Sequence[Tensor], last: bool) -> tuple[Tensor, list[Tensor]]:
        """See `Streaming`; whole windows come out, and the beginning of the next one is kept.

        Raises:
            InvalidInputError: The sequence ends within a window.
        """
        x_BCT = torch.cat([kept[0], x_BCT], -1)
        rest = x_BCT.shape[-1] % self.window
        whole = x_BCT.shape[-1] - rest
        if last and rest:
            raise InvalidInputError(
                f"the latents end {rest} steps into a window of {self.window}; send whole windows", field="codes"
            )
        return (self(x_BCT[..., :whole]) if whole else x_BCT[..., :0]), [x_BCT[..., whole:]]


class _Frequencies(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inv_freq: Tensor
        self.register_buffer("inv_freq", 10000.0 ** -(torch.arange(0, HEAD_WIDTH, 2).float() / HEAD_WIDTH))


def _turn(x: Tensor, angles: Tensor) -> Tensor:
    """Rotates the pairs (i, i + half) of the last axis."""
    a, b = x.chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
