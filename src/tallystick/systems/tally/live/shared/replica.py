"""The state of a shared log as a member knows it: read from the files, up to what is durable.

In: a folder, and the LSN up to which the log is durable. Out: a `LogState`; each time, only what
was written since the last time is read.
"""

from __future__ import annotations

from tallystick.errors import CorruptLogError, LogUnreadableError
from tallystick.storage.files import FileSystem
from tallystick.systems.tally.read.files import Catalog, SegmentFile, readable_folder
from tallystick.systems.tally.read.scan import Scan
from tallystick.systems.tally.read.state import LogState
from tallystick.systems.tally.read.walk import Expected
from tallystick.systems.tally.runs.state import apply_step

_ATTEMPTS = 3
"""Segments may be recycled while they are read; then it is read again from the first one."""


class Replica:
    """The state of the log in ``folder``. Not safe for several threads."""

    def __init__(self, fs: FileSystem, folder: str, key: bytes | None) -> None:
        self._fs = fs
        self._folder = folder
        self._key = key
        self._forget()

    def _forget(self) -> None:
        self._state = LogState()
        self._segment = 0
        self._due: Expected | None = None

    def read(self, durable_lsn: int) -> LogState:
        """Return the state after the record with this LSN.

        Raises:
            CorruptLogError: a group is damaged.
            LogUnreadableError: a file cannot be read.
        """
        for attempt in range(_ATTEMPTS):
            if self._due is not None and self._due.lsn > durable_lsn:
                break
            try:
                self._read_on(durable_lsn)
                break
            except (CorruptLogError, LogUnreadableError):
                self._forget()
                if attempt == _ATTEMPTS - 1:
                    raise
        return self._state

    def _read_on(self, durable_lsn: int) -> None:
        catalog, access = readable_folder(self._fs, self._folder)
        start = self._start(catalog)
        if start is None:
            self._forget()
            self._state = LogState.before(catalog.control)
        due = self._due.lsn if self._due is not None else _first_lsn(catalog)
        for step in Scan(catalog, access, start).steps():
            header = step.place.header
            if step.place.lsn > durable_lsn or step.place.lsn != due:
                break
            if header is None or not step.place.case.whole:
                raise CorruptLogError(
                    f"a group that was written cannot be read: {step.place.reason}",
                    file=step.file.path,
                    offset=step.place.offset,
                    advice="Close the log and look at it with `tallystick explain`",
                )
            apply_step(self._state, step, self._key)
            assert step.file.header is not None
            assert step.place.then is not None, "the place after a whole group"
            self._segment, self._due = step.file.header.number, step.place.then
            due = self._due.lsn
        if due <= durable_lsn:
            raise LogUnreadableError(
                "records that are durable cannot be read, or the log was changed meanwhile",
                file=self._folder,
                expected=f"record {due}",
                advice="Look at the disk; try again",
            )

    def _start(self, catalog: Catalog) -> tuple[SegmentFile, Expected | None] | None:
        """Return the place to go on from; None: from the first segment."""
        file = catalog.live_segment(self._segment)
        return None if file is None else (file, self._due)


def _first_lsn(catalog: Catalog) -> int:
    """Return the LSN that the first segment begins with.

    Raises:
        LogUnreadableError: that segment is missing.
    """
    live = catalog.live_headers
    first = catalog.control.first_segment if catalog.control else 1
    if live and live[0].number <= first:
        return live[0].first_lsn
    raise LogUnreadableError(
        "the first segment of the log cannot be read", file=catalog.folder,
        expected=f"segment {first}", found=f"segment {live[0].number}" if live else "none",
    )  # fmt: skip
