"""Layers part by part: put together, what they give is what they give at once."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from mstar_plan.errors import InvalidInputError
from mstar_plan.models.snac.layers import Conv, Noise, ResidualUnit, Snake, Streaming, Upsample, WindowAttention

LAYERS = {
    "conv": lambda: Conv(6, 4, 7, groups=2),
    "dilated": lambda: Conv(6, 6, 7, dilation=9, groups=6),
    "point": lambda: Conv(6, 3),
    "up even": lambda: Upsample(6, 3, 4),
    "up odd": lambda: Upsample(6, 3, 3),
    "up two": lambda: Upsample(6, 3, 2),
    "residual": lambda: ResidualUnit(6, 3, 6),
    "attention": lambda: WindowAttention(64, 4),
}


def layer_of(name: str) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(3)
    layer = LAYERS[name]().double()
    return layer, torch.randn(2, 64 if name == "attention" else 6, 40, dtype=torch.float64)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("cuts", [(1,) * 40, (40,), (7, 0, 1, 20, 0, 12), (39, 1), (0, 0, 40)])
@pytest.mark.parametrize("end_alone", [False, True])
@torch.inference_mode()
def test_parts_are_the_whole(name: str, cuts: tuple[int, ...], end_alone: bool) -> None:
    layer, x = layer_of(name)
    assert isinstance(layer, Streaming)
    kept, out = layer.begin(x), []
    assert len(kept) == layer.slots
    parts = [*x.split(cuts, -1), *([x[..., :0]] if end_alone else [])]
    for number, part in enumerate(parts):
        y, kept = layer.stream(part, kept, number == len(parts) - 1)
        assert len(kept) == layer.slots
        out.append(y)
    torch.testing.assert_close(torch.cat(out, -1), layer(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", LAYERS)
def test_no_input_gives_no_output(name: str) -> None:
    layer, x = layer_of(name)
    assert isinstance(layer, Streaming)
    y, kept = layer.stream(x[..., :0], layer.begin(x), False)
    assert y.shape[-1] == 0
    y, _ = layer.stream(x[..., :0], kept, True)
    assert y.shape[-1] == 0


@torch.inference_mode()
def test_memory_does_not_grow() -> None:
    for name in LAYERS:
        layer, x = layer_of(name)
        assert isinstance(layer, Streaming)
        kept, sizes = layer.begin(x), []
        for _ in range(12):
            _, kept = layer.stream(x, kept, False)
            sizes.append(sum(each.shape[-1] for each in kept))
        assert sizes[0] == sizes[-1] < 100, name


def test_windows_do_not_see_each_other_and_must_be_whole() -> None:
    layer, x = layer_of("attention")
    assert isinstance(layer, WindowAttention)
    other = x.clone()
    other[..., 4:] = 0
    torch.testing.assert_close(layer(x)[..., :4], layer(other)[..., :4])
    assert not torch.allclose(layer(x)[..., 4:], layer(other)[..., 4:])
    with pytest.raises(InvalidInputError, match="1 steps into a window of 4"):
        layer.stream(x[..., :5], layer.begin(x), True)


def test_attention_turns_by_place() -> None:
    """Swapping two steps of a window swaps no more than them only where places do not count."""
    layer, x = layer_of("attention")
    swapped = x[..., [1, 0, *range(2, 40)]]
    assert not torch.allclose(layer(x)[..., 2], layer(swapped)[..., 2])


def test_snake_and_noise() -> None:
    snake = Snake(2)
    snake.alpha.data[:] = torch.tensor([0.5, 2.0]).view(1, 2, 1)
    x = torch.linspace(-2, 2, 10).view(1, 2, 5)
    want = x + torch.sin(snake.alpha * x) ** 2 / snake.alpha
    torch.testing.assert_close(snake(x), want)
    noise = Noise(2)
    torch.testing.assert_close(noise(x, torch.zeros(1, 1, 5)), x)
    torch.testing.assert_close(noise(x, torch.full((1, 1, 5), 2.0)), x + 2 * noise.linear(x))


@pytest.mark.parametrize("rate", [2, 3, 8])
def test_upsampling_is_torchs_own(rate: int) -> None:
    layer, x = Upsample(4, 3, rate).double(), torch.randn(2, 4, 9, dtype=torch.float64)
    want = nn.ConvTranspose1d.forward(layer, x)
    torch.testing.assert_close(layer(x), want, rtol=0, atol=1e-12)
    assert want.shape[-1] == 9 * rate


@torch.inference_mode()
def test_upsampling_follows_its_weights() -> None:
    x = torch.randn(1, 4, 5)
    for change in (
        lambda layer: layer.load_state_dict(Upsample(4, 3, 2).state_dict()),
        lambda layer: layer.load_state_dict(Upsample(4, 3, 2).state_dict(), assign=True),
        lambda layer: layer.double(),
    ):
        layer = Upsample(4, 3, 2).requires_grad_(False)
        before = layer(x)
        change(layer)
        after = layer(x.to(layer.weight.dtype))
        torch.testing.assert_close(after, nn.ConvTranspose1d.forward(layer, x.to(layer.weight.dtype)))
        assert after.dtype != before.dtype or not torch.allclose(after, before)
