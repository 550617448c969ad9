"""Rows as applications know them: committed, in doubt, undone, and those that a restart drops.

In: a path and a `Filter`. Out: `Row`s of all logs below it, log after log; or a file of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from itertools import chain, groupby
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from tallystick.errors import TallystickError, UnsupportedFormatError
from tallystick.investigate.export import csv_lines, json_lines, refuse_input, write_whole
from tallystick.investigate.keys import LookedAt, MeantKey, every_row, fated_batches
from tallystick.reading.filters import EVERYTHING, Filter, time_text
from tallystick.reading.names import log_name
from tallystick.reading.results import is_severe
from tallystick.reading.survey import Paths, Survey, deliver, survey
from tallystick.records import Clock, Finding, Row
from tallystick.systems.protocol import (
    Catalogued,
    DecodesLater,
    KnowsRowsBefore,
    LogReading,
    ReadOptions,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from tallystick.investigate.row_columns import RowColumns

Group: TypeAlias = "RowColumns | list[Row]"
FORMS = ("csv", "jsonl", "parquet")
CSV_COLUMNS = (
    "fate", "system", "log", "kind", "collection", "key", "transaction", "gtrid", "time",
    "commit_sequence", "ordinal", "values", "before", "after", "file", "offset",
)  # fmt: skip


def rows(
    path: Paths,
    wanted: Filter = EVERYTHING,
    *,
    options: ReadOptions | None = None,
    problems: list[Finding] | None = None,
) -> Iterator[Row]:
    """Yield the rows of every log below ``path`` that are asked for, log after log.

    Each log gives them as its transactions end, then those of transactions that have not ended.

    Args:
        path: a log, a folder or a tree of logs, a URL, or several of these.
        wanted: chooses rows; by default all.
        options: what readers have to know, as a time zone or a key.
        problems: gets what cannot be read; without it, that is raised at the end.

    Raises:
        TransactionUsageError: no transaction has the number; no global transaction begins with the
            id, or more than one does.
        UnsupportedFormatError: there is no such table or column; it names the nearest ones.
    """
    found = survey(path, options=options)
    for some, _ in _timed_groups(found, wanted):
        yield from _objects(some)
    deliver(found, problems)


def row_dicts(
    path: Paths,
    wanted: Filter = EVERYTHING,
    *,
    options: ReadOptions | None = None,
    problems: list[Finding] | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield what `rows` yields as plain JSON values; ``time`` is ISO where the clock allows.

    Args and errors are those of `rows`.
    """
    found = survey(path, options=options)
    for some, clock in _timed_groups(found, wanted):
        yield from _dicts(some, clock)
    deliver(found, problems)


def row_schema() -> pa.Schema:
    """Return the columns of rows as batches; ``values`` are JSON, ``time`` is text."""
    import pyarrow

    kinds = dict.fromkeys(CSV_COLUMNS, pyarrow.string())
    kinds |= dict.fromkeys(("commit_sequence", "ordinal", "offset"), pyarrow.int64())
    kinds |= dict.fromkeys(("gtrid", "before", "after"), pyarrow.binary())
    return pyarrow.schema(kinds.items())


