"""A block laid out for rollouts against the block that it is made of."""

import torch

from mstar_plan.models.vjepa2.blocks import Block
from mstar_plan.models.vjepa2.config import EncoderConfig
from mstar_plan.models.vjepa2.rollout_block import RolloutBlock, Rotation, Segment, Workspace, reorder_heads
from mstar_plan.models.vjepa2.rope import rope_table

CONFIG = EncoderConfig(img_size=(16, 16), patch_size=8, embed_dim=24, depth=1, num_heads=2)
R, S, HEADS, CHANNELS = 3, 5, 2, 12


def test_reordered_heads_have_their_even_channels_first():
    weight = torch.arange(36.0)[:, None].expand(-1, 12).contiguous()  # 3 x 12 rows, numbered; two heads of 6 channels
    found, bias = reorder_heads(weight, torch.arange(36.0), 2)
    first = [0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11]
    assert bias.tolist() == [*first, *(12 + i for i in first), *range(24, 36)]
    assert found[:, 0].tolist() == bias.tolist()


@torch.inference_mode()
def test_one_frame_comes_out_as_from_the_block_with_and_without_known_projections():
    torch.manual_seed(0)
    block = Block(CONFIG).eval()
    place = torch.arange(S)
    table = rope_table(place, place, place, CHANNELS)
    x = torch.randn(R, S, 24)
    fast = RolloutBlock(block, 0, rows=R * S)
    keys, values = torch.empty(2, R, HEADS, S, CHANNELS)
    new = keys.transpose(1, 2), values.transpose(1, 2)
    segment = Segment(slice(0, R), [keys], [values], [new[0]], [new[1]], None)
    space = Workspace(R, S, HEADS, CHANNELS, x)
    expected = block(x, table)
    for known in (None, fast.project(x[:, 2:].contiguous())):
        found = fast(x, Rotation.of(table, torch.float32), [segment], space, known)
        assert (found - expected).abs().max() < 1e-5
