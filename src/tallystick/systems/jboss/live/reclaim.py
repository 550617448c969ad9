"""Which files of a live journal may go: positives and negatives, section 4.2 of the format.

In: records as they are placed into files. Out: `Books.reclaimable`. Knows no bytes and no disk.

* add, update: a positive in the file of the record; delete: a negative in its own file towards
  each file with a positive of that id;
* a transaction: a positive in each file that it touches, covered by a negative towards each in
  the file of its commit or rollback; its adds and updates count once it is committed.

A file may go when its positives are covered by negatives in itself and later files, and every file
towards which it holds negatives may go as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tallystick.systems.jboss.format.layout import Name

_ADD = Name.ADD
"""Most records are one; looking it up in its enum costs as much as booking it."""


@dataclass(eq=False, slots=True)
class Account:
    """The counts of one file; ``key`` is its file id."""

    key: int
    positives: int = 0
    negatives: Counter[int] = field(default_factory=Counter)


@dataclass(slots=True)
class OpenTransaction:
    """An open transaction: the files it touches and its elements, by file.

    ``elements`` counts them per file id, ``run`` those of the unbroken run in ``run_file``.
    """

    files: list[Account] = field(default_factory=list)
    added: list[tuple[Account, int, int, bool]] = field(default_factory=list)
    deleted: list[tuple[Account, int]] = field(default_factory=list)
    elements: Counter[int] = field(default_factory=Counter)
    run_file: int = -1
    run: int = 0

    def touch(self, account: Account) -> None:
        """Count the transaction once in this file."""
        if account not in self.files:
            self.files.append(account)
            account.positives += 1

    def element(self, account: Account, name: Name, record_id: int, size: int) -> None:
        """Count an element that stands in this file."""
        self.run = self.count(account.key) + 1
        self.run_file = account.key
        self.elements[account.key] += 1
        if name is Name.DELETE_TX:
            self.deleted.append((account, record_id))
        else:
            self.added.append((account, record_id, size, name is Name.UPDATE_TX))

    def count(self, key: int) -> int:
        """Elements of the unbroken run in that file: what commit and prepare carry."""
        return self.run if self.run_file == key else 0


@dataclass(slots=True)
class Books:
    """The accounts of all files, the live records and the open transactions."""

    records: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Live record id -> (file id, bytes) of its add. Of integers, as there are many of them:
    the garbage collector then passes them by."""
    updates: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """The same of its updates, where it has any."""
    open: dict[int, OpenTransaction] = field(default_factory=dict)
    live_bytes: int = 0

    def take(
        self, account: Account, name: Name, transaction: int | None, record_id: int, size: int
    ) -> None:
        """Book one record of ``size`` bytes that stands in a file."""
        if name is _ADD:
            self._enter(account, record_id, size, update=False)
        elif name is Name.UPDATE:
            self._enter(account, record_id, size, update=True)
        elif name is Name.DELETE:
            self._cancel(account, record_id)
        elif transaction is not None:
            self._take_transactional(account, name, transaction, record_id, size)

    def forget(self, transaction: int) -> None:
        """Take back what an incomplete transaction counts."""
        one = self.open.pop(transaction, None)
        for account in one.files if one is not None else ():
            account.positives -= 1

    def reclaimable(self, accounts: Sequence[Account]) -> list[Account]:
        """The files of ``accounts``, which are in order, that may go; oldest first."""
        going: list[Account] = []
        keys = {account.key for account in accounts}
        gone: set[int] = set()
        for account in accounts:
            pinned = any(key in keys and key not in gone for key in _others(account))
            if not pinned and covering(account, accounts) >= account.positives:
                going.append(account)
                gone.add(account.key)
        return going

    def _take_transactional(
        self, account: Account, name: Name, transaction: int, record_id: int, size: int
    ) -> None:
        if name is Name.COMMIT:
            self._commit(account, transaction)
        elif name is Name.ROLLBACK:
            self._end(account, self.open.pop(transaction, None))
        else:
            one = self.open.setdefault(transaction, OpenTransaction())
            one.touch(account)
            if name is not Name.PREPARE:
                one.element(account, name, record_id, size)

    def _commit(self, account: Account, number: int) -> None:
        one = self.open.pop(number, None)
        if one is None:
            return
        for file, record_id, size, update in one.added:
            self._enter(file, record_id, size, update=update)
        for file, record_id in one.deleted:
            self._cancel(file, record_id)
        self._end(account, one)

    def _end(self, account: Account, one: OpenTransaction | None) -> None:
        for file in one.files if one is not None else ():
            account.negatives[file.key] += 1

    def _enter(self, account: Account, number: int, size: int, *, update: bool) -> None:
        account.positives += 1
        self.live_bytes += size
        if update and number in self.records:
            self.updates.setdefault(number, []).append((account.key, size))
            return
        self.records[number] = (account.key, size)
        if self.updates:
            self.updates.pop(number, None)

    def _cancel(self, account: Account, number: int) -> None:
        first = self.records.pop(number, None)
        if first is None:
            return
        for key, size in (first, *self.updates.pop(number, ())):
            account.negatives[key] += 1
            self.live_bytes -= size


def covering(account: Account, accounts: Sequence[Account]) -> int:
    """Negatives towards a file; only its own and later ones can have any."""
    return sum(one.negatives[account.key] for one in accounts)


def _others(account: Account) -> list[int]:
    return [key for key, count in account.negatives.items() if count and key != account.key]
