"""Noise is a function of (seed, iteration, candidate index) alone, and has the correlation that was asked for."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mstar_plan.errors import ConfigError
from mstar_plan.rollout.noise import NoiseConfig, colouring, draw_noise

WHITE, AR1, POWER = NoiseConfig("white"), NoiseConfig("ar1", rho=0.8), NoiseConfig("power", beta=2.0)


def draw(
    config: NoiseConfig, seeds: list[int], iterations: list[int], samples: int = 7, horizon: int = 5
) -> torch.Tensor:
    return draw_noise(config, torch.tensor(seeds), torch.tensor(iterations), (samples, horizon, 2))


@given(seed=st.integers(0, 2**63 - 1), iteration=st.integers(0, 1000), few=st.integers(1, 20), many=st.integers(20, 90))
@settings(max_examples=40, deadline=None)
def test_first_candidates_do_not_depend_on_how_many_follow(seed: int, iteration: int, few: int, many: int) -> None:
    short, long = (draw(WHITE, [seed], [iteration], samples=k) for k in (few, many))
    assert torch.equal(short, long[:, :few])
    for config in (AR1, POWER):
        short, long = (draw(config, [seed], [iteration], samples=k) for k in (few, many))
        torch.testing.assert_close(short, long[:, :few], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("config", [WHITE, AR1, POWER], ids=lambda c: c.colour)
def test_a_row_is_the_same_bytes_alone_and_in_a_batch(config: NoiseConfig) -> None:
    seeds, iterations = [3, 2**62, 3, 0], [0, 4, 1, 0]
    together = draw(config, seeds, iterations)
    for row, (seed, iteration) in enumerate(zip(seeds, iterations, strict=True)):
        assert torch.equal(together[row : row + 1], draw(config, [seed], [iteration]))
    assert not torch.equal(together[0], together[2]), "another iteration needs other noise"


def test_ar1_matches_its_recursion() -> None:
    white, coloured = draw(WHITE, [5], [2], horizon=9).double(), draw(AR1, [5], [2], horizon=9)
    expected = white.clone()
    for h in range(1, 9):
        expected[:, :, h] = 0.8 * expected[:, :, h - 1] + 0.6 * white[:, :, h]
    torch.testing.assert_close(coloured.double(), expected, rtol=1e-5, atol=1e-6)


def test_power_noise_matches_a_scaled_spectrum() -> None:
    white, coloured = draw(WHITE, [5], [2], horizon=8).double().numpy(), draw(POWER, [5], [2], horizon=8)
    scale = np.array([1 / 8, *np.fft.rfftfreq(8)[1:]]) ** -1.0
    expected = np.fft.irfft(np.fft.rfft(white, axis=2) * scale[:, None], n=8, axis=2)
    ratio = coloured.numpy() / expected
    np.testing.assert_allclose(ratio, ratio.flat[0], rtol=1e-3)  # the same but for the normalisation


@pytest.mark.parametrize("config", [WHITE, AR1, POWER], ids=lambda c: c.colour)
def test_every_action_has_unit_variance_and_the_correlation_asked_for(config: NoiseConfig) -> None:
    noise = draw(config, [1], [0], samples=40_000, horizon=6)[0, :, :, 0]
    torch.testing.assert_close(noise.std(0), torch.ones(6), rtol=0.03, atol=0.0)
    neighbours = torch.corrcoef(noise.T)[2, 3]
    low, high = {"white": (-0.03, 0.03), "ar1": (0.78, 0.82), "power": (0.4, 0.5)}[config.colour]
    assert low < neighbours < high


def test_what_needs_no_colour_gets_no_matrix() -> None:
    for config in (WHITE, NoiseConfig("ar1", rho=0.0), NoiseConfig("power", beta=0.0)):
        assert colouring(config, 5) is None
    assert colouring(AR1, 1) is None


@pytest.mark.parametrize(
    ("field", "values"), [("rho", {"rho": 1.0}), ("beta", {"beta": -1.0}), ("colour", {"colour": "pink"})]
)
def test_wrong_settings_are_refused(field: str, values: dict[str, object]) -> None:
    with pytest.raises(ConfigError) as error:
        NoiseConfig(**values)
    assert error.value.field == field
