"""The V-JEPA 2 predictor of masked tokens.

Shapes: B batch, K context tokens, M target tokens, D width of the encoder.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mstar_plan.models.vjepa2.blocks import init_weights, make_blocks
from mstar_plan.models.vjepa2.config import MaskedPredictorConfig
from mstar_plan.models.vjepa2.rope import patch_places, rope_table


class VJEPA2MaskedPredictor(nn.Module):
    """Predicts encoder tokens at hidden places from those at visible ones.

    Args:
        config: Its sizes.
    """

    def __init__(self, config: MaskedPredictorConfig) -> None:
        super().__init__()
        self.config = config
        width = config.predictor_embed_dim
        self.predictor_embed = nn.Linear(config.embed_dim, width)
        self.mask_tokens = nn.ParameterList(
            nn.Parameter(torch.zeros(1, 1, width)) for _ in range(config.num_mask_tokens)
        )
        self.predictor_blocks = make_blocks(config)
        self.predictor_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.predictor_proj = nn.Linear(width, config.embed_dim)
        init_weights(self, self.predictor_blocks)

    def forward(self, context: Tensor, context_ids: Tensor, target_ids: Tensor, mask_index: int = 1) -> Tensor:
        """Predicts the tokens at the targets.

        Attention does not ask for an order, so that tokens stay as they come (the published code sorts them by id and
        back again, to the same effect).

        Args:
            context: [B, K, D] encoder tokens.
            context_ids: [B, K] their ids.
            target_ids: [B, M] ids to predict.
            mask_index: Which learned mask token stands at the targets, modulo their number.

        Returns:
            [B, M, D].
        """
        token = self.mask_tokens[mask_index % len(self.mask_tokens)]
        targets = token.expand(context.shape[0], target_ids.shape[1], -1)
        x = torch.cat([self.predictor_embed(context), targets], 1)
        rows = self.config.grid[0]
        ids = torch.cat([context_ids, target_ids], 1)[:, None]  # one axis for the heads
        # Published: the grid is square with as many columns as rows, whatever the width of the picture.
        table = rope_table(*patch_places(ids, (rows, rows)), self.config.width // self.config.num_heads)
        for block in self.predictor_blocks:
            x = block(x, table)
        out: Tensor = self.predictor_proj(self.predictor_norm(x)[:, context.shape[1] :])
        return out
