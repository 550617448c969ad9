"""Admission of commits: a place in the backlog, a number, a record in the log.

In: operations with a reference and names of targets. Out: a number, and a ticket for durability. A
transaction that is admitted reaches the sequencer, even if its caller is interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence

from tallystick.arguments import bytes_of, several, text, texts
from tallystick.errors import BusyError, TransactionUsageError
from tallystick.roles import Operation, OperationCode, PersistEntry, PersistLog, Ticket
from tallystick.services.write_behind.backlog import Backlog, Pending, size_of
from tallystick.services.write_behind.metrics import WriteBehindMetrics
from tallystick.services.write_behind.sequencer import Sequencer
from tallystick.services.write_behind.transaction import Numbered
from tallystick.storage.scheduling import time
from tallystick.storage.signals import uninterrupted

Request = tuple[tuple[str, ...], tuple[Operation, ...], str, int]
"""A transaction that may be admitted: names of targets, operations, reference, size."""

_FOR_ALL_TARGETS = {None}
"""The target names of a transaction whose operations are all for every target."""


def _checked(one: Operation) -> Operation:
    """Return an operation of which nothing can change any more, or fail to be written."""
    code, collection, key, value, target = one
    return Operation(
        OperationCode(code),
        text(collection, "collection"),
        bytes_of(key, "key"),
        None if value is None else bytes_of(value, "value"),
        None if target is None else text(target, "target"),
    )


def _names(targets: Sequence[str]) -> tuple[str, ...]:
    return texts(targets, "targets", sys.maxsize)


class Admission:
    """Admit transactions for ``targets`` to a log, one at a time."""

    def __init__(
        self,
        targets: Collection[str],
        log: PersistLog,
        backlog: Backlog,
        sequencer: Sequencer,
        metrics: WriteBehindMetrics,
        last_number: int,
    ) -> None:
        self._targets = tuple(targets)
        self._known = frozenset(targets)
        self._left: dict[tuple[str, ...], frozenset[str]] = {}
        self._log = log
        self._backlog = backlog
        self._sequencer = sequencer
        self._metrics = metrics
        self.last_number = last_number

    def request(
        self, operations: Sequence[Operation], reference: str, targets: Sequence[str] | None
    ) -> Request:
        """Return what a caller wants to commit, of which nothing can change any more.

        Raises `TransactionUsageError` for wrong targets, or nothing to commit.
        """
        operations = tuple(map(_checked, several(operations, "operations")))
        if not operations and targets is None:
            raise TransactionUsageError(
                "a transaction without operations has no targets",
                advice="Begin it where there is something to write",
            )
        named = {one.target for one in operations}
        if targets is None and named == _FOR_ALL_TARGETS:
            names = self._targets
        else:
            names = self._targets_of(named) if targets is None else _names(targets)
            self._check(named, names)
        reference = text(reference, "reference")
        return names, operations, reference, size_of(reference, operations)

    def submit(
        self, request: Request, timeout: float, one: Numbered | None = None
    ) -> tuple[int, Ticket]:
        """Log a new transaction; return its number and ticket.

        Args:
            request: What it is.
            timeout: Seconds to wait for space in the backlog.
            one: Is told the number, before an interrupt can come out.

        Raises `BusyError` if the backlog is full for ``timeout`` seconds; nothing is written then.
        """
        deadline = time.monotonic() + timeout
        while (admitted := self.submit_now(request, one)) is None:
            self._wait_for_space(request[-1], deadline)
        return admitted

    def submit_now(
        self, request: Request, one: Numbered | None = None
    ) -> tuple[int, Ticket] | None:
        """Log a new transaction as `submit` does; return None if there is no space for it now."""
        backlog = self._backlog
        backlog.refuse_nested()
        with uninterrupted, backlog.entrance:
            if not backlog.has_space(request[-1]):
                return None
            admitted = self._admit(*request)
            if one is not None:
                one.number = admitted[0]
            return admitted

    def _wait_for_space(self, size: int, deadline: float) -> None:
        try:
            self._backlog.wait_for_space(size, deadline)
        except BusyError:
            self._metrics.busy()
            raise

    def _admit(
        self, names: tuple[str, ...], operations: tuple[Operation, ...], reference: str, size: int
    ) -> tuple[int, Ticket]:
        now = int(time.time() * 1_000_000)
        left = self._left.get(names) or self._left.setdefault(names, frozenset(names))
        number, ticket = self._log.persisting(names, operations, reference)
        entry = PersistEntry(number, names, operations, reference, now)
        self._backlog.add(Pending(entry, left, size, time.monotonic()))
        self._sequencer.append(entry, ticket)
        self.last_number = number
        return number, ticket

    def _targets_of(self, named: set[str | None]) -> tuple[str, ...]:
        if None in named or named == self._known:
            return self._targets
        return tuple(name for name in self._targets if name in named)

    def _check(self, named: set[str | None], names: tuple[str, ...]) -> None:
        unknown = named.difference(names, (None,)) | (set(names) - self._known)
        if unknown or not names:
            raise TransactionUsageError(
                "a transaction needs targets, and only known ones",
                expected=", ".join(self._targets),
                found=", ".join(sorted(map(str, unknown))) or "none",
            )
