"""Transactions and changes of a native log without an object per plain record.

In: the reading of any log. Out: one that gives the same, faster where the log is our own: a group
whose records are of one code and outside of transactions goes into ``changes`` in whole columns,
and has nothing to say to ``transactions``. The other groups take the way that every log takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from tallystick.arrow.schemas import CHANGES, change_rows, plain
from tallystick.errors import CorruptLogError
from tallystick.reading.tables import batches_of_rows
from tallystick.records import Kind, Record
from tallystick.systems.protocol import LogReading, LogSource, ReadOptions
from tallystick.systems.tally.columns.batches import step_batches
from tallystick.systems.tally.format.columns import CODES, GTRIDS, TRANSACTIONS
from tallystick.systems.tally.format.kinds import Code
from tallystick.systems.tally.format.layout import GroupHeader
from tallystick.systems.tally.format.sealing import KeyMissingError
from tallystick.systems.tally.read.decision import Case
from tallystick.systems.tally.read.records import records_of
from tallystick.systems.tally.read.scan import Scan, Step
from tallystick.systems.tally.reader import TallyReading

_CODE_SHIFT = 16
_AT_ONCE = (Code.APPEND, Code.ADD, Code.UPDATE, Code.DELETE)
"""Codes that change something as soon as they are written, outside of transactions."""
_KINDS = (Kind.ADD.value, Kind.UPDATE.value, Kind.DELETE.value)


def feeding(reading: LogReading, options: ReadOptions) -> LogReading:
    """The reading, or one in its place that says the same of its log."""
    if isinstance(reading, TallyReading):
        return NativeFeed(reading.source, options)
    return reading


class NativeFeed(TallyReading):
    """A native log. Without ``salvage`` its ``records()`` are those that have to be looked at one
    by one: what ``transactions()`` and ``changes()`` are made of."""

    def __init__(self, source: LogSource, options: ReadOptions) -> None:
        super().__init__(source, options)
        self._options = options

    def records(self, *, salvage: bool = False) -> Iterator[Record]:
        return super().records(salvage=True) if salvage else self._told_apart()

    def _told_apart(self) -> Iterator[Record]:
        for step in self._steps(loose=False):
            header = step.place.header
            assert header is not None
            # A group that cannot be told has no transactions: its envelope is for `batches`.
            with suppress(KeyMissingError, CorruptLogError):
                yield from records_of(
                    step.file.path,
                    step.view.inner(header),
                    header,
                    self._options.encryption_key,
                    behind=False,
                )

    def change_batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """All of ``changes()`` in batches of at most ``rows`` rows; those of transactions come
        after the others, each with its ``commit_sequence``."""
        key = self._options.encryption_key
        loose = step_batches(self.source.path, self._steps(loose=True), key, rows)
        told = batches_of_rows(change_rows(self.changes(), self.clock.value), CHANGES, rows)
        return chain(map(_changes, loose), told)

    def _steps(self, *, loose: bool) -> Iterator[Step]:
        """The whole groups before any damage, of one sort."""
        for step in Scan(self.catalog).steps():
            if step.behind:
                return
            header = step.place.header
            if header is None or step.place.case not in (Case.VALID, Case.REPAIRED):
                continue
            if _loose(header) is loose:
                yield step


def _loose(header: GroupHeader) -> bool:
    """True if all records change something at once, whatever they hold."""
    code = header.columns >> _CODE_SHIFT & 0xFF
    return not header.columns & (CODES | TRANSACTIONS | GTRIDS) and code in _AT_ONCE


def _changes(records: pa.RecordBatch) -> pa.RecordBatch:
    """Records that change something at once, as rows of `CHANGES`."""
    known = pc.is_in(_text(records, "kind"), pa.array(_KINDS))
    if records.num_rows != pc.sum(known).as_py():
        records = records.filter(known)  # without the envelopes of groups that cannot be told
    count = records.num_rows
    kinds = _text(records, "kind")
    deleted = pc.equal(kinds, Kind.DELETE.value)
    bodies = records["body"]
    if pc.any(deleted).as_py():
        bodies = pc.if_else(deleted, pa.scalar(None, pa.binary()), bodies)
    told = {
        "commit_sequence": records["sequence"],
        "ordinal": pa.repeat(pa.scalar(0, pa.int64()), count),
        "kind": kinds,
        "collection": pa.repeat(pa.scalar("", pa.string()), count),
        "key": pc.fill_null(records["record_id"].cast(pa.string()), ""),
        "after": bodies,
    } | {name: records[name] for name in ("system", "log", "time", "clock", "file", "offset")}
    columns = [told.get(field.name, pa.nulls(count, field.type)) for field in CHANGES]
    return plain(pa.RecordBatch.from_arrays(columns, CHANGES.names), CHANGES)


def _text(batch: pa.RecordBatch, name: str) -> pa.Array:
    return batch[name].cast(pa.string())
