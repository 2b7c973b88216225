"""Golden parity: every case of the repository, cases of other sizes, and cases that must not pass."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from mstar_plan.errors import ConfigError
from mstar_plan.evaluation.golden.case import load_case
from mstar_plan.evaluation.golden.check import KINDS, check_folder, find_cases, find_kind
from mstar_plan.models.vjepa2.ac_predictor import ACPredictor
from mstar_plan.models.vjepa2.config import ACPredictorConfig, EncoderConfig
from mstar_plan.models.vjepa2.encoder import VJEPA2Encoder

ROOT = Path(__file__).parents[3]
CASES = ROOT / "tests" / "golden"
# Tensors that some check must compare, beside all that have a known name.
MANY = {"vjepa2_encoder": 8, "vjepa2_ac_predictor": 9, "vjepa2_hf": 5, "vjepa2_ac_checkpoint": 3, "vjepa2_ac_cem": 36}


@pytest.mark.parametrize("folder", find_cases(CASES), ids=lambda p: p.name)
def test_equals_the_published_code(folder: Path) -> None:
    result = check_folder(folder)
    assert result.ok, [each for each in result.comparisons if not each.ok] or result.failure
    assert len(result.comparisons) >= MANY.get(folder.name, 2)
    assert not result.unchecked


def test_every_kind_has_a_case() -> None:
    assert {find_kind(load_case(folder), folder) for folder in find_cases(CASES)} == set(KINDS)


def test_a_case_of_another_name_is_known_by_its_tensors(tmp_path: Path) -> None:
    for folder in find_cases(CASES):
        copy = tmp_path / f"case_{folder.name}"
        shutil.copytree(folder, copy)
        (copy / "case.json").write_text((copy / "case.json").read_text().replace('"case": "', '"case": "other_'))
        result = check_folder(copy)
        assert result.ok, result
        assert KINDS[result.kind] is KINDS[folder.name]


def write_case(folder: Path, name: str, config: dict, weights: dict, io: dict) -> Path:
    folder.mkdir()
    tolerance = {"atol": 1e-5, "rtol": 1e-4}
    (folder / "case.json").write_text(json.dumps({"case": name, "config": config, "tolerance": tolerance}))
    save_file({key: value.contiguous() for key, value in weights.items()}, folder / "weights.safetensors")
    save_file({key: value.contiguous() for key, value in io.items()}, folder / "io.safetensors")
    return folder


@torch.inference_mode()
def test_other_sizes_and_fewer_tensors(tmp_path: Path) -> None:
    torch.manual_seed(1)
    config = {"img_size": 24, "patch_size": 4, "num_frames": 6, "tubelet_size": 3, "embed_dim": 36, "depth": 1}
    config |= {"num_heads": 3, "mlp_ratio": 2.0, "use_sdpa": True}
    encoder = VJEPA2Encoder(EncoderConfig(**{k: v for k, v in config.items() if k != "use_sdpa"}))
    clip = torch.randn(1, 3, 3, 24, 24)
    io = {"in.video_t3": clip, "out.t3": encoder(clip), "out.unheard_of": clip + 1}
    result = check_folder(write_case(tmp_path / "e", "vjepa2_encoder_s7", config, encoder.state_dict(), io))
    assert result.ok
    assert [each.tensor for each in result.comparisons] == ["out.t3"]
    assert result.unchecked == ("out.unheard_of",)

    config |= {"predictor_embed_dim": 12, "num_heads": 1, "action_embed_dim": 5, "is_frame_causal": True}
    sizes = {k: v for k, v in config.items() if k not in ("use_sdpa", "is_frame_causal")}
    predictor = ACPredictor(ACPredictorConfig(**{**sizes, "img_size": (24, 32)}))
    tokens, conditions = torch.randn(2, 2 * 48, 36), torch.randn(2, 2, 5)
    io = {"in.tokens_nonsquare": tokens, "in.actions": conditions, "in.states": conditions.flip(0)}
    io["out.nonsquare_T2"] = predictor(tokens, io["in.actions"], io["in.states"])
    assert check_folder(write_case(tmp_path / "p", "vjepa2_ac_predictor_wide", config, predictor.state_dict(), io)).ok


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t + 1e-3, ""),
        (lambda t: t[:1], "shape"),
        (lambda t: t * float("nan"), ""),
    ],
)
def test_a_wrong_value_fails(tmp_path: Path, change, said: str) -> None:
    folder = tmp_path / "vjepa2_encoder_image"
    shutil.copytree(CASES / folder.name, folder)
    io = load_file(folder / "io.safetensors")
    io["out.image"] = change(io["out.image"]).contiguous()
    save_file(io, folder / "io.safetensors")
    result = check_folder(folder)
    assert not result.ok
    wrong = [each for each in result.comparisons if not each.ok]
    assert [each.tensor for each in wrong] == ["out.image"]
    assert said in wrong[0].note


def test_masks_and_ids_must_be_equal(tmp_path: Path) -> None:
    folder = tmp_path / "vjepa2_ac_predictor"
    shutil.copytree(CASES / folder.name, folder)
    io = load_file(folder / "io.safetensors")
    io["mid.attn_mask"][0, -1] = True
    save_file(io, folder / "io.safetensors")
    wrong = [each for each in check_folder(folder).comparisons if not each.ok]
    assert [(each.tensor, each.note) for each in wrong] == [("mid.attn_mask", "1 differ")]


def test_what_is_not_computed_here_fails_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "vjepa2_encoder_image"
    shutil.copytree(CASES / folder.name, folder)
    case = json.loads((folder / "case.json").read_text())
    case["config"]["use_silu"] = True
    (folder / "case.json").write_text(json.dumps(case))
    assert "use_silu is True" in check_folder(folder).failure


def test_a_case_without_expected_values_does_not_pass(tmp_path: Path) -> None:
    folder = tmp_path / "vjepa2_encoder"
    shutil.copytree(CASES / folder.name, folder)
    save_file({"in.video_t2": torch.zeros(1, 3, 2, 32, 32)}, folder / "io.safetensors")
    result = check_folder(folder)
    assert not result.ok
    assert "nothing" in result.failure


def test_no_case_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no case\.json"):
        find_cases(tmp_path)


def run_script(folder: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, str(ROOT / "scripts" / "check_golden.py"), str(folder)]
    return subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)


def test_script_exit_codes(tmp_path: Path) -> None:
    for name in ("vjepa2_encoder_image", "vjepa2_masked_predictor"):
        shutil.copytree(CASES / name, tmp_path / name)
    (tmp_path / "unknown").mkdir()
    (tmp_path / "unknown" / "case.json").write_text("{}")
    done = run_script(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "2 of 2 cases ok, 1 skipped" in done.stdout
    io = load_file(tmp_path / "vjepa2_encoder_image" / "io.safetensors")
    io["out.image"][0, 0, 0] += 0.01
    save_file(io, tmp_path / "vjepa2_encoder_image" / "io.safetensors")
    done = run_script(tmp_path)
    assert done.returncode == 1
    assert "FAIL" in done.stdout
    assert run_script(tmp_path / "nothing").returncode == 2
