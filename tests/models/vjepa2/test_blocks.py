"""The block: attention behind earlier tokens, and how its weights begin."""

import torch

from mstar_plan.models.vjepa2.blocks import Block, init_weights, make_blocks
from mstar_plan.models.vjepa2.config import EncoderConfig
from mstar_plan.models.vjepa2.rope import rope_table

CONFIG = EncoderConfig(img_size=(16, 16), patch_size=8, embed_dim=24, depth=3, num_heads=2)


@torch.inference_mode()
def test_the_last_tokens_come_out_the_same_behind_kept_keys_and_values():
    block = Block(CONFIG).eval()
    x = torch.randn(2, 6, 24)
    place = torch.arange(6)
    cos, sin = rope_table(place, place, place, 12)
    causal = torch.ones(6, 6, dtype=torch.bool).tril()
    whole = block(x, (cos, sin), causal)
    past = None
    for t in range(6):
        y, past = block.step(x[:, t : t + 1], (cos[t : t + 1], sin[t : t + 1]), None, past)
    assert torch.allclose(y[:, 0], whole[:, -1], atol=1e-5)


def test_the_ends_of_branches_start_smaller_with_depth():
    torch.manual_seed(0)
    blocks = make_blocks(CONFIG)
    init_weights(blocks, blocks)
    spread = [block.attn.proj.weight.std().item() for block in blocks]
    assert spread == sorted(spread, reverse=True)
    assert all(not parameter.any() for name, parameter in blocks.named_parameters() if name.endswith("proj.bias"))
