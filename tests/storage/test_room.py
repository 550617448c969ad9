"""A block has room for its calls however much of the stack is used, with the core and without."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from tallystick.storage.signals import ROOM, uninterrupted
from tests.stack import calls_left, deep
from tests.threads import in_thread

pytestmark = pytest.mark.both_cores

Run = Callable[[Callable[[], object]], None]


@pytest.fixture(autouse=True)
def own_limit() -> Iterator[int]:
    limit = sys.getrecursionlimit()
    yield limit
    assert sys.getrecursionlimit() == limit


def _in_block(call: Callable[[], object]) -> Callable[[], None]:
    def block() -> None:
        with uninterrupted:
            call()

    return block


ANYWHERE = pytest.mark.parametrize("run", [lambda call: call(), in_thread], ids=["main", "thread"])


@ANYWHERE
def test_a_block_that_is_entered_makes_its_calls(
    run: Run,
) -> None:
    def every_depth() -> None:
        left = calls_left()
        entered = 0
        for less in range(30):
            done: list[bool] = []

            def many(done: list[bool] = done) -> None:
                done.append(False)
                deep(lambda: done.append(True), ROOM - 40)

            try:
                deep(_in_block(many), left - less)
            except RecursionError:
                assert not done, f"entered with {less} calls left, and stopped inside"
            entered += len(done) == 2
        assert entered > 15

    run(every_depth)


@ANYWHERE
def test_one_without_need_leaves_the_limit_alone(run: Run, own_limit: int) -> None:
    limits: list[int] = []
    run(_in_block(lambda: limits.append(sys.getrecursionlimit())))
    assert limits == [own_limit]


@ANYWHERE
def test_the_room_goes_with_the_outermost_block(run: Run, own_limit: int) -> None:
    limits: list[int] = []

    def look() -> None:
        limits.append(sys.getrecursionlimit())

    def inner() -> None:
        _in_block(look)()
        look()

    def blocks() -> None:
        _in_block(inner)()
        look()

    run(lambda: deep(blocks, own_limit * 3 // 4))
    assert limits == [own_limit + ROOM, own_limit + ROOM, own_limit]


def test_the_room_of_one_thread_outlives_that_of_another(own_limit: int) -> None:
    inside, go_on = threading.Event(), threading.Event()
    limits: list[int] = []

    def wait() -> None:
        inside.set()
        assert go_on.wait(60)
        limits.append(sys.getrecursionlimit())

    thread = threading.Thread(target=deep, args=(_in_block(wait), own_limit * 3 // 4))
    thread.start()
    assert inside.wait(60)
    deep(_in_block(lambda: limits.append(sys.getrecursionlimit())), own_limit * 3 // 4)
    go_on.set()
    thread.join(60)
    assert limits == [own_limit + ROOM] * 2


def test_a_limit_that_the_application_sets_meanwhile_stays(own_limit: int) -> None:
    deep(_in_block(lambda: sys.setrecursionlimit(own_limit + 500)), own_limit * 3 // 4)
    assert sys.getrecursionlimit() == own_limit + 500
    sys.setrecursionlimit(own_limit)


def test_calls_of_the_application_without_end_end_in_its_error(own_limit: int) -> None:
    counted = 0

    def again() -> None:
        nonlocal counted
        counted += 1
        with uninterrupted:
            uninterrupted.outside(again)

    with pytest.raises(RecursionError):
        again()
    assert 50 < counted < own_limit + ROOM
    with pytest.raises(RecursionError):
        in_thread(again)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_child_that_is_forked_meanwhile_has_the_limit_of_before(own_limit: int) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        inside.set()
        assert go_on.wait(60)

    thread = threading.Thread(target=deep, args=(_in_block(wait), own_limit * 3 // 4))
    thread.start()
    assert inside.wait(60)
    child = os.fork()
    if not child:
        os._exit(sys.getrecursionlimit() != own_limit)
    go_on.set()
    thread.join(60)
    assert os.waitpid(child, 0)[1] == 0
