"""Committed changes of a journal, in the order of the loader's callbacks.

In: `JournalFiles`. Out: `Change`s. Those of one transaction share the place of its commit: file
id << 32 | offset after the record. It stays as long as no compaction moves the record.

A step of a stream asks for the changes that commits between two places make. A commit record counts
the elements in its own file only, so elements of its transaction may lie in earlier files. A step
reads the files between its two places, and every earlier file that left one of its transactions
open. Which transactions a file leaves open or ends (`Crossing`) is read once, and kept in memory as
long as the file does not change.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass

from tallystick.errors import CorruptLogError, LogUnreadableError
from tallystick.records import Change, Fate, Kind, Outcome, Row
from tallystick.storage.source import settled_stamp
from tallystick.systems.jboss.format.bodies import xid
from tallystick.systems.jboss.format.layout import (
    COMMIT,
    IN_TRANSACTION,
    ROLLBACK,
    SYSTEM_NAME,
    decode,
)
from tallystick.systems.jboss.read.classify import (
    FileReading,
    nothing_follows,
    read_file,
    read_files,
)
from tallystick.systems.jboss.read.files import JournalFile, JournalFiles
from tallystick.systems.jboss.read.records import KINDS
from tallystick.systems.jboss.read.replay import (
    Effect,
    EndedTransaction,
    OpenTransaction,
    PlacedRecord,
    RecordFile,
    Replay,
)

ORDERED_ID_MAX = 1 << 31
"""File ids below it give places that fit 64 bits."""
NUMBERS_MAX = 1 << 22
"""Most numbers of transactions that are kept in memory, of all files of a process."""


# -- all changes ------------------------------------------------------------------------------


def changes(journal: JournalFiles, log: str, size: int) -> Iterator[Change]:
    """Yield the committed adds, updates and deletes of the log of that name.

    ``size`` is the configured size of files: the loader of 2008 reads no further.
    """
    replay = Replay(journal.generation.shape, [file.stamp for file in journal.ordered()])
    for placed, place in _loaded_records(journal, size):
        effects, ended = replay.feed(placed)
        yield from changes_of_record(log, place, effects, ended)


def rows_of(journal: JournalFiles, log: str, size: int) -> Iterator[Row]:
    """Yield the changes of all transactions as these end, then those that do not end.

    What the loader applies is committed; what only the bytes tell is lost with a restart.
    ``size`` as for `changes`.
    """
    stamps = [file.stamp for file in journal.ordered()]
    # One follows what the loader sees, the other every whole record: what only the second knows is
    # lost with a restart.
    loader, whole = (Replay(journal.generation.shape, stamps) for _ in range(2))
    for placed, place in _whole_records(journal, size):
        loaded, _ = ([], None) if placed.dropped else loader.feed(placed)
        effects, ended = whole.feed(placed)
        yield from rows_of_record(log, place, loaded, ended)
        if ended is None and effects and placed.dropped:
            yield Row(Fate.LOST, _change(placed, log, 0, 0, None))
    yield from open_rows(log, loader, whole)


def rows_of_record(
    log: str, place: int, loaded: Sequence[Effect], ended: EndedTransaction | None
) -> Iterator[Row]:
    """Yield what the loader applies with the record at a place, and what else ends there."""
    for change in changes_of_record(log, place, loaded, ended):
        yield Row(Fate.COMMITTED, change)
    if ended is not None:
        fate = Fate.UNDONE if ended.end.kind == ROLLBACK else Fate.LOST
        done = {one.placed.place for one in loaded}
        yield from _rows_of(ended.open, fate, log, _gtrid(ended), done)


def open_rows(log: str, loader: Replay, whole: Replay) -> Iterator[Row]:
    """Yield the changes of transactions that did not end; the replays saw what `rows_of` says."""
    doubtful = {id(one) for one in whole.in_doubt()}
    for one in whole.open.values():
        kept = loader.open.get(one.transaction)
        known = kept is not None and kept.prepared is not None and not kept.invalid
        prepared = Fate.IN_DOUBT if id(one) in doubtful and known else Fate.LOST
        fate = Fate.UNDONE if one.prepared is None else prepared
        yield from _rows_of(one, fate, log, _prepared_gtrid(one), ())


def _rows_of(
    one: OpenTransaction, fate: Fate, log: str, gtrid: bytes | None, done: Collection[object]
) -> Iterator[Row]:
    """Yield the changes of a transaction but for those that are done."""
    for placed in (*one.records, *one.deletes):
        if placed.place not in done:
            yield Row(fate, _change(placed, log, 0, 0, gtrid))


def changes_of_record(
    log: str, place: int, effects: Iterable[Effect], ended: EndedTransaction | None
) -> Iterator[Change]:
    """Yield the changes that the record at a place makes; ``ended`` is what it ends."""
    gtrid = _gtrid(ended)
    for ordinal, effect in enumerate(effects):
        yield _change(effect.placed, log, place, ordinal, gtrid)


def gives_places(file: JournalFile) -> bool:
    """Return whether the id of a file gives its records places that fit 64 bits."""
    return -ORDERED_ID_MAX <= file.file_id < ORDERED_ID_MAX


def place_of(file: JournalFile, end: int) -> int:
    """Return the place of a record by its file and the offset after it.

    Raises:
        CorruptLogError: the file's id does not fit a place of 64 bits; no journal counts so far.
    """
    if not gives_places(file):
        raise CorruptLogError(
            "the changes have no order: the id in the header of a file is damaged",
            file=file.path,
            offset=0,
            expected=f"less than {ORDERED_ID_MAX}",
            found=str(file.file_id),
        )
    return file.file_id << 32 | end


def _loaded_records(journal: JournalFiles, size: int) -> Iterator[tuple[PlacedRecord, int]]:
    """Yield the records that the journal's own loader sees, and their places."""
    return (one for one in _whole_records(journal, size) if not one[0].dropped)


