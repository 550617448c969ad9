"""What a target holds is marked in the log, and now and then the target may forget it.

In: batches that targets hold. Out: *persisted* marks, room in the backlog, work for the disposer,
and the number below which nothing will ever be applied again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence

from tallystick.errors import TallystickError
from tallystick.roles import PersistLog
from tallystick.services.write_behind.backlog import Backlog

SETTLE_COUNT = 5_000
"""Applied transactions after which targets may forget numbers."""

_log = logging.getLogger("tallystick.write_behind")


class Marks:
    """``old_names`` are the names that a target has in entries of the log beside its own."""

    def __init__(
        self, path: str, log: PersistLog, backlog: Backlog, old_names: Mapping[str, str]
    ) -> None:
        self._path = path
        self._log = log
        self._backlog = backlog
        self._old_names = old_names
        self._order = threading.Lock()
        self._since_settled: dict[str, int] = {}

    def held(self, target: str, numbers: Sequence[int]) -> None:
        """The target holds these transactions."""
        old = [name for name, new in self._old_names.items() if new == target]
        try:
            self._log.persisted_all(numbers, (target, *old))
        except TallystickError as error:
            # without their marks they are applied again after the next start
            _log.error("%s: no marks for %d transactions: %s", self._path, len(numbers), error)
        self._backlog.held(numbers, target)

    def settle(
        self, target: str, count: int, settled: Callable[[int], None], last_number: int
    ) -> None:
        """Now and then tell the target which numbers it may forget: those below all that the
        log would bring again after a crash at this moment. The last one it keeps: that shows
        whether the log is still the one that gave it."""
        with self._order:
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
