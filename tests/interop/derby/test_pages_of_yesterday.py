"""Pages of an earlier time among those of today, which the log names no more: what Derby finds."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

import tallystick
from tallystick.records import Answer
from tallystick.systems.derby.engine.page_files import PageFile
from tallystick.systems.derby.read.containers import conglomerates
from tests.interop.derby.real import VERSIONS, derby

pytestmark = pytest.mark.interop

INTERVAL = 100_000
"""Bytes after which a log file is full: old ones go at a checkpoint, and name pages no more."""
CHECKPOINT = "sql:call SYSCS_UTIL.SYSCS_CHECKPOINT_DATABASE()"


def doubled(table: str, times: int) -> Iterator[str]:
    """Steps that double the rows of a table with a number and a text."""
    for bit in range(times):
        yield f"sql:insert into {table} select n + {1 << bit}, v from {table}"


FILL = [
    "sql:create table fill (n int, v varchar(3000))",
    f"sql:insert into fill values (0, '{'f' * 2000}')",
    *doubled("fill", 7),
]
FILL_MORE = ["sql:update fill set v = v || 'g'", CHECKPOINT]


@dataclass(frozen=True, slots=True)
class Story:
    """What was done to a table T: until yesterday, today before the checkpoint, and after it."""

    made: list[str]
    today: list[str]
    last: list[str]


T = ["sql:create table t (n int primary key, v varchar(2000))", "sql:insert into t values (0, 'v')"]
STORIES = {
    "rows of a leaf": Story(
        [*T, *doubled("t", 9), "sql:create index i on t (v, n)"],
        ["sql:delete from t where n between 20 and 25"],
        [f"sql:insert into t values ({1000 + one}, 'w')" for one in range(14)],
    ),
    "three levels": Story(
        [
            "sql:create table t (n int, v varchar(300))",
            f"sql:insert into t values (0, '{'k' * 180}')",
            "sql:create index i on t (v, n)",
            *doubled("t", 11),
        ],
        ["sql:insert into t select n + 3000, v || 'a' from t where n between 20 and 90"],
        [f"sql:insert into t values ({5000 + one}, 'zz')" for one in range(14)],
    ),
    "rows of a table": Story(
        [*T, *doubled("t", 9)],
        [
            "sql:insert into t select n + 2000, v from t where n < 5",
            "sql:delete from t where n = 7",
        ],
        ["sql:update t set v = 'changed' where n > 2002"],
    ),
}


def aged(folder: Path, version: str, story: Story) -> Path:
    """A database that was killed, with its files of yesterday beside it."""
    database, real = folder / "db", partial(derby, version=version)
    real(database, *story.made, *FILL, CHECKPOINT, "shutdown")
    shutil.copytree(database / "seg0", folder / "yesterday")
    real(database, *story.today, CHECKPOINT, *FILL_MORE, *FILL_MORE, "shutdown")
    real(database, *story.last, "halt")
    for lock in database.glob("*.lck"):
        lock.unlink()
    return database


def with_pages_of_yesterday(database: Path) -> Iterator[Path]:
    """Yield copies of the database, each with one page of yesterday of the last table's."""
    listed = sorted(conglomerates(str(database / "seg0/c20.dat")))
    of = [one.table_id for one in listed if not one.is_table][-1]
    for one in (one for one in listed if one.table_id == of):
        name = f"c{one.number:x}.dat"
        today = (database / "seg0" / name).read_bytes()
        old = (database.with_name("yesterday") / name).read_bytes()
        size = PageFile(str(database / "seg0" / name)).page_size
        for begin in range(size, min(len(old), len(today)), size):
            page = old[begin : begin + size]
            if page != today[begin : begin + size]:
                copy = database.with_name(f"{one.number:x}-{begin // size}")
                shutil.copytree(database, copy)
                content = today[:begin] + page + today[begin + size :]
                (copy / "seg0" / name).write_bytes(content)
                yield copy


# Each row is looked up by its key, from the first page of the index on.
BY_INDEX = """select count(*) from --DERBY-PROPERTIES joinOrder=FIXED
t one --DERBY-PROPERTIES index=null
, t other --DERBY-PROPERTIES index=I, joinStrategy=NESTEDLOOP
where one.v = other.v and one.n = other.n"""
QUESTIONS = {
    "CHECKED": "values SYSCS_UTIL.SYSCS_CHECK_TABLE('APP', 'T')",
    "ROWS": "select count(*) from t --DERBY-PROPERTIES index=null\n where length(v) > 0",
    "BY-INDEX": BY_INDEX,
}


def finds_all(database: Path, version: str) -> bool:
    """Whether the original boots, and finds the rows of the table and the same by its indexes."""
    steps = [f"value:{name}:{query}" for name, query in QUESTIONS.items()]
    found = derby(database, *steps, "halt", version=version)
    is_read = "NOBOOT" not in found["ROWS"]
    return found["CHECKED"] == "1" and is_read and found["ROWS"] == found["BY-INDEX"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("story", STORIES)
def test_a_page_of_yesterday_is_safe_where_the_original_misses_no_row(
    story: str, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = f"-Dderby.storage.logSwitchInterval={INTERVAL}"
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", settings)
    database = aged(tmp_path, version, STORIES[story])
    assert tallystick.explain(database).logs[0].judgement.answer is Answer.SAFE
    found = {}
    for copy in with_pages_of_yesterday(database):
        (verdict,) = tallystick.explain(copy).logs
        is_whole = finds_all(copy, version)
        found[copy.name] = verdict.judgement.answer is Answer.SAFE, is_whole
    assert [one for one, (is_safe, is_whole) in found.items() if is_safe is not is_whole] == []
    assert not all(is_whole for _, is_whole in found.values())
