"""Runs golden cases: picks the check of each, and tells what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch

from mstar_plan.errors import ConfigError, MStarError
from mstar_plan.evaluation.golden.ac_cem import check_ac_cem
from mstar_plan.evaluation.golden.ac_checkpoint import check_ac_checkpoint
from mstar_plan.evaluation.golden.ac_predictor import check_ac_predictor
from mstar_plan.evaluation.golden.case import CaseResult, Comparison, GoldenCase, load_case
from mstar_plan.evaluation.golden.encoder import check_encoder
from mstar_plan.evaluation.golden.flow_match_euler import check_flow_match_euler
from mstar_plan.evaluation.golden.hf import check_hf
from mstar_plan.evaluation.golden.llama import check_llama
from mstar_plan.evaluation.golden.masked_predictor import check_masked_predictor
from mstar_plan.evaluation.golden.orpheus_snac import check_orpheus_snac
from mstar_plan.evaluation.golden.pi0 import check_pi0
from mstar_plan.evaluation.golden.pi05 import check_pi05
from mstar_plan.evaluation.golden.smolvla import check_smolvla
from mstar_plan.evaluation.golden.vla_preprocess import check_vla_preprocess

Check = Callable[[GoldenCase], Iterator[Comparison]]

KINDS: Mapping[str, Check] = {
    "vjepa2_encoder_image": check_encoder,
    "vjepa2_encoder": check_encoder,
    "vjepa2_masked_predictor": check_masked_predictor,
    "vjepa2_hf": check_hf,
    "vjepa2_ac_predictor": check_ac_predictor,
    "vjepa2_ac_checkpoint": check_ac_checkpoint,
    "vjepa2_ac_cem": check_ac_cem,
    "orpheus_lm": check_llama,
    "orpheus_snac": check_orpheus_snac,
    "pi05": check_pi05,
    "pi0": check_pi0,
    "scheduler_flow_match_euler": check_flow_match_euler,
    "smolvla": check_smolvla,
    "vla_preprocess": check_vla_preprocess,
}
# A case of another name is known by what it holds: kind -> tensors of which all are there. First match wins.
SIGNS: Mapping[str, tuple[str, ...]] = {
    "vjepa2_hf": ("in.pixel_values_videos", "out.last_hidden_state"),
    "vjepa2_masked_predictor": ("in.masks_x", "in.masks_y"),
    "vjepa2_ac_predictor": ("in.tokens", "in.actions", "in.states"),
    "vjepa2_ac_checkpoint": ("in.frames", "out.encoded"),
    "vjepa2_ac_cem": ("in.frames", "out.context_rep"),
    "orpheus_lm": ("in.input_ids", "in.attention_mask", "out.greedy"),
    "orpheus_snac": ("in.codes0", "out.audio_zero_noise"),
    "pi0": ("in.input_ids", "in.pixel_attention_mask", "in.state", "in.noise"),
    "scheduler_flow_match_euler": ("in.x0", "in.v"),
    "vla_preprocess": ("in.state_normalised", "out.state_bins"),
    "smolvla": ("in.image0", "in.tokens", "in.state", "in.noise"),
    "pi05": ("in.image0", "in.tokens", "in.token_mask", "in.noise"),  # last: SmolVLA has a state beside these
}


def find_kind(case: GoldenCase, folder: Path) -> str:
    """The kind of a case by the start of its name or of its folder's, then by its tensors; empty if none fits."""
    for name in (case.name, folder.name):
        for kind in KINDS:  # the longer of two that fit stands first
            if name.startswith(kind):
                return kind
    for kind, needed in SIGNS.items():
        if case.has(*needed):
            return kind
    if "tubelet_size" in case.config and any(name.startswith(("in.video", "in.image")) for name in case.io):
        return "vjepa2_encoder"
    return ""


def check_folder(folder: Path) -> CaseResult:
    """Runs one case, whatever is wrong with it."""
    kind, done, case = "", [], None
    try:
        case = load_case(folder)
        kind = find_kind(case, folder)
        if not kind:
            return CaseResult(case.name)
        with torch.inference_mode():
            for comparison in KINDS[kind](case):
                done.append(comparison)
    except (MStarError, RuntimeError, KeyError, TypeError, ValueError, IndexError) as error:
        failure = f"{type(error).__name__}: {error}"
        return CaseResult(case.name if case else folder.name, kind, tuple(done), failure=failure)
    checked = {each.tensor for each in done}
    known = ("out.", "mid.")
    unchecked = tuple(n for n in sorted(case.io) if n.startswith(known) and n not in checked and "noise" not in n)
    failure = "" if done else "the case holds nothing that its kind compares"
    return CaseResult(case.name, kind, tuple(done), unchecked, failure)


def find_cases(folder: Path) -> list[Path]:
    """The folder itself if it is a case, else the cases in it, by name.

    Raises:
        ConfigError: There is none.
    """
    if (folder / "case.json").is_file():
        return [folder]
    found = sorted(path.parent for path in folder.glob("*/case.json"))
    if not found:
        raise ConfigError(f"{folder} holds no case.json, nor do the folders in it; give a folder of golden cases")
    return found
