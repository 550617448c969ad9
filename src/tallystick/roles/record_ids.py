"""The rules of record ids: the same for every journal, in and out of transactions.

In: changes of records by id. Out: which of them are refused, and why.

1. An add wants that no record of its id is live; an update and a delete want that one is.
2. A change outside of transactions is checked at its call, the changes of a transaction when it is
   prepared or committed: then they take effect, or are promised, in the order of the log. A
   transaction that is refused is rolled back.
3. A transaction sees its own changes at each call.
4. A prepared transaction can always commit: it *holds* its ids until it ends, also over a restart.
   No other transaction may change a record that it adds or deletes; a record that it only
   updates, others may update, too.

Nothing is refused when a log is read: one in which an id is live twice opens as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Protocol

from tallystick.errors import RecordIdError


class IdChange(IntEnum):
    """What is done to the record of an id."""

    ADD = 1
    UPDATE = 2
    DELETE = 3


# Read with every change: as attributes of an enum they take some 50 ns each.
ADD: Final = IdChange.ADD
UPDATE: Final = IdChange.UPDATE
DELETE: Final = IdChange.DELETE


class IdRefusal(IntEnum):
    """Why a change is refused."""

    EXISTS = 1
    MISSING = 2
    HELD = 3


@dataclass(slots=True)
class Touched:
    """What one transaction does to one id.

    Attributes:
        wants: whether a record of the id must be live before.
        lives: whether one is live afterwards.
        alone: no other transaction may change it meanwhile: it is added or deleted.
    """

    wants: bool
    lives: bool
    alone: bool


class LiveIds(Protocol):
    """A set of the ids of live records."""

    def __contains__(self, record_id: object, /) -> bool:
        """Return whether a record of this id is live."""
        ...

    def add(self, record_id: int, /) -> None:
        """Note that one is."""
        ...

    def discard(self, record_id: int, /) -> None:
        """Note that none is."""
        ...


TransactionIds = dict[int, Touched]
"""The ids that a transaction touches, in the order in which it first did."""


def own_refusal(ids: TransactionIds, change: IdChange, record_id: int) -> IdRefusal | None:
    """Return why a transaction that touched these ids cannot make a change, as far as it knows."""
    one = ids.get(record_id)
    if one is None or one.lives == (change is not ADD):
        return None
    return IdRefusal.EXISTS if one.lives else IdRefusal.MISSING


def note_change(ids: TransactionIds, change: IdChange, record_id: int) -> None:
    """Add a change to the ids that a transaction touches."""
    one = ids.get(record_id)
    if one is None:
        one = ids[record_id] = Touched(change is not ADD, lives=False, alone=False)
    one.lives = change is not DELETE
    one.alone |= change is not UPDATE


class RecordIds:
    """The ids of a journal: live ones, and those that prepared transactions hold.

    Attributes:
        live: the ids of live records.
        prepared: the prepared transactions by number, with the ids that each holds.
    """

    def __init__(self, live: LiveIds) -> None:
        self.live = live
        self.prepared: dict[int, TransactionIds] = {}
        self._held: dict[int, list[Touched]] = {}

    def refusal(self, change: IdChange, record_id: int) -> IdRefusal | None:
        """Return why a change cannot be made now; None if it can."""
        wants = change is not ADD
        if (record_id in self.live) != wants:
            return IdRefusal.MISSING if wants else IdRefusal.EXISTS
        if self._held and self._is_held(record_id, alone=change is not UPDATE):
            return IdRefusal.HELD
        return None

    def _is_held(self, record_id: int, *, alone: bool) -> bool:
        holders = self._held.get(record_id)
        return holders is not None and (alone or any(one.alone for one in holders))

    def first_refusal(self, ids: TransactionIds) -> tuple[int, IdRefusal] | None:
        """Return why a transaction cannot be prepared or committed now; None if it can.

        Returns:
            The place of the first wrong one among its ids, and what is wrong.
        """
        for place, (record_id, one) in enumerate(ids.items()):
            if (record_id in self.live) != one.wants:
                return place, IdRefusal.MISSING if one.wants else IdRefusal.EXISTS
            if self._held and self._is_held(record_id, alone=one.alone):
                return place, IdRefusal.HELD
        return None

    def make(self, change: IdChange, record_id: int) -> None:
        """Note a change that was made."""
        if change is ADD:
            self.live.add(record_id)
        elif change is DELETE:
            self.live.discard(record_id)

    def prepare(self, number: int, ids: TransactionIds) -> None:
        """Have a transaction hold its ids."""
        self.prepared[number] = ids
        for record_id, one in ids.items():
            self._held.setdefault(record_id, []).append(one)

    def commit(self, ids: TransactionIds) -> None:
        """Note the changes of a transaction that has committed."""
        for record_id, one in ids.items():
            (self.live.add if one.lives else self.live.discard)(record_id)

    def end(self, number: int, *, commit: bool) -> None:
        """Note that a transaction has ended which may have been prepared."""
        ids = self.prepared.pop(number, {})
        for record_id, one in ids.items():
            holders = self._held[record_id]
            holders[:] = [other for other in holders if other is not one]
            if not holders:
                del self._held[record_id]
        if commit:
            self.commit(ids)


def ids_in_doubt(
    adds: Iterable[int],
    updates: Iterable[int],
    deletes: Iterable[int],
    live: LiveIds,
    *,
    deletes_last: bool,
) -> TransactionIds:
    """Return the ids of a transaction that was prepared before the log was opened.

    Args:
        adds: the id of each add.
        updates: the id of each update.
        deletes: the id of each delete.
        live: the ids of live records.
        deletes_last: whether the format applies the deletes after the adds; else in their order.
    """
    ids: TransactionIds = {}
    balance: dict[int, int] = {}
    for change, some in (
        (UPDATE, updates), (ADD, adds), (DELETE, deletes),
    ):  # fmt: skip
        for record_id in some:
            note_change(ids, change, record_id)
            step = 0 if change is UPDATE else 1 if change is ADD else -1
            balance[record_id] = balance.get(record_id, record_id in live) + step
    for record_id, one in ids.items():
        # Adds and deletes of one id take turns: so their numbers tell which is the last one.
        one.lives = one.lives if deletes_last else balance[record_id] > 0
    return ids


_TEXTS: Final = {
    IdRefusal.EXISTS: ("record {} exists", "there is already a record {}"),
    IdRefusal.MISSING: ("there is no record {}", "there is no record {}"),
    IdRefusal.HELD: (
        "a prepared transaction holds record {}", "a prepared transaction holds record {}",
    ),
}  # fmt: skip
"""What is said of a change outside of transactions, and of a transaction that was rolled back."""


def id_error(
    refusal: IdRefusal, record_id: int, file: str | None = None, *, place: int = 0
) -> RecordIdError:
    """Return the error for a refused change."""
    error = RecordIdError(_TEXTS[refusal][0].format(record_id), file=file)
    error.refusal, error.place = refusal, place
    return error


def rolled_back_error(error: RecordIdError, ids: TransactionIds) -> RecordIdError:
    """Return the error for a transaction with these ids that was refused and rolled back."""
    refusal = IdRefusal(error.refusal)
    text = _TEXTS[refusal][1].format(list(ids)[error.place])
    made = RecordIdError(
        f"{text}; the transaction was rolled back",
        file=error.file,
        advice="Read the record again, and repeat the transaction if it is still wanted",
    )
    made.refusal, made.place = error.refusal, error.place
    return made
