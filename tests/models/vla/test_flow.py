"""Time grids: against the published scheduler's numbers, and what is refused."""

from __future__ import annotations

import pytest
import torch

from mstar_plan.errors import ConfigError
from mstar_plan.models.vla.flow import FlowMatchConfig, euler_step, euler_times, flow_match_schedule


def test_a_policys_times_run_from_noise_to_the_step_before_the_actions() -> None:
    assert euler_times(4).tolist() == [1.0, 0.75, 0.5, 0.25]
    assert euler_times(1).tolist() == [1.0]


def test_euler_steps_integrate_a_constant_velocity_exactly() -> None:
    x = torch.tensor([[2.0, -1.0]])
    for _ in euler_times(8):
        x = euler_step(x, torch.ones_like(x), -1 / 8)
    assert x.tolist() == [[1.0, -2.0]]


@pytest.mark.parametrize("steps", [0, -1, 1001, True, 2.0])
def test_steps_out_of_range_are_refused(steps: int) -> None:
    with pytest.raises(ConfigError, match="steps is"):
        euler_times(steps)


def test_even_sigmas_without_shift() -> None:
    schedule = flow_match_schedule(FlowMatchConfig(), 4)
    assert schedule.sigmas.tolist() == pytest.approx([1.0, 0.667, 0.334, 0.001, 0.0])
    assert schedule.timesteps.tolist() == pytest.approx([1000.0, 667.0, 334.0, 1.0])


def test_a_static_shift_acts_on_the_range_and_on_the_levels() -> None:
    low = 3 * 0.001 / (1 + 2 * 0.001)
    wanted = [3 * s / (1 + 2 * s) for s in (1.0, (1 + low) / 2, low)]
    assert flow_match_schedule(FlowMatchConfig(shift=3.0), 3).sigmas.tolist() == pytest.approx([*wanted, 0.0])


def test_the_terminal_is_reached_whatever_the_shift() -> None:
    for config in (FlowMatchConfig(shift_terminal=0.1), FlowMatchConfig(shift=4.0, shift_terminal=0.1)):
        assert float(flow_match_schedule(config, 7).sigmas[-2]) == pytest.approx(0.1)


def test_karras_and_exponential_keep_the_ends() -> None:
    plain = flow_match_schedule(FlowMatchConfig(), 5).sigmas
    for config in (FlowMatchConfig(use_karras_sigmas=True), FlowMatchConfig(use_exponential_sigmas=True)):
        found = flow_match_schedule(config, 5).sigmas
        assert found[[0, -2]].tolist() == pytest.approx(plain[[0, -2]].tolist())
        assert (found[1:-2] < plain[1:-2]).all()  # both spend more steps near the end
        assert (found.diff() < 0).all()


def test_inverted_sigmas_run_up() -> None:
    plain, turned = (flow_match_schedule(FlowMatchConfig(invert_sigmas=i), 3).sigmas for i in (False, True))
    assert torch.equal(turned, 1 - plain)


def test_a_step_follows_the_sigmas() -> None:
    schedule = flow_match_schedule(FlowMatchConfig(), sigmas=[1.0, 0.4])
    x = schedule.step(torch.zeros(1, 2), torch.ones(1, 2), 0)
    assert x.tolist() == [[pytest.approx(-0.6)] * 2]
    assert schedule.step(x, torch.ones(1, 2), 1).tolist() == [[pytest.approx(-1.0)] * 2]


@pytest.mark.parametrize(
    ("settings", "call", "said"),
    [
        ({"shift": 0.0}, {"steps": 3}, "shift is 0.0"),
        ({"num_train_timesteps": 0}, {"steps": 3}, "num_train_timesteps"),
        ({"time_shift_type": "cubic"}, {"steps": 3}, "exponential or linear"),
        ({"shift_terminal": 1.0}, {"steps": 3}, "shift_terminal"),
        ({"use_karras_sigmas": True, "use_exponential_sigmas": True}, {"steps": 3}, "choose one"),
        ({"use_dynamic_shifting": True}, {"steps": 3}, "needs mu"),
        ({}, {}, "steps or sigmas"),
        ({}, {"steps": 2, "sigmas": [1.0]}, "1 sigmas, but 2 steps"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict, call: dict, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        flow_match_schedule(FlowMatchConfig(**settings), **call)
