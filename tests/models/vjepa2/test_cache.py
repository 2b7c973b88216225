import torch

from mstar_plan.models.vjepa2.cache import Lane, RolloutCache
from mstar_plan.walks.batch import Batch


def cache(lanes, step=0, candidates=3):
    return RolloutCache(tuple(Lane(candidates, 4, None) for _ in range(lanes)), context=1, step=step)


def test_the_frame_counts_what_came_before():
    assert cache(1).advanced().advanced().frame == 3


def test_rows_of_a_chunk_find_their_lanes():
    two = cache(2)
    found = [(two.lanes.index(lane), mine, chunk) for lane, mine, chunk in two.segments(2, 5)]
    assert found == [(0, slice(2, 3), slice(0, 1)), (1, slice(0, 2), slice(1, 3))]
    assert [lane for lane, _, _ in two.segments(3, 6)] == [two.lanes[1]]


def test_buffers_are_allocated_once():
    lane = Lane(3, 4, None)
    first = lane.buffers(2, 5, 8, 6, torch.zeros(1))
    assert first[0].shape == (2, 3, 5, 8, 6)
    assert lane.buffers(2, 5, 8, 6, torch.zeros(1)) is first


def test_requests_join_without_a_copy_and_part_again():
    parts = [cache(1), cache(2)]
    joined = Batch.join([Batch({"cache": part}, len(part.lanes)) for part in parts])["cache"]
    assert joined.lanes == parts[0].lanes + parts[1].lanes
    again = joined.advanced().split([1, 2])
    assert [each.lanes for each in again] == [each.lanes for each in parts]
    assert all(each.step == 1 for each in again)


def test_only_rollouts_at_the_same_step_join():
    key = cache(1).join_key()
    assert key == cache(2).join_key()
    assert key != cache(1, step=1).join_key()
    assert key != cache(1, candidates=4).join_key()
