"""Tables by the log of the real Derby, whose rows after its recovery stand beside it."""

from __future__ import annotations

import random
import zlib
from pathlib import Path
from typing import Any

import pytest

from tallystick.errors import TallystickError
from tallystick.records import Kind
from tallystick.systems.derby.reader import DerbyReading
from tallystick.systems.derby.runs import chunk
from tests.kit import read_in_runs
from tests.systems.derby.logs import (
    CASES,
    copy,
    flip,
    log_bytes,
    manifest,
    options,
    reading,
    reading_of,
)

Row = dict[str, Any]


def rows_of(log: DerbyReading, name: str) -> dict[str, Row]:
    """The rows of a table after all changes, by key."""
    found: dict[str, Row] = dict(log.rows_before(name))
    for change in log.changes_of(name):
        values = dict(change.values or {})
        if change.kind is Kind.TRUNCATE:
            found.clear()
        elif change.kind is Kind.DELETE:
            del found[change.key]
        elif change.kind is Kind.UPDATE:
            assert change.key in found
            found[change.key] |= values
        else:
            assert change.key not in found
            found[change.key] = values
    return found


def selected(log: DerbyReading, name: str, *columns: str) -> list[list[str | None]]:
    """Columns of a table's rows, as texts, by the first column."""
    rows = sorted(rows_of(log, name).values(), key=lambda row: row[columns[0]])
    return [[None if row[one] is None else str(row[one]) for one in columns] for row in rows]


def shown(case: str, statement: str) -> list[list[str | None]]:
    """What the real Derby showed after its recovery."""
    found: list[list[str | None]] = manifest(case)["after_real_recovery"][statement]
    return found


@pytest.mark.parametrize(
    ("case", "table", "statement"),
    [
        ("clean", "T", "select id,v from t order by id with ur"),
        ("halted", "T", "select id,v from t order by id with ur"),
        ("encrypted-aes-external-key", "T", "select id,v from t order by id with ur"),
        ("writer-vectors", "N", "select id,v from n order by id with ur"),
    ],
)
def test_rows_are_those_that_the_real_derby_showed(case: str, table: str, statement: str) -> None:
    assert selected(reading(case), f"APP.{table}", "ID", "V") == shown(case, statement)


@pytest.mark.parametrize("case", ["rollbacks", "recovered-then-killed"])
def test_what_was_rolled_back_is_no_row(case: str) -> None:
    found = rows_of(reading(case), "APP.T").values()
    rows = sorted([one["ID"], one["V"], one["W"] and len(one["W"])] for one in found)
    expected = shown(case, "select id,v,length(w) from t order by id")
    assert [[None if one is None else str(one) for one in row] for row in rows] == expected


def test_a_large_object_is_put_together() -> None:
    expected = shown("large", "select id,b,length(x) from l order by id")
    rows = sorted(rows_of(reading("large"), "APP.L").values(), key=lambda row: int(row["ID"]))
    assert [str(row["ID"]) for row in rows] == [row[0] for row in expected]
    for row, (_, bits, size) in zip(rows, expected, strict=True):
        assert bits is not None
        head, _, tail = bits.partition("...")
        count, _, checksum = tail.removeprefix("#").partition(" crc ")
        assert row["B"].startswith(head)
        assert (len(row["B"]), f"{zlib.crc32(row['B'].encode()):08x}") == (int(count), checksum)
        assert len(row["X"]) // 2 == int(size or 0)


def test_collections_have_their_names_and_columns() -> None:
    found = {one.name: one for one in reading("ddl").collections()}
    assert [(one.name, one.declared) for one in found["APP.KEEPME"].columns] == [
        ("ID", "INTEGER"),
        ("V", "VARCHAR(200)"),
    ]
    assert found["APP.E"].stored == ("APP.E",)
    kinds = [change.kind for change in reading("ddl").changes_of("APP.E")]
    assert kinds[-1] is Kind.TRUNCATE
    assert rows_of(reading("ddl"), "APP.E") == {}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("rows", [20, 1 << 15])
@pytest.mark.parametrize("case", [one for one in CASES if "encrypted" not in one])
def test_tables_by_runs_are_those_by_records(case: str, rows: int) -> None:
    same_tables(reading(case), rows)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(4))
def test_tables_of_damaged_logs_by_runs_are_those_by_records(tmp_path: Path, seed: int) -> None:
    case, chance = ("rollbacks", "ddl")[seed % 2], random.Random(seed)
    used = len(log_bytes(case).rstrip(b"\0"))
    folder = copy(case, tmp_path / "db", {"log1.dat": flip(chance.randrange(used // 2, used))})
    same_tables(reading_of(folder, options(case)), 20)


def same_tables(log: DerbyReading, rows: int) -> None:
    """Check that runs, read with so many rows at once, and records tell the same of tables."""
    found = []
    for always in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            read_in_runs(patch, always=always)
            patch.setattr(chunk, "ROWS", rows)
            found.append(told(DerbyReading(log.source, log._options)))
    assert found[0] == found[1]


def told(log: DerbyReading) -> list[str]:
    """All that a reading tells of tables, at a whole and in steps."""
    chance = random.Random(7)
    ends = [one.place + one.length for one in log.scan.ranges() if one.envelope is not None]
    found = [repr(log.collections())]
    for table in list(log.collections())[:3]:
        found.append(repr(list(log.rows_before(table.name))))
        after, until = sorted(chance.sample(ends, 2))
        for between in ((None, None), (None, until), (after, until)):
            try:
                found.append(repr(list(log.changes_of(table.name, *between))))
            except TallystickError as error:
                found.append(repr((error, error.file, error.offset)))
    return found
