"""A table of all logs below a path, into one file that other programs read.

In: a path and a form. Out: JSON lines (the objects of ``tallystick dump --json`` for
records), CSV, Parquet, or an Arrow IPC stream. Memory holds one batch.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from datetime import date, time, timedelta
from decimal import Decimal
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from uuid import UUID

from tallystick.arrow.texts import csv_text, whole_text
from tallystick.errors import LogWriteError, UnsupportedFormatError
from tallystick.printable import shell_quoted
from tallystick.reading import read_arrow, scan
from tallystick.reading.discovery import path_of
from tallystick.reading.filters import EVERYTHING, Filter
from tallystick.reading.survey import Paths, survey
from tallystick.records import Finding, jsonable
from tallystick.storage.local import LOCAL, naming, require_folder, write_anew
from tallystick.storage.source import is_remote, logical_name
from tallystick.systems.folders import logs_in
from tallystick.systems.protocol import ReadOptions, System
from tallystick.systems.registry import systems

if TYPE_CHECKING:
    import pyarrow as pa

FORMATS = ("jsonl", "csv", "parquet", "arrow")
_ROWS = 1 << 14
"""Rows of which the text is in memory at a time."""
_AT_ONCE = frozenset(
    {
        "string",
        "binary",
        "bool",
        *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    }
)
"""Types of Arrow of which a whole column is made text at once."""


def export(
    path: Paths,
    form: str,
    target: str | os.PathLike[str] | IO[bytes],
    *,
    table: str = "records",
    salvage: bool = False,
    wanted: Filter = EVERYTHING,
    options: ReadOptions | None = None,
    problems: list[Finding] | None = None,
) -> int:
    """Write one table of every log below ``path``; return the number of rows.

    Args:
        path: as for `tallystick.read_arrow`.
        form: one of `FORMATS`.
        target: an open file, or a path; a file appears there only when it is complete, and is its
            owner's alone.
        table: as for `tallystick.read_arrow`.
        salvage: as for `tallystick.read_arrow`.
        wanted: as for `tallystick.read_arrow`.
        options: as for `tallystick.read_arrow`.
        problems: as for `tallystick.read_arrow`.

    Raises:
        ValueError: there is no such form or table.
        LogWriteError: the target lies in a folder that is read, or is a file of a log.
    """
    if form not in FORMATS:
        raise ValueError(f"unknown form {form!r}; one of {', '.join(FORMATS)}")
    refuse_input(target, path, options)
    if form == "jsonl" and table == "records":
        records = scan(path, wanted, salvage=salvage, options=options, problems=problems)
        return write_whole(target, lambda out: json_lines(out, (one.to_dict() for one in records)))
    reader = read_arrow(
        path, table, salvage=salvage, wanted=wanted, options=options, problems=problems
    )
    return write_batches(reader, form, target)


def write_batches(
    reader: pa.RecordBatchReader, form: str, target: str | os.PathLike[str] | IO[bytes]
) -> int:
    """Write batches in one of `FORMATS`, to a file as `write_whole` does; return the rows."""
    writers = {"jsonl": _rows_as_json, "csv": _rows_as_csv, "parquet": _parquet, "arrow": _arrow}
    if form != "csv":  # where a column is its place
        reader = _with_distinct_names(reader)
    return write_whole(target, lambda out: writers[form](out, reader))


def _with_distinct_names(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Return batches whose columns have each a name of its own: later ones get a number."""
    import pyarrow as pa

    given = reader.schema.names
    if (names := _distinct(given)) == given:
        return reader
    fields = [one.with_name(name) for one, name in zip(reader.schema, names, strict=True)]
    schema = pa.schema(fields, reader.schema.metadata)
    return pa.RecordBatchReader.from_batches(schema, (one.rename_columns(names) for one in reader))


def _distinct(names: Sequence[str]) -> list[str]:
    """Return distinct names: ``key_1`` for the second ``key``, and so on."""
    taken, found, last = {*names}, dict[str, None](), dict[str, int]()
    for name in names:
        own = name
        while own in found or (own != name and own in taken):
            last[name] = last.get(name, 0) + 1
            own = f"{name}_{last[name]}"
        found[own] = None
    return [*found]


