"""How plans become actions: one config for the controller in process and the one over gRPC. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass

from mstar_plan.errors import ConfigError


@dataclass(frozen=True)
class ControllerConfig:
    """How plans become actions.

    Attributes:
        execute: Actions of a plan that are executed before the next one; 1 replans at every model step.
        action_repeat: Control steps that each action is held: the model's dt over the robot's.
        soft_time_s: Time budget of a search in seconds; None for none.
        horizon: Actions in a plan; None for the planner's default, as below.
        iterations: Planner iterations.
        samples: Candidates an iteration.
        warm_start: Start each search from the last one's result.
        deterministic: The same bytes whoever shares the batch.
        want_predicted: Ask for the predicted latents, for pictures.
    """

    execute: int = 1
    action_repeat: int = 1
    soft_time_s: float | None = None
    horizon: int | None = None
    iterations: int | None = None
    samples: int | None = None
    warm_start: bool = True
    deterministic: bool = False
    want_predicted: bool = False

    def __post_init__(self) -> None:
        for name in ("execute", "action_repeat"):
            if getattr(self, name) < 1:
                raise ConfigError(f"controller.{name} is {getattr(self, name)}; it needs at least 1", field=name)
        for name in ("soft_time_s", "horizon", "iterations", "samples"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"controller.{name} is {value}; it needs more than 0, or null", field=name)
        if self.horizon is not None and self.execute > self.horizon:
            raise ConfigError(f"controller.execute {self.execute} is over horizon {self.horizon}", field="execute")
