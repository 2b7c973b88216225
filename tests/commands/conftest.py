"""Pictures that the command line is given."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mstar_plan.models.toy import render


@pytest.fixture
def pictures(tmp_path: Path) -> tuple[str, str]:
    """Two pictures of the toy world: now and goal."""
    paths = []
    for name, place in (("now", [-0.3, 0.1]), ("goal", [0.2, -0.2])):
        paths.append(str(tmp_path / f"{name}.png"))
        Image.fromarray(render(np.array(place))).save(paths[-1])
    return paths[0], paths[1]
