"""Random tables of the real Derby: rows by log and database files are those that SELECT shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystick.records import Answer
from tallystick.systems.derby.format.layout import HEADER_SIZE
from tests.interop.derby.real import VERSIONS, derby, random_tables
from tests.pipeline.applied import applied, histories
from tests.sweeps import IN_TURNS
from tests.systems.derby.logs import reading_of
from tests.systems.derby.read.beginnings import Beginnings

_ALL = [*VERSIONS, "10.10.2.0"]
LOADED = (VERSIONS[0], 53)
"""A table that gets another container in the transaction that makes it, with rows."""
ROUNDS = [
    *(pytest.param(one, at, marks=pytest.mark.interop) for at, one in enumerate(_ALL)),
    pytest.param(*LOADED, marks=pytest.mark.interop),
    *(pytest.param(one, at, marks=IN_TURNS) for one in _ALL for at in range(10, 27)),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("version", "seed"), ROUNDS)
def test_rows_are_those_that_select_shows(tmp_path: Path, version: str, seed: int) -> None:
    database = tmp_path / "db"
    for more in range(3):  # the later logs begin in the middle of the database's life
        end = "halt" if more == 1 else "shutdown"
        shown = random_tables(database, 100 * seed + more, 150, end, version=version)
        reading = reading_of(database)
        names = {one.name.partition(".")[2] for one in reading.collections()}
        assert names - {"LAST_ONE"} == shown.keys()
        if _ends_with_a_header(database):
            return  # halted after it made a file: it cannot be told from one that was cut
        assert reading.judgement.answer is Answer.SAFE
        feeds = histories(database, [f"APP.{name}" for name in shown])
        for (name, (heads, rows)), found in zip(shown.items(), feeds, strict=True):
            assert applied(found, heads) == rows, (name, heads)


@pytest.mark.interop
@pytest.mark.parametrize("version", _ALL)
def test_long_values_do_not_depend_on_where_the_log_begins(tmp_path: Path, version: str) -> None:
    half = "substr(c, 1, 25000)"
    steps = [
        "create table l (id int primary key, c clob)",
        *(f"insert into l values ({at}, '{'l' * 30_000}')" for at in range(3)),
        f"insert into l select id + 10, '+' || {half} from l",
        *(f"update l set c = cast(id as char(9)) || '{at}' || {half} || {half}" for at in range(2)),
    ]
    derby(tmp_path / "db", *(f"sql:{one}" for one in steps), "shutdown", version=version)
    log = Beginnings(tmp_path / "db")
    expected = log.rows()
    assert len(expected["APP.L"]) == 6
    for place in log.places[::5]:
        assert log.rows(place) == expected, place


def _ends_with_a_header(database: Path) -> bool:
    last = max(database.glob("log/log*.dat"), key=lambda one: int(one.stem[3:]))
    return last.stat().st_size == HEADER_SIZE
