"""Toy models that search: verify and repair, and a plan by the cross-entropy method on a point mass."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from toy_family import Family, Values, close, family

from mstar_plan.walks.batch import Batch
from mstar_plan.walks.component import Batching, FunctionComponent, Outputs
from mstar_plan.walks.step import Best, Branch, Loop, Node, Parallel, Sequential
from mstar_plan.walks.walk import Walk


class Verifier:
    """Says in words what is to be done; words are no tensor, so it takes its requests one by one in a ragged call."""

    batching = Batching.RAGGED
    inputs, outputs = ("attempt", "truth"), ("verdict",)

    def __call__(self, batch: Batch) -> Outputs:
        good = bool(((batch["attempt"] - batch["truth"]).abs() < 0.5).all())
        return {"verdict": "accept" if good else "repair"}

    def run(self, batches: Sequence[Batch]) -> list[Outputs]:
        return [self(batch) for batch in batches]


def repair() -> Family:
    cases = {
        "accept": Node("keep", ("attempt",), ("draft", "accepted")),
        "repair": Node("patch", ("attempt", "truth"), ("draft", "accepted")),
    }
    body = Sequential((Node("verify", ("attempt", "truth"), ("verdict",)), Branch("verdict", cases)))
    trying = Loop(
        Sequential((body, Node("judge", ("draft", "truth"), ("cost",)))),
        times="tries",
        scan={"attempts": "attempt"},
        until="accepted",
        best=Best("cost", {"draft": "answer", "cost": "answer_cost"}),
        anytime=True,
        name="trying",
    )

    def patch(attempt: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
        return attempt + (truth - attempt) / 2, torch.zeros_like(attempt, dtype=torch.bool)

    def keep(attempt: Tensor) -> tuple[Tensor, Tensor]:
        return attempt, torch.ones_like(attempt, dtype=torch.bool)

    components = {
        "verify": Verifier(),
        "keep": FunctionComponent(keep, ("attempt",), ("draft", "accepted")),
        "patch": FunctionComponent(patch, ("attempt", "truth"), ("draft", "accepted")),
        "judge": FunctionComponent(lambda draft, truth: (draft - truth).abs(), ("draft", "truth"), ("cost",)),
    }
    bad = float("nan")
    tries = [
        ([[9.0, 3.0, 5.0, 1.0]], [0.0]),
        ([[bad, 4.0, 2.2, 7.0]], [2.0]),
        ([[bad, 8.0, 4.0, 6.0]], [1.0]),
        ([[9.0, 4.0, bad, 6.0], [8.0, 9.0, 2.0, bad]], [1.0, 1.0]),
    ]
    requests = [
        {
            "attempts": torch.tensor(a, dtype=torch.float64),
            "truth": torch.tensor(t, dtype=torch.float64),
            "tries": len(a[0]),
        }
        for a, t in tries
    ]

    def check(values: Values, outputs: Values) -> None:
        truth, best = values["truth"].tolist(), [float("inf")] * len(values["truth"])
        for attempt in values["attempts"].T.tolist():
            errors = [abs(a - t) for a, t in zip(attempt, truth, strict=True)]
            accepted = all(e < 0.5 for e in errors)
            errors = [e if accepted else e / 2 for e in errors]
            best = [e if e < b else b for e, b in zip(errors, best, strict=True)]
            if accepted:
                break
        close(outputs["answer_cost"], best)
        close((outputs["answer"] - values["truth"]).abs(), best)

    inputs, outputs = ("attempts", "truth", "tries"), ("answer", "answer_cost")
    return family(Walk("repair", Sequential((trying,)), inputs, outputs), components, requests, check)


# Shapes: B requests, K candidates, H horizon, 2 axes of the plane.
DT, PENALTY, K, ELITES = 0.5, 0.1, 256, 40


def plan() -> Family:
    """A point mass in the plane; its best plan is known: see `optimum`."""
    predict = Node("predict", {"p": "p_now", "v": "v_now", "a": "a"}, {"p": "p_now", "v": "v_now"})
    rollout = Loop(predict, "horizon", {"p_now": "p", "v_now": "v"}, scan={"plans": "a"}, name="rollout")
    body = Sequential(
        (
            Node("propose", ("mean", "std", "seed", "i"), ("candidates", "plans")),
            rollout,
            Node("score", {"p": "p_now", "goal": "goal", "candidates": "candidates"}, ("costs",)),
            Node("refit", ("candidates", "costs"), ("mean", "std", "actions", "cost")),
        )
    )
    search = Loop(
        body,
        "iterations",
        carry=("mean", "std"),
        collect={"cost": "history"},
        index="i",
        best=Best("cost", {"actions": "plan", "cost": "plan_cost"}),
        anytime=True,
        limit=64,
        name="search",
    )
    encode, aim = Node("encode", ("image",), ("p", "v")), Node("encode_goal", ("goal_image",), ("goal",))
    step = Sequential((Parallel((encode, aim)), Node("init", ("p", "horizon"), ("mean", "std")), search))
    inputs = ("image", "goal_image", "seed", "horizon", "iterations")
    walk = Walk("plan", step, inputs, ("plan", "plan_cost", "history"))
    requests = [
        {
            "image": torch.tensor(start, dtype=torch.float64),
            "goal_image": torch.tensor(goal, dtype=torch.float64),
            "seed": torch.arange(n, n + len(start)),
            "horizon": horizon,
            "iterations": 24,
        }
        for n, (start, goal, horizon) in enumerate(
            [
                ([[0, 0, 0, 0]], [[1, 0.5]], 4),
                ([[0, 1, 0.2, 0]], [[-1, 0.5]], 4),
                ([[0.5, 0, 0, -0.3]], [[0, 0]], 3),
                ([[0, 0, 0, 0], [1, 1, 0, 0]], [[0.4, -0.7], [0, 0]], 4),
            ]
        )
    ]
    return family(walk, plan_components(), requests, check_plan)


def plan_components() -> dict[str, FunctionComponent]:
    def init(p: Tensor, horizon: int) -> tuple[Tensor, Tensor]:
        mean = p.new_zeros(len(p), horizon, 2)
        return mean, torch.ones_like(mean)

    def propose(mean: Tensor, std: Tensor, seed: Tensor, i: Tensor) -> tuple[Tensor, Tensor]:
        noise = [
            torch.randn(K, *mean.shape[1:], generator=torch.Generator().manual_seed(1000 * s + n), dtype=mean.dtype)
            for s, n in zip(seed.tolist(), i.tolist(), strict=True)
        ]
        candidates = mean[:, None] + std[:, None] * torch.stack(noise)
        return candidates, candidates.transpose(1, 2)  # the second for the loop to scan: [B, H, K, 2]

    def predict(p: Tensor, v: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        v = (v[:, None] if v.ndim == 2 else v) + DT * a
        return (p[:, None] if p.ndim == 2 else p) + DT * v, v

    def score(p: Tensor, goal: Tensor, candidates: Tensor) -> Tensor:
        return (p - goal[:, None]).square().sum(-1) + PENALTY * candidates.square().sum((-1, -2))

    def refit(candidates: Tensor, costs: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        order = costs.argsort(1)[:, :ELITES, None, None].expand(-1, -1, *candidates.shape[2:])
        elites = candidates.gather(1, order)
        return elites.mean(1), elites.std(1), elites[:, 0], costs.amin(1)

    return {
        "encode": FunctionComponent(lambda image: (image[:, :2], image[:, 2:]), ("image",), ("p", "v")),
        "encode_goal": FunctionComponent(lambda goal_image: goal_image.clone(), ("goal_image",), ("goal",)),
        "init": FunctionComponent(init, ("p", "horizon"), ("mean", "std")),
        "propose": FunctionComponent(propose, ("mean", "std", "seed", "i"), ("candidates", "plans")),
        "predict": FunctionComponent(predict, ("p", "v", "a"), ("p", "v")),
        "score": FunctionComponent(score, ("p", "goal", "candidates"), ("costs",)),
        "refit": FunctionComponent(refit, ("candidates", "costs"), ("mean", "std", "actions", "cost")),
    }


def optimum(values: Values) -> tuple[Tensor, Tensor]:
    """The best plan [B, H, 2] and its cost [B]: with p_H = p + H DT v + m.a, it is ridge regression onto the goal."""
    horizon = values["horizon"]
    p, v = values["image"][:, :2], values["image"][:, 2:]
    gap = values["goal_image"] - p - horizon * DT * v
    m = DT**2 * torch.arange(horizon, 0, -1, dtype=torch.float64)
    weight = m / (PENALTY + m.square().sum())
    plans = weight[None, :, None] * gap[:, None]
    return plans, PENALTY * gap.square().sum(1) / (PENALTY + m.square().sum())


def check_plan(values: Values, outputs: Values) -> None:
    plans, cost = optimum(values)
    close(outputs["plan"], plans, 0.05)
    assert (outputs["plan_cost"] >= cost - 1e-12).all(), "nothing is better than the optimum"
    close(outputs["plan_cost"], cost, 2e-3)
    close(outputs["plan_cost"], outputs["history"].amin(1))
    assert outputs["history"].shape == (len(cost), 24)
