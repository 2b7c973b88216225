"""`mstar-plan convert` from a published bundle to a file that serves."""

from __future__ import annotations

from pathlib import Path

from mstar_plan.cli import main
from mstar_plan.models.registry import load_model_file

BUNDLE = Path(__file__).parents[1] / "golden" / "vjepa2_ac_checkpoint" / "model.pt"
SIZES = ["img_size=32", "num_frames=8", "num_heads=2", "predictor_heads=2"]


def test_convert_prints_the_report(tmp_path, capsys) -> None:
    target = tmp_path / "ac.safetensors"
    assert main(["convert", str(BUNDLE), str(target), "dtype=bfloat16", "name=mine", *SIZES]) == 0
    shown = capsys.readouterr().out
    assert "model.pt: vjepa2_ac, bundle layout" in shown
    assert "118,360 parameters" in shown
    assert "ignored: epoch, loss, encoder.module.backbone.pos_embed" in shown
    assert f"written to {target}" in shown
    assert load_model_file(target).spec.name == "mine"


def test_mistakes_are_one_line(tmp_path, capsys) -> None:
    target = tmp_path / "ac.safetensors"
    for words, said in (
        ([str(BUNDLE), str(target)], "give num_heads="),
        ([str(tmp_path / "no.pt"), str(target)], "nothing is downloaded"),
        ([str(BUNDLE), str(target), "dtype=int4"], "dtype"),
        ([str(BUNDLE), str(tmp_path / "ac.bin"), *SIZES], "needs to end in .safetensors"),
    ):
        assert main(["convert", *words]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert said in error
    assert not target.exists()
