"""What the operating system refuses while a log is opened or closed, as `tallystick.errors`.

In: a function that opens something at a path. Out: the same function, which raises no bare
`OSError`: no space is a `LogFullError`, all else a `LogUnreadableError`, with file and advice.
What fails inside `closing_log` is a `LogPoisonedError`, inside `writing_backup` a `LogFullError` or
a `LogWriteError`. `lock_log` takes a log for its owner, `Closing` ends with a ``with`` block.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import posixpath
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, Self, TypeVar

from tallystick.errors import (
    LogFullError,
    LogPoisonedError,
    LogUnreadableError,
    LogWriteError,
    TallystickError,
    TransactionUsageError,
)
from tallystick.posix import require
from tallystick.refusals import (
    ROOM_ERRORS,
    SPACE_ERRORS,
    advice_on,
    file_of,
    reason_of,
    room_advice,
)
from tallystick.storage.files import FileSystem, HeldFolder, Lock
from tallystick.storage.fork import Uncopied
from tallystick.storage.scheduling import threading, time
from tallystick.storage.signals import starts_unchecked, uninterrupted

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")

_NO_FOLDER = (errno.EEXIST, errno.ENOTDIR)

_JOIN_SECONDS = 0.05


class Closing(Uncopied, ABC):
    """What is open until it is closed: at the end of a ``with`` block, or by hand."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """Give up what is open."""

    def __enter__(self) -> Self:
        return self

    @starts_unchecked
    def __exit__(self, *_: object) -> None:
        self.close()


def opens(function: Callable[_Given, None]) -> Callable[_Given, None]:
    """Make an ``__init__`` that opens something open all of it, or leave nothing open.

    It is one uninterrupted block. What a handler raises comes out at its end, once what was opened
    is closed again: the caller does not get it.

    Args:
        function: the ``__init__``; it closes what it has opened if it fails. Afterwards ``_close``
            does, where there is one because ``close`` is awaited, else ``close``.
    """

    @wraps(function)
    def opening(*arguments: _Given.args, **options: _Given.kwargs) -> None:
        opened = False
        try:
            with uninterrupted:
                function(*arguments, **options)
                opened = True
        except BaseException:
            if opened:
                opener: Any = arguments[0]
                getattr(opener, "_close", opener.close)()
            raise

    return opening


def owns_log(
    has: str,
) -> Callable[[Callable[_Given, None]], Callable[_Given, None]]:
    """Make an ``__init__`` that is given an open log, as ``log``, close it if it fails.

    Args:
        has: an attribute that such a log has; what has none is left as it is.
    """

    def owning(function: Callable[_Given, None]) -> Callable[_Given, None]:
        @wraps(function)
        def opening(*arguments: _Given.args, **options: _Given.kwargs) -> None:
            try:
                function(*arguments, **options)
            except BaseException:
                log: Any = options.get("log")
                if hasattr(log, has):
                    log.close()
                raise

        return opening

    return owning


def closes(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """Make a method that closes something close all of it before an interrupt comes out."""

    @starts_unchecked
    @wraps(function)
    def closing(*arguments: _Given.args, **options: _Given.kwargs) -> _Result:
        with uninterrupted:
            return function(*arguments, **options)

    return closing


def opens_log(function: Callable[_Given, None]) -> Callable[_Given, None]:
    """Make an ``__init__`` that opens a log at its first argument, a path; as `opens` does.

    It raises documented errors.
    """
    name = list(signature(function).parameters)[1]

    @wraps(function)
    def opening(*arguments: _Given.args, **options: _Given.kwargs) -> None:
        given = options.get(name, arguments[1] if len(arguments) > 1 else "")
        with opening_log(given or ""):
            function(*arguments, **options)

    return opens(opening)


_GREENLETS = (
    ("gevent", "gevent.monkey", "is_module_patched", ("threading", "socket")),
    ("eventlet", "eventlet.patcher", "is_monkey_patched", ("thread", "socket")),
)
"""What replaces threads: its module, the function to ask, and what to ask it for."""


@contextmanager
def opening_log(path: object) -> Iterator[None]:
    """Raise documented errors for what is refused inside, while the log at ``path`` is opened."""
    place = _place(path)
    require(place)
    _require_threads(place)
    try:
        yield
    except OSError as error:
        raise refused(place, error) from error


def _require_threads(place: str) -> None:
    """Refuse a process whose threads and sockets gevent or eventlet have replaced.

    Greenlets share one thread of the system. One that waits for another in compiled code, or in a
    block that no signal interrupts, would keep that one from ever going on.
    """
    for name, module, question, replaceable in _GREENLETS:
        if module in sys.modules and any(map(getattr(sys.modules[module], question), replaceable)):
            raise LogWriteError(
                f"{name} has replaced the threads or sockets of this process, and greenlets that "
                "share a log would wait for each other for ever",
                file=place,
                advice="Open it in a process that is not patched: gunicorn's gthread workers, "
                "Celery's prefork or threads pool",
            )


class LockedFolder(Uncopied):
    """The folder of a log that is open: its lock, and the file system that holds it."""

    def __init__(self, fs: HeldFolder, lock: Lock) -> None:
        self.fs = fs
        self._lock = lock

    def release(self) -> None:
        """Release the lock and the folder; a second call does nothing."""
        self._lock.release()
        self.fs.close()


def lock_log(fs: FileSystem, path: str, *, whole: bool = False) -> LockedFolder:
    """Hold the folder of a log, take its lock file, and make every name in the folder durable.

    A process that was killed may have named a file and not synced the folder. The name is seen now,
    and yet a power cut takes it away, with everything that is acknowledged from now on.

    Raises:
        LogLockedError: It has an owner.
        OSError: The folder cannot be synced.
    """
    held = fs.hold(posixpath.dirname(path))
    with contextlib.ExitStack() as undo:
        undo.callback(held.close)
        locked = LockedFolder(held, held.lock(path, whole=whole))
        undo.callback(locked.release)
        held.sync_dir(posixpath.dirname(path))
        undo.pop_all()
    return locked


def start_thread(thread: threading.Thread) -> None:
    """Start a thread.

    Raises:
        OSError: the system has no memory for another one, or allows none, or the interpreter ends
            (EAGAIN).
    """
    if sys.is_finalizing():  # Python 3.11 would wait for ever for it to begin
        raise OSError(errno.EAGAIN, "no other thread can be started while the interpreter ends")
    try:
        thread.start()
    except (RuntimeError, MemoryError) as error:
        text = f"no other thread can be started ({str(error) or 'no memory'})"
        raise OSError(errno.EAGAIN, text) from error


def join_thread(thread: threading.Thread, seconds: float = math.inf) -> None:
    """Wait for the end of a thread, so long at most; a signal may interrupt it, as `Bell.wait`.

    But not within `threading.Thread.join`: that would take a thread that runs for one that ended.
    """
    deadline = time.monotonic() + seconds
    while thread.is_alive() and (rest := deadline - time.monotonic()) > 0:
        thread.join(min(rest, _JOIN_SECONDS))
        uninterrupted.interruptible(bool)


def is_running(thread: threading.Thread) -> bool:
    """Return whether a thread has not ended; no signal interrupts the look.

    Interrupted, `threading.Thread.is_alive` takes a thread that runs for one that ended.
    """
    with uninterrupted:
        return thread.is_alive()


def require_outside(threads: Iterable[threading.Thread | None], what: str) -> None:
    """Require that none of some threads runs this call: ``what`` waits for their ends.

    Raises:
        TransactionUsageError: one of these threads does.
    """
    if threading.current_thread() in threads:
        raise TransactionUsageError(
            f"{what} was called in a thread that it has to wait for",
            advice="Return from what is called there, and call it in another thread",
        )


@contextmanager
def needing_space(file: str, what: str) -> Iterator[None]:
    """Raise `LogFullError` where there is no space, or no descriptor, for ``what`` is made inside.

    Nothing is synced inside: a sync that fails leaves nothing that could be tried again.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in ROOM_ERRORS:
            raise
        raise full_error(file, what, error) from error


