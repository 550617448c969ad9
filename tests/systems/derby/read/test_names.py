"""Changes stand under the name that their table has at the commit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystick.arrow.schemas import batches_of_changes
from tallystick.records import Change, Kind
from tallystick.systems.derby.reader import DerbyReading
from tallystick.systems.derby.runs import chunk
from tests.fixtures import fixture_dir
from tests.kit import read_in_runs
from tests.systems.derby.logs import CASES, copy, reading, reading_of

DATABASES = ("d-made-again", "d-number-again", "dec-updd16")
ALL = (*CASES, *DATABASES)


def log_of(case: str) -> DerbyReading:
    """A log without its database, or with it."""
    return reading_of(fixture_dir("typed") / case / "db") if case in DATABASES else reading(case)


def kinds(case: str, name: str) -> list[str]:
    """What becomes of the rows of a table."""
    return [one.kind.value for one in log_of(case).changes() if one.collection == name]


def keys_of(changes: list[Change]) -> set[str]:
    """The keys of the rows that are there after changes."""
    found = set[str]()
    for one in changes:
        if one.kind is Kind.TRUNCATE:
            found.clear()
        elif one.kind is Kind.DELETE:
            found.discard(one.key)
        else:
            found.add(one.key)
    return found


@pytest.mark.sampled(7)
@pytest.mark.parametrize("case", [one for one in ALL if one != "large"])  # whose rows go on
def test_changes_by_name_leave_the_rows_of_the_typed_table(case: str) -> None:
    log = log_of(case)
    changes = [*log.changes()]
    for table in log.collections():
        ours = [one for one in changes if one.collection == table.name]
        assert keys_of(ours) == keys_of([*log.changes_of(table.name)])


def test_a_number_that_is_given_again_means_another_table() -> None:
    changes = [one for one in log_of("d-number-again").changes() if one.collection[:4] != "SYS."]
    assert [(one.collection, one.kind.value) for one in changes] == [
        ("APP.T1", "add"),
        ("APP.T1", "add"),
        ("APP.T1", "truncate"),
        ("APP.T3", "truncate"),
        ("APP.T2", "add"),
    ]


def test_a_table_that_is_dropped_or_made_again_is_emptied() -> None:
    assert kinds("ddl", "APP.D")[-1] == "truncate"
    assert kinds("ddl", "APP.E")[-1] == "truncate"
    assert "truncate" in kinds("d-made-again", "APP.T")
    assert kinds("d-made-again", "APP.T")[-1] == "add"


def test_neither_rows_that_describe_a_table_nor_entries_of_indexes_are_changes() -> None:
    assert kinds("halted", "APP.T").count("add") == len(
        [one for one in reading("halted").changes_of("APP.T") if one.kind is Kind.ADD]
    )
    indexed = {one.collection for one in reading("switch-archive").changes()}
    assert not {one for one in indexed if one.isdecimal() and int(one) > 1000}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("rows", [7, 1 << 15])
@pytest.mark.parametrize("case", [one for one in ALL if "encrypted" not in one])
def test_runs_have_the_names_that_records_have(
    case: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_of(case)
    expected = batches_of_changes(log.changes(), "none", 100)
    read_in_runs(monkeypatch)
    monkeypatch.setattr(chunk, "ROWS", rows)
    found = DerbyReading(log.source, log._options).change_batches(100)
    assert [row for one in found for row in one.to_pylist()] == [
        row for one in expected for row in one.to_pylist()
    ]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", ["ddl", "rollbacks", *DATABASES])
def test_steps_have_the_names_that_the_whole_log_has(case: str) -> None:
    whole = log_of(case)
    ends = [one.place + one.length for one in whole.scan.ranges() if one.envelope is not None]
    found, after = list[Change](), None
    for until in (*ends[:: len(ends) // 5], ends[-1]):
        log = DerbyReading(whole.source, whole._options)
        found += log.changes_between(after, until)
        after = until
    assert found == [*whole.changes()]


def test_a_process_that_begins_in_the_middle_has_the_same_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tallystick.systems.derby.reader.KNOWN.get", lambda *_: None)
    test_steps_have_the_names_that_the_whole_log_has("d-number-again")


def test_without_its_database_a_log_names_the_tables_that_it_makes(tmp_path: Path) -> None:
    folder = copy("ddl", tmp_path / "db", {})
    assert {"APP.A", "96"} <= {one.collection for one in reading_of(folder).changes()}