def _whole_records(journal: JournalFiles, size: int) -> Iterator[tuple[PlacedRecord, int]]:
    """Yield the whole records, and their places.

    Those that the loader does not see are dropped, and have none.
    """
    for order, reading in enumerate(read_files(journal)):
        where = RecordFile(reading.file, reading.shape, order, reading.file.stamp)
        limit = size if reading.shape.pairs else reading.file.size
        for one in reading.ranges:
            if one.outcome is Outcome.VALID:
                unseen = one.dropped or one.row.end > limit
                placed = PlacedRecord.of(reading.item(one), where, dropped=unseen)
                yield placed, 0 if unseen else place_of(reading.file, one.row.end)


def _gtrid(ended: EndedTransaction | None) -> bytes | None:
    return None if ended is None else _prepared_gtrid(ended.open)


def _prepared_gtrid(one: OpenTransaction) -> bytes | None:
    known = xid(one.prepared.item.extra or b"") if one.prepared is not None else None
    return known.gtrid if known else None


def _change(
    placed: PlacedRecord, log: str, sequence: int, ordinal: int, gtrid: bytes | None
) -> Change:
    item, kind = placed.item, KINDS[placed.item.type]
    return Change(
        SYSTEM_NAME,
        log,
        sequence,
        ordinal,
        kind,
        "",
        str(item.record_id),
        placed.path,
        item.offset,
        transaction=None if item.transaction is None else str(item.transaction),
        gtrid=gtrid,
        after=None if kind is Kind.DELETE else item.body,
        values=None if item.user_type is None else {"user_type": item.user_type},
    )


# -- between two places -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Crossing:
    """The transactions in one file, ascending.

    Attributes:
        left_open: transactions whose last record in the file is no end.
        ended: transactions that have an end in the file.
    """

    left_open: Sequence[int]
    ended: Sequence[int]

    @property
    def size(self) -> int:
        """How many numbers it holds."""
        return len(self.left_open) + len(self.ended)


@dataclass(frozen=True, slots=True)
class FileRecords:
    """The records of one undamaged file, as far as a step needs them.

    ``low`` and ``high`` are offsets; a record counts where its end is above ``low`` and not above
    ``high``. Records that the loader drops are in `has_end` only.

    Attributes:
        kinds: the type byte of each record that the loader sees, by offset.
        offsets: its offset.
        ends: the offset after it.
        transactions: the number of its transaction; 0 if it has none.
        dropped: where whole records end that the loader drops.
    """

    kinds: bytes
    offsets: array[int]
    ends: array[int]
    transactions: array[int]
    dropped: Collection[int] = ()

    @property
    def is_empty(self) -> bool:
        """True if the file holds no whole record."""
        return not self.kinds and not self.dropped

    def has_end(self, offsets: Collection[int]) -> bool:
        """Return whether a whole record ends at one of these offsets."""
        return any(one in self.ends or one in self.dropped for one in offsets)

    def committed(self, low: int, high: int) -> Iterator[int]:
        """Yield the transactions of the commits in a range."""
        for kind, end, number in zip(self.kinds, self.ends, self.transactions, strict=True):
            if kind == COMMIT and low < end <= high:
                yield number

    def chosen(self, numbers: Set[int], low: int, high: int) -> Iterator[tuple[int, int]]:
        """Yield offset and size, in bytes, of records, by offset.

        They are all those of these transactions, and those outside of any in a range.
        """
        columns = self.kinds, self.offsets, self.ends, self.transactions
        for kind, offset, end, number in zip(*columns, strict=True):
            if number in numbers if kind in IN_TRANSACTION else low < end <= high:
                yield offset, end - offset

    def crossing(self) -> Crossing:
        """Return which transactions the file leaves open and which it ends."""
        left: dict[int, bool] = {}
        ended = set()
        for kind, number in zip(self.kinds, self.transactions, strict=True):
            if kind in IN_TRANSACTION:
                # The last record of a number decides, as a number may be used again after its end.
                ends = left[number] = kind in (COMMIT, ROLLBACK)
                ended |= {number} if ends else set()
        open_ = (number for number, ends in left.items() if not ends)
        return Crossing(array("q", sorted(open_)), array("q", sorted(ended)))


