"""The mark of an open log: numbers are not used twice, and lost files are missed.

In: a folder on a `FileSystem`, and what became durable or may be disposed of. Out: the file
``<base>.mark`` (see `format.high_water_mark`), replaced as a whole, durably.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from dataclasses import replace

from tallystick.errors import CorruptLogError
from tallystick.printable import logger
from tallystick.storage.files import FileSystem, read_file, write_whole
from tallystick.storage.fork import Uncopied
from tallystick.storage.scheduling import threading
from tallystick.systems.cloudtran.format.high_water_mark import (
    SUFFIX,
    HighWaterMark,
    decode_mark,
    encode_mark,
)

_log = logger(__name__)


def mark_path(folder: str, base: str) -> str:
    """Return the path of a log's mark."""
    return posixpath.join(folder, base + SUFFIX)


def read_mark(fs: FileSystem, folder: str, base: str) -> HighWaterMark:
    """Return the mark, all zero if there is none.

    Raises:
        CorruptLogError: the mark is damaged.
    """
    path = mark_path(folder, base)
    if not fs.exists(path):
        return HighWaterMark()
    mark = decode_mark(read_file(fs, path))
    if mark is None:
        raise CorruptLogError(
            "the mark of used numbers is damaged, which also tells whether files are missing",
            file=path,
            advice="If log files are left beside it, remove it: their numbers are greater",
        )
    return mark


def write_mark(fs: FileSystem, folder: str, base: str, mark: HighWaterMark) -> None:
    """Replace the mark; durable on return."""
    write_whole(fs, mark_path(folder, base), [encode_mark(mark)])


class StoredMark(Uncopied):
    """The mark of a log that is open for writing. Safe for several threads.

    ``last_number`` returns the greatest number that a transaction got: files that go take theirs
    with them, so the mark has it before.
    """

    def __init__(
        self,
        fs: FileSystem,
        folder: str,
        base: str,
        mark: HighWaterMark,
        last_number: Callable[[], int],
    ) -> None:
        self._fs, self._folder, self._base = fs, folder, base
        self._mark = mark
        self._last_number = last_number
        self._lock = threading.Lock()

    def durable(self, serial: int, sequence: int) -> None:
        """Note that all blocks up to this one, of this file, are durable.

        A mark that cannot be written stays as it is: what it says is less, and still true.
        """
        with self._lock:
            if sequence <= self._mark.sequence:
                return
            try:
                self._replace(replace(self._mark, serial=serial, sequence=sequence))
            except OSError as error:
                _log.warning("%s: the mark cannot be written: %s", self._folder, error)

    def kept_from(self, sequence: int | None) -> None:
        """Note, before older files may go, that blocks are kept from this one on; None: none is.

        Raises:
            OSError: the mark cannot be written, so no file may go.
        """
        with self._lock:
            first = self._mark.sequence + 1 if sequence is None else sequence
            if first > self._mark.kept:
                number = max(self._mark.number, self._last_number())
                self._replace(replace(self._mark, number=number, kept=first))

    def _replace(self, mark: HighWaterMark) -> None:
        write_mark(self._fs, self._folder, self._base, mark)
        self._mark = mark
