"""The counters of write-behind, for OpenTelemetry and for its own `statistics`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tallystick.metrics import Meter, Observation
from tallystick.printable import counted
from tallystick.storage.fork import Uncopied
from tallystick.storage.scheduling import threading


@dataclass(slots=True)
class Statistics:
    """Totals since the service was opened; see also `WriteBehind.backlog`."""

    committed: int = 0
    applied: int = 0
    retries: int = 0
    set_aside: int = 0
    busy: int = 0


@dataclass(frozen=True, slots=True)
class BacklogSize:
    """The pending transactions: number, bytes, and the age of the oldest in seconds."""

    count: int = 0
    bytes: int = 0
    age_seconds: float = 0.0

    def __str__(self) -> str:
        age = f"; the oldest for {self.age_seconds:.1f} s" if self.count else ""
        pending = "is pending" if self.count == 1 else "are pending"
        return f"{counted(self.count, 'transaction')} of {self.bytes:,} bytes {pending}{age}"


class WriteBehindMetrics(Uncopied):
    """Count events for one log; gauges read ``backlog`` and ``disposed``."""

    def __init__(
        self, log: str, backlog: Callable[[], BacklogSize], disposed: Callable[[], int]
    ) -> None:
        self.statistics = Statistics()
        self._lock = threading.Lock()
        self._log = log
        self._meter = meter = Meter(
            "tallystick.write_behind"
        )  # its gauges are read while it is here
        prefix = "tallystick_write_behind_"
        self._committed = meter.counter(f"{prefix}committed_total", "Transactions acknowledged")
        self._applied = meter.counter(f"{prefix}applied_total", "Transactions applied, per target")
        self._retries = meter.counter(f"{prefix}retries_total", "Calls of targets that failed")
        self._aside = meter.counter(f"{prefix}set_aside_total", "Transactions set aside")
        self._busy = meter.counter(f"{prefix}busy_total", "Commits refused at a limit")

        def gauge(name: str, text: str, unit: str, read: Callable[[], float]) -> None:
            def observe() -> Iterable[Observation]:
                return [(read(), {"log": log})]

            meter.gauge(prefix + name, text, observe, unit=unit)

        gauge("backlog", "Transactions that wait", "1", lambda: backlog().count)
        gauge("backlog_bytes", "Bytes that wait", "By", lambda: backlog().bytes)
        gauge("backlog_age_seconds", "Age of the oldest", "s", lambda: backlog().age_seconds)
        gauge("disposed_files", "Log files disposed of", "1", lambda: float(disposed()))

    def committed(self, count: int) -> None:
        """Count transactions that are durable."""
        with self._lock:
            self.statistics.committed += count
        self._committed(count, log=self._log)

    def applied(self, target: str, count: int) -> None:
        """Count transactions that a target has applied."""
        with self._lock:
            self.statistics.applied += count
        self._applied(count, log=self._log, target=target)

    def retried(self, target: str) -> None:
        """Count a failed call of a target."""
        with self._lock:
            self.statistics.retries += 1
        self._retries(1, log=self._log, target=target)

    def set_aside(self, target: str) -> None:
        """Count a transaction that was set aside."""
        with self._lock:
            self.statistics.set_aside += 1
        self._aside(1, log=self._log, target=target)

    def busy(self) -> None:
        """Count a commit that was refused at a limit."""
        with self._lock:
            self.statistics.busy += 1
        self._busy(1, log=self._log)
