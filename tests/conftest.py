"""Makes the modules of tests/helpers importable: toy models and small tools that several rooms' tests share."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent / "helpers"))
