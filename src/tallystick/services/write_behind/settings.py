"""Settings of a write-behind service."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from tallystick.arguments import flag, integer, seconds

MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteBehindSettings:
    """Limits and delays. Raises `ValueError` for an impossible value."""

    wait_durable: bool = True
    """True: a commit returns when its entry is durable. False: before, and a crash may lose it."""
    backlog_max: int = 100_000
    backlog_bytes_max: int = 256 * MEBIBYTE
    backlog_age_seconds_max: float = float("inf")
    """Number, bytes and age of the oldest of pending transactions; above, callers wait."""
    busy_timeout: float = 2.0
    """Seconds that a caller waits at a limit before `BusyError`."""
    batch_max: int = 1_000
    """Most transactions in one call of a target."""
    workers_per_target: int = 1
    target_duty: float = 0.25
    """Share of its time that a worker spends on its target while callers commit and less than
    half of each limit is used; it pauses for the rest. With 1 it never pauses."""
    retry_seconds: float = 0.05
    retry_seconds_max: float = 30.0
    """First and greatest delay in seconds after a failure; it doubles in between."""
    attempts_max: int = 8
    """Failures after which a transaction is set aside; those of an unreachable target do not
    count."""
    close_timeout: float = 30.0
    """Seconds that closing waits for running calls of targets."""
    dispose_on_close_seconds: float = 10.0

    def __post_init__(self) -> None:
        for name in ("backlog_age_seconds_max", "busy_timeout", "target_duty", "retry_seconds",
                     "retry_seconds_max", "close_timeout", "dispose_on_close_seconds"):  # fmt: skip
            object.__setattr__(self, name, seconds(getattr(self, name), name))
        for name in ("backlog_max", "backlog_bytes_max", "batch_max", "workers_per_target",
                     "attempts_max"):  # fmt: skip
            integer(getattr(self, name), name, 1, sys.maxsize)
        flag(self.wait_durable, "wait_durable")
        if not 0 < self.target_duty <= 1:
            raise ValueError("target_duty is above 0 and at most 1")
        if not 0 < self.retry_seconds <= self.retry_seconds_max:
            raise ValueError("retry_seconds is above 0 and at most retry_seconds_max")
