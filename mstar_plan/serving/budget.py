"""How long a search may take: the least of what the request, the call's deadline and the server allow."""

from __future__ import annotations

from dataclasses import dataclass

from mstar_plan.errors import DeadlineError, InvalidInputError, LimitExceededError
from mstar_plan.serving.proto.mstar.plan.v1 import planning_pb2 as pb

_WHO = {
    pb.BUDGET_SOURCE_REQUEST: "the request's soft time",
    pb.BUDGET_SOURCE_DEADLINE: "the call's deadline, less the reply margin",
    pb.BUDGET_SOURCE_SERVER: "the server's cap",
}


@dataclass(frozen=True)
class SearchTime:
    """What a search is given.

    Attributes:
        total_s: Seconds from the arrival of the call to the end of the search.
        left_s: Seconds of it that are left now.
        source: What set it.
    """

    total_s: float
    left_s: float
    source: pb.BudgetSource

    def __str__(self) -> str:
        return f"{1e3 * self.total_s:.1f} ms from {_WHO[self.source]}"


def search_time(
    *, asked_s: float | None, elapsed_s: float, remaining_s: float | None, margin_s: float, cap_s: float
) -> SearchTime:
    """Returns what a search is given; a tie goes to the request, then to the deadline.

    Args:
        asked_s: Soft time of the request, from its arrival; None if it asks for none.
        elapsed_s: Seconds since its arrival.
        remaining_s: Seconds until the client's deadline; None if it set none.
        margin_s: Seconds that a reply takes to reach the client.
        cap_s: What the server allows at most.

    Raises:
        InvalidInputError: The soft time is not positive.
        LimitExceededError: More was asked for than the server allows.
        DeadlineError: Nothing is left.
    """
    if asked_s is not None and not asked_s > 0:  # NaN, too
        what = f"soft_time_s is {asked_s}; it needs a positive number of seconds"
        raise InvalidInputError(what, field="budget.soft_time_s")
    if asked_s is not None and asked_s > cap_s:
        what = f"soft_time_s is {asked_s}; this model allows at most max_soft_time_s = {cap_s}"
        raise LimitExceededError(what, field="budget.soft_time_s", details={"max_soft_time_s": str(cap_s)})
    choices = [(cap_s, pb.BUDGET_SOURCE_SERVER)]
    if remaining_s is not None:
        choices.insert(0, (elapsed_s + remaining_s - margin_s, pb.BUDGET_SOURCE_DEADLINE))
    if asked_s is not None:
        choices.insert(0, (asked_s, pb.BUDGET_SOURCE_REQUEST))
    total_s, source = min(choices, key=lambda choice: choice[0])
    given = SearchTime(total_s, total_s - elapsed_s, source)
    if given.left_s <= 0:
        what = f"no time is left to search: {given}, and {1e3 * elapsed_s:.1f} ms went by reading the request"
        raise DeadlineError(f"{what}; give it more time", field="budget.soft_time_s")
    return given