RecordsOf = Callable[[JournalFiles, JournalFile], FileRecords]
"""Reads one file. Raises `CorruptLogError` where records are damaged that are not to be skipped."""


def changes_between(
    journal: JournalFiles,
    log: str,
    after: int | None,
    until: int,
    records_of: RecordsOf,
    *,
    skip_lost: bool,
) -> Iterator[Change]:
    """Yield what records after one place commit, up to another, of a journal without pairs.

    With ``skip_lost`` only the records count that ``records_of`` gives, and nothing fails.

    Files after that of ``until`` are not read: the step that reaches them finds their damage. Files
    before that of ``after``, which an earlier step has read, are read only if a transaction commits
    between the places. Then none of them may be damaged: a damaged record may be an element.

    Raises:
        LogUnreadableError: as `require_joined`.
        CorruptLogError: records are damaged; or the id of a file gives no places.
    """
    ordered = list(enumerate(journal.ordered()))
    step = dict(one for one in ordered if _in_step(one[1], after, until))
    found = _committed(journal, step.values(), after, until, records_of, skip_lost=skip_lost)
    committed = set(found)
    before = [one for one in ordered if one[0] not in step and one[1].file_id <= until >> 32]
    needed = _needed(journal, before, committed, records_of, skip_lost=skip_lost)
    replay = Replay(journal.generation.shape, ())
    for order, file in ordered:
        if order not in step and order not in needed:
            continue
        data, (low, high) = file.data(), _range(file, after, until)
        where = RecordFile(file, journal.shape(file), order, file.stamp)
        numbers = committed if order in step else needed[order]
        for offset, size in records_of(journal, file).chosen(numbers, low, high):
            item = decode(where.shape, data, offset, size)
            effects, ended = replay.feed(PlacedRecord.of(item, where))
            if low < offset + size <= high:
                place = place_of(file, offset + size)
                yield from changes_of_record(log, place, effects, ended)


def changes_between_of_all(
    journal: JournalFiles,
    log: str,
    size: int,
    after: int | None,
    until: int,
    *,
    skip_lost: bool,
) -> Iterator[Change]:
    """Yield the same of any journal; ``size`` as in `changes`. The whole journal is read for it.

    Raises:
        LogUnreadableError: as `require_joined`.
        CorruptLogError: records are damaged.
    """
    if not skip_lost:
        require_joined(journal, after, until, read_records)
    for one in changes(journal, log, size):
        if (after is None or after < one.commit_sequence) and one.commit_sequence <= until:
            yield one


def require_joined(
    journal: JournalFiles, after: int | None, until: int, records_of: RecordsOf
) -> None:
    """Check that the whole journal is undamaged, and that the record at ``after`` is there.

    Raises:
        LogUnreadableError: the record is not there: its file was given up or compacted.
        CorruptLogError: records are damaged; or the id of a file gives no places.
    """
    ordered = journal.ordered()
    for _ in _committed(journal, ordered, after, until, records_of, skip_lost=False):
        pass


def _in_step(file: JournalFile, after: int | None, until: int) -> bool:
    """Return whether a step reads a file; one whose id gives no places is always read."""
    if not gives_places(file):
        return True
    return (after is None or file.file_id >= after >> 32) and file.file_id <= until >> 32


def _range(file: JournalFile, after: int | None, until: int) -> tuple[int, int]:
    """Return the offsets in a file that are at two places; 0 for no place."""
    first = file.file_id << 32
    return 0 if after is None else after - first, until - first


