"""What a write-behind service tells of itself: what waits, why, and what was done.

In: the backlog, the lanes and the counters of a service. Out: answers; nothing is changed.
"""

from __future__ import annotations

from tallystick.disposal.worker import Disposal, DisposalCounters
from tallystick.services.write_behind.backlog import Backlog, Pending
from tallystick.services.write_behind.metrics import BacklogSize, Statistics, WriteBehindMetrics
from tallystick.services.write_behind.status import PendingTransaction, pending_transaction
from tallystick.services.write_behind.targets.workers import Lanes
from tallystick.storage.fork import forked_error


class Watching:
    """The part of a service that can only be looked at."""

    path: str
    _backlog: Backlog
    _lanes: Lanes
    _metrics: WriteBehindMetrics
    _disposal: Disposal | None
    _foreign = False

    def pending(self, reference: str | None = None) -> list[PendingTransaction]:
        """Transactions that some target does not hold, by number; of one reference, or all."""
        self._require_own()
        return [
            self._status(one)
            for one in self._backlog.all()
            if reference is None or one.entry.reference == reference
        ]

    def find(self, number: int) -> PendingTransaction | None:
        """One transaction by its number; None if every target holds it."""
        self._require_own()
        one = self._backlog.get(number)
        return None if one is None else self._status(one)

    def _status(self, one: Pending) -> PendingTransaction:
        number = one.entry.number
        return pending_transaction(
            one.entry,
            {
                name: self._lanes[name].condition_of(number)
                if name in self._lanes
                else ("unknown", 0, "no target of this name was given")
                for name in list(one.left)
            },
        )

    @property
    def backlog(self) -> BacklogSize:
        """How much waits, and for how long."""
        self._require_own()
        return self._backlog.size()

    @property
    def statistics(self) -> Statistics:
        """Totals since opening."""
        return self._metrics.statistics

    @property
    def disposals(self) -> DisposalCounters:
        """What the disposer did."""
        return DisposalCounters() if self._disposal is None else self._disposal.counters

    def wait(self, number: int, timeout: float | None = None) -> bool:
        """True once every target holds the transaction, False after ``timeout`` seconds."""
        self._require_own()
        return self._backlog.wait_gone(number, timeout)

    def drain(self, timeout: float | None = None) -> bool:
        """True once nothing waits, False after ``timeout`` seconds."""
        self._require_own()
        return self._backlog.wait_empty(timeout)

    def _require_own(self) -> None:
        if self._foreign:
            raise forked_error(self.path)

    def forked(self) -> None:
        """In a forked child: everything belongs to the parent."""
        self._foreign = True

    def _disposed_files(self) -> int:
        return self.disposals.disposed
