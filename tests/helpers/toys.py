"""The toy families by name."""

from __future__ import annotations

from collections.abc import Callable

from toy_family import Family
from toy_generation import decode, flow, guidance, omni
from toy_search import plan, repair

from mstar_plan.walks.stream import FixedChunks, LeftContext, SlidingWindow

FAMILIES: dict[str, Callable[[], Family]] = {
    "flow": flow,
    "decode_fixed": lambda: decode(FixedChunks(3), "decode_fixed"),
    "decode_sliding": lambda: decode(SlidingWindow(window=4, stride=2), "decode_sliding"),
    "decode_left_context": lambda: decode(LeftContext(size=3, left=1), "decode_left_context"),
    "guidance": guidance,
    "omni": omni,
    "repair": repair,
    "plan": plan,
}
