"""Components: plain functions as components, and the protocols that models and runtime share."""

from __future__ import annotations

import pytest
import torch
from toy_cache import Cache

from mstar_plan.walks.batch import Batch
from mstar_plan.walks.component import Batching, FunctionComponent, Joinable, Owned, release


def test_a_function_gets_its_ports_in_order() -> None:
    component = FunctionComponent(lambda a, b: a - b, ("a", "b"), ("difference",))
    batch = Batch({"b": torch.tensor([1.0]), "a": torch.tensor([3.0]), "unused": None}, 1)
    assert component(batch) == {"difference": torch.tensor([2.0])}
    assert component.batching is Batching.EQUAL


def test_a_function_of_several_outputs_gives_a_tuple() -> None:
    component = FunctionComponent(lambda x: (x + 1, x + 2), ("x",), ("y", "z"), Batching.ALONE)
    assert component(Batch({"x": 1}, 1)) == {"y": 2, "z": 3}
    assert component.batching is Batching.ALONE


def test_one_output_may_be_a_tuple_itself() -> None:
    assert FunctionComponent(lambda x: (x, x), ("x",), ("pair",))(Batch({"x": 1}, 1)) == {"pair": (1, 1)}


def test_a_function_that_gives_too_few_outputs_fails() -> None:
    with pytest.raises(ValueError, match="shorter"):
        FunctionComponent(lambda x: (x,), ("x",), ("y", "z"))(Batch({"x": 1}, 1))


def test_what_is_joinable() -> None:
    assert isinstance(Cache([]), Joinable)
    assert not isinstance("text", Joinable)
    assert not isinstance(torch.zeros(1), Joinable)


def test_what_is_owned_is_released_and_nothing_else() -> None:
    class Place:
        released = 0

        def release(self) -> None:
            self.released += 1

    place = Place()
    assert isinstance(place, Owned)
    assert not isinstance("text", Owned)
    assert not isinstance(Cache([]), Owned)
    release([torch.zeros(1), "text", 1, None, (place,), place, Cache([])])
    assert place.released == 1, "what is inside another value is that value's to release"


def test_a_batch_knows_its_ports() -> None:
    batch = Batch({"x": 1}, 1)
    assert "x" in batch
    assert "y" not in batch
    assert batch["x"] == 1


def test_a_fork_of_a_cache_is_copied_only_where_it_is_written() -> None:
    """Two continuations of one context, joined with a third cache, appended to, and split again."""
    items = torch.arange(12.0, dtype=torch.float64).reshape(1, 6, 2)
    context = Cache.of(items)
    one, two = context.append(torch.full((1, 2), 7.0)), context.append(torch.full((1, 2), 8.0))
    other = Cache.of(items.flip(1)).append(torch.zeros(1, 2))
    assert one.join_key() == two.join_key() == other.join_key() == 7
    joined = Cache.join([one, two, other]).append(torch.arange(6.0).reshape(3, 2))
    again = joined.split([2, 1])
    assert torch.equal(again[0].dense()[:, 6], torch.tensor([[7.0, 7.0], [8.0, 8.0]]).double())
    assert torch.equal(again[0].dense()[:, 7], torch.tensor([[0.0, 1.0], [2.0, 3.0]]).double())
    assert torch.equal(context.dense(), items), "the context stays as it was"
    assert again[0].rows[0].pages[0] is again[0].rows[1].pages[0] is context.rows[0].pages[0], "a full page is shared"
    assert again[0].rows[0].pages[1] is not again[0].rows[1].pages[1], "a page that was written is not"