def row_batches(found: Survey) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all logs that were found as batches; what cannot be read gives none."""
    return _batches(_timed_groups(found, EVERYTHING))


def export_rows(
    path: Paths,
    form: str,
    target: str | os.PathLike[str] | IO[bytes],
    wanted: Filter = EVERYTHING,
    *,
    options: ReadOptions | None = None,
    problems: list[Finding] | None = None,
) -> int:
    """Write the rows of `rows` in one of `FORMS`; return how many there are.

    Args:
        path: as for `rows`.
        form: one of `FORMS`.
        target: an open file, or a path; a file appears there only when it is complete, and is its
            owner's alone.
        wanted: as for `rows`.
        options: as for `rows`.
        problems: as for `rows`.

    Raises:
        ValueError: there is no such form.
        LogWriteError: the target lies in a folder that is read, or is a file of a log.
    """
    if form not in FORMS:
        raise ValueError(f"unknown form {form!r}; one of {', '.join(FORMS)}")
    refuse_input(target, path, options)
    write = _parquet if form == "parquet" else partial(_lines, form)

    def write_all(out: IO[bytes]) -> int:
        found = survey(path, options=options)
        count = write(out, _timed_groups(found, wanted))
        deliver(found, problems)
        return count

    return write_whole(target, write_all)


def _objects(some: Group) -> Iterable[Row]:
    return some if isinstance(some, list) else some.rows()


def _dicts(some: Group, clock: Clock) -> Iterator[dict[str, Any]]:
    if not isinstance(some, list):
        yield from some.dicts()
        return
    for row in some:
        shown = time_text(row.change.time, clock)
        yield row.to_dict() | ({} if shown is None else {"time": shown})


def _timed_groups(found: Survey, wanted: Filter) -> Iterator[tuple[Group, Clock]]:
    asked = wanted.transaction
    wanted = found.refuse_unknown_settings().known_filter(wanted, "rows")
    names, taken, before = set[str](), False, len(found.problems)
    columns = set[str]()
    read = list[LogReading]()

    def of(reading: LogReading) -> Iterator[tuple[Group, Clock]]:
        read[:] = [reading]
        clock = found.clock_for(reading, wanted)
        if isinstance(reading, Catalogued):
            columns.update(column.name for one in reading.collections() for column in one.columns)
        for some in _groups_of(reading, names, wanted):
            yield some, clock

    for log in found.observers():
        with found.guard(log.source):
            given = False
            for one in log.stream(of, lambda _: (), _size):
                given = taken = True
                yield one
            found.require_read(log.source, given=given)
            found.note_damage(read[0])
    if taken:
        return
    _require_transaction(asked, wanted, found)
    table, resource = (meant_name(one, names) for one in (wanted.table, wanted.resource))
    meant = replace(wanted, table=table, resource=resource, key=found.meant_key(wanted.key))
    if meant != wanted:
        del found.problems[before:]  # they are found again
        yield from _timed_groups(found, meant)
        return
    for name in (table, resource):
        if name is not None:
            require_table(name, names, found)
    if wanted.key is not None and columns:
        _require_column(wanted.key, columns, found)
    if wanted.key is not None and found.logs and not any(map(is_severe, found.problems)):
        wanted.require("key", _keys(found, wanted, wanted.key))


def _require_transaction(asked: str | None, wanted: Filter, found: Survey) -> None:
    """Check that a transaction is there, by its number and where asked so by its commit, too."""
    found.require_named(Filter(transaction=wanted.transaction), "rows")
    if asked != wanted.transaction and found.logs and not any(map(is_severe, found.problems)):
        changes = (one for reading in found.readings() for one in reading.changes())
        placed = (f"{one.transaction}@{one.commit_sequence}" for one in changes)
        Filter(transaction=asked).require("transaction", placed)


def _keys(found: Survey, wanted: Filter, key: str) -> Iterator[str]:
    """Yield the keys of rows as they may be typed, and ``key`` where it is meant by one.

    With a ``COLUMN=VALUE`` these are values; a row without columns has its own key alone.

    A row of the database that no record is about is one, too: it has no history.
    """
    column, separator, _ = key.partition("=")

    def typed(own: str, values: Mapping[str, Any]) -> Iterator[str]:
        if not (separator and values):
            yield own
        for name, value in values.items() if separator else ():
            if value is not None and name.casefold() == column.casefold():
                yield f"{column}={value}"

    for source in found.logs:
        with suppress(TallystickError, OSError):  # who reads the log says so
            reading = found.read(source)
            of_table = Filter(table=wanted.table)
            if any(MeantKey(key, reading).chosen(rows_of(reading, set(), of_table))):
                yield key
            for row in rows_of(reading, set(), of_table):
                yield from typed(row.change.key, row.change.values or {})
            if isinstance(reading, KnowsRowsBefore):
                for one in reading.collections():
                    if wanted.table in (None, one.name):
                        for own, values in reading.rows_before(one.name):
                            yield from typed(own, values)


def _require_column(key: str, columns: set[str], found: Survey) -> None:
    """Raise the error that names the nearest columns, where a key names one that is not there."""
    column, separator, _ = key.partition("=")
    folded = {one.casefold(): one for one in sorted(columns)}
    if not separator or column.casefold() in folded:
        return
    near = [folded[one] for one in get_close_matches(column.casefold(), folded, n=3, cutoff=0.4)]
    raise UnsupportedFormatError(
        f"no table here has a column {column!r}, and no row the key {key!r}",
        file=found.path,
        advice=f"Did you mean {', '.join(near)}?" if near else _listed(sorted(columns)),
    )


def rows_of(reading: LogReading, names: set[str], wanted: Filter = EVERYTHING) -> Iterator[Row]:
    """Yield the rows of a log that are asked for, and take in what its tables are called."""
    return chain.from_iterable(map(_objects, _groups_of(reading, names, wanted)))


def _groups_of(reading: LogReading, names: set[str], wanted: Filter) -> Iterator[Group]:
    """Yield these rows as they are read: many as columns, else one by one; no group is empty."""
    meant = None if wanted.key is None else MeantKey(wanted.key, reading)
    fits = replace(wanted, key=None).of_rows(reading.clock)
    read = _read_groups(reading, names, wanted if meant is None else meant.looked_at)
    if meant is None and wanted.body is None:
        for some in read:
            if not isinstance(some, list) or fits(some[0]):
                yield some
        return
    rows = chain.from_iterable(map(_objects, read))
    for row in rows if meant is None else meant.chosen(rows):
        if fits(row):
            yield [row]


def _read_groups(
    reading: LogReading, names: set[str], wanted: Filter | LookedAt | None
) -> Iterator[Group]:
    """Yield at least the rows that are wanted, of columns only these; with None all."""
    kept = reading.collections() if isinstance(reading, Catalogued) else ()
    stored = {one.name: one.stored for one in kept}
    names.update(stored, chain.from_iterable(stored.values()))
    name = log_name(reading.source) if reading.source.name else None
    if (batches := fated_batches(reading)) is not None:
        from tallystick.investigate.row_columns import RowColumns, looked_at, names_in

        for batch in batches:
            stored |= names_in(batch)
            for one in batch.column("collection").unique().to_pylist():
                names.update((one, *stored.get(one, ())))
            taken = batch
            if isinstance(wanted, Filter):
                taken = wanted.taken_of_rows(batch, reading.clock, stored)
            elif wanted is not None:
                taken = looked_at(batch, *wanted)
            for part in reading.decoded(taken) if isinstance(reading, DecodesLater) else [taken]:
                if part.num_rows:
                    yield RowColumns(part, name, reading.clock, stored)
        return
    for row in every_row(reading):
        collection = row.change.collection
        also = (*row.names, *stored.get(collection, ()))
        names.update((collection, *also))
        change = row.change if name is None else replace(row.change, log=name)
        yield [Row(row.fate, change, also)]


def meant_name(name: str | None, names: Iterable[str]) -> str | None:
    """Return the only one of ``names`` that is this name in another case; else the name itself."""
    if name is None:
        return None
    folded = name.casefold()
    meant = [one for one in names if one.casefold() == folded]
    return meant[0] if name not in meant and len(meant) == 1 else name


def require_table(table: str, names: set[str], found: Survey) -> None:
    """Raise the error that names the nearest tables, unless there is such a table."""
    known = sorted(names - {""})
    if table in names or not found.logs:
        return
    folded = {one.casefold(): one for one in known}
    near = get_close_matches(table.casefold(), folded, n=3, cutoff=0.4)
    ends = [one for one in known if one.casefold().endswith(f".{table.casefold()}")]
    meant = list(dict.fromkeys([*ends, *(folded[one] for one in near)]))
    raise found.not_found(
        UnsupportedFormatError(
            f"no table, queue or resource here is called {table!r}",
            file=found.path,
            advice=f"Did you mean {', '.join(meant)}?" if meant else _listed(known),
        )
    )


_NAMES_MAX = 8


def _listed(known: list[str]) -> str:
    rest = len(known) - _NAMES_MAX
    shown = ", ".join(known[:_NAMES_MAX] + ([f"{rest:,} more"] if rest > 0 else []))
    return f"There are {shown}" if known else "No row here has a table"


def _size(one: tuple[Group, Clock]) -> int:
    """Return about how many bytes of memory rows take."""
    some, _ = one
    if not isinstance(some, list):
        return some.size
    return sum(1024 + 2 * len(row.change.after or b"") for row in some)


def _lines(form: str, out: IO[bytes], found: Iterable[tuple[Group, Clock]]) -> int:
    """Write rows as lines; those that come one by one, as where pyarrow is missing, as `export`."""
    count = 0
    if form == "csv":
        csv_lines(out, [CSV_COLUMNS])
    for some in _together(found):
        if isinstance(some, Iterator):
            if form == "csv":
                count += csv_lines(out, ([row[name] for name in CSV_COLUMNS] for row in some))
            else:
                count += json_lines(out, some)
            continue
        for lines in some.csv_lines(CSV_COLUMNS) if form == "csv" else some.json_lines():
            out.write(lines)
        count += some.count
    out.flush()
    return count


def _parquet(out: IO[bytes], found: Iterable[tuple[Group, Clock]]) -> int:
    import pyarrow.parquet as parquet

    count = 0
    with parquet.ParquetWriter(out, row_schema(), compression="zstd") as writer:
        for batch in _batches(found):
            writer.write_batch(batch)
            count += batch.num_rows
    return count


def _batches(found: Iterable[tuple[Group, Clock]]) -> Iterator[pa.RecordBatch]:
    from tallystick.arrow.schemas import json_text
    from tallystick.reading.tables import batches_of_rows

    for some in _together(found):
        if isinstance(some, Iterator):
            plain = (_binary(row) | {"values": json_text(row["values"])} for row in some)
            yield from batches_of_rows(plain, row_schema())
        else:
            yield some.batch_of(row_schema())


def _together(
    found: Iterable[tuple[Group, Clock]],
) -> Iterator[RowColumns | Iterator[dict[str, Any]]]:
    """Yield columns as they are; rows that come one by one between columns as one iterator."""
    for kind, groups in groupby(found, lambda one: type(one[0])):
        if kind is list:
            yield chain.from_iterable(_dicts(*one) for one in groups)
        else:
            yield from (some for some, _ in groups if not isinstance(some, list))


def _binary(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with bytes for their hex digits, and the time as text."""
    found = {name: row[name] and bytes.fromhex(row[name]) for name in ("gtrid", "before", "after")}
    time = row["time"]
    return row | found | {"time": None if time is None else str(time)}
