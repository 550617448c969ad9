"""*Persisted* marks: the log's records of which target has applied which transaction.

In: batches that targets have applied. Out: marks in the log, a smaller backlog, and from time to
time the number below which a target may forget what it has applied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tallystick.errors import TallystickError
from tallystick.printable import logger
from tallystick.roles import PersistLog
from tallystick.services.write_behind.backlog import Backlog
from tallystick.storage.fork import Uncopied
from tallystick.storage.scheduling import threading

SETTLE_COUNT = 5_000
"""Applied transactions after which a target is told which numbers it may forget."""

_log = logger("tallystick.write_behind")


class PersistedMarks(Uncopied):
    """Write marks to ``log``. ``old_names`` maps former names of targets in it to present ones."""

    def __init__(
        self, path: str, log: PersistLog, backlog: Backlog, old_names: Mapping[str, str]
    ) -> None:
        self._path = path
        self._log = log
        self._backlog = backlog
        self._old_names = old_names
        self._counting = threading.Lock()
        self._since_settled: dict[str, int] = {}

    def applied(self, target: str, numbers: Sequence[int]) -> None:
        """Mark transactions that the target has applied."""
        old = [name for name, new in self._old_names.items() if new == target]
        try:
            self._log.persisted_all(numbers, (target, *old))
        except TallystickError as error:
            # without their marks they are applied again after the next start
            _log.error("%s: no marks for %d transactions: %s", self._path, len(numbers), error)
        self._backlog.applied(numbers, target)

    def settle(
        self, target: str, count: int, settled: Callable[[int], None], last_number: int
    ) -> None:
        """Count ``count`` applied transactions; every `SETTLE_COUNT` let the target forget numbers.

        It may forget those below every number that the log would bring again after a crash now. It
        keeps the last one, which shows whether the log is still the one that gave it.
        """
        with self._counting:
            total = self._since_settled.get(target, 0) + count
            self._since_settled[target] = total % SETTLE_COUNT
        if total < SETTLE_COUNT:
            return
        try:
            self._log.sync().wait()
            lowest = self._log.lowest_pending()
            settled(last_number if lowest is None else min(lowest, last_number))
        except Exception as error:  # a target that forgets later does no harm
            _log.warning("%s: %s could not forget numbers: %r", self._path, target, error)
