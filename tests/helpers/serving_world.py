"""What the tests of serving plan with: the toy world, a small search, two pictures."""

from __future__ import annotations

import numpy as np

from mstar_plan.models.toy import render
from mstar_plan.rollout.cem import CEMConfig
from mstar_plan.rollout.limits import PlanLimits

PLANNER = CEMConfig(samples=48, iterations=3, horizon=6, elites=8, carry=4)
LIMITS = PlanLimits(max_horizon=12, max_iterations=10_000, max_samples=256, max_soft_time_s=5.0)
NOW, GOAL = render(np.array([-0.3, 0.1])), render(np.array([0.2, -0.2]))
