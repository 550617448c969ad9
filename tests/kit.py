"""What tests of several packages share.

* `unpack`: what an earlier version wrote, from the text beside a test
* `untouched`: nothing below a folder changes while a test reads it
* `same_json`: compare with an oracle and show the first difference by its path
* `csv_of`: rows as PostgreSQL's COPY writes them as CSV
* `table_rows`: the rows of batches of one of our tables
* `same_rows`: the vectorised path of a reader gives the rows of its records, in every column
* `same_both_ways`: a log says the same read in runs and record by record
* `closed_alike`: the splits of a log give the transactions and changes of the whole one, or refuse
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import tarfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tallystick.arrow.schemas import plain, record_batches
from tallystick.errors import TallystickError
from tallystick.investigate.rows import rows_of
from tallystick.reading.names import log_name
from tallystick.reading.tables import TABLES, batches_of
from tallystick.systems import runs
from tallystick.systems.protocol import (
    AttributeBatches,
    ChoosesRecords,
    ClosesBySplit,
    JudgedBySplit,
    NotClosedInPartsError,
    System,
)

if TYPE_CHECKING:
    import pytest

    from tallystick.systems.protocol import LogReading, LogSource, Longs, ReadOptions


def unpack(packed: Path, folder: Path) -> None:
    """Unpack an archive that stands beside a test as text in base64."""
    content = io.BytesIO(base64.b64decode(packed.read_text("ascii")))
    with tarfile.open(fileobj=content, mode="r:xz") as archive:
        archive.extractall(folder, filter="data")


@contextmanager
def untouched(root: Path) -> Iterator[None]:
    """Assert that names, bytes, modes and time stamps below ``root`` stay as they are."""
    before = picture_of(root)
    yield
    assert picture_of(root) == before


def picture_of(root: Path) -> dict[str, tuple[int, int, int, str]]:
    picture = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        # read_bytes above may set the access time, so that one is compared in a test of its own
        picture[str(path)] = (status.st_mode, status.st_mtime_ns, status.st_ctime_ns, content)
    return picture


def first_difference(ours: Any, oracle: Any, path: str = "$") -> str | None:
    """Return the first path at which two JSON values differ, as text; None if they are equal."""
    if isinstance(ours, dict) and isinstance(oracle, dict):
        if ours.keys() != oracle.keys():
            return f"{path}: keys {sorted(ours)} instead of {sorted(oracle)}"
        pairs = [(f"{path}.{key}", ours[key], oracle[key]) for key in oracle]
    elif isinstance(ours, list) and isinstance(oracle, list):
        pairs = [
            (f"{path}[{index}]", *pair)
            for index, pair in enumerate(zip(ours, oracle, strict=False))
        ]
    else:
        equal = ours == oracle and type(ours) is type(oracle)
        return None if equal else f"{path}: {ours!r} instead of {oracle!r}"
    for where, one, other in pairs:
        if (difference := first_difference(one, other, where)) is not None:
            return difference
    if len(ours) != len(oracle):
        return f"{path}: {len(ours)} items instead of {len(oracle)}"
    return None


def same_json(ours: Any, oracle: Any) -> None:
    """Assert equality, naming the first difference by its path."""
    difference = first_difference(ours, oracle)
    assert difference is None, difference


def csv_of(rows: Iterable[Iterable[Any]]) -> str:
    """Return rows as lines of CSV: of the standard library, but NULL is nothing, "" is no text."""

    def field(value: Any) -> str:
        out = io.StringIO()
        csv.writer(out).writerow([value])
        return "" if value is None else out.getvalue().removesuffix("\r\n")

    return "".join(f"{','.join(map(field, row))}\r\n" for row in rows)


def table_rows(batches: Iterable[pa.RecordBatch], table: str = "records") -> list[dict[str, Any]]:
    """Return the rows of batches that have the columns of a table, in their order and types."""
    rows: list[dict[str, Any]] = pa.Table.from_batches(list(batches), TABLES[table]).to_pylist()
    return rows


def same_rows(reading: LogReading, rows: int = 10_000) -> int:
    """Assert that scan, batches, batches of splits and `read_arrow` agree; return how many rows.

    All columns are compared; of batches all but ``attributes``, which they may leave out.
    """
    whole = table_rows(batches_of(reading, "records", rows=rows))
    complete = table_rows(
        record_batches(reading.records(), log_name(reading.source), reading.clock.value)
    )
    _same(whole, complete)
    expected = [one | {"log": reading.source.path} for one in complete]
    _same(table_rows(map(plain, reading.batches(rows=rows))), expected, "attributes")
    largest = max((one.size for one in reading.files()), default=0)
    parts = reading.splits(max(8192, largest // 4))
    in_parts = [row for part in parts for row in table_rows(map(plain, reading.batches(part)))]
    _same(sorted(in_parts, key=_place), sorted(expected, key=_place), "attributes")
    if isinstance(reading, AttributeBatches):
        filled = [row for part in parts for row in table_rows(batches_of(reading, "records", part))]
        _same(sorted(filled, key=_place), sorted(complete, key=_place))
    return len(expected)


def _place(row: dict[str, Any]) -> tuple[str, int, int]:
    return str(row["file"]), row["offset"], row["sequence"] or 0


def _same(ours: list[dict[str, Any]], expected: list[dict[str, Any]], *but: str) -> None:
    for number, (one, other) in enumerate(zip(ours, expected, strict=False)):
        differing = [name for name in other if name not in but and one[name] != other[name]]
        assert not differing, f"row {number}: {[(n, one[n], other[n]) for n in differing]}"
    assert len(ours) == len(expected)


def read_in_runs(monkeypatch: pytest.MonkeyPatch, *, always: bool = True) -> None:
    """Have even the shortest run read in chunks, or none at all."""
    least = 0 if always else 1 << 62
    monkeypatch.setattr(runs, "COMPILED_FROM", least)
    monkeypatch.setattr(runs, "LOADED_FROM", least)
    monkeypatch.setattr(runs, "RUN_MIN", 1)


def opened_logs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of the logs that are opened from now on, each as often as that happens."""
    opened: list[str] = []

    def counting(of: System, source: LogSource, options: ReadOptions) -> LogReading:
        opened.append(source.path)
        return read(of, source, options)

    read = System.read
    monkeypatch.setattr(System, "read", counting)
    return opened


