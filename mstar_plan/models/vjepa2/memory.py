"""What a rollout holds at its peak, computed from its sizes.

Shapes: K candidates, H horizon, R rows of a chunk, L blocks, S tokens of a frame, N patches, D and W widths of encoder
and predictor.
"""

from __future__ import annotations

from mstar_plan.models.vjepa2.config import ACPredictorConfig


def cache_bytes(config: ACPredictorConfig, candidates: int, horizon: int, element: int) -> int:
    """Keys and values of all predicted frames: 2 L K H S W elements."""
    return 2 * config.depth * candidates * horizon * config.sequence_per_frame * config.width * element


def latent_bytes(config: ACPredictorConfig, candidates: int, horizon: int, element: int) -> int:
    """Predicted frames: each as it is made, all side by side for the score, and those of the iteration before."""
    return 3 * candidates * horizon * config.tokens_per_frame * config.embed_dim * element


def chunk_bytes(config: ACPredictorConfig, rows: int, element: int) -> int:
    """Activations of a chunk in a block: residual, norm, q k v, rotated q k, attention, the MLP's middle."""
    wide = 2 + 3 + 2 + 2 + config.mlp_ratio
    return int(rows * config.sequence_per_frame * config.width * wide * element)


def rollout_bytes(config: ACPredictorConfig, candidates: int, horizon: int, rows: int, element: int) -> int:
    """All of it."""
    return (
        cache_bytes(config, candidates, horizon, element)
        + latent_bytes(config, candidates, horizon, element)
        + chunk_bytes(config, min(rows, candidates), element)
    )
