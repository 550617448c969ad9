"""The role of a write-behind log.

In: transactions and what has to reach which targets. Out: what is pending, files that nobody
needs any more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from tallystick.roles.ticket import Ticket


class OperationCode(StrEnum):
    """What an operation does to a row of its target."""

    OPAQUE = "opaque"
    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


class Operation(NamedTuple):
    """One operation of a write-behind transaction, for one target or (None) for every one."""

    code: OperationCode
    collection: str
    key: bytes
    value: bytes | None = None
    target: str | None = None


class PersistEntry(NamedTuple):
    """A transaction that is persisting: what has to reach which targets.

    ``number`` grows in commit order and is never reused; ``time`` is in microseconds since
    1970-01-01 UTC; ``reference`` is the application's own key.
    """

    number: int
    targets: tuple[str, ...]
    operations: tuple[Operation, ...]
    reference: str = ""
    time: int = 0


class PersistLog(Protocol):
    """Persisting and persisted, per transaction and target, and files that become redundant."""

    @property
    def identity(self) -> str | None:
        """The name that the log got when it was made, as 32 hexadecimal digits; None where the
        format has none."""
        ...

    @property
    def last_number(self) -> int:
        """The greatest number that any transaction ever got, or may have got; 0 if none did."""
        ...

    def persisting(
        self, targets: Sequence[str], operations: Iterable[Operation], reference: str = ""
    ) -> tuple[int, Ticket]:
        """Record a transaction; returns its number and the promise that it is durable."""
        ...

    def persisted(self, number: int, targets: Collection[str]) -> None:
        """Record, without forcing, that these targets hold it."""
        ...

    def persisted_all(self, numbers: Sequence[int], targets: Collection[str]) -> None:
        """`persisted` for each of these transactions, at less cost."""
        ...

    def lowest_pending(self) -> int | None:
        """The smallest number that some target does not hold, as far as the log knows: a mark
        that is not durable does not count."""
        ...

    def discard(self, number: int) -> Ticket:
        """An operator's durable decision not to persist what is still pending."""
        ...

    def pending(self) -> Iterator[tuple[PersistEntry, frozenset[str]]]:
        """Entries with the targets that do not hold them yet, by ascending number."""
        ...

    def sync(self) -> Ticket:
        """Everything recorded so far, persisted marks included."""
        ...

    def disposable(self) -> Sequence[str]:
        """Files that a disposer may take now, oldest first: redundant, as are all older ones,
        and the marks that made them so are durable."""
        ...

    def disposed(self, path: str) -> None:
        """A disposer has taken this file out of the log: forget it, durably."""
        ...

    def close(self) -> None: ...
