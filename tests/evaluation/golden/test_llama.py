"""The check of a language model: it compares every tensor, takes its settings from the case, and sees what is wrong."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from torch import Tensor

from mstar_plan.evaluation.golden.check import check_folder

CASE = Path(__file__).parents[2] / "golden" / "orpheus_lm"
NAMES = {"logits_row0", "long_logits_last", "greedy", "greedy_rep", "step_logits_row0", "top_p_probs"}


def copied(tmp_path: Path) -> Path:
    folder = tmp_path / "orpheus_lm"
    shutil.copytree(CASE, folder)
    return folder


def configured(tmp_path: Path, **changes: object) -> Path:
    folder = copied(tmp_path)
    case = json.loads((folder / "case.json").read_text())
    case["config"] |= changes
    (folder / "case.json").write_text(json.dumps(case))
    return folder


def failing(folder: Path) -> set[str]:
    result = check_folder(folder)
    assert not result.failure, result.failure
    return {each.tensor.removeprefix("out.") for each in result.comparisons if not each.ok}


def test_it_compares_every_tensor() -> None:
    result = check_folder(CASE)
    assert result.ok
    assert result.kind == "orpheus_lm"
    assert {each.tensor.removeprefix("out.") for each in result.comparisons} == NAMES
    assert result.unchecked == ()


def test_a_case_of_another_name_is_known_by_what_it_holds(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    shutil.copytree(CASE, folder)
    case = json.loads((folder / "case.json").read_text())
    (folder / "case.json").write_text(json.dumps(case | {"case": "mine"}))
    assert check_folder(folder).kind == "orpheus_lm"


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"rms_norm_eps": 0.1}, NAMES),
        ({"runs": {"repetition_penalty": 0.2}}, {"greedy_rep", "top_p_probs"}),
        ({"runs": {"temperature": 5.0}}, {"top_p_probs"}),
        ({"runs": {"top_p": 0.3}}, {"top_p_probs"}),
    ],
)
def test_settings_come_from_the_case(tmp_path: Path, changes: dict[str, object], wrong: set[str]) -> None:
    found = failing(configured(tmp_path, **changes))
    assert found <= wrong
    assert "top_p_probs" in found


def test_the_stretch_of_frequencies_matters_far_from_the_start(tmp_path: Path) -> None:
    rope = {"rope_type": "default", "rope_theta": 500000.0}
    assert "long_logits_last" in failing(configured(tmp_path, rope_parameters=rope))


def test_an_answer_ends_at_its_end(tmp_path: Path) -> None:
    rows = load_file(CASE / "io.safetensors")["out.greedy"]
    third = int(rows[0, -8])
    assert "greedy" in failing(configured(tmp_path, eos_token_id=third))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("out.logits_row0", lambda t: t + 1e-3),
        ("out.long_logits_last", lambda t: t.flip(1)),
        ("out.greedy", lambda t: t.roll(1, 1)),
        ("out.greedy_rep", lambda t: t + (t == t[0, -1])),
        ("out.step_logits_row0", lambda t: t * 1.01),
        ("out.top_p_probs", lambda t: t.roll(1)),
    ],
)
def test_a_wrong_value_fails(tmp_path: Path, name: str, change: Callable[[Tensor], Tensor]) -> None:
    folder = copied(tmp_path)
    io = load_file(folder / "io.safetensors")
    io[name] = change(io[name]).contiguous()
    save_file(io, folder / "io.safetensors")
    assert failing(folder) == {name.removeprefix("out.")}


def test_padding_is_no_part_of_a_prompt(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    io = load_file(folder / "io.safetensors")
    io["in.attention_mask"][:] = 1
    save_file(io, folder / "io.safetensors")
    assert "greedy" in failing(folder)


def test_less_is_compared_where_less_is_there(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    io = load_file(folder / "io.safetensors")
    keep = ("in.", "out.greedy_rep")
    save_file({name: t for name, t in io.items() if name.startswith(keep)}, folder / "io.safetensors")
    assert [each.tensor for each in check_folder(folder).comparisons] == ["out.greedy_rep"]
