"""A table of all logs below a path, into one file that other programs read.

In: a path and a form. Out: JSON lines (the objects of ``tallystick dump --json`` for
records), Parquet, or an Arrow IPC stream. Memory holds one batch.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import IO, TYPE_CHECKING, Any

from tallystick.reading import read_arrow, scan
from tallystick.reading.filters import EVERYTHING, Filter
from tallystick.reading.survey import Path
from tallystick.records import Finding, jsonable
from tallystick.storage.local import write_anew
from tallystick.systems.protocol import ReadOptions

if TYPE_CHECKING:
    import pyarrow as pa

FORMATS = ("jsonl", "parquet", "arrow")


def export(
    path: Path,
    form: str,
    target: str | os.PathLike[str] | IO[bytes],
    *,
    table: str = "records",
    salvage: bool = False,
    wanted: Filter = EVERYTHING,
    options: ReadOptions | None = None,
    problems: list[Finding] | None = None,
) -> int:
    """Write ``table`` of every log below ``path``; returns the number of rows.

    A file appears under its name only when it is complete, and is its owner's alone. ``wanted`` and
    ``problems`` as for `tallystick.scan`. Raises `ValueError` for an unknown form or table.
    """
    if form not in FORMATS:
        raise ValueError(f"unknown form {form!r}; one of {', '.join(FORMATS)}")
    if form == "jsonl" and table == "records":
        records = scan(path, wanted, salvage=salvage, options=options, problems=problems)
        return write_whole(target, lambda out: json_lines(out, (one.to_dict() for one in records)))
    reader = read_arrow(
        path, table, salvage=salvage, wanted=wanted, options=options, problems=problems
    )
    writers = {"jsonl": _rows_as_json, "parquet": _parquet, "arrow": _arrow}
    return write_whole(target, lambda out: writers[form](out, reader))


def write_whole(
    target: str | os.PathLike[str] | IO[bytes], write: Callable[[IO[bytes]], int]
) -> int:
    """Write to an open file, or to a file that appears when it is complete; return the count."""
    if not isinstance(target, str | os.PathLike):
        return int(write(target))
    final = os.fspath(target)
    partial = f"{final}.partial"
    with ExitStack() as undo:
        undo.callback(_remove, partial)
        with write_anew(partial) as out:
            rows = int(write(out))
        os.replace(partial, final)  # noqa: PTH105 - a str, as given
        undo.pop_all()
    return rows


def _remove(path: str) -> None:
    if os.path.exists(path):  # noqa: PTH110
        os.unlink(path)  # noqa: PTH108


def json_lines(out: IO[bytes], rows: Iterable[dict[str, Any]]) -> int:
    """Write one compact JSON object a line; return how many."""
    count = 0
    for row in rows:
        out.write(json.dumps(row, separators=(",", ":")).encode() + b"\n")
        count += 1
    out.flush()
    return count


def _rows_as_json(out: IO[bytes], reader: pa.RecordBatchReader) -> int:
    def rows() -> Iterator[dict[str, Any]]:
        for batch in reader:
            yield from map(jsonable, batch.to_pylist())

    return json_lines(out, rows())


def _parquet(out: IO[bytes], reader: pa.RecordBatchReader) -> int:
    import pyarrow.parquet as parquet

    with parquet.ParquetWriter(out, reader.schema, compression="zstd") as writer:
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