def same_both_ways(
    opened: Callable[[], LogReading],
    monkeypatch: pytest.MonkeyPatch,
    rows: int = 100,
    *,
    refusals: bool = False,
) -> None:
    """Assert that all that is said of a log is the same read in runs and record by record.

    Args:
        opened: returns a new reading of the log.
        monkeypatch: sets from which size on logs are read in runs.
        rows: of a batch, at most.
        refusals: whether an error is an answer, too.
    """
    answers = []
    for always in (False, True):
        read_in_runs(monkeypatch, always=always)
        try:
            answers.append(_all_of(opened(), rows))
        except TallystickError as error:
            if not refusals:
                raise
            answers.append({"error": str(error)})
    same_json(answers[1], answers[0])


def _every_row(batch: pa.RecordBatch) -> Longs:
    return np.arange(batch.num_rows)


def _all_of(reading: LogReading, rows: int) -> dict[str, Any]:
    if isinstance(reading, ChoosesRecords):
        assert list(reading.chosen_records(_every_row)) == list(reading.records())
    found: dict[str, Any] = {
        "answer": reading.judgement.to_dict(),
        "verdict": reading.verdict().to_dict(),
        "spans": [repr(one) for one in reading.files()],
        "objects": [repr(one) for one in (*reading.transactions(), *reading.changes())],
        "rows": [repr(one) for one in rows_of(reading, set())],
    }
    for table in TABLES:
        batches = list(batches_of(reading, table, rows=rows))
        assert all(one.num_rows <= rows for one in batches)
        found[table] = sorted(_texts(table, batches))
    return found


def closed_alike(reading: LogReading, target_bytes: int, rows: int = 100) -> bool:
    """Assert that splits of about a size tell what the whole log does, unless they refuse.

    Returns:
        False if they refuse.
    """
    assert isinstance(reading, ClosesBySplit)
    found: dict[str, list[str]] = {"transactions": [], "changes": []}
    rests: list[bytes] = []
    told: LogReading | None = None
    try:
        for split in reading.splits(target_bytes):
            closed = reading.close_split(split, rows)
            _collect(closed.batches, found, rows)
            if (rest := closed.rest()) is None:
                return False
            rests.append(rest)
        _collect(reading.close_rests(rests, rows), found, rows)
        if isinstance(reading, JudgedBySplit):
            told = reading.knowing(rests)
    except NotClosedInPartsError:
        return False
    for table in ("files", "findings", "logs") if told is not None else ():
        assert told is not None
        found[table] = _texts(table, batches_of(told, table))
    for table, ours in found.items():
        whole = _texts(table, batches_of(reading, table))
        assert sorted(ours) == sorted(whole), table
    return True


def _collect(
    batches: Iterable[tuple[str, pa.RecordBatch]], found: dict[str, list[str]], rows: int
) -> None:
    for table, batch in batches:
        assert batch.num_rows <= rows
        found[table] += _texts(table, [batch])


def _texts(table: str, batches: Iterable[pa.RecordBatch]) -> list[str]:
    rows = table_rows(batches, table)
    return [repr({name: one for name, one in row.items() if name != "log"}) for row in rows]
