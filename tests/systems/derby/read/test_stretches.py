"""A condition on LSNs reads the files of a log that can hold them, and gives the same records."""

from __future__ import annotations

import duckdb
import pytest

import tallystick
from tallystick.reading.filters import Filter
from tallystick.systems.derby import reader
from tests.fixtures import fixture_dir
from tests.kit import read_in_runs
from tests.systems.derby.logs import CASES, reading

PLAIN = [one for one in CASES if "encrypted" not in one]


def _rows(connection: duckdb.DuckDBPyConnection, table: str, condition: str) -> list[object]:
    asked = f'SELECT sequence, "offset", kind, file FROM {table} WHERE {condition} ORDER BY ALL'
    return [*connection.execute(asked).fetchall()]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("in_runs", [False, True])
@pytest.mark.parametrize("case", PLAIN)
def test_files_hold_the_records_of_their_numbers(
    case: str, in_runs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_in_runs(monkeypatch, always=in_runs)
    monkeypatch.setattr(reader, "STRETCH", 1 << 12)
    path = fixture_dir("derby") / case
    every = [*tallystick.scan(path, problems=[])]
    with tallystick.sql(path) as connection:
        connection.execute("CREATE TEMP TABLE copied AS FROM records")
        for file in reading(case).log.files.values():
            least, most = file.number << 32 | 400, file.number << 32 | 1 << 19
            wanted = Filter(from_lsn=least, to_lsn=most)
            chosen = wanted.splits_in(reading(case)) or []
            assert {one.file for one in chosen} <= {file.path}
            found = [*tallystick.scan(path, wanted, problems=[])]
            assert found == [one for one in every if least <= (one.sequence or 0) <= most]
            condition = f"sequence BETWEEN {least} AND {most} AND kind <> 'other'"
            assert _rows(connection, "records", condition) == _rows(connection, "copied", condition)
