"""Quantisation: nearest in direction, coarse books first, each coding the rest."""

from __future__ import annotations

import pytest
import torch
from toy_speech import SIZES, toy_codes

from mstar_plan.errors import InvalidInputError
from mstar_plan.models.snac.quantiser import Book, Quantiser


def quantiser() -> Quantiser:
    torch.manual_seed(0)
    return Quantiser(SIZES).double().requires_grad_(False)


def test_codes_are_nearest_in_direction() -> None:
    book = Book(SIZES, 1).double()
    z = torch.randn(1, SIZES.width, 9, dtype=torch.float64)
    x = torch.nn.functional.normalize(book.in_proj(z)[0].T, dim=-1)
    table = torch.nn.functional.normalize(book.codebook.weight, dim=-1)
    assert torch.equal(book.nearest(z)[0], torch.cdist(x, table).argmin(-1))


def test_coarse_codes_stand_for_means_and_repeat() -> None:
    book = Book(SIZES, 4).double()
    z = torch.randn(1, SIZES.width, 8, dtype=torch.float64)
    mean = z.unflatten(-1, (2, 4)).mean(-1)
    single = Book(SIZES, 1).double()
    single.load_state_dict(book.state_dict())
    assert torch.equal(book.nearest(z), single.nearest(mean))
    vectors = book.vectors(torch.tensor([[3, 5]]))
    assert torch.equal(vectors, single.vectors(torch.tensor([[3, 3, 3, 3, 5, 5, 5, 5]])))


def test_each_book_codes_what_is_left() -> None:
    model = quantiser()
    z = torch.randn(2, SIZES.width, 8, dtype=torch.float64)
    codes = model.encode(z)
    assert [list(each.shape) for each in codes] == [[2, 2], [2, 4], [2, 8]]
    rest = z
    for book, found in zip(model.quantizers, codes, strict=True):
        assert torch.equal(book.nearest(rest), found)
        rest = rest - book.vectors(found)
    torch.testing.assert_close(z - model.decode(codes), rest)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda codes: codes[:2], "send 3 books"),
        (lambda codes: [codes[0], codes[1], codes[2][:, :-1]], "shapes"),
        (lambda codes: [each[0] for each in codes], "shapes"),
        (lambda codes: [codes[0] + 16, *codes[1:]], "send 0 to 15"),
        (lambda codes: [codes[0], codes[1], codes[2] - 20], "send 0 to 15"),
    ],
)
def test_refused(change, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        quantiser().decode(change(toy_codes(SIZES, 2)))
