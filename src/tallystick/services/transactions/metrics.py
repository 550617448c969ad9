"""Metrics of a transaction manager, for OpenTelemetry and for its own `statistics`.

In: events of commit and recovery. Out: counters, gauges and a histogram of the scope
``tallystick.transactions``, every one with the attribute ``node``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tallystick.metrics import Meter, Observation


@dataclass(slots=True)
class Statistics:
    """Totals since the manager was opened."""

    decisions: int = 0
    heuristics: int = 0
    retries: int = 0
    recovered_commits: int = 0
    recovered_rollbacks: int = 0


class TransactionMetrics:
    """Counters and instruments of one transaction manager.

    Args:
        node: the node id, an attribute of every value.
        in_doubt: returns the number of branches in doubt and the age of the oldest in seconds.
        active: returns the number of transactions at work.
    """

    def __init__(
        self, node: str, in_doubt: Callable[[], tuple[int, float]], active: Callable[[], int]
    ) -> None:
        self.statistics = Statistics()
        self._node = node
        self._meter = meter = Meter(
            "tallystick.transactions"
        )  # its gauges are read while it is here
        prefix = "tallystick_transactions_"
        self._decisions = meter.counter(f"{prefix}decisions_total", "Decisions to commit")
        self._heuristics = meter.counter(f"{prefix}heuristics_total", "Heuristic outcomes")
        self._retries = meter.counter(f"{prefix}retries_total", "Attempts that must be repeated")
        self._settled = meter.counter(f"{prefix}recovered_total", "Branches ended by recovery")
        self._seconds = meter.histogram(f"{prefix}recovery_seconds", "Duration of a recovery")
        self._durations = meter.histogram(f"{prefix}duration_seconds", "Begin to end, by outcome")
        self._phases = meter.histogram(f"{prefix}phase_seconds", "One phase in one resource")

        def count() -> Iterable[Observation]:
            return [(in_doubt()[0], {"node": node})]

        def age() -> Iterable[Observation]:
            return [(in_doubt()[1], {"node": node})]

        def at_work() -> Iterable[Observation]:
            return [(active(), {"node": node})]

        meter.gauge(f"{prefix}active", "Transactions at work", at_work, unit="{transaction}")
        meter.gauge(f"{prefix}in_doubt", "Branches in doubt", count, unit="{branch}")
        meter.gauge(f"{prefix}in_doubt_age_seconds", "Age of the oldest", age, unit="s")

    def decided(self) -> None:
        """Count a decision to commit."""
        self.statistics.decisions += 1
        self._decisions(1, node=self._node)

    def heuristic(self) -> None:
        """Count a heuristic outcome."""
        self.statistics.heuristics += 1
        self._heuristics(1, node=self._node)

    def retried(self, resource: str) -> None:
        """Count a resource that could not be asked."""
        self.statistics.retries += 1
        self._retries(1, node=self._node, resource=resource)

    def settled(self, *, commit: bool) -> None:
        """Count a branch that recovery committed or rolled back."""
        if commit:
            self.statistics.recovered_commits += 1
        else:
            self.statistics.recovered_rollbacks += 1
        self._settled(1, node=self._node, outcome="commit" if commit else "rollback")

    def ended(self, seconds: float, outcome: str) -> None:
        """Note how long a transaction took, its work included."""
        self._durations(seconds, node=self._node, outcome=outcome)

    def phase(self, seconds: float, phase: str, resource: str) -> None:
        """Note how long a phase took; without a resource for the decision."""
        self._phases(seconds, node=self._node, phase=phase, resource=resource)

    def recovered(self, seconds: float) -> None:
        """Note how long a pass of recovery took."""
        self._seconds(seconds, node=self._node)
