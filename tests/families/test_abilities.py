"""A call that is not submitted gives back what its values hold."""

from __future__ import annotations

from mstar_plan.families.abilities import TextCall, WalkCall


class Place:
    def __init__(self) -> None:
        self.released = 0

    def release(self) -> None:
        self.released += 1


def test_release() -> None:
    place = Place()
    WalkCall("walk", {"place": place, "text": "x"}).release()
    assert place.released == 1
    assert TextCall("walk", {"place": place}, ("deltas",), prompt="p").emit == ("deltas",)