def _committed(
    journal: JournalFiles,
    files: Iterable[JournalFile],
    after: int | None,
    until: int,
    records_of: RecordsOf,
    *,
    skip_lost: bool,
) -> Iterator[int]:
    """Yield the transactions that these files commit between the places.

    Raises as `require_joined`, after the last one, unless what is lost is skipped.
    """
    there = skip_lost or after is None
    for file in files:
        records, (low, high) = records_of(journal, file), _range(file, after, until)
        # ``after`` may also be just before the first record that is wanted
        there = there or records.has_end((low, low + 1))
        if not records.is_empty:
            place_of(file, 0)
        yield from records.committed(low, high)
    if after is not None and not there:
        raise LogUnreadableError(
            "records may have been given up before they were read",
            file=journal.files[0].path,
            expected=f"file id {after >> 32} with a record that ends at {after & 0xFFFFFFFF}",
            found=f"no such record in {len(journal.files)} files",
            advice="Compaction or reuse of a file came between. Compare the output with the "
            "journal; onRewrite=restart goes on with what is there",
        )


def _needed(
    journal: JournalFiles,
    before: Sequence[tuple[int, JournalFile]],
    committed: Set[int],
    records_of: RecordsOf,
    *,
    skip_lost: bool,
) -> dict[int, set[int]]:
    """Return which of the files hold records that belong to later commits of transactions.

    These numbers by the order of the file. Files before the last end of each are not read.
    """
    found, wanted = {}, set(committed)
    # From the newest file back: an end of the same number belongs to an earlier transaction, and
    # what stands before it does, too.
    for order, file in reversed(before):
        if not wanted:
            break
        crossing = _crossing(journal, file, records_of, skip_lost=skip_lost)
        if here := {one for one in wanted if _has(crossing.left_open, one)}:
            found[order] = here
        wanted -= {one for one in wanted if _has(crossing.ended, one)}
    return found


def _has(numbers: Sequence[int], one: int) -> bool:
    at = bisect_left(numbers, one)
    return at < len(numbers) and numbers[at] == one


_Life = tuple[tuple[int, ...], bytes, str, bool]
"""The stamp of a file, its head, the shape of its records, and whether damage was skipped."""


class _Known:
    """What is known of files that do not change, by path."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[_Life, Crossing]] = {}
        self._size = 0

    def get(self, path: str, life: _Life) -> Crossing | None:
        """Return what is known of this life of a file."""
        known = self._files.get(path)
        return known[1] if known is not None and known[0] == life else None

    def add(self, path: str, life: _Life, found: Crossing) -> None:
        """Remember a file; all others are forgotten where they are too many."""
        if self._size + found.size > NUMBERS_MAX:
            self._files.clear()
            self._size = 0
        if (before := self._files.pop(path, None)) is not None:
            self._size -= before[1].size
        self._files[path] = life, found
        self._size += found.size


_known = _Known()


def _crossing(
    journal: JournalFiles, file: JournalFile, records_of: RecordsOf, *, skip_lost: bool
) -> Crossing:
    """Return what is known of a file, or read it. Raises `CorruptLogError`."""
    stamp = settled_stamp(file.path)
    if stamp is None:
        return records_of(journal, file).crossing()
    life = stamp, file.head, journal.shape(file).name, skip_lost
    if (known := _known.get(file.path, life)) is not None:
        return known
    found = records_of(journal, file).crossing()
    _known.add(file.path, life, found)
    return found


# -- one file, record by record ---------------------------------------------------------------


def read_valid_records(journal: JournalFiles, file: JournalFile) -> FileRecords:
    """Read the records of a file that are not damaged."""
    return _records_of(read_file(journal, file, last=False))


def read_records(journal: JournalFiles, file: JournalFile) -> FileRecords:
    """Read the records of a file. Raises `CorruptLogError` where some are damaged."""
    reading = read_file(journal, file, last=False)
    if _damaged(reading) and nothing_follows(journal, file):
        reading = read_file(journal, file, last=True)
    for one in _damaged(reading):
        raise CorruptLogError(
            "records are damaged", file=file.path, offset=one,
            advice="Look at the log with `tallystick explain`",
        )  # fmt: skip
    return _records_of(reading)


def _damaged(reading: FileReading) -> list[int]:
    return [one.row.offset for one in reading.ranges if one.outcome is Outcome.CORRUPT]


def _records_of(reading: FileReading) -> FileRecords:
    valid = [one for one in reading.ranges if one.outcome is Outcome.VALID]
    items = [reading.item(one) for one in valid if not one.dropped]
    return FileRecords(
        bytes(one.type for one in items),
        array("q", (one.offset for one in items)),
        array("q", (one.offset + one.length for one in items)),
        array("q", (one.transaction or 0 for one in items)),
        {one.row.end for one in valid if one.dropped},
    )
