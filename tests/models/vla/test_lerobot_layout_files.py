"""Files by name: none outside the folder is ever opened."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mstar_plan.errors import WeightsError
from mstar_plan.models.vla.lerobot_layout_files import file_inside, need_finite, read_json


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/b", "", ".", "..", None, 3, "a\\b", "a\0b"])
def test_names_that_lead_elsewhere(tmp_path: Path, name: object) -> None:
    with pytest.raises(WeightsError, match="plain name"):
        file_inside(tmp_path, name, "step 1")


def test_a_plain_name(tmp_path: Path) -> None:
    assert file_inside(tmp_path, "a.safetensors", "step 1") == tmp_path / "a.safetensors"


def test_kinds_of_tensors() -> None:
    need_finite("f", "whole", torch.tensor([1, 2]))
    need_finite("f", "half", torch.tensor([1.0]).half())
    for tensor in (torch.tensor([True]), torch.tensor([1j])):
        with pytest.raises(WeightsError, match="numbers are needed"):
            need_finite("f", "t", tensor)


def test_json_of_more_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"a": 1}')
    assert read_json(path) == {"a": 1}
    with pytest.raises(WeightsError, match="has 8 bytes; at most 7"):
        read_json(path, most_bytes=7)
