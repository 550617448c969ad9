"""What a target is to the service, and how anything becomes one.

In: SQLAlchemy engines, functions, coroutine functions, or objects with ``apply``. Out: `Target`s.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine, Hashable, Sequence
from typing import Any, Protocol, runtime_checkable

from tallystick.errors import CorruptLogError
from tallystick.roles import PersistEntry

Apply = Callable[[PersistEntry], object]
AsyncApply = Callable[[PersistEntry], Coroutine[Any, Any, object]]


class TargetDownError(Exception):
    """Raised by a target that cannot be reached: nothing is wrong with the transactions."""


class TargetAheadError(CorruptLogError):
    """Raised by a target that holds transactions which the log never had: the log was lost, or
    is an old copy, and would use their numbers again. The service stops."""


DOWN_ERRORS: tuple[type[Exception], ...] = (TargetDownError, ConnectionError, TimeoutError)
"""What a function may raise to say that its target cannot be reached."""


@runtime_checkable
class Target(Protocol):
    """A store that transactions are applied to.

    ``apply`` gets entries in order, with the operations for this target only, and applies all
    or none of them; it may get the same ones again after a crash. It raises `TargetDownError`
    (or `ConnectionError`, `TimeoutError`) if the store cannot be reached, and anything else
    where a transaction is at fault.
    """

    @property
    def batch_max(self) -> int:
        """Entries that one call can take, all or none."""
        ...

    def open(self, log_id: str) -> None:
        """Get ready; ``log_id`` tells the logs apart that feed the store."""
        ...

    def apply(self, entries: Sequence[PersistEntry]) -> None: ...

    def settled(self, below: int) -> None:
        """No transaction with a number under ``below`` will ever be applied again."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class CountingTarget(Target, Protocol):
    """A target that keeps numbers, and so sees whether the log still has all of them."""

    @property
    def place(self) -> Hashable | None:
        """Where it keeps them: no two targets of a service may have one place, for they get the
        same numbers. None if it keeps none after all."""
        ...

    def given(self, last_number: int) -> None:
        """The log has given no number above this one, before now. Called before `open`."""
        ...


def target_of(thing: Any) -> Target:
    """``thing`` as a target. Raises `TypeError` for what cannot be one."""
    if isinstance(thing, Target):
        return thing
    if type(thing).__module__.partition(".")[0] == "sqlalchemy":
        return _sql_target(thing)
    if inspect.iscoroutinefunction(thing) or inspect.iscoroutinefunction(
        getattr(thing, "__call__", None)  # noqa: B004 - an object whose call is a coroutine
    ):
        return AsyncTarget(thing)
    if callable(thing):
        return CallableTarget(thing)
    raise TypeError(f"{thing!r} is no engine, no function and has no apply")


def _sql_target(thing: Any) -> Target:
    from sqlalchemy.engine import Engine

    from tallystick.services.write_behind.targets.sql import SqlTarget

    if not isinstance(thing, Engine):
        raise TypeError(f"{thing!r} is no engine; expected what sqlalchemy.create_engine makes")
    return SqlTarget(thing)


class CallableTarget:
    """Calls a function with each entry. At least once: the function has to be idempotent, for
    which the entry's ``number`` and ``reference`` are there."""

    batch_max = 1

    def __init__(self, function: Apply) -> None:
        self._function = function

    def open(self, log_id: str) -> None:
        """Nothing to get ready."""

    def apply(self, entries: Sequence[PersistEntry]) -> None:
        for entry in entries:
            self._function(entry)

    def settled(self, below: int) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing to close."""


class AsyncTarget(CallableTarget):
    """Awaits a coroutine function with each entry, on an event loop of the target's own."""

    def __init__(self, function: AsyncApply) -> None:
        self._coroutine = function
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def open(self, log_id: str) -> None:  # noqa: ARG002 - functions keep no numbers
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="write-behind loop", daemon=True
        )
        self._thread.start()

    def apply(self, entries: Sequence[PersistEntry]) -> None:
        loop = self._loop
        if loop is None:
            raise TargetDownError("the target is closed")
        for entry in entries:
            asyncio.run_coroutine_threadsafe(self._coroutine(entry), loop).result()

    def close(self) -> None:
        """Cancel what still runs, and end the loop."""
        loop, self._loop = self._loop, None
        if loop is None or self._thread is None:
            return
        asyncio.run_coroutine_threadsafe(_cancel_others(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join()
        loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
