"""The thread that disposes of log files: oldest first, and again after a failure.

In: a log that knows which files may go, and a disposer. Out: files leave the log directory, and the
log forgets each of them. A file stays until its disposer has succeeded, and later ones wait for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import posixpath
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

from tallystick.callables import require_done, require_plain_calls, require_value
from tallystick.errors import TallystickError
from tallystick.printable import logger
from tallystick.storage.files import FileSystem, Placed, write_whole
from tallystick.storage.fork import Uncopied
from tallystick.storage.local import LOCAL
from tallystick.storage.opening import start_thread
from tallystick.storage.scheduling import threading, time

RETRY_SECONDS = 1.0
"""Default delay after the first failure."""
RETRY_SECONDS_MAX = 60.0
"""Longest delay after a failure."""
POLL_SECONDS = 0.5
"""Default of the longest time between two rounds."""
PAUSE_SECONDS = 0.1
"""Shortest time between two rounds: each of them may cost the log a sync."""

_log = logger(__name__)
_Disposer = TypeVar("_Disposer", bound="LogDisposer")


class LogDisposer(Protocol):
    """Gets a redundant log file out of the log directory.

    Called for one file at a time, oldest first, only once everything that made the file
    redundant is durable. Any exception is a failure, and so is a file that is still there on
    return; a file that is gone is a success. After a crash it may be called again for the same
    file: an identical copy at the destination is then a success, a differing one a failure.
    """

    def dispose(self, path: str) -> None:
        """Get the file at ``path`` out of the log directory."""
        ...


class DisposableLog(Protocol):
    """What disposal needs of a log; see `tallystick.roles.PersistLog`."""

    def disposable(self) -> Sequence[str]:
        """Return the files that may go now, oldest first."""
        ...

    def disposed(self, path: str) -> None:
        """Forget a file that has gone, durably."""
        ...


@runtime_checkable
class HoldingDisposer(Protocol):
    """A disposer that may keep a file for a reader.

    It says so before the log gives the file up; once it has agreed, it goes on agreeing.
    """

    def agrees(self, path: str) -> bool:
        """Return True if the file may go."""
        ...


@runtime_checkable
class NamingDisposer(Protocol):
    """A disposer that can give the file another name where it puts it."""

    def dispose_as(self, path: str, name: str) -> None:
        """Do what `LogDisposer.dispose` does; the file is called ``name`` from then on."""
        ...


@runtime_checkable
class PlacingDisposer(Protocol):
    """A disposer that says into which local folders it puts files."""

    def places(self) -> Sequence[str]:
        """Return the folders; none where it puts files elsewhere, or cannot tell."""
        ...


def places_of(*disposers: object) -> list[str]:
    """Return the local folders into which disposers put files, as far as they say so."""
    return [
        place for one in disposers if isinstance(one, PlacingDisposer) for place in one.places()
    ]


def require_elsewhere(disposer: object, log: str, *services: str) -> None:
    """Require that a disposer puts no file where its log would be looked for, or lies.

    Args:
        disposer: the disposer.
        log: the folder of the log; nor may files go to folders in it.
        services: folders that may hold no log themselves; folders in them may.

    Raises:
        ValueError: it does. Nothing was disposed of.
    """
    try:
        own, around = os.path.realpath(log), {os.path.realpath(one) for one in services}
    except ValueError:
        return  # no file can have such a path (a NUL, a surrogate): opening it says so
    for place in places_of(disposer):
        real = os.path.realpath(place)
        if real in around or os.path.commonpath((real, own)) == own:
            raise ValueError(
                f"the disposer puts the files of the log in {log} into {place}, where they would "
                "be taken for the log: give it a folder beside it"
            )


@runtime_checkable
class NamingLog(Protocol):
    """A log whose files tell by their name whose they are, once they have left it."""

    def archive_name(self, path: str) -> str:
        """Return the name of the file outside of the log, different from those of other logs."""
        ...


def dispose_of(disposer: LogDisposer, path: str, name: str) -> None:
    """Call a disposer with a file, which gets ``name`` if the disposer gives names.

    Raises:
        TransactionUsageError: The disposer returned before its work was done.
    """
    returned: object
    if isinstance(disposer, NamingDisposer):
        name_it: Callable[[str, str], object] = disposer.dispose_as
        returned = name_it(path, name)
    else:
        dispose: Callable[[str], object] = disposer.dispose
        returned = dispose(path)
    require_done(returned, "dispose of a disposer")


@runtime_checkable
class AskingLog(Protocol):
    """A log that gives files up before they are disposed of, and so asks earlier."""

    def ask_first(self, agreed: Callable[[str], bool]) -> None:
        """Give no file up for which ``agreed(path)`` is False."""
        ...


def require_disposer(disposer: _Disposer) -> _Disposer:
    """Return a disposer. Raises `TransactionUsageError` if its calls have to be awaited."""
    return require_plain_calls(disposer, ("dispose", "dispose_as", "agrees"), "a disposer")


class Postponed(Exception):  # noqa: N818 - not an error: the file may not go yet
    """Raised by a disposer that is to be called again later; not counted as a failure."""


@dataclass(slots=True)
class DisposalCounters:
    """What the worker has counted.

    ``disposed`` counts files that are gone, ``failed`` and ``postponed`` calls; ``last_error`` is
    the last failure as text.
    """

    disposed: int = 0
    failed: int = 0
    postponed: int = 0
    last_error: str = ""


class Disposal(Uncopied):
    """Runs a disposer for a log in a thread, until it is closed.

    Args:
        log: The log; if it is an `AskingLog`, it asks the disposer before it gives a file up.
        disposer: The disposer.
        fs: The file system of the log.
        retry_seconds: Delay after the first failure; doubled with each further one.
        poll_seconds: Longest time between two looks for files.
        note: A file that says what is refused, from the first failure up to the next success.

    Attributes:
        thread: The thread in which the disposer is called.
    """

    def __init__(
        self,
        log: DisposableLog,
        disposer: LogDisposer,
        *,
        fs: FileSystem = LOCAL,
        retry_seconds: float = RETRY_SECONDS,
        poll_seconds: float = POLL_SECONDS,
        note: str | None = None,
    ) -> None:
        self.counters = DisposalCounters()
        self._log = log
        self._disposer = require_disposer(disposer)
        self._fs = fs
        self._retry_first = self._retry = retry_seconds
        self._poll = poll_seconds
        self._note = note
        self._refused: str | None = None  # an earlier process may have left a note
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._deadline: float | None = None
        if isinstance(log, AskingLog) and isinstance(disposer, HoldingDisposer):
            log.ask_first(self._agrees)
        self.thread = threading.Thread(target=self._run, name="log disposal", daemon=True)
        start_thread(self.thread)

    def prompt(self) -> None:
        """Have the thread look soon: files may have become disposable."""
        if not self._wake.is_set():
            self._wake.set()

    def close(self, seconds: float) -> None:
        """Finish the running call, then go on for at most ``seconds`` with what may go now.

        A disposer that does not return is abandoned on its daemon thread.
        """
        self._deadline = time.monotonic() + seconds
        self._closing.set()
        self._wake.set()
        self.thread.join(seconds + self._poll)

    def _run(self) -> None:
        while not self._closing.is_set():
            if self._round():
                self._wake.wait(self._poll)
                self._wake.clear()
                self._closing.wait(min(PAUSE_SECONDS, self._poll))
            else:  # a prompt does not shorten the delay after a failure
                self._closing.wait(self._retry)
        self._round()

    def _round(self) -> bool:
        try:
            return self.dispose_all()
        except (TallystickError, OSError) as error:  # the log cannot answer, or not forget the file
            return self._failed("the log", error)

    def dispose_all(self) -> bool:
        """Offer every disposable file once; return False at the first that cannot go."""
        for path in self._log.disposable():
            if self._deadline is not None and time.monotonic() > self._deadline:
                return True
            if not self._dispose(path):
                return False
            self._retry = self._retry_first
        return True

    def _agrees(self, path: str) -> bool:
        """Ask the disposer, in the thread of the log; a failure is no agreement."""
        assert isinstance(self._disposer, HoldingDisposer)
        try:
            agreed = require_value(self._disposer.agrees(path), "agrees of a disposer")
        except Exception as error:  # whatever a foreign disposer raises is a failure of it
            return self._failed(path, error)
        self.counters.postponed += not agreed
        return agreed

    def _dispose(self, path: str) -> bool:
        try:
            if isinstance(self._log, Placed):  # a disposer takes the file that the path leads to
                self._log.require_in_place()
            if self._fs.exists(path):
                self._offer(path)
            if self._fs.exists(path):
                raise FileExistsError(f"the disposer returned and left {path}")
        except Postponed:
            self.counters.postponed += 1
            self._retry = self._retry_first
            return False
        except BaseException as error:  # whatever it raises, sys.exit() too, is a failure of it
            return self._failed(path, error)
        self._log.disposed(path)
        self.counters.disposed += 1
        self._say("")
        return True

    def _offer(self, path: str) -> None:
        try:
            dispose_of(self._disposer, path, self._name(path))
        except FileNotFoundError:
            if self._fs.exists(path):  # something else is missing, as the command of a disposer
                raise

    def _name(self, path: str) -> str:
        log = self._log
        return log.archive_name(path) if isinstance(log, NamingLog) else posixpath.basename(path)

    def _failed(self, path: str, error: BaseException) -> bool:
        self.counters.failed += 1
        self.counters.last_error = f"{path}: {error!r}"
        self._say(self.counters.last_error)
        self._retry = min(2 * self._retry, RETRY_SECONDS_MAX)
        return False

    def _say(self, refused: str) -> None:
        """Log and note what is refused, once for as long as it stays the same."""
        if refused == self._refused:
            return
        self._refused = refused
        if refused:
            _log.warning("a file cannot be disposed of, and is tried again: %s", refused)
        if self._note is None:
            return
        with contextlib.suppress(OSError):  # it is a hint for `tallystick doctor`, and no more
            if refused:
                content = json.dumps({"refused": refused, "since": int(time.time())})
                write_whole(self._fs, self._note, [content.encode()])
            elif self._fs.exists(self._note):
                self._fs.remove(self._note)
