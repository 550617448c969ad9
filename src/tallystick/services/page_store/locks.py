"""Row locks: one writer per row until its transaction ends.

In: a session and rows. Out: the lock, or `BusyError` after a time: that is also how a
deadlock ends. Readers take none.
"""

from __future__ import annotations

import threading
import time

from tallystick.errors import BusyError

Row = tuple[int, int]
"""Table id and key."""


class RowLocks:
    """Which session holds which row."""

    def __init__(self) -> None:
        self._owners: dict[Row, int] = {}
        self._free = threading.Condition()

    def take(self, session: int, row: Row, timeout: float) -> None:
        """Wait until the row is this session's. Raises `BusyError` after ``timeout`` seconds."""
        with self._free:
            if self._owners.setdefault(row, session) == session:
                return
            deadline = time.monotonic() + timeout
            while self._owners.setdefault(row, session) != session:
                rest = deadline - time.monotonic()
                if rest <= 0 or not self._free.wait(rest):
                    raise BusyError(
                        f"row {row[1]} of table {row[0]} is locked by session {self._owners[row]}",
                        advice="Roll back and try again; in a deadlock one side has to",
                    )

    def release(self, rows: list[Row]) -> None:
        """Free the rows of a session that has ended."""
        with self._free:
            for row in rows:
                del self._owners[row]
            self._free.notify_all()
