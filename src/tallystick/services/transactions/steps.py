"""Drivers of a protocol that is written as a generator: a thread that blocks, or an event loop.

In: steps, a generator that yields whatever it has to wait for: a call of a resource or a hook, or
a ticket of the log. Out: the result of the generator. Each answer is sent into it, each error
thrown into it. So the order of the steps, which is the protocol, is written once.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from tallystick.callables import checked, require_value
from tallystick.roles import Ticket
from tallystick.services.transactions.resource import Vote
from tallystick.storage.signals import interrupt_in, uninterrupted

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Whole:
    """A call that no signal handler interrupts: what must be ended is not left half done."""

    call: Callable[[], Any]

    def __call__(self) -> Any:
        """Make the call."""
        return self.call()


class Hook(Whole):
    """A call of the application, which has its signal handlers in force."""


Wanted = Callable[[], Any] | Ticket
"""What a step waits for. On an event loop the result of a call may be awaitable."""

Steps = Generator[Wanted, Any, _Result]

Observer = Callable[..., None]
"""Called as ``observe(step, resource=None)`` at each step of commit and recovery."""


def drive(steps: Steps[_Result]) -> _Result:
    """Run the steps in this thread, which blocks for each of them, and return their result.

    Signal handlers run while a step is waited for, and what they raise is thrown into the
    generator there; the generator itself is not interrupted. In the end it is raised, whatever the
    steps made of it.
    """
    with uninterrupted:
        return drive_in_block(steps)


def drive_in_block(steps: Steps[_Result]) -> _Result:
    """Do what `drive` does; called in an uninterrupted block, which it may leave by an interrupt.

    Handlers run if that is the outermost block.
    """
    resume: Callable[[Any], Wanted] = steps.send
    answer: Any = None
    interrupt: BaseException | None = None
    handled = sys.exception()
    while True:
        try:
            wanted = resume(answer)
        except StopIteration as end:
            result: _Result = end.value
            break
        except BaseException as error:
            if _is_suspended(steps):
                resume, answer = steps.throw, error
                continue
            if interrupt is None:
                raise
            break
        try:
            if not isinstance(wanted, Whole):
                answer = uninterrupted.interruptible(wanted if callable(wanted) else wanted.wait)
            elif type(wanted) is Hook:
                answer = uninterrupted.outside(wanted)
            else:
                answer = wanted()
            if answer is not None and type(answer) is not Vote and hasattr(answer, "__await__"):
                require_value(answer, "a call that a thread does not await")
            resume = steps.send
        except BaseException as error:
            interrupt = interrupt or interrupt_in(error, handled)
            resume, answer = steps.throw, error
    if interrupt is not None:
        raise interrupt
    return result


async def drive_awaiting(steps: Steps[_Result]) -> _Result:
    """Run the steps on the event loop and return their result.

    They run to their end even if the task is cancelled, as a commit must not stop half-way; then
    `asyncio.CancelledError` is raised.
    """
    resume: Callable[[Any], Wanted] = steps.send
    answer: Any = None
    cancels: list[asyncio.CancelledError] = []
    while True:
        try:
            wanted = resume(answer)
        except StopIteration as end:
            if cancels:
                raise cancels[0] from None
            result: _Result = end.value
            return result
        except BaseException as error:
            if _is_suspended(steps):
                resume, answer = steps.throw, error
                continue
            if cancels:
                raise cancels[0] from error
            raise
        try:
            if callable(wanted):
                answer = wanted()
                if answer is not None and hasattr(answer, "__await__"):
                    answer = await _await_to_end(answer, cancels)
            else:
                answer = await _await_ticket(wanted, cancels)
            resume = steps.send
        except GeneratorExit:  # the loop was closed: nothing can be awaited any more
            raise
        except BaseException as error:
            resume, answer = steps.throw, error


async def follow(steps: Steps[_Result]) -> _Result:
    """Run the steps of a single call on the event loop; a cancelled task ends them at once."""
    resume: Callable[[Any], Wanted] = steps.send
    answer: Any = None
    while True:
        try:
            wanted = resume(answer)
        except StopIteration as end:
            result: _Result = end.value
            return result
        try:
            answer = wanted() if callable(wanted) else wanted
            if answer is not None and hasattr(answer, "__await__"):
                answer = await answer
            resume = steps.send
        except BaseException as error:
            resume, answer = steps.throw, error


def one_step(wanted: Wanted) -> Steps[Any]:
    """Return steps that consist of ``wanted`` alone."""
    return (yield wanted)


def observer(on_step: Callable[[str], None] | None) -> Observer:
    """Return a function that reports a step, and the resource it concerns, to ``on_step``."""
    if on_step is None:
        return _ignore
    on_step = checked(on_step, "on_step")

    def observe(step: str, resource: str | None = None) -> None:
        on_step(step if resource is None else f"{step} {resource}")

    return observe


def _ignore(step: str, resource: str | None = None) -> None:
    """Report nothing."""


async def _await_to_end(answer: Awaitable[Any], cancels: list[asyncio.CancelledError]) -> Any:
    """Await an answer to its end; cancellations meanwhile are added to ``cancels``."""
    job = asyncio.ensure_future(answer)
    while not job.done():
        try:
            await asyncio.wait([job])
        except asyncio.CancelledError as cancel:
            cancels.append(cancel)
    return job.result()


async def _await_ticket(ticket: Ticket, cancels: list[asyncio.CancelledError]) -> int:
    """Await a ticket, again after each cancellation, which is added to ``cancels``."""
    while True:
        try:
            return await ticket
        except asyncio.CancelledError as cancel:
            cancels.append(cancel)


def _is_suspended(steps: Steps[Any]) -> bool:
    """Return True if it was the driver that was interrupted: the error is thrown into the steps."""
    return inspect.getgeneratorstate(steps) == inspect.GEN_SUSPENDED