def write_whole(
    target: str | os.PathLike[str] | IO[bytes], write: Callable[[IO[bytes]], int]
) -> int:
    """Write to an open file, or to a file that appears when it is complete; return the count.

    A file that is there keeps its mode and its links. What is no file (a pipe, a device) is written
    to as it is.
    """
    if not isinstance(target, str | os.PathLike):
        return int(write(target))
    if (before := _status(given := os.fspath(target))) and not stat.S_ISREG(before.st_mode):
        with naming(given), open(given, "wb") as out:  # of /dev/fd/63 the real path is no path
            return int(write(out))
    require_folder(Path(final := os.path.realpath(target)), "output")
    with naming(final):
        return _write_file(final, before, write)


def _write_file(
    final: str, before: os.stat_result | None, write: Callable[[IO[bytes]], int]
) -> int:
    partial = f"{final}.partial"
    with ExitStack() as undo:
        undo.callback(_remove, partial)
        with write_anew(partial) as out:
            rows = int(write(out))
        if before is not None:
            os.chmod(partial, stat.S_IMODE(before.st_mode))  # noqa: PTH101
        os.replace(partial, final)  # noqa: PTH105 - a str, as given
        undo.pop_all()
    return rows


def refuse_input(
    target: str | os.PathLike[str] | IO[bytes], path: Paths, options: ReadOptions | None = None
) -> None:
    """Refuse a target that lies in a folder that is read, or is a file of any log.

    Neither may it be a file without which the database or broker around a log is not whole. A pipe
    or a device may be anywhere.

    Raises:
        LogWriteError: it is; nothing was written.
    """
    if not isinstance(target, str | os.PathLike):
        return
    if (status := _status(os.fspath(target))) and not stat.S_ISREG(status.st_mode):
        return
    final = os.path.realpath(target)
    given = [path] if isinstance(path, str | os.PathLike) else path
    for one in (path_of(os.fspath(each)) for each in given):
        files = _files(one, options)
        _refuse_file(final, files, "the log that is read")
        if not is_remote(one) and Path(one).is_dir():
            folders = [os.path.realpath(one), *map(os.path.dirname, files)]
            _refuse_inside(final, folders)
    if status is not None:
        _refuse_file(final, _files(final, options), "a log")
        _refuse_neighbour(final)


def _files(path: str | os.PathLike[str], options: ReadOptions | None) -> list[str]:
    """Return the real paths of the files of all logs below a path."""
    logs = survey(path, options=options).logs
    return [os.path.realpath(file) for log in logs for file in log.files if not is_remote(file)]


def _refuse_file(final: str, files: Iterable[str], what: str) -> None:
    if final in files:
        raise LogWriteError(
            f"the output would take the place of a file of {what}",
            file=final,
            advice="Name another file",
        )


def _refuse_inside(final: str, folders: Iterable[str]) -> None:
    above = {*map(str, Path(final).parents)}
    for folder in folders:
        if folder in above:
            raise LogWriteError(
                "the output would lie among the logs that are read",
                file=final,
                advice=f"Name a place outside {shell_quoted(folder)}",
            )


def _refuse_neighbour(final: str) -> None:
    """Refuse a file that is there and belongs to the database, broker or service of a log."""
    path = Path(final)
    for depth, folder in enumerate(path.parents):
        name = logical_name(path.relative_to(folder).parts[0])
        of = [one for one in systems() if _is_beside(name, one, depth)]
        if of and _has_log(folder, of):
            raise LogWriteError(
                "the output would take the place of a file that belongs to a log",
                file=final,
                advice="Name another file",
            )


def _is_beside(name: str, of: System, depth: int) -> bool:
    """Return whether a file, or the folder that it lies in so deep, may be beside logs."""
    if any(fnmatchcase(name, one) for one in of.neighbours):
        return True
    return not depth and not of.companions.isdisjoint({name, name.partition(".")[0]})


def _has_log(folder: Path, of: Sequence[System]) -> bool:
    """Return whether a log of these systems lies in a folder, or in one right below it."""
    with suppress(OSError):  # writing says why
        below = [one for one in folder.iterdir() if one.is_dir()]
        return any(logs_in(str(one), LOCAL, of) for one in [folder, *below])
    return False


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)  # noqa: PTH116 - a str
    except OSError:  # writing says why
        return None


def _remove(path: str) -> None:
    if os.path.exists(path):  # noqa: PTH110
        os.unlink(path)  # noqa: PTH108


def json_lines(out: IO[bytes], rows: Iterable[dict[str, Any]]) -> int:
    """Write one compact JSON object a line; return how many."""
    count = 0
    for row in rows:
        out.write(_compact(row).encode() + b"\n")
        count += 1
    out.flush()
    return count


