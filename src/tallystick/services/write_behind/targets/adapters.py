"""Targets made of SQLAlchemy engines, functions and coroutine functions.

In: what an application gives as a target. Out: a `Target`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from tallystick.callables import checked, is_coroutine_function, require_plain_calls
from tallystick.printable import logger
from tallystick.roles import PersistEntry
from tallystick.services.write_behind.targets.target import (
    PartlyAppliedError,
    Target,
    TargetDownError,
)
from tallystick.storage.fork import Uncopied
from tallystick.storage.opening import start_thread
from tallystick.storage.scheduling import threading, time

BATCH_SECONDS = 0.005
"""Time after which a target of functions ends a batch: what it has applied is marked then."""

CANCEL_SECONDS = 5.0
"""Time for running coroutines to end once they are cancelled."""
_log = logger("tallystick.write_behind")
_CALLS = ("open", "apply", "settled", "close", "given")

Apply = Callable[[PersistEntry], object]
AsyncApply = Callable[[PersistEntry], Coroutine[Any, Any, object]]


def target_of(thing: Any) -> Target:
    """Return ``thing`` as a target.

    Raises:
        TypeError: It cannot be one.
        TransactionUsageError: Its calls return before their body runs.
    """
    if isinstance(thing, Target):
        return require_plain_calls(thing, _CALLS, "a target")
    if type(thing).__module__.partition(".")[0] == "sqlalchemy":
        return _sql_target(thing)
    if is_coroutine_function(thing):
        return AsyncTarget(thing)
    if callable(thing):
        return CallableTarget(thing)
    if isinstance(thing, str):  # a URL, whose password no message shows
        raise TypeError(
            "a target is a text; make an engine of a URL: sqlalchemy.create_engine(url)"
        )
    raise TypeError(f"{thing!r} is no engine, no function and has no apply")


def _sql_target(thing: Any) -> Target:
    # SQLAlchemy is an extra: only programs that give an engine have it.
    from sqlalchemy.engine import Engine

    from tallystick.services.write_behind.targets.sql import SqlTarget

    if not isinstance(thing, Engine):
        raise TypeError(f"{thing!r} is no engine; expected what sqlalchemy.create_engine makes")
    return SqlTarget(thing)


class CallableTarget:
    """Call a function with each entry, at least once.

    The function has to be idempotent, by the entry's ``number`` or ``reference``.
    """

    batch_max = 1_000

    def __init__(self, function: Apply) -> None:
        self._function = checked(function, "a function that is a target")

    def open(self, log_id: str) -> None:
        """Do nothing: a function needs no preparation."""

    def apply(self, entries: Sequence[PersistEntry]) -> None:
        """Call the function with each entry, as long as `BATCH_SECONDS` are not over.

        Raises:
            PartlyAppliedError: They are over, or the function has raised.
        """
        self._apply_each(entries, self._function)

    def _apply_each(
        self, entries: Sequence[PersistEntry], function: Callable[[PersistEntry], object]
    ) -> None:
        until = time.monotonic() + BATCH_SECONDS
        last = len(entries) - 1
        for count, entry in enumerate(entries):
            try:
                function(entry)
            except BaseException as error:
                raise PartlyAppliedError(count) from error
            if count < last and time.monotonic() >= until:
                raise PartlyAppliedError(count + 1)

    def settled(self, below: int) -> None:
        """Do nothing: no numbers are kept."""

    def close(self) -> None:
        """Do nothing: nothing was acquired."""


class AsyncTarget(CallableTarget, Uncopied):
    """Await a coroutine function with each entry, on an event loop of the target's own.

    Attributes:
        thread: the thread of the loop; None while the target is closed.
    """

    def __init__(self, function: AsyncApply) -> None:
        self._coroutine = function
        self._loop: asyncio.AbstractEventLoop | None = None
        self.thread: threading.Thread | None = None

    def open(self, log_id: str) -> None:  # noqa: ARG002 - functions keep no numbers
        """Start the event loop in a thread."""
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=_run, args=(loop,), name="write-behind loop", daemon=True)
        try:
            start_thread(thread)
        except OSError:
            loop.close()
            raise
        # Only now: a loop that does not run ends nothing that is asked of it.
        self._loop, self.thread = loop, thread

    def apply(self, entries: Sequence[PersistEntry]) -> None:
        """Run the coroutine for each entry, and wait for it."""
        loop = self._loop
        if loop is None:
            raise TargetDownError("the target is closed")

        def run(entry: PersistEntry) -> None:
            asyncio.run_coroutine_threadsafe(self._coroutine(entry), loop).result()

        self._apply_each(entries, run)

    def close(self) -> None:
        """Cancel running coroutines, and end the loop; it is left to its thread if one goes on."""
        loop, self._loop = self._loop, None
        if loop is None or self.thread is None:
            return
        try:
            asyncio.run_coroutine_threadsafe(_cancel_others(), loop).result(CANCEL_SECONDS)
        except TimeoutError:
            _log.warning("a coroutine goes on after its target was closed")
            return
        loop.call_soon_threadsafe(loop.stop)
        self.thread.join()
        loop.close()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """Run an event loop until it is stopped, also after what ends others."""
    while True:
        try:
            loop.run_forever()
        except (SystemExit, KeyboardInterrupt):  # of a task, which has it for an error, too
            continue
        return


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
