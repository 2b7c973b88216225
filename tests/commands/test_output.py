"""What cannot be written is the user's error, with a cure."""

from __future__ import annotations

from pathlib import Path

import pytest

from mstar_plan.commands.output import make_folder, write_text
from mstar_plan.errors import ConfigError


def test_folders_and_files_are_made(tmp_path: Path) -> None:
    write_text(tmp_path / "a" / "b.txt", "text")
    assert (tmp_path / "a" / "b.txt").read_text() == "text"
    assert make_folder(tmp_path / "a") == tmp_path / "a"


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="choose another"):
        write_text(tmp_path / "file" / "b.txt", "text")
