"""The action-conditioned predictor: sequences of several lengths, extrinsics, grids that are not square."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from mstar_plan.evaluation.golden.case import Comparison, GoldenCase, numbered, sized
from mstar_plan.models.vjepa2.ac_predictor import ACPredictor, frame_causal_mask
from mstar_plan.models.vjepa2.config import ACPredictorConfig


def check_ac_predictor(case: GoldenCase) -> Iterator[Comparison]:
    """out.TN and out.ext_TN for the first N frames, out.nonsquare_TN, the mask, hidden states after blocks."""
    for prefix, extrinsics in (("", False), ("ext_", True)):
        predictor = _predictor(case, sized(ACPredictorConfig, case.config, use_extrinsics=extrinsics))
        for name, frames in numbered(case, f"out.{prefix}T"):
            yield from _run(case, predictor, name, frames)
        for name, frames in numbered(case, f"out.{prefix}nonsquare_T"):
            yield _nonsquare(case, name, frames, extrinsics)
        mask = f"mid.{prefix}attn_mask"
        if case.has(mask):
            per_frame = predictor.config.sequence_per_frame
            yield case.compare(mask, frame_causal_mask(case.io[mask].shape[0] // per_frame, per_frame))


def _predictor(case: GoldenCase, config: ACPredictorConfig) -> ACPredictor:
    predictor = ACPredictor(config)
    predictor.load_state_dict(case.weights())
    return predictor


def _run(case: GoldenCase, predictor: ACPredictor, name: str, frames: int) -> Iterator[Comparison]:
    after: dict[str, Tensor] = {}
    hooks = []
    for block, module in enumerate(predictor.predictor_blocks):
        wanted = f"mid.block{block}_{name.removeprefix('out.')}"
        if case.has(wanted):
            hooks.append(module.register_forward_hook(lambda _, __, out, at=wanted: after.update({at: out})))
    tokens = case.input("tokens")[:, : frames * predictor.config.tokens_per_frame]
    yield case.compare(name, predictor(tokens, *_conditions(case, predictor.config, tokens.shape[0], frames)))
    for hook in hooks:
        hook.remove()
    for wanted, hidden in after.items():
        yield case.compare(wanted, hidden)


def _nonsquare(case: GoldenCase, name: str, frames: int, extrinsics: bool) -> Comparison:
    """The grid has the rows of the configuration, and as many columns as the tokens say."""
    square = sized(ACPredictorConfig, case.config)
    tokens = case.input("tokens_nonsquare")
    columns = tokens.shape[1] // (frames * square.grid[0])
    size = (square.img_size[0], columns * square.patch_size)
    config = sized(ACPredictorConfig, case.config, img_size=size, use_extrinsics=extrinsics)
    predictor = _predictor(case, config)
    return case.compare(name, predictor(tokens, *_conditions(case, config, tokens.shape[0], frames)))


def _conditions(case: GoldenCase, config: ACPredictorConfig, batch: int, frames: int) -> list[Tensor]:
    names = ("actions", "states", "extrinsics") if config.use_extrinsics else ("actions", "states")
    return [case.input(name)[:batch, :frames] for name in names]
