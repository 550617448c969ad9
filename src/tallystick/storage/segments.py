"""Numbered segment files: made ahead of need, rolled, recycled, retired; knows no format.

In: a folder that the caller has locked, and a size. Out: files of that size, filled with zeros
(or with an earlier life), under durable names. What a crash can leave, and what `Segments` makes
of it when it opens the folder:

* ``<prefix><number><suffix>``: a segment, named once its beginning was durable;
* ``spare-<n>``: a whole file without a number, kept to become the next segment;
* ``spare-<n>.new``: a file that was not filled to its end; it is removed.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tallystick.errors import LogClosedError, LogFullError, LogWriteError, copy_error
from tallystick.refusals import ROOM_ERRORS
from tallystick.storage.files import File, HeldFolder
from tallystick.storage.fork import Uncopied, forked_error, register_in_child
from tallystick.storage.opening import needing_space, start_thread
from tallystick.storage.scheduling import threading

_SPARE = "spare-"
_NEW = ".new"


@dataclass(frozen=True, slots=True)
class Naming:
    """How the name of a segment is built from its number."""

    prefix: str
    suffix: str
    digits: int = 10

    def name(self, number: int) -> str:
        """Return the name of segment ``number``."""
        return f"{self.prefix}{number:0{self.digits}d}{self.suffix}"

    def number(self, name: str) -> int | None:
        """Return the number in a name; None if it is not the name of a segment."""
        digits = name.removeprefix(self.prefix).removesuffix(self.suffix)
        if digits.isascii() and digits.isdigit() and self.name(int(digits)) == name:
            return int(digits)
        return None


class Segments(Uncopied):
    """The segment files of one log. Safe for use by several threads.

    Args:
        fs: The file system, which holds the folder.
        folder: The log's folder, which the caller has locked.
        naming: How segments are named.
        size: Bytes of a new segment.
        spares_max: Most retired files that are kept to be used again.
        background: True if a thread keeps a spare ready; else `roll` makes each segment.
        first_spare: Lowest number of a spare that is made.
    """

    def __init__(
        self,
        fs: HeldFolder,
        folder: str,
        naming: Naming,
        *,
        size: int,
        spares_max: int = 2,
        background: bool = True,
        first_spare: int = 1,
    ) -> None:
        self.folder = folder
        self.naming = naming
        self.size = size
        self._fs = fs
        self._ahead = 1 if background else 0
        self._spares_max = spares_max
        self._changed = threading.Condition()
        self._job: threading.Thread | None = None
        self._error: BaseException | None = None
        self._stop: LogClosedError | None = None
        self._holds: list[int] = []
        self._spares: deque[str] = deque(self._sweep())
        self._spare_numbers = itertools.count(max(first_spare, self._first_free_number()))
        register_in_child(self)

    # -- what is there ----------------------------------------------------------------------

    def path(self, number: int) -> str:
        """Return the path of a segment, whether it exists or not."""
        return f"{self.folder}/{self.naming.name(number)}"

    def numbers(self) -> list[int]:
        """Return the numbers of the segments that exist, ascending."""
        found = (self.naming.number(name) for name in self._fs.list(self.folder))
        return sorted(number for number in found if number is not None)

    def open(self, number: int) -> File:
        """Open an existing segment."""
        return self._fs.open(self.path(number))

    # -- rolling ----------------------------------------------------------------------------

    def roll(self, number: int, begin: Callable[[File], object]) -> File:
        """Make a new segment, durable under its name, and open it for writing.

        Args:
            number: The segment's number.
            begin: Writes its first bytes, which are made durable before it gets the name. The
                bytes after them are zeros, or an earlier life of the file.

        Raises:
            LogFullError: There is no space, or no file descriptor. Nothing has changed, and it may
                be tried again.
            LogWriteError: The segment exists already, or the folder was moved.
            LogClosedError: The log is closed, or belongs to the parent of this process.
            OSError: The file system failed otherwise.
        """
        self._check()
        self._fs.require_in_place()
        if self._fs.exists(self.path(number)):
            raise LogWriteError("this segment exists already", file=self.path(number))
        spare = self._take_spare()
        try:
            self._name(spare, number, begin)
        except LogFullError:
            with self._changed:
                self._spares.appendleft(spare)
            raise
        file = self.open(number)
        self.prepare()
        return file

    def _name(self, spare: str, number: int, begin: Callable[[File], object]) -> None:
        with self._needing_space():
            file = self._fs.open(spare)
        # It is closed last, so that there is a descriptor to open it by its name.
        with contextlib.closing(file):
            with self._needing_space():
                begin(file)
            file.datasync()
            with self._needing_space():
                self._fs.rename(spare, self.path(number))
            self._fs.sync_dir(self.folder)

    def _needing_space(self) -> contextlib.AbstractContextManager[None]:
        return needing_space(self.folder, f"another segment of {self.size} bytes")

    def prepare(self) -> None:
        """Start a thread that makes the missing spares, if any; return at once."""
        with self._changed:
            if self._job is None and not self._stop and len(self._spares) < self._ahead:
                job = threading.Thread(
                    target=self._work, name=f"segments of {self.folder}", daemon=True
                )
                with contextlib.suppress(OSError):  # then `roll` makes them
                    start_thread(job)
                    self._job = job

    # -- retiring ---------------------------------------------------------------------------

    @contextlib.contextmanager
    def hold(self, number: int) -> Iterator[None]:
        """Keep segment ``number`` and all later ones from being retired while they are read."""
        # Without a lock: after any other call than these a signal could leave it held.
        try:
            self._holds.append(number)
            yield
        finally:
            self._holds.remove(number)

    def retire_below(self, number: int, *, keep: int = 0) -> list[int]:
        """Retire every segment below ``number`` that is not held, oldest first.

        The caller has made durable what makes them redundant. Each becomes a spare, or is
        removed where there are enough; durably, before the file is used for anything else.

        Args:
            number: The first segment that stays.
            keep: How many of the segments below it stay as well.

        Returns:
            The numbers of those retired.
        """
        self._check()
        held = min(self._holds, default=number)
        with needing_space(self.folder, "listing its files"):
            old = [one for one in self.numbers() if one < number]
        retired = [one for one in old[: max(len(old) - keep, 0)] if one < held]
        for one in retired:
            self._retire(one)
        return retired

    def close(self) -> None:
        """Wait for the background job, and refuse to roll or retire from now on."""
        with self._changed:
            self._stop = self._stop or LogClosedError("the log is closed", file=self.folder)
            job = self._job
        if job is not None:
            job.join()

    def forked(self) -> None:
        """Refuse everything in a forked child: the files are the parent's."""
        self._changed = threading.Condition()
        self._job = None
        self._stop = forked_error(self.folder)

    def _check(self) -> None:
        if self._stop is not None:
            raise copy_error(self._stop)

    # -- spares -----------------------------------------------------------------------------

    def _sweep(self) -> list[str]:
        """Return the paths of usable spares; remove the others."""
        spares = []
        for name in self._fs.list(self.folder):
            path = f"{self.folder}/{name}"
            if not name.startswith(_SPARE):
                continue
            if name.endswith(_NEW) or self._fs.size(path) != self.size:
                self._fs.remove(path)
            else:
                spares.append(path)
        return spares

    def _first_free_number(self) -> int:
        numbers = (path.rpartition(_SPARE)[2] for path in self._spares)
        return 1 + max((int(number) for number in numbers if number.isdecimal()), default=0)

    def _take_spare(self) -> str:
        with self._changed:
            self._changed.wait_for(lambda: self._job is None or self._spares)
            error, self._error = self._error, None
            if self._spares:
                return self._spares.popleft()
        # There may be space now where there was none in the background.
        if error is not None and not (isinstance(error, OSError) and error.errno in ROOM_ERRORS):
            raise error
        with self._needing_space():
            return self._make()

    def _work(self) -> None:
        """Make spares until there are enough; an error waits for the next `roll`."""
        try:
            while not self._stop and len(self._spares) < self._ahead:
                spare = self._make()
                with self._changed:
                    self._spares.append(spare)
                    self._changed.notify_all()
        except BaseException as error:
            self._error = error
        finally:
            with self._changed:
                self._job = None
                self._changed.notify_all()

    def _make(self) -> str:
        path = f"{self.folder}/{_SPARE}{next(self._spare_numbers)}"
        file = self._fs.create(path + _NEW)
        try:
            file.allocate(self.size)
            file.datasync()
        except BaseException:
            with contextlib.suppress(OSError):
                self._fs.remove(path + _NEW)
            raise
        finally:
            file.close()
        self._fs.rename(path + _NEW, path)
        return path

    def _retire(self, number: int) -> None:
        path = self.path(number)
        reuse = len(self._spares) < self._spares_max and self._fs.size(path) == self.size
        spare = f"{self.folder}/{_SPARE}{next(self._spare_numbers)}"
        with needing_space(self.folder, "changing the names of its files"):
            if reuse:
                self._fs.rename(path, spare)
            else:
                self._fs.remove(path)
        self._fs.sync_dir(self.folder)
        if reuse:
            with self._changed:
                self._spares.append(spare)
