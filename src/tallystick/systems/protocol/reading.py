"""What a log is read as, whole and in parts.

In: a log. Out: a `LogReading`: files, records, transactions, changes, findings and both verdicts;
its splits; and what the readings of some systems can do besides with parts of a log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from tallystick.errors import TallystickError
from tallystick.records import (
    Change,
    Clock,
    Finding,
    Judgement,
    LogFile,
    Record,
    Transaction,
    Verdict,
)
from tallystick.systems.protocol.source import LogSource

if TYPE_CHECKING:
    import pyarrow as pa


END = 1 << 62
"""The end of a file that is read whole."""


@dataclass(frozen=True, slots=True)
class Split:
    """A part of one file: the records whose first byte lies in ``begin <= offset < end``."""

    file: str
    begin: int
    end: int


class Stretch(NamedTuple):
    """A part of a log, and which records it can hold.

    Attributes:
        split: the part.
        lsns: the least and the greatest `Record.sequence`; None for no bound.
        times: the least and the greatest `Record.time`; None for no bound.
    """

    split: Split
    lsns: tuple[int | None, int | None] = (None, None)
    times: tuple[int | None, int | None] = (None, None)


class LogReading(Protocol):
    """Everything that can be read of one log; nothing is written, and bytes are read lazily.

    What follows from the rest is in `Reading`.

    Memory grows with open transactions, not with the log, except in ``transactions()`` and
    ``changes()`` of logs whose format gives no other way (their docstrings say so).
    """

    @property
    def source(self) -> LogSource:
        """The log that is read."""
        ...

    @property
    def format(self) -> str:
        """The generation or version of the format, in the system's words."""
        ...

    @property
    def clock(self) -> Clock:
        """The unit of `Record.time`."""
        ...

    def files(self) -> Sequence[LogFile]:
        """Return the files in the log's own order, each tiled by its spans."""
        ...

    def records(self, *, salvage: bool = False) -> Iterator[Record]:
        """Yield every record in log order.

        With ``salvage`` also those that the engine would not reach or believe, marked by
        ``attributes["salvaged"] = True``.
        """
        ...

    def transactions(self) -> Iterable[Transaction]:
        """Return one `Transaction` for each transaction or decision of the log."""
        ...

    def transaction_batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield all of ``transactions()``, in any order, as batches of the `TRANSACTIONS` schema.

        A batch has at most ``rows`` rows.
        """
        ...

    def changes(self) -> Iterable[Change]:
        """Return committed changes in commit order; empty for logs that hold none."""
        ...

    def change_batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield all of ``changes()`` in the same order, as batches of the `CHANGES` schema.

        A batch has at most ``rows`` rows.
        """
        ...

    def findings(self) -> Sequence[Finding]:
        """Return what is wrong with the log."""
        ...

    def verdict(self) -> Verdict:
        """Return what the log's own engine would do, and what the bytes prove."""
        ...

    @property
    def judgement(self) -> Judgement:
        """The answer of ``verdict()``, which takes less than all of it."""
        ...

    def batches(
        self, split: Split | None = None, *, rows: int = 10_000
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records of a split, or all, as Arrow batches of the `RECORDS` schema.

        They agree with ``records()``; strings may be dictionary-encoded, and ``attributes`` may be
        null. A batch has at most ``rows`` rows.
        """
        ...

    def splits(self, target_bytes: int) -> Sequence[Split]:
        """Return parts of about ``target_bytes`` that together give every record once.

        `batches` can read each on its own. The files are not read through to find them. Of a
        damaged log a part may also give records that a reading of the whole log leaves out because
        of damage in an earlier part.
        """
        ...


class Reading:
    """What follows from the rest of a `LogReading`; a system overrides what it can do better.

    Batches are made of objects, and no record is found from the middle of a file.
    """

    damage_ends_log = False

    @property
    def log_identity(self) -> int | None:
        """None: nothing tells the log from another one at its path."""
        return None

    def transaction_batches(self: LogReading, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield all of ``transactions()`` as batches of at most ``rows`` rows."""
        from tallystick.arrow.schemas import batches_of_transactions

        return batches_of_transactions(self.transactions(), self.clock.value, rows)

    def change_batches(self: LogReading, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield all of ``changes()`` as batches of at most ``rows`` rows."""
        from tallystick.arrow.schemas import batches_of_changes

        return batches_of_changes(self.changes(), self.clock.value, rows)

    @property
    def judgement(self: LogReading) -> Judgement:
        """The answer of ``verdict()``."""
        return self.verdict().judgement

    def resume(self, path: str, offset: int) -> int:
        """Return 0: what a record means depends on all that lies before it in its file."""
        del path, offset
        return 0


class FileLife(NamedTuple):
    """What a file is now: it changes when the file is recycled.

    Attributes:
        identity: as `LogFile.identity`.
        generation: as `LogFile.generation`.
        size: number of bytes that may hold records.
        begin: offset of the first byte that stays as it is while the file lives; None: that of the
            first record.
    """

    identity: int | None
    generation: int | None
    size: int
    begin: int | None = None


@runtime_checkable
class FileByFile(Protocol):
    """A `LogReading` whose batches of one file depend on that file only.

    A log of many files can then be followed without reading all of it.
    """

    def lives(self) -> Mapping[str, FileLife]:
        """Return every file that may hold records; what it takes is read file by file."""
        ...

    def resume(self, path: str, offset: int) -> int:
        """Return the largest safe start offset (bytes) of a `Split` of the file.

        The split contains every record that ends at or after ``offset``. 0 if only reading the file
        would find it.
        """
        ...


@runtime_checkable
class Ranged(Protocol):
    """A `LogReading` whose records have LSNs and times that never fall, so that few can be read.

    What is damaged before a part, and would end a reading of the whole log, is not seen by who
    reads that part only.
    """

    def stretches(self, of: Stretch | None = None) -> Sequence[Stretch]:
        """Return the stretches of the log, as the heads of its files tell them.

        With ``of`` the stretches of this one, as the end of its file tells them. All stretches
        together hold every record.
        """
        ...

    def records_of(self, split: Split) -> Iterator[Record]:
        """Yield the records of a part, as ``records`` does; little else is read."""
        ...


@runtime_checkable
class ChoosesChanges(Ranged, Protocol):
    """A `Ranged` reading that finds the changes that a part commits without the rest of the log."""

    def changes_in(self, split: Split, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield those of ``change_batches`` whose commits lie in a part of the log."""
        ...


def chosen_splits(
    reading: LogReading, choose: Callable[[Sequence[Stretch]], Iterable[Stretch]]
) -> list[Split] | None:
    """Return the parts of a log with the stretches that are chosen; None for the whole log.

    Stretches that follow each other are one part. Where a log tells nothing of its stretches, its
    parts are files.
    """
    if not isinstance(reading, Ranged):
        files = [Stretch(Split(path, 0, END)) for path in _files(reading)]
        left = [one.split for one in choose(files)]
        return None if len(left) == len(files) else left
    found: list[Split] = []
    for coarse in choose(reading.stretches()):
        for one in choose(reading.stretches(coarse)):
            split = one.split
            if found and (found[-1].file, found[-1].end) == (split.file, split.begin):
                split = Split(split.file, found.pop().begin, split.end)
            found.append(split)
    return found


def chosen_changes(
    reading: LogReading, choose: Callable[[Sequence[Stretch]], Iterable[Stretch]]
) -> list[Split] | None:
    """Return the parts of a log that commit what is chosen; None for the whole log."""
    if not isinstance(reading, ChoosesChanges):
        return None
    found = chosen_splits(reading, choose)
    return None if found == [one.split for one in reading.stretches()] else found


def _files(reading: LogReading) -> Iterable[str]:
    return reading.lives() if isinstance(reading, FileByFile) else ()


@runtime_checkable
class Separable(Protocol):
    """A `LogReading` of which a split needs few of the files, so that a task carries only these."""

    def needed(self, split: Split) -> Sequence[str]:
        """Return the smallest set of files that gives all batches of the split, with its own.

        Reads the heads of the files only.
        """
        ...


@runtime_checkable
class ProvesDurability(Protocol):
    """A `LogReading` whose bytes tell which records are durable while the log is written."""

    def durable_sequence(self, path: str, end: int) -> int:
        """Return the highest `Record.sequence` that the log proves durable; 0 if none.

        ``end`` is where the last whole record of the file ends.
        """
        ...


class NotClosedInPartsError(TallystickError):
    """What the splits of a log left open shows that only the whole log can be judged."""


@dataclass(slots=True)
class ClosedSplit:
    """What one split closes by itself.

    Attributes:
        batches: table (``transactions`` or ``changes``) and plain rows of its schema, of what
            begins and ends in the split.
        rest: call it after the last batch: what the split leaves open, for `close_rests`; None if
            the split alone cannot be judged (damage, a state that only the whole log explains):
            then the whole log has to be read.
    """

    batches: Iterator[tuple[str, pa.RecordBatch]]
    rest: Callable[[], bytes | None]


@runtime_checkable
class ClosesBySplit(Protocol):
    """A `LogReading` whose splits give transactions and changes each on its own.

    The rows of all splits and of their rests are together those of ``transactions()`` and
    ``changes()`` of the whole log, in any order. Where that is not certain, a split has no rest, or
    joining the rests refuses.
    """

    def close_split(self, split: Split, rows: int) -> ClosedSplit:
        """Return what begins and ends in a split; a batch has at most ``rows`` rows."""
        ...

    def close_rests(
        self, rests: Sequence[bytes], rows: int
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the transactions and changes that no split closed alone, by table.

        ``rests`` are those of all splits of the log, in log order.

        Raises:
            NotClosedInPartsError: the whole log has to be read.
        """
        ...


@runtime_checkable
class JudgedBySplit(Protocol):
    """A `ClosesBySplit` whose splits together tell the files, findings and answer of the log."""

    def knowing(self, rests: Sequence[bytes]) -> LogReading:
        """Return a reading of the log that does not read again what its splits have read.

        Its ``files()``, ``findings()`` and answer are those of the whole log; but spans may tell
        the bytes of a split together. ``rests`` are those of all splits of the log, in log order.

        Raises:
            NotClosedInPartsError: the whole log has to be read.
        """
        ...
