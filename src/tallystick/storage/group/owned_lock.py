"""A lock that a thread does not wait for twice.

In: threads that want to be alone at something. Out: one of them owns the lock.

Python may run a finalizer between any two steps of a thread, and that may call what the thread is
in. With another lock it would wait for itself for ever. So it would for a thread that was stopped,
as all others are once the interpreter ends, in which it still runs finalizers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from tallystick.errors import LogWriteError
from tallystick.storage.fork import Uncopied
from tallystick.storage.scheduling import threading


class WaitRefusedError(LogWriteError):
    """A wait was refused, and not what is waited for: that is with the log, which goes on with it.

    So nothing may be undone that was done for it: it can be in the log at the next opening.
    """


class OwnedLock(Uncopied):
    """A lock that knows its owner; ``refusal`` returns the error for it.

    A ``with`` block has to be in one of `uninterrupted`: a signal may come before it is entered.
    """

    __slots__ = ("_lock", "_owner", "_refusal")

    def __init__(self, refusal: Callable[[], LogWriteError]) -> None:
        self._refusal = refusal
        self._lock = threading.Lock()
        self._owner = 0

    @property
    def owned(self) -> bool:
        """True if the calling thread owns the lock."""
        return self._owner == threading.get_ident()

    def locked(self) -> bool:
        """Return True if a thread owns the lock."""
        return self._lock.locked()

    def acquire(self) -> None:
        """Block until the lock is free and take it. Raises as `refuse_wait` does."""
        thread = threading.get_ident()  # before: where there is no memory for it, nothing is taken
        if self._lock.locked():
            self.refuse_wait()
        self._lock.acquire()
        self._owner = thread

    def try_acquire(self) -> bool:
        """Take the lock if it is free; False if it is not."""
        thread = threading.get_ident()
        if not self._lock.acquire(blocking=False):
            return False
        self._owner = thread
        return True

    def release(self) -> None:
        """Let another thread have the lock."""
        self._owner = 0
        self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def refuse_wait(self) -> None:
        """Raise `LogWriteError` if the caller would wait for ever, for itself or what has ended."""
        if self._owner == threading.get_ident():
            raise self._refusal()
        if sys.is_finalizing():
            raise ended_error()


def nested_call_error(path: str | None = None) -> LogWriteError:
    """Return the error for a call that came while the same thread was in another one."""
    return LogWriteError(
        "this call came in the middle of another one of the same thread",
        file=path,
        advice="A finalizer made it (`__del__`, or a callback of weakref): have it note what is to "
        "be written, and write that outside",
    )


def ended_error(path: str | None = None) -> WaitRefusedError:
    """Return the error for a call that would wait for other threads as the interpreter ends."""
    return WaitRefusedError(
        "the interpreter ends, and has stopped the thread that was to write this: it may be lost",
        file=path,
        advice="End the threads that write before the program ends, or close the log by atexit",
    )
