"""Rows of all fates from columns are those one by one, of whole, mixed and damaged logs."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.investigate.rows import rows_of
from tallystick.reading.discovery import discover
from tallystick.records import Row
from tallystick.systems.derby import SYSTEM
from tallystick.systems.derby.columns import changes, fates
from tallystick.systems.derby.columns.row_texts import names_once, row_texts
from tallystick.systems.derby.format.sql_values import _TYPES, SqlType
from tallystick.systems.derby.read.tables import _values
from tallystick.systems.derby.reader import DerbyReading
from tallystick.systems.derby.runs import chunk, images
from tallystick.systems.protocol import LogSource, ReadOptions
from tests.fixtures import fixture_dir
from tests.kit import read_in_runs
from tests.systems.derby.logs import CASES, copy, flip, log_bytes, options, reading, reading_of
from tests.systems.derby.mixed import MixedLog, written

PLAIN = [one for one in CASES if "encrypted" not in one]


def both_ways(
    source: LogSource, secret: ReadOptions, patch: pytest.MonkeyPatch, rows: int
) -> tuple[list[Row], int]:
    """Check that both ways tell the same rows; return them, and how many came from columns."""
    from_columns = [0]
    made = changes.batch_of_rows

    def counting(*given: Any) -> Any:
        batch = made(*given)
        from_columns[0] += batch.num_rows
        return batch

    patch.setattr(fates, "batch_of_rows", counting)
    patch.setattr(chunk, "ROWS", rows)
    told = []
    for always in (False, True):
        read_in_runs(patch, always=always)
        told.append([*rows_of(DerbyReading(source, secret), set())])
    assert told[0] == told[1]
    return told[1], from_columns[0]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("rows", [60, chunk.ROWS])
@pytest.mark.parametrize("case", PLAIN)
def test_fixtures_tell_the_same_rows(case: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    both_ways(reading(case).source, options(case), monkeypatch, rows)


@pytest.mark.parametrize("case", ["switch-archive", "threads"])
def test_most_rows_are_made_from_columns(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found, from_columns = both_ways(reading(case).source, options(case), monkeypatch, 400)
    assert from_columns > len(found) // 2


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "folder", sorted(fixture_dir("derby_databases").iterdir()), ids=lambda one: one.name
)
def test_databases_tell_the_same_rows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for log in discover(folder, known=[SYSTEM]).logs:
        if not DerbyReading(log, ReadOptions()).log.encrypted:
            both_ways(log, ReadOptions(), monkeypatch, 60)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(24))
def test_mixed_logs_tell_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    log = MixedLog(
        seed, 1 + seed % 3, 400, checkpoints=seed % 4 > 1, reboots=seed % 5 == 4, gaps=False
    )
    made = reading_of(written(log.files, tmp_path / "log"))
    both_ways(made.source, ReadOptions(), monkeypatch, chunk.ROWS)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(24))
def test_damaged_logs_tell_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    case, chance = ("rollbacks", "ddl", "threads")[seed % 3], random.Random(seed)
    used = len(log_bytes(case).rstrip(b"\0"))
    folder = copy(case, tmp_path / "db", {"log1.dat": flip(chance.randrange(used // 4, used))})
    both_ways(reading_of(folder).source, options(case), monkeypatch, (40, chunk.ROWS)[seed % 2])


TYPES = [SqlType(name, *_TYPES[name]) for name in ("INTEGER", "BIGINT", "VARCHAR", "DATE", "XML")]
LAYOUT = (*((one.declared, one) for one in TYPES), None, ('é"', TYPES[2]))
TEXT = st.text('ab"\\é', max_size=4).map(str.encode)
VALUE = st.one_of(
    TEXT.map(lambda one: struct.pack(">H", len(one)) + one),
    TEXT,
    st.integers(-(2**31), 2**31 - 1).map(lambda one: struct.pack(">i", one)),
    st.binary(max_size=9),
    st.none(),
)
FIELDS = st.dictionaries(st.integers(0, len(LAYOUT) - 1), VALUE)
ALIKE = st.lists(st.just({0: b"\0\0\1\2", 2: b"\0\2ab"}) | st.just({0: None}), max_size=4)


@given(st.lists(FIELDS, max_size=6) | ALIKE, st.booleans())
def test_texts_of_rows_are_their_values(rows: list[dict[int, bytes | None]], whole: bool) -> None:
    data = b"".join(field or b"" for row in rows for field in row.values()) + bytes(16)
    fields = np.zeros((2, len(LAYOUT), len(rows)), np.int64)
    fields[1] = images.ABSENT
    place = 0
    for number, row in enumerate(rows):
        for column, field in row.items():
            size = images.NULL if field is None else len(field)
            fields[:, column, number] = place, size
            place += len(field or b"")
    last = [max(row, default=-1) if whole else len(LAYOUT) for row in rows]
    found = row_texts(np.frombuffer(data, np.uint8), fields, np.array(last, np.int64), LAYOUT)
    expected = [_values(row, LAYOUT, whole=whole) or None for row in rows]
    assert [one and json.loads(one) for one in found.to_pylist()] == expected


def test_two_columns_of_one_name_are_not_for_texts() -> None:
    assert names_once(LAYOUT)
    assert not names_once((*LAYOUT, LAYOUT[0]))
