"""Locks of rows: one session at a time may change a row.

In: sessions and rows. Out: a row that is the session's until it ends, or `BusyError`.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Protocol

from tallystick.errors import BusyError
from tallystick.printable import logger
from tallystick.roles import Row
from tallystick.services.page_store.health import Health
from tallystick.storage.fork import Uncopied
from tallystick.storage.group.owned_lock import OwnedLock, nested_call_error
from tallystick.storage.scheduling import time
from tallystick.storage.signals import Bell, uninterrupted

_log = logger("tallystick.page_store")
_MOMENT_S = 0.1
"""Seconds after which a session that waits looks for owners that were left without an end."""


class Numbered(Protocol):
    """A session, as messages name it."""

    number: int


Owner = weakref.ref[Numbered]
"""A session as the owner of rows; weak, as nobody can end one that nothing else refers to."""


class RowLocks(Uncopied):
    """The session that holds each locked row.

    A row of a session that nothing refers to any more is free for the next one that wants it.

    Args:
        health: of the store.
        seconds: how long a session waits for a row at most.
    """

    def __init__(self, health: Health, seconds: float) -> None:
        self.health = health
        self.owners: dict[Row, Owner] = {}
        self._seconds = seconds
        self._freed = Bell()
        self._taking_over = OwnedLock(nested_call_error)

    def wait(self, owner: Owner, row: Row) -> None:
        """Wait until the row is this session's, which keeps it until its end.

        Raises:
            BusyError: The time is over, which is also what ends a deadlock.
            LogClosedError: The store is closed or has failed.
        """
        self.health.require_open()
        deadline = time.monotonic() + self._seconds
        with uninterrupted:
            while not self._wait(owner, row, deadline):
                if time.monotonic() >= deadline:
                    held = self.owners.get(row, owner)()
                    raise BusyError(
                        f"row {row[1]} of table {row[0]} is locked by session "
                        f"{held and held.number}",
                        advice="Roll back and try again; in a deadlock one side has to",
                    )

    def _wait(self, owner: Owner, row: Row, deadline: float) -> bool:
        """Wait for a row a moment; return whether the session has it."""
        return self._freed.wait(
            lambda: self._taken(owner, row), min(deadline, time.monotonic() + _MOMENT_S)
        )

    def _taken(self, owner: Owner, row: Row) -> bool:
        """Take a row that is free, or was left by a session that is gone."""
        found = self.owners.setdefault(row, owner)
        if found() is None:
            with self._taking_over:
                if self.owners.get(row) is found:
                    _log.warning(
                        "a transaction was left without an end; its row is free, as it was"
                    )
                    self.owners[row] = owner
                found = self.owners.setdefault(row, owner)
        return found is owner

    def release(self, owner: Owner, rows: Iterable[Row]) -> None:
        """Free those of the rows that a session holds, which has ended."""
        owners = self.owners
        for row in rows:
            if owners.get(row) is owner:
                del owners[row]
        self._freed.ring()