def csv_lines(out: IO[bytes], rows: Iterable[Iterable[Any]]) -> int:
    """Write one line of CSV for each row, lists and objects as JSON; return how many."""
    count = 0
    for row in rows:
        out.write(f"{','.join(map(_field, row))}\r\n".encode())
        count += 1
    return count


def _field(value: Any) -> str:
    """Return a value as a field of a line of CSV."""
    text = _compact(value) if isinstance(value, dict | list) else whole_text(str(value))
    return "" if value is None else csv_text(text)


def _rows_as_json(out: IO[bytes], reader: pa.RecordBatchReader) -> int:
    from tallystick.arrow.lines import json_texts, lines

    count = 0
    for batch in _sized(reader):
        parts: list[pa.Array | bytes] = []
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            parts.append(f"{',' if parts else '{'}{json.dumps(name)}:".encode())
            parts.append(_texts(column, json_texts, _compact))
        out.write(lines([*parts, b"}\n"], batch.num_rows, "null"))
        count += batch.num_rows
    out.flush()
    return count


def _rows_as_csv(out: IO[bytes], reader: pa.RecordBatchReader) -> int:
    from tallystick.arrow.lines import csv_texts, lines

    csv_lines(out, [reader.schema.names])
    count = 0
    for batch in _sized(reader):
        parts: list[pa.Array | bytes] = []
        for column in batch.columns:
            # Python's writer has True where Arrow has true.
            texts = _texts(column, csv_texts, _field, but="bool")
            parts += [b"," if parts else b"", texts]
        out.write(lines([*parts, b"\r\n"], batch.num_rows))
        count += batch.num_rows
    out.flush()
    return count


def _sized(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    for batch in reader:
        for begin in range(0, batch.num_rows, _ROWS):
            yield batch.slice(begin, _ROWS)


def _texts(
    column: pa.Array,
    of_column: Callable[[pa.Array], pa.Array],
    of_value: Callable[[Any], str],
    but: str = "",
) -> pa.Array:
    """Return what is written of each value: of the types that most columns have at once."""
    import pyarrow as pa

    kind = str(column.type)
    if kind in _AT_ONCE and kind != but:
        return of_column(column)
    return pa.array([of_value(_json(one)) for one in _values(column)], pa.large_string())


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _values(column: pa.Array) -> list[Any]:
    """Return the values as those of Python; as text those that Python's types do not hold."""
    try:
        values = list(column.to_pylist())
    except (OverflowError, ValueError):
        return [*map(_value, column)]
    if str(column.type) == "time64[us]":  # SQL has an end of the day, Python has none
        numbers = column.cast("int64").to_pylist()
        return ["24:00:00" if n == _DAY_US else one for n, one in zip(numbers, values, strict=True)]
    return values


def _value(one: pa.Scalar) -> Any:
    try:
        return one.as_py()
    except (OverflowError, ValueError):  # a year after 9999
        return _INFINITE.get(one.value) or one.cast("string").as_py()


_DAY_US = 86_400_000_000
_INFINITE = {
    sign * ((1 << bits) - 1): text
    for bits in (31, 63)
    for sign, text in ((1, "infinity"), (-1, "-infinity"))
}
"""The dates and times that DuckDB calls so, by their numbers; Arrow has years for some."""


def _json(value: Any) -> Any:
    """Return what JSON has for a value of Arrow: ISO 8601 for times, integers as they are."""
    match value:
        case dict():
            return {str(name): _json(one) for name, one in value.items()}
        case list():
            return [_json(one) for one in value]
        case date() | time():
            return value.isoformat()
        case Decimal():
            return int(value) if value == value.to_integral_value() else str(value)
        case timedelta() | UUID():
            return str(value)
        case _:
            return jsonable(value)


def _parquet(out: IO[bytes], reader: pa.RecordBatchReader) -> int:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    try:
        writer = parquet.ParquetWriter(out, reader.schema, compression="zstd")
    except pa.ArrowNotImplementedError as error:
        raise UnsupportedFormatError(
            f"Parquet has no type for a column of this answer: {error}",
            advice="Make it text: CAST(... AS VARCHAR); or take another form",
        ) from error
    with writer:
        return _copy(reader, writer)


def _arrow(out: IO[bytes], reader: pa.RecordBatchReader) -> int:
    import pyarrow.ipc as ipc

    with ipc.new_stream(out, reader.schema) as writer:
        return _copy(reader, writer)


def _copy(reader: pa.RecordBatchReader, writer: Any) -> int:
    count = 0
    for batch in reader:
        writer.write_batch(batch)
        count += batch.num_rows
    return count
