"""A request that comes again is answered with the first outcome, whatever happened meanwhile."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tallystick.errors import BusyError, InDoubtError, TransactionUsageError
from tallystick.services.transactions import (
    AsyncTransactionManager,
    IdempotencyKey,
    TransactionManager,
    forget_keys,
)
from tests.services.transactions.messaging.places import Places, do, pytest_places, work_of
from tests.services.transactions.test_commit import Crash

pytestmark = [pytest.mark.postgres, pytest.mark.mariadb]


def keyed(tm: TransactionManager, place: str, **settings: Any) -> Any:
    """Return a handler that works in the place and in PostgreSQL, and counts its calls."""
    numbers, name = itertools.count(1), place.rpartition(":")[2]
    work = work_of(name)

    @tm.transactional(key=IdempotencyKey(name, of="request", **settings))
    def handle(request: str, *, then: Any = None) -> dict[str, Any]:
        work(tm.current()[name], request)
        if then is not None:
            then()
        return {"request": request, "number": next(numbers)}

    return handle


@pytest_places
def test_a_request_that_comes_again_gets_the_first_outcome(places: Places, place: str) -> None:
    name = place.rpartition(":")[2]
    for _ in range(2):  # the second time in another process' place: nothing is in memory
        with places.manager(place) as tm:
            handle = keyed(tm, place)
            assert handle("a") == {"request": "a", "number": 1}
            assert handle(request="a") == {"request": "a", "number": 1}
    with places.manager(place) as tm:
        handle = keyed(tm, place)
        assert handle("b")["number"] == 1
        assert handle("a ")["number"] == 2  # spaces tell keys apart, in MariaDB too
    assert places.done(name) == ["a", "a ", "b"]


@pytest_places
def test_work_that_failed_is_done_when_the_request_comes_again(places: Places, place: str) -> None:
    with places.manager(place) as tm:
        handle = keyed(tm, place)
        with pytest.raises(ZeroDivisionError):
            handle("a", then=lambda: 1 // 0)
        assert handle("a")["number"] == 1
    assert places.done(place.rpartition(":")[2]) == ["a"]


@pytest_places
def test_of_requests_at_the_same_time_one_works_and_all_get_its_outcome(
    places: Places, place: str
) -> None:
    with places.manager(place) as tm, ThreadPoolExecutor(8) as threads:
        handle = keyed(tm, place)
        pause = lambda: time.sleep(0.05)  # noqa: E731 - long enough for the others to come
        calls = [threads.submit(handle, "a", then=pause) for _ in range(8)]
        assert [call.result()["number"] for call in calls] == [1] * 8
    assert places.done(place.rpartition(":")[2]) == ["a"]


@pytest_places
def test_one_that_need_not_wait_so_long_is_told_to_come_again(places: Places, place: str) -> None:
    entered, leave = threading.Event(), threading.Event()

    def stay() -> None:
        entered.set()
        assert leave.wait(60)

    with places.manager(place) as tm, ThreadPoolExecutor(1) as threads:
        handle = keyed(tm, place, wait=0.1)
        first = threads.submit(handle, "a", then=stay)
        assert entered.wait(60)
        with pytest.raises(BusyError, match="under way, or in doubt"):
            handle("a")
        leave.set()
        assert first.result() == handle("a")
        assert handle("b")["number"] == 2  # the connection that waited is as it was


@pytest.mark.parametrize("place", ["pg", "maria"])
def test_a_first_request_in_doubt_is_neither_repeated_nor_forgotten(
    places: Places, place: str
) -> None:
    """The process stops after the decision; until recovery the key is taken."""
    both = ("pg", "maria")
    with places.manager(*both, on_step=stop("after decision")) as tm, pytest.raises(Crash):
        both_places(tm, place)("a")
    with places.manager(*both) as tm:
        handle = both_places(tm, place, wait=1.0)
        with pytest.raises(BusyError):
            handle("a")
        for _ in range(100):  # a session that died may hold its branch for a moment
            if tm.recover().clean:
                break
            time.sleep(0.05)
        assert handle("a") == "first answer to a"
    assert places.done("pg") == places.done("maria") == ["a"]


def stop(at: str) -> Any:
    def observe(step: str) -> None:
        if step == at:
            raise Crash(step)

    return observe


def both_places(tm: TransactionManager, place: str, **settings: Any) -> Any:
    pid, calls = os.getpid(), itertools.count()

    @tm.transactional(key=IdempotencyKey(place, of="request", scope=f"both {pid}", **settings))
    def handle(request: str) -> str:
        assert not next(calls), "the work is done again"
        for name in ("pg", "maria"):
            tm.current()[name].execute(do(name), (request,))
        return f"first answer to {request}"

    return handle


@pytest.mark.parametrize("place", ["pg", "maria", "lite", "engine:pg"])
async def test_a_request_to_a_task_that_comes_again_gets_the_first_outcome(
    places: Places, place: str
) -> None:
    name, numbers = place.rpartition(":")[2], itertools.count(1)

    async def main() -> None:
        async with AsyncTransactionManager(places.manager(place)) as tm:

            @tm.transactional(key=IdempotencyKey(name, of=lambda request: request["id"]))
            async def handle(request: dict[str, str]) -> list[Any]:
                if place == "engine:pg":
                    work = work_of(name)
                    await tm.current().run(name, lambda found: work(found, request["id"]))
                else:
                    await tm.current().execute(name, do(name), (request["id"],))
                await asyncio.sleep(0.05)
                return [request["id"], next(numbers)]

            answers = await asyncio.gather(*(handle({"id": "a"}) for _ in range(5)))
            assert answers == [["a", 1]] * 5
            assert await handle({"id": "b"}) == ["b", 2]
            with pytest.raises(TransactionUsageError, match="a transaction is running here"):
                async with tm.begin():
                    await handle({"id": "c"})

    await main()
    assert places.done(name) == ["a", "b"]


@pytest.mark.parametrize("place", ["pg", "maria", "lite"])
def test_keys_are_forgotten_by_age(places: Places, place: str) -> None:
    with places.manager(place) as tm:
        handle = keyed(tm, place)
        for request in "abc":
            handle(request)
        assert forget_keys(tm, place, older_than=3600) == 0
        old = {
            "pg": "now() - interval '2 hours'",
            "maria": "NOW() - INTERVAL 2 HOUR",
            "lite": "created - 7200",
        }[place]
        places.ask(place, f"UPDATE tallystick_keys SET created = {old} WHERE request <> 'c'")
        assert forget_keys(tm, place, older_than=3600) == 2
        assert handle("c")["number"] == 3
        assert handle("a")["number"] == 4  # its key is gone: it is carried out again


def test_what_cannot_be_kept_is_not_committed(places: Places) -> None:
    with places.manager("lite") as tm:
        for outcome in (object(), (1, 2), {1: "a"}):
            handle = tm.transactional(key=IdempotencyKey("lite", of="request"))(
                lambda request, outcome=outcome: (
                    tm.current()["lite"].execute(do("lite"), (request,)) and outcome
                )
            )
            with pytest.raises(TransactionUsageError, match="cannot be kept"):
                handle("a")
        with pytest.raises(InDoubtError):  # not one of ours: it passes, and nothing is kept

            @tm.transactional(key=IdempotencyKey("lite", of="request", encode=str, decode=int))
            def number(request: str) -> int:
                tm.current()["lite"].execute(do("lite"), (request,))
                if request == "bad":
                    raise InDoubtError("of another manager")
                return 7

            assert number("b") == number("b") == 7
            number("bad")
    assert places.done("lite") == ["b"]


def test_the_text_of_an_outcome_may_be_empty(places: Places) -> None:
    with places.manager("lite") as tm:
        handle = keyed(tm, "lite", encode=lambda _: "", decode=lambda text: f"again {text!r}")
        assert handle("a")["number"] == 1
        assert handle("a") == "again ''"
    assert places.done("lite") == ["a"]


def test_wrong_use_is_refused_before_any_work(places: Places) -> None:
    with places.manager("lite") as tm:
        with pytest.raises(TransactionUsageError, match="no resource 'pg'"):
            keyed(tm, "pg")
        with pytest.raises(TransactionUsageError, match="no parameter 'number'"):
            tm.transactional(key=IdempotencyKey("lite", of="number"))(lambda request: request)
        handle = keyed(tm, "lite")
        for bad in ("", "x" * 256, "a\0b", 7):
            with pytest.raises(TransactionUsageError, match="expected"):
                handle(bad)
        with (
            pytest.raises(TransactionUsageError, match="a transaction is running here"),
            tm.begin(),
        ):
            handle("a")
    with places.manager("lite") as tm:

        @tm.transactional(key=IdempotencyKey("lite", of="request", scope="own end"))
        def ends(request: str) -> str:
            tm.current().commit()
            return request

        with pytest.raises(TransactionUsageError, match="transaction is committed"):
            ends("a")
        with pytest.raises(TransactionUsageError, match="kept no outcome"):
            ends("a")
    assert places.done("lite") == []
