"""Committed changes of a journal, in the order of the loader's callbacks.

In: `JournalFiles`. Out: `Change`s; the elements of one transaction share a sequence number.
"""

from __future__ import annotations

from collections.abc import Iterator

from tallystick.records import Change, Kind, Outcome
from tallystick.systems.jboss.format.bodies import xid
from tallystick.systems.jboss.format.layout import SYSTEM_NAME
from tallystick.systems.jboss.read.classify import read_files
from tallystick.systems.jboss.read.files import JournalFiles
from tallystick.systems.jboss.read.records import KINDS
from tallystick.systems.jboss.read.replay import EndedTransaction, PlacedRecord, Replay


def changes(journal: JournalFiles, log: str, size: int) -> Iterator[Change]:
    """Yield the committed adds, updates and deletes of the log of that name.

    ``size`` is the configured size of files: the loader of 2008 reads no further.
    """
    replay = Replay(journal.generation.shape, [file.stamp for file in journal.ordered()])
    sequence = 0
    for placed in _loaded_records(journal, size):
        effects, ended = replay.feed(placed)
        sequence += bool(effects)
        gtrid = _gtrid(ended)
        for ordinal, effect in enumerate(effects):
            yield _change(effect.placed, log, sequence, ordinal, gtrid)


def _loaded_records(journal: JournalFiles, size: int) -> Iterator[PlacedRecord]:
    """Yield the records that the journal's own loader sees."""
    for order, reading in enumerate(read_files(journal)):
        limit = size if reading.shape.pairs else reading.file.size
        for one in reading.ranges:
            if one.outcome is Outcome.VALID and not one.dropped and one.row.end <= limit:
                yield PlacedRecord(reading.item(one), order, reading.file.stamp, reading.file.path)


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
