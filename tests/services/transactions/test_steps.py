"""Steps of a transaction, driven by a thread and on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any

import pytest

from tallystick.services.transactions.steps import Steps, Wanted, drive, drive_awaiting

Driver = Callable[[Steps[Any]], Any]


def awaiting(steps: Steps[Any]) -> Any:
    return asyncio.run(drive_awaiting(steps))


DRIVERS = pytest.mark.parametrize("driver", [drive, awaiting])


class Slow:
    """A ticket that is durable once its event is set."""

    def __init__(self) -> None:
        self.durable = asyncio.Event()

    def wait(self, timeout: float | None = None) -> int:
        raise AssertionError(f"blocks the event loop for {timeout} seconds")

    def done(self) -> bool:
        return self.durable.is_set()

    def start_flush(self) -> None:
        raise AssertionError("somebody awaits it")

    def __await__(self) -> Generator[object, None, int]:
        yield from self.durable.wait().__await__()
        return 7


@DRIVERS
def test_answers_come_back_and_errors_are_thrown_in(driver: Driver) -> None:
    def steps() -> Steps[list[object]]:
        seen: list[object] = [(yield lambda: 1)]
        try:
            yield lambda: 1 // 0
        except ZeroDivisionError as error:
            seen.append(type(error))
        seen.append((yield lambda: 2))
        return seen

    assert driver(steps()) == [1, ZeroDivisionError, 2]


@DRIVERS
def test_an_error_of_the_steps_is_raised(driver: Driver) -> None:
    def steps() -> Steps[None]:
        yield lambda: None
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        driver(steps())


class Interrupted(Generator[Wanted, Any, str]):
    """Steps whose driver is interrupted after it got the first one."""

    gi_running, gi_frame, gi_suspended = False, object(), True

    def __init__(self, steps: Steps[str]) -> None:
        self._steps: Any = steps
        self._first = True

    def send(self, answer: Any) -> Wanted:
        wanted: Wanted = self._steps.send(answer)
        if self._first:
            self._first = False
            raise KeyboardInterrupt
        return wanted

    def throw(self, *error: Any) -> Wanted:
        wanted: Wanted = self._steps.throw(*error)
        return wanted


@DRIVERS
def test_an_interrupt_between_two_steps_is_thrown_into_them(driver: Driver) -> None:
    def steps() -> Steps[str]:
        try:
            yield lambda: None
        except KeyboardInterrupt:
            yield lambda: None
            return "rolled back"
        return "went on"

    assert driver(Interrupted(steps())) == "rolled back"


def test_a_cancelled_task_ends_its_steps_and_is_cancelled_then() -> None:
    ended: list[int] = []

    async def answer(value: int) -> int:
        await asyncio.sleep(0.01)
        return value

    async def work() -> None:
        ticket = Slow()

        def steps() -> Steps[None]:
            ended.append((yield lambda: answer(1)))
            ended.append((yield ticket))
            ended.append((yield lambda: 3))

        task = asyncio.create_task(drive_awaiting(steps()))
        for _ in range(3):  # in the call, then twice in the ticket
            await asyncio.sleep(0.008)
            task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        ticket.durable.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(work())
    assert ended == [1, 7, 3]


async def test_a_cancelled_task_is_cancelled_though_its_steps_fail() -> None:
    ticket = Slow()

    def steps() -> Steps[None]:
        yield ticket
        raise KeyError("rolled back")

    task = asyncio.create_task(drive_awaiting(steps()))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    ticket.durable.set()
    with pytest.raises(asyncio.CancelledError) as raised:
        await task
    assert isinstance(raised.value.__cause__, KeyError)
