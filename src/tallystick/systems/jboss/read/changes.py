"""Committed changes of a journal, in the order of the loader's callbacks.

In: `JournalFiles`. Out: `Change`s. Those of one transaction share the place of its commit: file
id << 32 | offset after the record. It stays as long as no compaction moves the record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tallystick.errors import CorruptLogError, LogUnreadableError
from tallystick.records import Change, Kind, Outcome
from tallystick.systems.jboss.format.bodies import xid
from tallystick.systems.jboss.format.layout import SYSTEM_NAME
from tallystick.systems.jboss.read.classify import FileReading, read_files
from tallystick.systems.jboss.read.files import JournalFile, JournalFiles
from tallystick.systems.jboss.read.records import KINDS
from tallystick.systems.jboss.read.replay import Effect, EndedTransaction, PlacedRecord, Replay

ORDERED_ID_MAX = 1 << 31
"""File ids below it give places that fit 64 bits."""


def changes(journal: JournalFiles, log: str, size: int) -> Iterator[Change]:
    """Yield the committed adds, updates and deletes of the log of that name.

    ``size`` is the configured size of files: the loader of 2008 reads no further.
    """
    replay = Replay(journal.generation.shape, [file.stamp for file in journal.ordered()])
    for placed, place in _loaded_records(journal, size):
        effects, ended = replay.feed(placed)
        yield from changes_of_record(log, place, effects, ended)


def changes_of_record(
    log: str, place: int, effects: Iterable[Effect], ended: EndedTransaction | None
) -> Iterator[Change]:
    """Yield the changes that the record at a place makes; ``ended`` is what it ends."""
    gtrid = _gtrid(ended)
    for ordinal, effect in enumerate(effects):
        yield _change(effect.placed, log, place, ordinal, gtrid)


def changes_between(
    journal: JournalFiles, log: str, size: int, after: int | None, until: int
) -> Iterator[Change]:
    """Yield what records after one place commit, up to another; the whole journal is read for it.

    Raises:
        LogUnreadableError: files after ``after`` were given up or compacted, or may have been:
            their ids leave a gap.
        CorruptLogError: records are damaged.
    """
    there = after is None
    known = () if after is None else (after, after + 1)  # or just before the first that is wanted
    for reading in read_files(journal):
        _require_whole(reading)
        there = there or any(
            place_of(reading.file, one.row.end) in known
            for one in reading.ranges
            if one.outcome is Outcome.VALID
        )
    if after is not None:
        _require_joined(journal, after, until, there=there)
    for change in changes(journal, log, size):
        if (after is None or after < change.commit_sequence) and change.commit_sequence <= until:
            yield change


def _require_whole(reading: FileReading) -> None:
    for one in reading.ranges:
        if one.outcome is Outcome.CORRUPT:
            raise CorruptLogError(
                "records are damaged", file=reading.file.path, offset=one.row.offset,
                advice="Look at the log with `tallystick explain`",
            )  # fmt: skip


def _require_joined(journal: JournalFiles, after: int, until: int, *, there: bool) -> None:
    """Check that the record at ``after`` is there, and every file id from it to ``until``."""
    ids = {file.file_id for file in journal.ordered()}
    missing = next((one for one in range(after >> 32, until >> 32) if one not in ids), None)
    if not there or missing is not None:
        raise LogUnreadableError(
            "records may have been given up before they were read",
            file=journal.files[0].path,
            expected=f"file id {after >> 32 if missing is None else missing}"
            + ("" if there else f" with a record that ends at {after & 0xFFFFFFFF}"),
            found=f"file ids {', '.join(map(str, sorted(ids)))}",
            advice="Compaction, reuse of a file or a restart of the server came between. Compare "
            "the output with the journal; onRewrite=restart goes on with what is there",
        )


def place_of(file: JournalFile, end: int) -> int:
    """Return the place of a record by its file and the offset after it.

    Raises:
        CorruptLogError: the file's id does not fit a place of 64 bits; no journal counts so far.
    """
    if not -ORDERED_ID_MAX <= file.file_id < ORDERED_ID_MAX:
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
    for order, reading in enumerate(read_files(journal)):
        limit = size if reading.shape.pairs else reading.file.size
        for one in reading.ranges:
            if one.outcome is Outcome.VALID and not one.dropped and one.row.end <= limit:
                file = reading.file
                placed = PlacedRecord(reading.item(one), order, file.stamp, file.path)
                yield placed, place_of(file, one.row.end)


def _gtrid(ended: EndedTransaction | None) -> bytes | None:
    prepared = ended.open.prepared if ended is not None else None
    known = xid(prepared.item.extra or b"") if prepared is not None else None
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
