"""Files of published folders: read whole, bounded, and never unpickled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from mstar_plan.errors import WeightsError

MAX_BYTES = 64 * 2**30
MAX_JSON_BYTES = 16 * 2**20


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of a folder's safetensors files.

    Raises:
        WeightsError: There are none, they are too large, or one is damaged.
    """
    files = sorted(folder.glob("*.safetensors"))
    size = sum(file.stat().st_size for file in files)
    if not files or size > MAX_BYTES:
        raise WeightsError(f"{folder} has {len(files)} safetensors files of {size} bytes", field="weights")
    tensors: dict[str, Tensor] = {}
    for file in files:
        try:
            tensors |= load_file(file)
        except (SafetensorError, OSError) as error:
            raise WeightsError(f"{file} is damaged: {error}; get it anew", field="weights") from error
    return tensors


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a published folder.

    Raises:
        WeightsError: It is absent, too large, or none.
    """
    if not path.is_file() or path.stat().st_size > MAX_JSON_BYTES:
        raise WeightsError(f"{path} is not there, or over {MAX_JSON_BYTES} bytes", field="weights")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise WeightsError(f"{path} is damaged: {error}", field="weights") from error
    if not isinstance(found, dict):
        raise WeightsError(f"{path} holds no JSON object", field="weights")
    return found
