"""The pool: pages are taken side by side, kept for equal prompts, freed between steps, and waited for in line."""

from __future__ import annotations

import threading
import time

import pytest
import torch

from mstar_plan.errors import InvalidInputError, LimitExceededError, OverloadedError
from mstar_plan.runtime.generation import kv_pool
from mstar_plan.runtime.generation.kv_pool import PAGE, KVPool, KVShape

TOKENS = list(range(100, 100 + 4 * PAGE))


def pool(pages: int = 8) -> KVPool:
    return KVPool(KVShape(1, 1, 4), pages * PAGE)


def known(made: KVPool, tokens: list[int]) -> list[int]:
    """Pages that hold tokens, and are held by nobody."""
    pages = made.take(len(tokens) // PAGE)
    made.learn(tokens, pages, 0)
    made.give_back(pages)
    return pages


def found(made: KVPool, tokens: list[int]) -> list[int]:
    """Pages that are known for the start of a prompt; they have been of use now."""
    there = made._find(list(kv_pool._hashes(tokens[:-1])))
    pages, fresh = made.open(tokens, len(there))
    assert (pages, fresh) == (there, [])
    made.give_back(pages)
    return pages


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
    pages = known(made, TOKENS)
    assert (made.held, made.known) == (0, 4)
    assert found(made, TOKENS) == pages[:3]  # one token must be left to read
    assert found(made, [*TOKENS, 1]) == pages
    assert found(made, [*TOKENS[:PAGE], 9, *TOKENS[PAGE:]]) == pages[:1]
    assert found(made, [9, *TOKENS]) == []
    others = made.take(4)  # there is unknown room yet
    assert set(others).isdisjoint(pages)
    made.take(2)
    assert made.known == 2
    made.forget()
    assert found(made, TOKENS) == []


def test_one_token_is_left_to_read() -> None:
    made = pool()
    pages = known(made, TOKENS)
    held, fresh = made.open(TOKENS, 4)
    assert held == pages[:3]
    assert len(fresh) == 1


def test_a_page_is_known_by_all_that_was_before_it() -> None:
    """Equal tokens after other ones have other keys and values."""
    made, same = pool(), TOKENS[PAGE : 2 * PAGE]
    one, two = ([*TOKENS[:PAGE], *same], [*range(900, 900 + PAGE), *same])
    first = known(made, one)
    second = known(made, two)
    assert set(first).isdisjoint(second)
    assert found(made, [*one, 1]) == first
    assert found(made, [*two, 1]) == second
    assert made.known == 4


def test_the_end_of_a_prompt_is_forgotten_before_its_start() -> None:
    made = pool()
    pages = known(made, TOKENS)
    made.take(4)
    made.take(1)
    assert found(made, [*TOKENS, 1]) == pages[:3]


def test_what_was_of_use_last_is_kept() -> None:
    made, other = pool(), [token + 500 for token in TOKENS]
    cold, hot = known(made, TOKENS), known(made, other)
    assert found(made, [*TOKENS, 1]) == cold  # which makes it the hot one
    taken = made.take(3)
    assert set(taken) < set(hot)
    assert found(made, [*TOKENS, 1]) == cold
    assert found(made, [*other, 1]) == hot[:1]


def test_known_pages_that_are_held_are_never_taken() -> None:
    made = pool()
    pages = known(made, TOKENS)
    held, fresh = made.open([*TOKENS, 1], 6)
    assert held == pages
    assert set(fresh).isdisjoint(pages)
    with pytest.raises(OverloadedError):
        made.take(3)
    assert set(made.take(2)).isdisjoint([*held, *fresh])
    assert found(made, [*TOKENS, 1]) == pages


def test_scattered_room_is_taken_where_there_is_none_side_by_side() -> None:
    made = pool()
    pages = made.take(8)
    made.give_back(pages[::2])
    assert made.take(3) == [0, 2, 4]


def test_who_waits_holds_nothing() -> None:
    """Two that each wait with known pages in hand would wait for each other."""
    made, other = pool(), [token + 500 for token in TOKENS]
    known(made, TOKENS)
    known(made, other)
    held = made.take(1)  # now neither has room beside what the other could hold
    gone: list[str] = []

    def wait(name: str, tokens: list[int]) -> None:
        mine, fresh = made.open([*tokens, 1], 8, 10)
        gone.append(name)
        made.give_back([*mine, *fresh])

    threads = [threading.Thread(target=wait, args=(str(i), each)) for i, each in enumerate((TOKENS, other))]
    for number, thread in enumerate(threads):
        thread.start()
        while made.waiting <= number:
            time.sleep(0.001)
    assert made.held == 1
    made.give_back(held)
    for thread in threads:
        thread.join(5)
    assert gone == ["0", "1"]
    assert made.held == 0


def test_one_that_gives_up_lets_the_next_one_in() -> None:
    made = pool(4)
    made.take(3)
    entered = threading.Event()

    def small() -> None:
        made.take(1, 10)
        entered.set()

    def large() -> None:
        with pytest.raises(OverloadedError):
            made.take(2, 0.2)

    threads = [threading.Thread(target=large), threading.Thread(target=small)]
    for number, thread in enumerate(threads):
        thread.start()
        while made.waiting <= number:
            time.sleep(0.001)
    assert not entered.is_set()
    assert entered.wait(5)
    for thread in threads:
        thread.join(5)


def test_a_line_that_is_too_long_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_pool, "MAX_WAITING", 1)
    made = pool(2)
    held = made.take(2)
    thread = threading.Thread(target=lambda: made.take(1, 10))
    thread.start()
    while not made.waiting:
        time.sleep(0.001)
    with pytest.raises(OverloadedError, match="1 requests wait"):
        made.take(1, 10)
    made.give_back(held)
    thread.join(5)


def test_what_can_never_fit_is_not_waited_for() -> None:
    made = pool(4)
    known(made, TOKENS)
    with pytest.raises(LimitExceededError):
        made.open([*TOKENS, 1], 5, 10)
    assert made.held == 0


def test_steps_come_one_at_a_time() -> None:
    made, inside = pool(), threading.Event()

    def other() -> None:
        with made.step():
            inside.set()

    thread = threading.Thread(target=other)
    with made.step():
        thread.start()
        assert not inside.wait(0.05)
    assert inside.wait(5)
    thread.join(5)


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
