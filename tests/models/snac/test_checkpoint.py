"""Published codec folders, whole and damaged."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from toy_speech import KINDS, toy_codec, toy_codes, unfolded, write_snac

from mstar_plan.errors import WeightsError
from mstar_plan.models.snac.checkpoint import build_snac, fold_weight_norm, load_snac


@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_a_published_folder_is_read(kind: str, tmp_path: Path) -> None:
    codec = toy_codec(KINDS[kind]).float()
    write_snac(tmp_path, codec)
    read, codes = load_snac(tmp_path), toy_codes(codec.config, 4)
    assert not read.training
    torch.testing.assert_close(read.decode(codes), codec.decode(codes), rtol=0, atol=1e-5)


@torch.inference_mode()
def test_safetensors_and_old_names(tmp_path: Path) -> None:
    codec = toy_codec().float()
    write_snac(tmp_path, codec)
    (tmp_path / "pytorch_model.bin").unlink()
    old = {
        name.replace(".parametrizations.weight.original0", ".weight_g").replace(
            ".parametrizations.weight.original1", ".weight_v"
        ): tensor.contiguous()
        for name, tensor in unfolded(codec).items()
    }
    assert any(name.endswith(".weight_g") for name in old)
    save_file(old, tmp_path / "model.safetensors")
    codes = toy_codes(codec.config, 4)
    torch.testing.assert_close(load_snac(tmp_path).decode(codes), codec.decode(codes), rtol=0, atol=1e-5)


def test_folding() -> None:
    folded = fold_weight_norm(
        {
            "a.parametrizations.weight.original0": torch.tensor([2.0, 3.0]).view(2, 1, 1),
            "a.parametrizations.weight.original1": torch.tensor([[[3.0, 4.0]], [[0.0, 5.0]]]),
        }
    )
    torch.testing.assert_close(folded, {"a.weight": torch.tensor([[[1.2, 1.6]], [[0.0, 3.0]]])})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda s: s.pop("decoder.model.0.parametrizations.weight.original1"), "lacks its partner"),
        (lambda s: s.pop("decoder.model.0.parametrizations.weight.original0"), "lacks its partner"),
        (lambda s: s.pop("decoder.model.0.bias"), "lack tensor decoder.model.0.bias"),
        (lambda s: s.update(more=torch.zeros(1)), "hold tensor more"),
        (lambda s: s.update({"decoder.model.0.bias": torch.zeros(3)}), "asks for"),
        (lambda s: s["decoder.model.0.bias"].fill_(torch.nan), "NaN"),
        (
            lambda s: s.update({"decoder.model.0.parametrizations.weight.original0": torch.ones(1, 1, 1)}),
            "one number for each",
        ),
    ],
)
def test_what_does_not_fit_is_named(change, said: str) -> None:
    codec = toy_codec().float()
    state = {name: tensor.clone() for name, tensor in unfolded(codec).items()}
    change(state)
    with pytest.raises(WeightsError, match=said):
        build_snac(codec.config, state)


class Code:
    """Unpickling it would write a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.write_text, (self.path, "run")


def test_code_is_refused_and_not_run(tmp_path: Path) -> None:
    write_snac(tmp_path, toy_codec().float())
    torch.save({"a": Code(tmp_path / "proof")}, tmp_path / "pytorch_model.bin")
    with pytest.raises(WeightsError, match="refused and not run"):
        load_snac(tmp_path)
    assert not (tmp_path / "proof").exists()


def test_damaged_folders(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"config\.json"):
        load_snac(tmp_path)
    codec = toy_codec().float()
    write_snac(tmp_path, codec)
    weights = tmp_path / "pytorch_model.bin"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(WeightsError, match=r"damaged|refused"):
        load_snac(tmp_path)
    weights.write_bytes(pickle.dumps({"a": print}))
    with pytest.raises(WeightsError, match=r"damaged|refused"):
        load_snac(tmp_path)
    torch.save([1, 2], weights)
    with pytest.raises(WeightsError, match="no plain table"):
        load_snac(tmp_path)
    torch.save({"a": torch.zeros(1).expand(10**9)}, weights)
    with pytest.raises(WeightsError, match="larger than the file"):
        load_snac(tmp_path)
    weights.unlink()
    with pytest.raises(WeightsError, match="lacks"):
        load_snac(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps([1]))
    with pytest.raises(WeightsError, match="no JSON object"):
        load_snac(tmp_path)
