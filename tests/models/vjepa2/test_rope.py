import math

import torch

from mstar_plan.models.vjepa2.rope import axis_channels, patch_places, rope_table, rotate


def test_a_head_is_cut_into_three_even_parts():
    assert [axis_channels(c) for c in (64, 32, 20, 24, 6)] == [20, 10, 6, 8, 2]


def test_patches_are_counted_by_column_then_row_then_frame():
    frames, rows, columns = patch_places(torch.tensor([0, 1, 4, 14, 15]), (3, 5))
    assert frames.tolist() == [0, 0, 0, 0, 1]
    assert rows.tolist() == [0, 0, 0, 2, 0]
    assert columns.tolist() == [0, 1, 4, 4, 0]


def test_the_table_is_tiled_over_a_part_and_leaves_the_rest_alone():
    cos, sin = rope_table(torch.tensor([2.0]), torch.tensor([0.0]), torch.tensor([3.0]), 20)
    assert cos.shape == (1, 20)
    omega = [1.0, 10000 ** (-1 / 3), 10000 ** (-2 / 3)]
    expected = [math.sin(2 * w) for w in omega] * 2 + [0.0] * 6 + [math.sin(3 * w) for w in omega] * 2 + [0.0] * 2
    assert torch.allclose(sin[0], torch.tensor(expected), atol=1e-6)
    assert torch.equal(cos[0, -2:], torch.ones(2))


def test_neighbours_are_turned():
    x = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    cos, sin = torch.tensor([[0.5, 0.6, 0.7, 0.8]]), torch.tensor([[0.1, 0.2, 0.3, 0.4]])
    found = rotate(x, cos, sin)
    assert torch.allclose(found, torch.tensor([[0.5 - 0.2, 1.2 + 0.2, 2.1 - 1.2, 3.2 + 1.2]]))
