"""The role of a write-behind log.

In: transactions, and which targets each of them has to reach. Out: what is pending, and files that
are no longer needed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from tallystick.printable import counted, first_of
from tallystick.roles.ticket import Ticket

_NUMBERS_SHOWN_MAX = 20


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
    """A transaction that is persisting.

    ``number`` grows in commit order and is never reused; ``targets`` are those it has to reach;
    ``reference`` is the application's own key; ``time`` is in microseconds since 1970-01-01 UTC.
    """

    number: int
    targets: tuple[str, ...]
    operations: tuple[Operation, ...]
    reference: str = ""
    time: int = 0


def pending_text(numbers: Sequence[int]) -> str:
    """Return how many transactions are pending, and the numbers of the first."""
    text = counted(
        len(numbers),
        "transaction has not reached all of its targets",
        "transactions have not reached all of their targets",
    )
    return f"{text}: {first_of(numbers, _NUMBERS_SHOWN_MAX)}"


class PersistLog(Protocol):
    """Persisting and persisted, per transaction and target; files become redundant by it."""

    @property
    def identity(self) -> str | None:
        """Return the name that the log got when it was made: 32 hexadecimal digits.

        None where the format has none.
        """
        ...

    @property
    def last_number(self) -> int:
        """Return the greatest number a transaction may have got; 0 if none did."""
        ...

    def persisting(
        self, targets: Sequence[str], operations: Iterable[Operation], reference: str = ""
    ) -> tuple[int, Ticket]:
        """Record a transaction.

        Args:
            targets: Names of the targets that it has to reach.
            operations: What to do there.
            reference: The application's own key.

        Returns:
            Its number, and the promise that it is durable.
        """
        ...

    def persisted(self, number: int, targets: Collection[str]) -> None:
        """Record, without forcing, that these targets hold the transaction."""
        ...

    def persisted_all(self, numbers: Sequence[int], targets: Collection[str]) -> None:
        """Record, without forcing, that these targets hold all the transactions."""
        ...

    def lowest_pending(self) -> int | None:
        """Return the smallest number that some target does not hold; None if there is none.

        A persisted mark counts once it is durable.
        """
        ...

    def discard(self, number: int) -> Ticket:
        """Record an operator's decision not to persist what is still pending of a transaction.

        Raises:
            KeyError: The transaction is not pending.
        """
        ...

    def pending(self) -> Iterator[tuple[PersistEntry, frozenset[str]]]:
        """Yield entries and the targets that do not hold them, by ascending number."""
        ...

    def sync(self) -> Ticket:
        """Promise that everything recorded so far is durable, persisted marks included."""
        ...

    def disposable(self) -> Sequence[str]:
        """Return files that a disposer may take now, oldest first.

        They and all older ones are redundant, and the marks that made them so are durable.
        """
        ...

    def disposed(self, path: str) -> None:
        """Forget a file, durably: a disposer has taken it out of the log."""
        ...

    def close(self) -> None:
        """Make everything durable and release the log."""
        ...
