"""Everything that the bytes of a journal prove, in one pass: the strict reading.

In: the `JournalFiles`. Out: an `Analysis`: spans of each file, the records of this life with those
that the journal's own loader drops, transactions and their holes, live records.

Unlike the loader it reads format 2 records in format 1 files, reads records under a file id that
was never written to the header, and follows the order of events instead of a list of deletes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tallystick.records import LogFile, Outcome, Span
from tallystick.systems.jboss.format.layout import (
    FILE_ID_MASK,
    IN_TRANSACTION,
    Item,
    Name,
    Shape,
    decode,
)
from tallystick.systems.jboss.live.reclaim import Account, Books
from tallystick.systems.jboss.read.files import JournalFile, JournalFiles
from tallystick.systems.jboss.read.replay import Applied, Ended, Placed, Replay
from tallystick.systems.jboss.read.scan import (
    OTHER,
    SECOND_SHAPE,
    VALID,
    measure_at,
    scan,
    transaction_at,
)
from tallystick.systems.jboss.read.spans import APPENDED, UNHEADED, Judged, judge, tile

SKIPPED = "the loader of this generation does not get to this file"


@dataclass(slots=True)
class FileReading:
    """One file: its judged records, by offset. ``renewed`` is the id under which it was begun
    anew if its header was never renewed."""

    file: JournalFile
    shape: Shape
    judged: list[Judged]
    renewed: int | None = None

    @property
    def effective_id(self) -> int:
        """What orders the file in truth."""
        return self.file.file_id() if self.renewed is None else self.renewed

    def belongs(self, one: Judged) -> bool:
        """True for whole records of this life of the file."""
        return one.outcome is Outcome.VALID and (one.dropped or self.renewed is None)

    def whole(self, one: Judged) -> bool:
        """False for a stale record that a later one has overwritten in part."""
        data, row = self.file.data(), one.row
        return (
            one.outcome is not Outcome.STALE or measure_at(data, row.offset, self.shape) == row.size
        )

    def item(self, one: Judged) -> Item:
        """The decoded record."""
        shape = SECOND_SHAPE[self.shape.name] if one.row.status == OTHER else self.shape
        return decode(shape, self.file.data(), one.row.offset, one.row.size)


@dataclass(slots=True)
class Damage:
    """A damaged record that is not torn, and the transaction it seems to have belonged to."""

    path: str
    order: int
    offset: int
    length: int
    reason: str
    transaction: int | None


@dataclass(slots=True)
class Analysis:
    """The strict reading of a journal."""

    readings: list[FileReading] = field(default_factory=list)
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    damage: list[Damage] = field(default_factory=list)
    torn: list[Damage] = field(default_factory=list)
    dropped: list[Placed] = field(default_factory=list)
    dropped_because: Counter[str] = field(default_factory=Counter)
    ended: list[Ended] = field(default_factory=list)
    replay: Replay | None = None
    live: dict[int, list[Placed]] = field(default_factory=dict)
    orphan_updates: dict[int, Placed] = field(default_factory=dict)
    """Live updates of ids that were never added: the file with the add is gone."""
    books: Books = field(default_factory=Books)
    accounts: list[Account] = field(default_factory=list)
    """What each file of ``readings`` holds and ends, with their places as keys."""
    unknown_deletes: int = 0
    """Deletes of ids without an add: of records that were reclaimed, or lost."""


def read_file(journal: JournalFiles, file: JournalFile, *, last: bool) -> FileReading:
    """The judged records of one file; ``last`` as in `judge`."""
    shape = journal.shape(file)
    data = file.data()
    second = SECOND_SHAPE.get(shape.name)
    rows = list(scan(data, shape, file.stamp, second=second))
    judged = judge(data, rows, file.stamp, shape.header_size, last=last)
    renewed = next((one.row.file_id for one in judged if one.reason == UNHEADED), None)
    return FileReading(file, shape, judged, renewed)


def read_files(journal: JournalFiles) -> Iterator[FileReading]:
    """The files in order of their header ids. Two passes: what follows decides on torn."""
    last = last_with_records(journal)
    behind = last is None
    for file in journal.ordered():
        behind = behind or file is last
        yield read_file(journal, file, last=behind)


def last_with_records(journal: JournalFiles) -> JournalFile | None:
    """The file with the highest id that holds a record of this life."""
    for file in reversed(journal.ordered()):
        rows = scan(file.data(), journal.shape(file), file.stamp)
        if any(row.status == VALID for row in rows):
            return file
    return None


def nothing_follows(journal: JournalFiles, file: JournalFile) -> bool:
    """True if no file behind this one holds a record of this life."""
    files, last = list(journal.ordered()), last_with_records(journal)
    return last is None or files.index(file) >= files.index(last)


def analyse(journal: JournalFiles) -> Analysis:
    """Read all files of a journal strictly."""
    analysis = Analysis()
    analysis.readings = sorted(read_files(journal), key=lambda one: one.effective_id)
    stamps = [one.effective_id & FILE_ID_MASK for one in analysis.readings]
    replay = analysis.replay = Replay(journal.generation.shape, stamps)
    analysis.accounts = [Account(order) for order, _ in enumerate(stamps)]
    for order, reading in enumerate(analysis.readings):
        for one in reading.judged:
            analysis.outcomes[one.outcome] += 1
            if reading.belongs(one):
                _feed(analysis, replay, _placed(reading, one, order), one)
            elif one.outcome in (Outcome.CORRUPT, Outcome.TORN):
                _note_damage(analysis, reading, one, order)
    for left in replay.discarded():
        analysis.books.forget(left.transaction)
    return analysis


def _placed(reading: FileReading, one: Judged, order: int) -> Placed:
    return Placed(reading.item(one), order, one.row.file_id, reading.file.path, one.dropped)


def _feed(analysis: Analysis, replay: Replay, placed: Placed, one: Judged) -> None:
    if one.dropped:
        analysis.dropped.append(placed)
        analysis.dropped_because["appended" if one.reason == APPENDED else "unheaded"] += 1
    effects, ended = replay.feed(placed)
    if ended is not None:
        analysis.ended.append(ended)
    _book(analysis, placed, ended)
    for effect in effects:
        _apply(analysis, effect)


def _book(analysis: Analysis, placed: Placed, ended: Ended | None) -> None:
    if ended is not None and not ended.complete:
        analysis.books.forget(ended.open.transaction)
        return
    item, account = placed.item, analysis.accounts[placed.order]
    analysis.books.take(account, item.name, item.transaction, item.record_id or 0, item.length)


def _apply(analysis: Analysis, effect: Applied) -> None:
    item = effect.placed.item
    number = item.record_id or 0
    if item.name in (Name.DELETE, Name.DELETE_TX):
        known = analysis.live.pop(number, None)
        analysis.orphan_updates.pop(number, None)
        analysis.unknown_deletes += known is None
        return
    if item.name in (Name.UPDATE, Name.UPDATE_TX) and number not in analysis.live:
        analysis.orphan_updates[number] = effect.placed
    elif item.name in (Name.ADD, Name.ADD_TX):
        analysis.orphan_updates.pop(number, None)
    analysis.live.setdefault(number, []).append(effect.placed)


def _note_damage(analysis: Analysis, reading: FileReading, one: Judged, order: int) -> None:
    where, data, shape = one.row, reading.file.data(), reading.shape
    known = Name.EVENT <= data[where.offset] <= Name.ROLLBACK
    belongs = not known or shape.type_name(data[where.offset]) in IN_TRANSACTION
    transaction = transaction_at(data, where.offset, shape) if belongs else None
    noted = Damage(reading.file.path, order, where.offset, where.size, one.reason, transaction)
    if one.outcome is Outcome.TORN:
        analysis.torn.append(noted)
    else:
        analysis.damage.append(noted)
        analysis.accounts[order].positives += 1


# -- files and spans ------------------------------------------------------------------------


def log_file(reading: FileReading, order: int, redundant: bool | None, why: str) -> LogFile:
    """The file with the spans that tile it; ``redundant`` and ``why`` as in `LogFile`."""
    data = reading.file.data()
    size = reading.shape.header_size
    header = Span(0, min(size, len(data)), Outcome.VALID, "file header") if len(data) else None
    if bytes(data[:size]) in (b"J" * size, bytes(size)):
        header = Span(0, size, Outcome.UNUSED, "file header", "created and filled, never begun")
    spans = tuple(tile(data, header, reading.judged))
    return LogFile(
        reading.file.path,
        len(data),
        "journal file",
        order,
        identity=reading.file.file_id(),
        generation=reading.renewed,
        redundant=redundant,
        why=why,
        spans=spans,
    )


def whole_file(path: str, size: int, role: str, order: int, outcome: Outcome, why: str) -> LogFile:
    """A file that is no data file of this journal, as one span."""
    span = (
        () if not size else (Span(0, size, outcome, role, "" if outcome is Outcome.VALID else why),)
    )
    return LogFile(path, size, role, order, why=why, spans=span)
