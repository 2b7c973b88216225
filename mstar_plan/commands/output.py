"""What commands write: folders and files that cannot be made are the user's error, with a cure."""

from __future__ import annotations

from pathlib import Path

from mstar_plan.errors import ConfigError


def make_folder(path: Path) -> Path:
    """Makes a folder, and those above it; one that is there already will do.

    Raises:
        ConfigError: It cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _refused(path, error) from error
    return path


def write_text(path: Path, text: str) -> None:
    """Writes a file, and makes its folder.

    Raises:
        ConfigError: It cannot be written.
    """
    make_folder(path.parent)
    try:
        path.write_text(text)
    except OSError as error:
        raise _refused(path, error) from error


def _refused(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"out is {path}, which cannot be written: {error.strerror}; choose another", field="out")
