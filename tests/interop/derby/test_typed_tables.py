"""Random tables of the real Derby: rows by log and database files are those that SELECT shows."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tallystick.arrow.schemas import CHANGES, batch_of, batches_of_changes, json_text
from tallystick.pipeline.change_feed import feed
from tallystick.pipeline.images import images_of
from tallystick.pipeline.typed import typed
from tallystick.systems.derby.reader import DerbyReading
from tests.interop.derby.real import VERSIONS, random_tables
from tests.sweeps import IN_TURNS
from tests.systems.derby.logs import reading_of

Rows = list[tuple[Any, ...]]
Kinds = list[tuple[str, str]]

_ALL = [*VERSIONS, "10.10.2.0"]
ROUNDS = [
    *(pytest.param(one, at, marks=pytest.mark.interop) for at, one in enumerate(_ALL)),
    *(pytest.param(one, at, marks=IN_TURNS) for one in _ALL for at in range(10, 27)),
]


@pytest.mark.parametrize(("version", "seed"), ROUNDS)
def test_rows_are_those_that_select_shows(tmp_path: Path, version: str, seed: int) -> None:
    database = tmp_path / "db"
    for more in range(3):  # the later logs begin in the middle of the database's life
        end = "halt" if more == 1 else "shutdown"
        shown = random_tables(database, 100 * seed + more, 150, end, version=version)
        reading = reading_of(database)
        names = {one.name.partition(".")[2] for one in reading.collections()} - {"LAST_ONE"}
        assert names == shown.keys()
        for name in names:
            columns, rows = shown[name]
            assert _typed_rows(reading, f"APP.{name}", columns) == rows


def _typed_rows(reading: DerbyReading, name: str, columns: list[str]) -> Rows:
    """The rows of a table after all changes, as texts, in the order of their ids."""
    (collection,) = (one for one in reading.collections() if one.name == name)
    assert [one.name for one in collection.columns] == columns
    kinds = [(one.name, one.kind) for one in collection.columns]
    table: dict[str, tuple[Any, ...]] = {}
    for row in _before(reading, name, kinds) + _changes(reading, name, kinds):
        if row["_change_type"] == "truncate":
            table.clear()
        elif row["_change_type"] == "delete":
            table.pop(row["_key"], None)  # of a container that is gone since
        else:
            table[row["_key"]] = tuple(_text(row[one]) for one in columns)
    return sorted(table.values(), key=repr)


def _before(reading: DerbyReading, name: str, kinds: Kinds) -> list[dict[str, Any]]:
    rows = [
        {"system": "derby", "log": "l", "kind": "add", "collection": name, "key": key,
         "values": json_text(values), "commit_sequence": 0, "ordinal": 0}
        for key, values in reading.rows_before(name)
    ]  # fmt: skip
    batches = typed(feed([batch_of(rows, CHANGES)]), name, kinds)
    return [row for one in batches for row in one.to_pylist()]


def _changes(reading: DerbyReading, name: str, kinds: Kinds) -> list[dict[str, Any]]:
    changes = batches_of_changes(reading.changes_of(name), "none")
    with images_of(None, None, "l") as images:
        images.add_rows(name, reading.rows_before(name))
        batches = feed(images.filled(changes))
        return [row for one in typed(batches, name, kinds) for row in one.to_pylist()]


def _text(value: object) -> object:
    match value:
        case None | str() | bytes():
            return value
        case bool():
            return str(value).lower()
        case datetime.datetime():
            return value.isoformat(" ", "microseconds")
        case Decimal():
            return format(value, "f")
        case _:
            return value if isinstance(value, float) else str(value)
