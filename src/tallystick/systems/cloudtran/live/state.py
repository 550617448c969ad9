"""The state of a live block log: open transactions and the files that they keep.

In: entries that became durable. Out: which transactions are pending for which targets, and which
files may go. The caller holds the log's state lock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from tallystick.systems.cloudtran.format.entries import Entry, parse_entry


@dataclass(slots=True)
class OpenEntry:
    """A transaction that some target does not hold yet."""

    encoded: bytes
    """Its persisting entry as it stands in the log."""
    pending: set[str]
    file: int | None = None
    """Serial of the file with its latest persisting entry; None until it is written."""
    being_carried: bool = False
    """True while it is being carried forward."""

    @classmethod
    def of(cls, entry: Entry, encoded: bytes, pending: Iterable[str] | None = None) -> OpenEntry:
        """Return the state of an entry; every target is pending where ``pending`` is None."""
        return cls(encoded, set(entry.targets if pending is None else pending))

    @property
    def entry(self) -> Entry:
        """The decoded persisting entry."""
        return parse_entry(memoryview(self.encoded), 0).entry


@dataclass(slots=True)
class KeptFile:
    """One file of the log."""

    path: str
    first: int | None
    """Sequence of its first block; None if it has none."""
    open: int = 0
    """Transactions that are not complete and whose latest persisting entry lies in it."""
    lost: bool = False
    """True if blocks of it are lost: only an operator may remove it."""


@dataclass(slots=True)
class LogState:
    """Open transactions by number, files by serial; the file ``current`` is never redundant."""

    entries: dict[int, OpenEntry] = field(default_factory=dict)
    files: dict[int, KeptFile] = field(default_factory=dict)
    current: int | None = None

    def add_file(self, serial: int, path: str, first: int | None, *, lost: bool = False) -> None:
        """Add a file whose first block has the sequence ``first``; serials ascend."""
        self.files[serial] = KeptFile(path, first, lost=lost)

    def set_file(self, number: int, serial: int) -> None:
        """Set the file that holds the transaction's latest persisting entry."""
        one = self.entries.get(number)
        if one is None:
            return
        if one.file is not None and one.file in self.files:
            self.files[one.file].open -= 1
        one.file = serial
        one.being_carried = False
        self.files[serial].open += 1

    def persisted(self, number: int, targets: Collection[str] | None) -> None:
        """Record that these targets, or with None all of them, hold the transaction, durably."""
        one = self.entries.get(number)
        if one is None:
            return
        one.pending = set() if targets is None else one.pending.difference(targets)
        if not one.pending:
            self.forget(number)

    def cancel_carry(self, number: int) -> None:
        """Record that the transaction was not carried forward after all."""
        if (one := self.entries.get(number)) is not None:
            one.being_carried = False

    def forget(self, number: int) -> None:
        """Remove a transaction that is complete, or was never written."""
        one = self.entries.pop(number, None)
        if one is not None and one.file is not None and one.file in self.files:
            self.files[one.file].open -= 1

    def disposable(self) -> tuple[list[str], int | None]:
        """Return removable files, oldest first, and the first block of the files that stay.

        Removable are redundant files with no kept file before them. The block is given by its
        sequence; None if no file with a block stays.
        """
        files = list(self.files.items())
        kept = (at for at, (serial, file) in enumerate(files) if self._is_kept(serial, file))
        count = next(kept, len(files))
        stay = (file.first for _, file in files[count:] if file.first is not None)
        return [file.path for _, file in files[:count]], next(stay, None)

    def _is_kept(self, serial: int, file: KeptFile) -> bool:
        return serial == self.current or file.open > 0 or file.lost

    def disposed(self, path: str) -> None:
        """Remove a file that is gone."""
        serial = next((one for one, file in self.files.items() if file.path == path), None)
        if serial is not None:
            del self.files[serial]

    def stuck(self, files_min: int, open_max: int) -> Iterator[OpenEntry]:
        """Yield the open transactions of the oldest file, if they are few and files are many."""
        oldest = next(iter(self.files), None)
        if oldest is None or oldest == self.current or len(self.files) < files_min:
            return
        if self.files[oldest].lost or not 0 < self.files[oldest].open <= open_max:
            return
        yield from (
            one for one in self.entries.values() if one.file == oldest and not one.being_carried
        )
