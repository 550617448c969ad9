"""Which files may be reclaimed: positives and negatives.

In: records with the files they are in. Out: which files are `reclaimable`. No bytes, no disk.

* An add or update is a positive in its file. A delete is a negative in its own file towards
  each file with a positive of that id.
* A transaction is a positive in each file that it touches, and a negative towards each of them
  in the file of its commit or rollback. Its adds and updates count once it is committed.

A file may go when negatives in itself and later files cover its positives, and every file towards
which it holds negatives may go as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tallystick.systems.jboss.format.layout import RecordType
from tallystick.systems.jboss.read.replay import ElementRun

_ADD = RecordType.ADD
"""Most records are one; looking it up in its enum costs as much as counting it."""


@dataclass(eq=False, slots=True)
class FileCounts:
    """The counts of one file.

    Attributes:
        key: its file id.
        positives: records and transactions that hold the file.
        negatives: how many positives of other files, or its own, this file cancels, by key.
    """

    key: int
    positives: int = 0
    negatives: Counter[int] = field(default_factory=Counter)


@dataclass(slots=True)
class TransactionCounts:
    """The counts of an open transaction.

    Attributes:
        files: the files it touches.
        added: (file, record id, bytes, is an update) of its adds and updates.
        deleted: (file, record id) of its deletes.
        elements: its elements per file id.
        run: its elements in the last file that has any, by file ids.
    """

    files: list[FileCounts] = field(default_factory=list)
    added: list[tuple[FileCounts, int, int, bool]] = field(default_factory=list)
    deleted: list[tuple[FileCounts, int]] = field(default_factory=list)
    elements: Counter[int] = field(default_factory=Counter)
    run: ElementRun = field(default_factory=ElementRun)

    def touch(self, file: FileCounts) -> None:
        """Count the transaction once in this file."""
        if file not in self.files:
            self.files.append(file)
            file.positives += 1

    def element(self, file: FileCounts, kind: RecordType, record_id: int, size: int) -> None:
        """Count an element of ``size`` bytes in this file."""
        self.run.add(file.key)
        self.elements[file.key] += 1
        if kind is RecordType.DELETE_TX:
            self.deleted.append((file, record_id))
        else:
            self.added.append((file, record_id, size, kind is RecordType.UPDATE_TX))


@dataclass(slots=True)
class ReclaimCounts:
    """Live records and open transactions, as far as they decide which files may go."""

    records: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Live record id -> (file id, bytes) of its add. Tuples of integers, as there are many: the
    garbage collector does not track them."""
    updates: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """The same of its updates, where it has any."""
    open: dict[int, TransactionCounts] = field(default_factory=dict)
    live_bytes: int = 0

    def add(
        self, file: FileCounts, kind: RecordType, transaction: int | None, record_id: int, size: int
    ) -> None:
        """Count one record of ``size`` bytes in its file."""
        if kind is _ADD:
            self._enter(file, record_id, size, update=False)
        elif kind is RecordType.UPDATE:
            self._enter(file, record_id, size, update=True)
        elif kind is RecordType.DELETE:
            self._cancel(file, record_id)
        elif transaction is not None:
            self._add_transactional(file, kind, transaction, record_id, size)

    def discard(self, transaction: int) -> None:
        """Uncount an incomplete transaction."""
        one = self.open.pop(transaction, None)
        for file in one.files if one is not None else ():
            file.positives -= 1

    def _add_transactional(
        self, file: FileCounts, kind: RecordType, transaction: int, record_id: int, size: int
    ) -> None:
        if kind is RecordType.COMMIT:
            self._commit(file, transaction)
        elif kind is RecordType.ROLLBACK:
            self._end(file, self.open.pop(transaction, None))
        else:
            one = self.open.setdefault(transaction, TransactionCounts())
            one.touch(file)
            if kind is not RecordType.PREPARE:
                one.element(file, kind, record_id, size)

    def _commit(self, end: FileCounts, transaction: int) -> None:
        one = self.open.pop(transaction, None)
        if one is None:
            return
        for file, record_id, size, update in one.added:
            self._enter(file, record_id, size, update=update)
        for file, record_id in one.deleted:
            self._cancel(file, record_id)
        self._end(end, one)

    def _end(self, end: FileCounts, one: TransactionCounts | None) -> None:
        for file in one.files if one is not None else ():
            end.negatives[file.key] += 1

    def _enter(self, file: FileCounts, record_id: int, size: int, *, update: bool) -> None:
        file.positives += 1
        self.live_bytes += size
        if update and record_id in self.records:
            self.updates.setdefault(record_id, []).append((file.key, size))
            return
        self.records[record_id] = (file.key, size)
        if self.updates:
            self.updates.pop(record_id, None)

    def _cancel(self, file: FileCounts, record_id: int) -> None:
        first = self.records.pop(record_id, None)
        if first is None:
            return
        for key, size in (first, *self.updates.pop(record_id, ())):
            file.negatives[key] += 1
            self.live_bytes -= size


def reclaimable(files: Sequence[FileCounts]) -> list[FileCounts]:
    """Return those of ``files`` that may go, oldest first; ``files`` are in order of ids."""
    going: list[FileCounts] = []
    keys = {file.key for file in files}
    gone: set[int] = set()
    for file in files:
        pinned = any(key in keys and key not in gone for key in _others(file))
        if not pinned and covering(file, files) >= file.positives:
            going.append(file)
            gone.add(file.key)
    return going


def covering(file: FileCounts, files: Sequence[FileCounts]) -> int:
    """Return the negatives towards ``file``; only itself and later files can hold any."""
    return sum(one.negatives[file.key] for one in files)


def _others(file: FileCounts) -> list[int]:
    return [key for key, count in file.negatives.items() if count and key != file.key]
