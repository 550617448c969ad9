"""What the contracts of several roles say of durability, faults and kills."""

from __future__ import annotations

import errno
import random
import time
from collections.abc import Callable
from pathlib import Path

from tallystick.roles import Ticket
from tallystick.testing import (
    SYNCS,
    Fault,
    FaultyFileSystem,
    RecordingFileSystem,
    Reporter,
    check_items,
    every_fault,
    run_and_kill,
)


def becomes_done_by_start_flush(ticket: Ticket) -> bool:
    """Start a flush once, then poll the ticket: nobody waits for it."""
    ticket.start_flush()
    deadline = time.monotonic() + 20
    while not ticket.done() and time.monotonic() < deadline:
        time.sleep(0.001)
    return ticket.done()


class SurvivalContract:
    """Faults and kills over one implementation; a contract derives from it."""

    def _run_until_error(self, faulty: FaultyFileSystem) -> None:
        """Run on this file system, then check what a log on what is left finds."""
        raise NotImplementedError

    def _appender(self, folder: str) -> Callable[[int], object]:
        """Open a log; return a function that makes an item durable."""
        raise NotImplementedError

    def _items(self, folder: str) -> list[int]:
        """Open the log, close it, and return the items it holds, in order."""
        raise NotImplementedError

    def test_every_fault_leaves_a_log_that_opens(self) -> None:
        for faulty in every_fault(RecordingFileSystem, lambda nth: Fault(nth, error=errno.ENOSPC)):
            self._run_until_error(faulty)
        for faulty in every_fault(RecordingFileSystem, lambda nth: Fault(nth, calls=SYNCS)):
            self._run_until_error(faulty)

    def test_a_kill_loses_nothing(self, tmp_path: Path) -> None:
        for number in range(3):
            folder = str(tmp_path / str(number))

            def work(reporter: Reporter, folder: str = folder) -> None:
                append = self._appender(folder)
                for index in range(60):
                    reporter.submitted(index)
                    append(index)
                    reporter.acknowledged(index)

            killed = run_and_kill(work, after=random.Random(number).randrange(5, 50))
            check_items(killed.submitted, killed.acknowledged, self._items(folder))
