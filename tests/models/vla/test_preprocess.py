"""Pictures, states and prompts before the model: by hand, at the edges, and what is refused."""

from __future__ import annotations

import pytest
import torch

from mstar_plan.errors import ConfigError, InvalidInputError, LimitExceededError
from mstar_plan.models.vla.preprocess import (
    MAX_SIDE,
    discretise_state,
    pad_last,
    pi05_prompt,
    resize_with_pad,
    task_line,
    to_signed,
)


def filled(images: torch.Tensor) -> tuple[list[int], list[int]]:
    """Rows and columns of the first picture that hold something."""
    there = images[0].abs().sum(-1) > 0
    return there.any(1).nonzero().flatten().tolist(), there.any(0).nonzero().flatten().tolist()


@pytest.mark.parametrize("kind", [torch.uint8, torch.float32])
def test_where_the_padding_goes(kind: torch.dtype) -> None:
    wide = torch.ones(1, 10, 20, 3, dtype=kind)
    tall = wide.transpose(1, 2).contiguous()
    every = list(range(8))
    assert filled(resize_with_pad(wide, 8, 8, rule="pi")) == ([2, 3, 4, 5], every)
    assert filled(resize_with_pad(tall, 8, 8, rule="pi")) == (every, [2, 3, 4, 5])
    assert filled(resize_with_pad(wide, 8, 8, rule="smolvla")) == ([4, 5, 6, 7], every)
    assert filled(resize_with_pad(tall, 8, 8, rule="smolvla")) == (every, [4, 5, 6, 7])
    assert filled(resize_with_pad(wide, 7, 8, rule="pi"))[0] == [1, 2, 3, 4]  # the odd row goes below
    assert resize_with_pad(wide, 5, 9, rule="pi").shape == (1, 5, 9, 3)
    assert resize_with_pad(wide, 8, 8, rule="pi").dtype == kind


def test_floats_are_clamped_by_one_rule_only() -> None:
    loud = torch.full((1, 4, 4, 3), 1.5)
    assert resize_with_pad(loud, 4, 4, rule="pi").max() == 1.0
    assert resize_with_pad(loud, 4, 4, rule="smolvla") is loud
    assert resize_with_pad(loud, 8, 8, rule="smolvla").max() == 1.5


def test_halving_takes_means_of_four() -> None:
    image = torch.arange(16, dtype=torch.float32).view(1, 4, 4, 1) / 16
    halved = resize_with_pad(image, 2, 2, rule="smolvla")[0, ..., 0]
    assert torch.allclose(halved, torch.tensor([[2.5, 4.5], [10.5, 12.5]]) / 16)


def test_a_thin_picture_keeps_a_pixel() -> None:
    assert resize_with_pad(torch.ones(1, 1, 200, 3), 8, 8, rule="pi").sum() == 24


@pytest.mark.parametrize(
    ("images", "size", "rule", "error", "said"),
    [
        (torch.zeros(1, 4, 4, 3), (8, 8), "smol", ConfigError, "did you mean 'smolvla'"),
        (torch.zeros(4, 4, 3), (8, 8), "pi", InvalidInputError, r"\[B, H, W, 3\]"),
        (torch.zeros(1, 3, 8, 8), (8, 8), "pi", InvalidInputError, r"\[B, H, W, 3\]"),
        (torch.zeros(1, 0, 4, 3), (8, 8), "pi", InvalidInputError, r"\[B, H, W, 3\]"),
        (torch.zeros(1, 4, 4, 3, dtype=torch.int64), (8, 8), "pi", InvalidInputError, "uint8"),
        (torch.zeros(1, 4, 4, 3), (0, 8), "pi", ConfigError, "height is 0"),
        (torch.zeros(1, 4, 4, 3), (8, MAX_SIDE + 1), "pi", LimitExceededError, "at most"),
        (torch.zeros(1, 1, MAX_SIDE + 1, 1), (8, 8), "pi", LimitExceededError, "at most"),
    ],
)
def test_pictures_that_are_refused(images, size, rule, error, said) -> None:
    with pytest.raises(error, match=said):
        resize_with_pad(images, *size, rule=rule)


def test_signed_pictures() -> None:
    assert torch.equal(to_signed(torch.tensor([0, 255], dtype=torch.uint8)), torch.tensor([-1.0, 1.0]))
    assert torch.equal(to_signed(torch.tensor([0.0, 0.5, 1.0])), torch.tensor([-1.0, 0.0, 1.0]))


def test_bins_at_the_edges() -> None:
    edge = 1 / 128
    state = torch.tensor([-1.0, -1.0 - 1e-6, -1.0 + edge, 0.0, -1e-7, 1.0 - edge, 1.0, 7.0, -7.0])
    assert discretise_state(state).tolist() == [0, -1, 1, 128, 127, 255, 255, 255, -1]
    assert discretise_state(torch.zeros(2, 3)).shape == (2, 3)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_state_must_be_finite(bad: float) -> None:
    with pytest.raises(InvalidInputError, match="NaN or infinity"):
        pi05_prompt("go", torch.tensor([0.0, bad]))


def test_prompts() -> None:
    state = torch.tensor([-1.0, 0.0])
    assert pi05_prompt(" pick_up\nit ", state) == "Task: pick up it, State: 0 128;\nAction: "
    assert task_line("go") == "go\n"
    assert task_line("go\n") == "go\n"
    with pytest.raises(InvalidInputError, match=r"\[D\]"):
        pi05_prompt("go", state[None])


def test_padding_of_vectors() -> None:
    assert pad_last(torch.ones(2, 3), 5).tolist() == [[1, 1, 1, 0, 0]] * 2
    with pytest.raises(InvalidInputError, match="over the model's 2"):
        pad_last(torch.ones(3), 2)
