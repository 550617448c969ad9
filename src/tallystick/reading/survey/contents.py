"""Records and tables of every log below some paths.

In: paths, a filter, options. Out: records one by one, or a table as Arrow batches.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from tallystick.reading.filters import EVERYTHING, Filter
from tallystick.reading.survey.logs import Paths, survey
from tallystick.reading.survey.unread import deliver
from tallystick.records import Clock, Finding, Outcome, Record
from tallystick.systems.protocol import LogReading, ReadOptions

if TYPE_CHECKING:
    import pyarrow as pa


def scan(
    path: Paths,
    wanted: Filter = EVERYTHING,
    *,
    salvage: bool = False,
    options: ReadOptions | None = None,
    problems: list[Finding] | None = None,
) -> Iterator[Record]:
    """Yield every record of every log below ``path``, log after log; nothing is written.

    Whole records of the native log are `NumberedRecord`: number and body are always there.

    Args:
        path: a log, a folder or a tree of logs, a URL, or several of these.
        wanted: chooses records; by default all.
        salvage: yield also records after damage, marked ``attributes["salvaged"]``.
        options: what readers have to know, as a time zone or a key.
        problems: gets what cannot be read.

    Raises:
        LogUnreadableError: without ``problems``, the first of them, once everything else was read.
        TransactionUsageError: there is no such transaction, or more than one; it names candidates.
        UnsupportedFormatError: there is no such setting, or no record tells what is asked for.
    """
    found = survey(path, options=options).refuse_unknown_settings()
    wanted = found.known_filter(wanted, "records")
    records = partial(found.selected, wanted=wanted, salvage=salvage)
    yield from found.streamed(wanted, records, damaged_file, record_size)
    deliver(found, problems)


def read_arrow(
    path: Paths,
    table: str = "records",
    *,
    columns: Sequence[str] = (),
    salvage: bool = False,
    wanted: Filter = EVERYTHING,
    options: ReadOptions | None = None,
    problems: list[Finding] | None = None,
) -> pa.RecordBatchReader:
    """Return a `pyarrow.RecordBatchReader` of one table of every log below ``path``.

    Args:
        path: as for `scan`.
        table: a key of `tallystick.reading.tables.TABLES`.
        columns: by default all. Without ``attributes`` records of any system are decoded in whole
            buffers, many times faster; those of the native log are in any case.
        salvage: as for `scan`; then records are decoded one by one.
        wanted: chooses rows of the table; by default all.
        options: what readers have to know, as a time zone or a key.
        problems: as for `scan`; of `HIDDEN_BY_DAMAGE` it gets also damage that may hide rows.

    Raises:
        ValueError: there is no such table or column.
        UnsupportedFormatError: the table has no column for something that is asked for.
        TransactionUsageError: no transaction has the number, or the id, that is asked for.
        LogUnreadableError: of the reader, without ``problems``, as for `scan`.
    """
    from tallystick.reading import tables

    schema = tables.selected(table, columns)
    found = survey(path, options=options).refuse_unknown_settings()
    wanted = found.known_filter(wanted, table)

    def of_log(reading: LogReading) -> Iterator[pa.RecordBatch]:
        clock = found.clock_for(reading, wanted)
        if salvage and table == "records":
            batches = tables.salvaged_batches(reading)
        else:
            splits = wanted.splits_in(reading, table)
            batches = chain.from_iterable(
                tables.batches_of(
                    reading,
                    table,
                    one,
                    attributes="attributes" in schema.names,
                    condition=tables.condition_of(wanted, table, clock),
                )
                for one in ([None] if splits is None else splits)
            )
            if table in tables.HIDDEN_BY_DAMAGE and splits is None and problems is not None:
                batches = chain(batches, noting_damage(reading))
        if table == "records":
            found.tells_lsns(reading, wanted)
        return filter(None, (wanted.taken_of(batch, table, clock) for batch in batches))

    def noting_damage(reading: LogReading) -> Iterator[pa.RecordBatch]:
        found.note_damage(reading)
        yield from ()

    def batches() -> Iterator[pa.RecordBatch]:
        if table != "findings":
            size = operator.attrgetter("nbytes")
            yield from found.streamed(wanted, of_log, tables.damaged_files, size, table)
        else:
            for log in found.observers():
                with found.guard(log.source):
                    batches = tables.finding_batches(log.observe(lambda _: None).findings)
                    yield from (wanted.taken_of(one, table, Clock.NONE) for one in batches)
        deliver(found, problems)

    return tables.reader_of(schema, batches())


def damaged_file(record: Record) -> tuple[str, ...]:
    """Return the file of a record that is corrupt."""
    return (record.file,) if record.outcome is Outcome.CORRUPT else ()


def record_size(record: Record) -> int:
    """Return about how many bytes of memory a record takes."""
    return 1024 + len(record.body or b"")