def full_error(file: str, what: str, error: OSError) -> LogFullError:
    """Return the error for ``what``, for which there is no space, or no descriptor."""
    missing = "space" if error.errno in SPACE_ERRORS else "file descriptor"
    return LogFullError(
        f"no {missing} for {what}: {reason_of(error)}",
        file=file,
        advice=f"{room_advice(error)}, then try again; the log is unharmed",
    )


@contextmanager
def closing_log(path: str) -> Iterator[None]:
    """Raise `LogPoisonedError` for what fails inside, while the log at ``path`` is closed."""
    try:
        yield
    except OSError as error:
        raise LogPoisonedError(
            f"the end of the log could not be written: {reason_of(error)}",
            file=file_of(error, path),
            advice="What was acknowledged is there; the next opening recovers the log",
        ) from error


@contextmanager
def writing_backup(
    target: str, what: str = "backup", advice: str = "Remove the target, and take the backup again"
) -> Iterator[None]:
    """Raise documented errors for what fails inside, while a backup is written to ``target``.

    Args:
        target: where it is written.
        what: the name of what is written.
        advice: what to do if that fails.

    Raises:
        LogFullError: there is no space for it.
        LogWriteError: anything else that the operating system refuses.
    """
    try:
        yield
    except OSError as error:
        kind = LogFullError if error.errno in SPACE_ERRORS else LogWriteError
        reason = "it is no folder" if error.errno in _NO_FOLDER else reason_of(error)
        raise kind(
            f"the {what} could not be written: {reason}",
            file=file_of(error, target),
            advice=f"The source is unharmed. {advice}",
        ) from error


