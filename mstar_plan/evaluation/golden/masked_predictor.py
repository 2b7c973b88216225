"""The predictor of masked tokens."""

from __future__ import annotations

from collections.abc import Iterator

from mstar_plan.evaluation.golden.case import Comparison, GoldenCase, numbered, sized
from mstar_plan.models.vjepa2.config import MaskedPredictorConfig
from mstar_plan.models.vjepa2.masked_predictor import VJEPA2MaskedPredictor


def check_masked_predictor(case: GoldenCase) -> Iterator[Comparison]:
    """out.mask_indexI for every I."""
    predictor = VJEPA2MaskedPredictor(sized(MaskedPredictorConfig, case.config))
    predictor.load_state_dict(case.weights())
    for name, index in numbered(case, "out.mask_index"):
        ours = predictor(case.input("context"), case.input("masks_x"), case.input("masks_y"), index)
        yield case.compare(name, ours)
