"""Files of published folders: whole, or an error that names the file."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

from mstar_plan.errors import WeightsError
from mstar_plan.families import files


def test_tensors_of_all_shards(tmp_path):
    save_file({"a": torch.ones(2)}, tmp_path / "model-1.safetensors")
    save_file({"b": torch.zeros(1)}, tmp_path / "model-2.safetensors")
    assert sorted(files.read_tensors(tmp_path)) == ["a", "b"]


def test_damaged_missing_or_too_large(tmp_path, monkeypatch):
    with pytest.raises(WeightsError, match="has 0 safetensors files"):
        files.read_tensors(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"x" * 100)
    with pytest.raises(WeightsError, match="damaged"):
        files.read_tensors(tmp_path)
    monkeypatch.setattr(files, "MAX_BYTES", 99)
    with pytest.raises(WeightsError, match="of 100 bytes"):
        files.read_tensors(tmp_path)


@pytest.mark.parametrize(("text", "said"), [("{", "damaged"), ("[1]", "no JSON object"), ("[" * 100_000, "damaged")])
def test_json_that_is_no_object(tmp_path, text, said):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(WeightsError, match=said):
        files.read_json(tmp_path / "config.json")


def test_json(tmp_path):
    (tmp_path / "config.json").write_text('{"a": 1}')
    assert files.read_json(tmp_path / "config.json") == {"a": 1}
    with pytest.raises(WeightsError, match="not there"):
        files.read_json(tmp_path / "none.json")
