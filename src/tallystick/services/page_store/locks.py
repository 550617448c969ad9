"""Row locks: one writer per row until its transaction ends.

In: a session and rows. Out: the lock, or `BusyError` after a time: that is also how a
deadlock ends. Readers take none.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

from tallystick.errors import BusyError

Row = tuple[int, int]
"""Table id and key."""


class RowLocks:
    """Which session holds which row."""

    def __init__(self) -> None:
        self._owners: dict[Row, int] = {}
        self._free = threading.Condition()
        self._waiting = 0

    def take(self, session: int, row: Row, timeout: float) -> None:
        """Wait until the row is this session's. Raises `BusyError` after ``timeout`` seconds."""
        # setdefault of a dict with such keys is one step: no lock where nobody has the row.
        if self._owners.setdefault(row, session) != session:
            with self._free:
                self._waiting += 1
                try:
                    self._wait(session, row, time.monotonic() + timeout)
                finally:
                    self._waiting -= 1

    def _wait(self, session: int, row: Row, deadline: float) -> None:
        while (owner := self._owners.setdefault(row, session)) != session:
            rest = deadline - time.monotonic()
            if rest <= 0:
                raise BusyError(
                    f"row {row[1]} of table {row[0]} is locked by session {owner}",
                    advice="Roll back and try again; in a deadlock one side has to",
                )
            self._free.wait(rest)

    def release(self, rows: Iterable[Row]) -> None:
        """Free the rows of a session that has ended."""
        for row in rows:
            del self._owners[row]
        # Whoever begins to wait after this look finds the rows free when it looks once more.
        if self._waiting:
            with self._free:
                self._free.notify_all()