def require_apart(target: str, *folders: str) -> None:
    """Require that a new folder is not inside one of these, whatever links lead there.

    Raises:
        LogWriteError: it is inside a folder of these, or is the same folder.
        LogUnreadableError: no folder can have this name.
    """
    place = os.path.realpath(_place(target))
    for folder in folders:
        if os.path.commonpath((place, owner := os.path.realpath(folder))) == owner:
            raise LogWriteError(
                "the target is inside the log that is copied",
                file=target,
                found=folder,
                advice="Nothing was written. Choose a folder beside it",
            )


def claim_target(fs: FileSystem, target: str, but: str = "") -> None:
    """Make the folder of a backup; arguments as of `require_empty`.

    Raises:
        LogFullError: there is no space for it.
        LogWriteError: it holds something, or cannot be made: what is there is somebody else's.
    """
    with writing_backup(target, advice="Nothing was written. Choose another folder"):
        fs.mkdir(target)
        require_empty(fs, target, but)


def require_empty(fs: FileSystem, target: str, but: str = "") -> None:
    """Require that a folder which a backup is written to is absent or empty.

    Args:
        fs: the file system.
        target: the folder.
        but: the name of a file that may be there.

    Raises:
        LogWriteError: it is not.
    """
    if names := [name for name in fs.list(target) if name != but]:
        raise LogWriteError(
            "the target of a backup must be absent or empty",
            file=target,
            found=f"{len(names)} files, {names[0]} among them",
            advice="Choose another folder; nothing was written",
        )


def refused(path: str, error: OSError) -> TallystickError:
    """Return the error for what the operating system has refused while ``path`` was opened."""
    file, reason = file_of(error, path), reason_of(error)
    if error.errno in SPACE_ERRORS:
        return LogFullError(
            f"no space to open the log: {reason}",
            file=file,
            advice=f"{room_advice(error)}, then open it again",
        )
    return LogUnreadableError(f"cannot open the log: {reason}", file=file, advice=advice_on(error))


def _place(path: object) -> str:
    """Return the path as text. Raises `LogUnreadableError` if no file can have it."""
    place = str(path)
    try:
        possible = b"\0" not in os.fsencode(place)
    except UnicodeEncodeError:
        possible = False
    if not possible:
        raise LogUnreadableError(
            "this cannot be the name of a file", file=place, advice="Choose another path"
        )
    return place
