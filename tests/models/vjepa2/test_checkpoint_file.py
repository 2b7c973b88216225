"""Files that are whole, damaged, hostile or of another kind: what is read of them, and what the refusal says."""

from __future__ import annotations

import argparse
import json
import os
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from mstar_plan.errors import WeightsError
from mstar_plan.models.vjepa2.checkpoint_file import open_source

GOLDEN = Path(__file__).parents[2] / "golden"
BUNDLE = GOLDEN / "vjepa2_ac_checkpoint" / "model.pt"
NAME = "module.backbone.blocks.0.norm1.bias"


class Evil:
    """Makes a file where it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.mark}",)


def bundle(**changes: Any) -> dict[str, Any]:
    content = torch.load(BUNDLE, weights_only=True) | changes
    return {name: value for name, value in content.items() if value is not Ellipsis}


def saved(path: Path, content: object, **settings: Any) -> Path:
    torch.save(content, path, **settings)
    return path


def test_a_bundle() -> None:
    source = open_source(BUNDLE)
    assert source.layout == "bundle"
    assert source.encoder_key == "encoder"
    assert source.ignored == ("epoch", "loss", "encoder.module.backbone.pos_embed")
    assert source.parts["encoder"]["norm.weight"].shape == (40,)
    assert "action_encoder.weight" in source.parts["predictor"]
    stored = bundle()["encoder"]
    for name, tensor in source.parts["encoder"].items():
        assert torch.equal(tensor.read(), stored[f"module.backbone.{name}"])


@pytest.mark.parametrize("legacy", [False, True])
def test_the_encoder_is_preferred_to_its_target(tmp_path: Path, legacy: bool) -> None:
    encoder = bundle()["encoder"]
    target = {name: tensor + 1 for name, tensor in encoder.items()}
    settings = {"_use_new_zipfile_serialization": not legacy}
    both = open_source(saved(tmp_path / "both.pth.tar", bundle(target_encoder=target), **settings))
    assert both.encoder_key == "encoder"
    assert "target_encoder" in both.ignored
    assert torch.equal(both.parts["encoder"]["norm.bias"].read(), encoder["module.backbone.norm.bias"])
    for gone in (Ellipsis, None):
        alone = open_source(saved(tmp_path / "alone.pt", bundle(target_encoder=target, encoder=gone), **settings))
        assert alone.encoder_key == "target_encoder"
        assert torch.equal(alone.parts["encoder"]["norm.bias"].read(), target["module.backbone.norm.bias"])


def test_bookkeeping_is_ignored_by_name(tmp_path: Path) -> None:
    path = saved(tmp_path / "b.pt", bundle(opt={"lr": [torch.zeros(3)]}, scaler=None, lr=0.1))
    assert {"opt", "scaler", "lr", "epoch", "loss"} <= set(open_source(path).ignored)


@pytest.mark.parametrize("legacy", [False, True])
def test_code_is_refused_and_not_run(tmp_path: Path, legacy: bool) -> None:
    mark = tmp_path / "was run"
    evil = saved(tmp_path / "e.pt", bundle(opt=Evil(mark)), _use_new_zipfile_serialization=not legacy)
    with pytest.raises(WeightsError, match=r"e\.pt holds code \(posix\.system\).*not run"):
        open_source(evil)
    with pytest.raises(WeightsError, match=r"holds code \(argparse\.Namespace\)"):
        open_source(saved(tmp_path / "n.pt", bundle(args=argparse.Namespace(a=1))))
    for protocol in (2, 4, 5):
        (tmp_path / "p.pt").write_bytes(pickle.dumps(Evil(mark), protocol))
        with pytest.raises(WeightsError, match=r"not run|nothing of it was run"):
            open_source(tmp_path / "p.pt")
    assert not mark.exists()


def cut(share: float) -> Callable[[bytes], bytes]:
    return lambda data: data[: int(len(data) * share)]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda data: b"", "is empty"),
        (lambda data: data[:2], "cut short"),
        (cut(0.5), "cut short"),
        (lambda data: data[:-1], "cut short"),
        (lambda data: bytes(range(256)) * 40, "no torch checkpoint"),
        (lambda data: data[:2000] + bytes(100) + data[2100:], "no torch checkpoint|no whole torch checkpoint"),
        (lambda data: b"version https://git-lfs.github.com/spec/v1\n", "no torch checkpoint|no whole torch checkpoint"),
    ],
)
def test_damaged_bundles(tmp_path: Path, damage: Callable[[bytes], bytes], said: str) -> None:
    (tmp_path / "d.pt").write_bytes(damage(BUNDLE.read_bytes()))
    with pytest.raises(WeightsError, match=rf"d\.pt .*({said})") as caught:
        open_source(tmp_path / "d.pt")
    assert "holds code" not in str(caught.value)


@pytest.mark.parametrize("length", [1, 8, 100, 2000, -1])
def test_damaged_safetensors(tmp_path: Path, length: int) -> None:
    data = (GOLDEN / "vjepa2_hf" / "weights.safetensors").read_bytes()
    (tmp_path / "d.safetensors").write_bytes(data[:length])
    with pytest.raises(WeightsError, match=r"d\.safetensors is no whole safetensors file.*download it again"):
        open_source(tmp_path / "d.safetensors")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([1, 2], "holds a list; a bundle is a dict"),
        ({"epoch": 3}, "holds epoch; a bundle has encoder"),
        ({"encoder": [1]}, "encoder is a list"),
    ],
)
def test_torch_files_of_another_kind(tmp_path: Path, content: object, said: str) -> None:
    with pytest.raises(WeightsError, match=said):
        open_source(saved(tmp_path / "o.pt", content))


def test_a_tensor_larger_than_its_file(tmp_path: Path) -> None:
    encoder = bundle()["encoder"] | {NAME: torch.zeros(1).expand(10**10)}
    with pytest.raises(WeightsError, match="10000000000 elements, more than the file holds"):
        open_source(saved(tmp_path / "b.pt", bundle(encoder=encoder)))


def test_two_tensors_of_one_name(tmp_path: Path) -> None:
    twice = {NAME.removeprefix("module."): torch.zeros(40)}
    with pytest.raises(WeightsError, match=r"two tensors are called blocks\.0\.norm1\.bias once prefixes"):
        open_source(saved(tmp_path / "b.pt", bundle(encoder=bundle()["encoder"] | twice)))


def test_paths(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="nothing is downloaded"):
        open_source(tmp_path / "absent.pt")
    with pytest.raises(WeightsError, match="holds no weights"):
        open_source(tmp_path)
    (tmp_path / "model.ckpt").write_bytes(b"x")
    with pytest.raises(WeightsError, match=r"ends in '\.ckpt'"):
        open_source(tmp_path / "model.ckpt")


def folder(at: Path, shards: int, config: Mapping[str, Any] | None = None) -> Path:
    """The golden tensors in the transformers layout, in so many files."""
    tensors = load_file(GOLDEN / "vjepa2_hf" / "weights.safetensors")
    at.mkdir()
    (at / "config.json").write_text(json.dumps(config or {"crop_size": 32}))
    if shards == 1:
        save_file(tensors, at / "model.safetensors")
        return at
    table = {name: f"model-{i % shards}.safetensors" for i, name in enumerate(sorted(tensors))}
    for shard in set(table.values()):
        save_file({name: tensors[name] for name in tensors if table[name] == shard}, at / shard)
    (at / "model.safetensors.index.json").write_text(json.dumps({"weight_map": table}))
    return at


@pytest.mark.parametrize("shards", [1, 3])
def test_a_transformers_folder(tmp_path: Path, shards: int) -> None:
    source = open_source(folder(tmp_path / "m", shards))
    assert source.layout == "transformers"
    assert source.config == {"crop_size": 32}
    tensors = load_file(GOLDEN / "vjepa2_hf" / "weights.safetensors")
    names = [f"encoder.layer.0.attention.{each}.weight" for each in ("query", "key", "value")]
    fused = source.parts["encoder"]["blocks.0.attn.qkv.weight"]
    assert torch.equal(fused.read(), torch.cat([tensors[name] for name in names]))
    assert fused.read().shape == fused.shape


def test_damaged_folders(tmp_path: Path) -> None:
    one = folder(tmp_path / "one", 1)
    (one / "config.json").write_text("{")
    with pytest.raises(WeightsError, match=r"config\.json is no JSON"):
        open_source(one)
    many = folder(tmp_path / "many", 2)
    (many / "model-1.safetensors").unlink()
    with pytest.raises(WeightsError, match=r"names 'model-1\.safetensors', which is not in"):
        open_source(many)
    index = many / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "../../etc/passwd"}}))
    with pytest.raises(WeightsError, match="which is not in"):
        open_source(many)
    index.write_text(json.dumps({"weight_map": {"a": "model-0.safetensors"}}))
    with pytest.raises(WeightsError, match="lack 1 of 1 tensors, a first"):
        open_source(many)
    (tmp_path / "two").mkdir()
    for name in ("a.pt", "b.pt"):
        saved(tmp_path / "two" / name, {})
    with pytest.raises(WeightsError, match=r"holds 2 weight files \(a\.pt, b\.pt\)"):
        open_source(tmp_path / "two")
