"""The pool: pages are taken side by side, kept for equal prompts, freed between steps, and waited for in line."""

from __future__ import annotations

import threading
import time

import pytest
import torch

from mstar_plan.errors import InvalidInputError, LimitExceededError, OverloadedError
from mstar_plan.runtime.generation.kv_pool import PAGE, KVPool, KVShape

TOKENS = list(range(100, 100 + 4 * PAGE))


def pool(pages: int = 8) -> KVPool:
    return KVPool(KVShape(1, 1, 4), pages * PAGE)


def test_pages_lie_side_by_side_where_there_is_room() -> None:
    made = pool()
    first = made.take(3)
    assert first == [0, 1, 2]
    assert made.take(2) == [3, 4]
    made.give_back(first)
    assert made.take(2) == [0, 1]  # the shortest run that fits: [0, 3) is as long as [5, 8)
    assert made.held == 4
    assert sorted(made.take(4)) == [2, 5, 6, 7]


def test_too_many_and_none_left() -> None:
    made = pool()
    with pytest.raises(LimitExceededError, match="128"):
        made.take(9)
    made.take(6)
    with pytest.raises(OverloadedError, match="32 of 128 are free") as caught:
        made.take(3)
    assert caught.value.retry_after_s > 0
    assert made.waiting == 0


def test_who_waits_gets_room_in_the_order_of_coming() -> None:
    made, order = pool(4), []
    held = made.take(4)

    def wait(name: str, count: int) -> None:
        pages = made.take(count, 10)
        order.append(name)
        made.give_back(pages)

    threads = []
    for name, count in (("large", 4), ("small", 1)):
        thread = threading.Thread(target=wait, args=(name, count))
        thread.start()
        threads.append(thread)
        while made.waiting < len(threads):
            time.sleep(0.001)
    made.give_back(held[:1])
    time.sleep(0.05)
    assert order == []  # the small one does not overtake
    made.give_back(held[1:])
    for thread in threads:
        thread.join(10)
    assert order == ["large", "small"]
    assert made.held == 0


def test_known_prompts_are_found_until_their_room_is_needed() -> None:
    made = pool()
    pages = made.take(4)
    made.learn(TOKENS, pages, 0)
    made.give_back(pages)
    assert (made.held, made.known) == (0, 4)
    assert made.find(TOKENS) == pages[:3]  # one token must be left to read
    assert made.find([*TOKENS, 1]) == pages
    assert made.find([*TOKENS[:PAGE], 9, *TOKENS[PAGE:]]) == pages[:1]
    assert made.find([9, *TOKENS]) == []
    made.give_back([*pages[:3], *pages, *pages[:1]])
    others = made.take(4)  # there is unknown room yet
    assert set(others).isdisjoint(pages)
    made.take(2)
    assert made.known == 2
    made.forget()
    assert made.find(TOKENS) == []


def test_what_is_given_back_during_a_step_waits_for_its_end() -> None:
    made = pool()
    done = []
    with made.step():
        made.between_steps(lambda: done.append(1))
        assert done == []
    assert done == [1]
    made.between_steps(lambda: done.append(2))
    assert done == [1, 2]


def test_pages_are_copied_whole() -> None:
    made = pool()
    made.store.copy_(torch.randn(made.store.shape))
    made.copy_page(2, 5)
    torch.testing.assert_close(made.store[:, :, 5 * PAGE : 6 * PAGE], made.store[:, :, 2 * PAGE : 3 * PAGE])


def test_a_pool_needs_a_page() -> None:
    with pytest.raises(InvalidInputError, match="at least 16"):
        KVPool(KVShape(1, 1, 4), 15)


def test_giving_back_twice_is_our_own_mistake() -> None:
    made = pool()
    pages = made.take(1)
    made.give_back(pages)
    with pytest.raises(AssertionError, match="twice"):
        made.give_back(pages)
