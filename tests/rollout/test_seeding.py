"""Every plan of every episode has a seed of its own."""

from mstar_plan.rollout.seeding import plan_seed


def test_seeds_are_reproducible_and_differ() -> None:
    seeds = [plan_seed(episode, index) for episode in (0, 1, 2**62) for index in range(50)]
    assert seeds == [plan_seed(episode, index) for episode in (0, 1, 2**62) for index in range(50)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)
