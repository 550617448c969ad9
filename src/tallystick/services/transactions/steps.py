"""How the steps of a transaction are carried out: by a thread that blocks, or on an event loop.

In: steps, a generator that yields what it has to wait for: a call of a resource or a hook, or a
ticket of the log. Out: each answer is sent, each error thrown back into it, and its result is
the result. The order of the steps, which is the protocol, is written once and knows no face.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

from tallystick.roles import Ticket

_Result = TypeVar("_Result")

Wanted = Callable[[], Any] | Ticket
"""What a step waits for. On an event loop a call may answer with something to await."""

Steps = Generator[Wanted, Any, _Result]


def drive(steps: Steps[_Result]) -> _Result:
    """The result of the steps, in this thread, which waits for each of them."""
    go: Callable[[Any], Wanted] = steps.send
    answer: Any = None
    while True:
        try:
            wanted = go(answer)
        except StopIteration as end:
            result: _Result = end.value
            return result
        except BaseException as error:
            go, answer = _between(steps, error), error
            continue
        try:
            answer = wanted() if callable(wanted) else wanted.wait()
            go = steps.send
        except BaseException as error:
            go, answer = steps.throw, error


async def drive_awaiting(steps: Steps[_Result]) -> _Result:
    """The result of the steps, awaited. They run to their end even if the task is cancelled, as
    a commit must not be left half told; then `asyncio.CancelledError` is raised."""
    go: Callable[[Any], Wanted] = steps.send
    answer: Any = None
    cancels: list[asyncio.CancelledError] = []
    while True:
        try:
            wanted = go(answer)
        except StopIteration as end:
            if cancels:
                raise cancels[0] from None
            result: _Result = end.value
            return result
        except BaseException as error:
            if cancels and not _suspended(steps):
                raise cancels[0] from error
            go, answer = _between(steps, error), error
            continue
        try:
            if callable(wanted):
                answer = wanted()
                if answer is not None and hasattr(answer, "__await__"):
                    answer = await _uncut(answer, cancels)
            else:
                answer = await _durable(wanted, cancels)
            go = steps.send
        except GeneratorExit:  # the loop was closed: there is nothing left to wait on
            raise
        except BaseException as error:
            go, answer = steps.throw, error


async def follow(steps: Steps[_Result]) -> _Result:
    """The result of the steps of a single call, awaited; whoever is cancelled cuts them short."""
    go: Callable[[Any], Wanted] = steps.send
    answer: Any = None
    while True:
        try:
            wanted = go(answer)
        except StopIteration as end:
            result: _Result = end.value
            return result
        try:
            answer = wanted() if callable(wanted) else wanted
            if answer is not None and hasattr(answer, "__await__"):
                answer = await answer
            go = steps.send
        except BaseException as error:
            go, answer = steps.throw, error


def one_step(wanted: Wanted) -> Steps[Any]:
    """Steps of which there is one."""
    return (yield wanted)


async def _uncut(answer: Awaitable[Any], cancels: list[asyncio.CancelledError]) -> Any:
    """What a resource answers, whoever cancels meanwhile."""
    job = asyncio.ensure_future(answer)
    while not job.done():
        try:
            await asyncio.wait([job])
        except asyncio.CancelledError as cancel:
            cancels.append(cancel)
    return job.result()


async def _durable(ticket: Ticket, cancels: list[asyncio.CancelledError]) -> int:
    """The same for a ticket, which can be awaited again."""
    while True:
        try:
            return await ticket
        except asyncio.CancelledError as cancel:
            cancels.append(cancel)


def _between(steps: Steps[Any], error: BaseException) -> Callable[[Any], Wanted]:
    """Where an error goes that came out of the steps: up, if they have ended with it. Else an
    interrupt has hit between two of them, and they have to hear of it."""
    if _suspended(steps):
        return steps.throw
    raise error


def _suspended(steps: Steps[Any]) -> bool:
    return inspect.getgeneratorstate(steps) == inspect.GEN_SUSPENDED
