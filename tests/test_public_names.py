"""Names that users import are pinned: taking one away, or adding one, is a decision."""

from __future__ import annotations

from importlib import import_module

import pytest

PUBLIC = {
    "mstar_plan.errors": {
        "MStarError", "InvalidInputError", "WalkError", "ConfigError", "WeightsError", "NotFoundError",
        "SessionExpiredError", "LimitExceededError", "OverloadedError", "DeadlineError", "CancelledError",
        "UnavailableError", "ComponentError",
    },
    "mstar_plan.types": {
        "ActionSpec", "Controller", "Goal", "Observation", "Plan", "PlanRequest", "PlanStatus", "PlanTiming",
        "WarmStart",
    },
    "mstar_plan.walks.step": {"Best", "Branch", "Collect", "Loop", "Node", "Parallel", "Scan", "Sequential"},
    "mstar_plan.walks.stream": {
        "ChunkPolicy", "FixedChunks", "LeftContext", "SlidingWindow", "Stream", "StreamBuffer",
    },
    "mstar_plan.models.world_model": {"ModelSpec", "WorldModel"},
    "mstar_plan.serving.client": {"PlanClient", "ServerInfo"},
    "mstar_plan.rollout.solver": {"PlanSolver"},
    "mstar_plan.runtime.runtime": {"Runtime", "RuntimeConfig"},
}  # fmt: skip


@pytest.mark.parametrize("module", PUBLIC)
def test_public_classes(module: str) -> None:
    found = import_module(module)
    own = {
        name
        for name, value in vars(found).items()
        if isinstance(value, type) and value.__module__ == module and not name.startswith("_")
    }
    assert own == PUBLIC[module]
