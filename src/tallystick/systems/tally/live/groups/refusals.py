"""What a log has refused for lack of room, and what follows for the items that come later.

In: items, and a function that writes them. Out: an answer for each, and what is owed:

* What a caller waits for is refused, and the caller gets the error: `LogFullError`.
* What no caller waits for (the elements of a transaction, undo images, marks) is *owed*: it is
  written before anything else once there is room. Until then only plain records are taken.
* A record id may have been checked against a change that was refused afterwards. So a journal that
  keeps ids in memory refuses more changes of ids until it has learned them anew.

Plain records depend on nothing, and are refused only where there is no room for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tallystick.errors import LogWriteError, copy_error
from tallystick.storage.fork import Uncopied
from tallystick.storage.group.answers import Answer
from tallystick.systems.tally.format.columns import UnplacedRecord
from tallystick.systems.tally.format.kinds import Code
from tallystick.systems.tally.live.items import (
    Action,
    Bundle,
    Columnar,
    Item,
    UnplacedEnding,
    UnplacedMarks,
    size_of,
)

OWED_MAX: Final = 8 << 20
"""Bytes of owed items above which transactions take no more."""
_FREE: Final = (bytes, Columnar, Action)
"""Items that depend on no other one."""
_UNWAITED: Final = frozenset({Code.UNDO, Code.UNDO_EMPTY, Code.NOTE, Code.FINISH, Code.HEURISTIC})
_ID_CHANGES: Final = frozenset({Code.ADD, Code.UPDATE, Code.DELETE})


class Refusals(Uncopied):
    """The items that one log has refused.

    Args:
        write: writes items; returns the answer for each.

    Attributes:
        active: whether items must pass through `write`, because something was refused.
        keeps_ids: whether somebody checks the ids of records before they are submitted.
        doubts_ids: whether changes of ids are refused until `trust` is called.
    """

    def __init__(self, write: Callable[[list[Item]], Sequence[Answer]]) -> None:
        self._write = write
        self._owed: list[Item] = []
        self._unpaid: LogWriteError | None = None
        """Why items are owed."""
        self._doubt: LogWriteError | None = None
        """Why changes of ids are refused until `trust` is called."""
        self._unprepared: set[int | None] = set()
        """Transactions whose prepare record was refused, until one of their ends is written."""
        self.active = self.doubts_ids = False
        self.keeps_ids = False
        self._is_full = False

    @property
    def owes(self) -> bool:
        """Whether something is to be written before anything that depends on it."""
        return bool(self._owed)

    def trust(self) -> None:
        """Take changes of ids again: those that come now are checked against what is written."""
        self._doubt = None
        self._look()

    def require_paid(self) -> None:
        """Raise the error for which something is still owed; call it between two groups."""
        if self._unpaid is not None:
            raise copy_error(self._unpaid)

    def require_room(self) -> None:
        """Raise the error for which items are owed if no more can be."""
        if self._is_full:
            self.require_paid()

    def note(self, items: Sequence[Item], answers: Sequence[Answer]) -> None:
        """Keep what follows from the refusals among the answers for these items."""
        for item, answer in zip(items, answers, strict=True):
            if isinstance(answer, LogWriteError):
                self._note(item, answer)
            elif self._unprepared:
                self._unprepared.discard(_ended_by(item))
        self._look()

    def write(self, items: Sequence[Item]) -> Sequence[Answer]:
        """Write what is owed, then items; return the answer for each of these."""
        for item in items:
            self._forget(item)
        owed, self._owed, self._unpaid = self._owed, [], None
        if owed:
            self.note(owed, self._write(owed))
        reasons = [self._reason(item) for item in items]
        allowed = [item for item, reason in zip(items, reasons, strict=True) if reason is None]
        written = self._write(allowed) if allowed else ()
        self.note(allowed, written)
        rest = iter(written)
        return [next(rest) if reason is None else reason for reason in reasons]

    def _forget(self, item: Item) -> None:
        """Drop what is owed of a transaction that is rolled back now."""
        if self._owed and _is_rollback(item):
            number = _transaction_of(item)
            self._owed = [one for one in self._owed if _transaction_of(one) != number]

    def _reason(self, item: Item) -> LogWriteError | None:
        """Return why an item is refused at once; then it is noted."""
        if isinstance(item, _FREE):
            return None
        reason = self._unpaid
        if reason is None and self._doubt is not None and _depends_on_ids(item):
            reason = self._doubt
        if reason is not None:
            self._note(item, reason)
        return reason

    def _note(self, item: Item, error: LogWriteError) -> None:
        if isinstance(item, UnplacedEnding) and item.code == Code.PREPARE:
            self._unprepared.add(item.transaction)
        if self._is_owed(item):
            self._owed.append(item)
            self._unpaid = error
        elif self.keeps_ids and self._doubt is None and _changes_ids(item):
            self._doubt = error

    def _is_owed(self, item: Item) -> bool:
        """Return True for what no caller waits for."""
        if isinstance(item, UnplacedRecord):
            if item.code == Code.ROLLBACK:  # of a prepared one: it can still be committed
                return item.transaction in self._unprepared
            return item.transaction is not None or item.code in _UNWAITED
        return isinstance(item, Bundle | UnplacedMarks)

    def _look(self) -> None:
        self.doubts_ids = self._doubt is not None
        self.active = bool(self._owed) or self.doubts_ids or bool(self._unprepared)
        self._is_full = bool(self._owed) and sum(map(size_of, self._owed)) > OWED_MAX


def _depends_on_ids(item: Item) -> bool:
    if isinstance(item, UnplacedRecord):
        return item.transaction is None and item.code in _ID_CHANGES
    return isinstance(item, UnplacedEnding)


def _changes_ids(item: Item) -> bool:
    """Return True for what frees ids, or takes them, as whoever checks them believes."""
    return _depends_on_ids(item) or _is_rollback(item)  # the ids of a prepared one stay held


def _transaction_of(item: Item) -> int | None:
    if isinstance(item, Bundle):
        return item.records[0].transaction
    return item.transaction if isinstance(item, UnplacedRecord) else None


def _ended_by(item: Item) -> int | None:
    """Return the transaction that an item prepares, commits or rolls back."""
    if isinstance(item, UnplacedEnding):
        return item.transaction
    return _transaction_of(item) if _is_rollback(item) else None


def _is_rollback(item: Item) -> bool:
    record = item.records[0] if isinstance(item, Bundle) else item
    return isinstance(record, UnplacedRecord) and record.code == Code.ROLLBACK
