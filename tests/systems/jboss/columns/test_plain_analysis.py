"""A plain journal is told of in columns as it is record by record, and any other is not.

Every table of fixtures, random journals and damaged ones is made both ways.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from tallystick.errors import LogUnreadableError
from tallystick.records import State
from tallystick.systems.jboss.columns.plain_analysis import plain_evidence
from tallystick.systems.jboss.reader import JournalReading
from tallystick.systems.protocol import LogSource, ReadOptions
from tests.kit import read_in_runs, same_both_ways
from tests.systems.jboss.build import (
    add,
    add_tx,
    commit,
    delete,
    image,
    read,
    rollback,
    sources,
    update,
    write,
)
from tests.systems.jboss.mutants import mutants
from tests.systems.jboss.mutants import write as write_bundle


def _reading(source: LogSource) -> JournalReading:
    return JournalReading(source, ReadOptions())


def _is_plain(source: LogSource) -> bool:
    return plain_evidence(source.path, _reading(source).journal, {}) is not None


def test_every_table_is_the_same_both_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = compared = 0
    for index, files in enumerate(mutants(2, 100)):
        write_bundle(files, tmp_path / str(index))
        with suppress(LogUnreadableError):
            for source in sources(tmp_path / str(index)):
                same_both_ways(partial(_reading, source), monkeypatch, refusals=True)
                plain += _is_plain(source)
                compared += 1
    assert compared > 80
    assert plain > 20


PLAIN = {
    "nothing": [],
    "adds and deletes": [add(1), update(1), delete(1), add(2)],
    "a transaction": [add_tx(7, 8), add_tx(7, 9), commit(7, 2)],
    "an open transaction": [add_tx(7, 8)],
    "the end of a transaction that was reclaimed": [commit(7, 0), rollback(8), delete(3)],
    "an id below a deleted one": [add(5), add(3), delete(5), add(4)],
}
ODD = {
    "a wrong count": [add_tx(7, 8), commit(7, 2)],
    "a count of nothing": [commit(7, 2)],
    "an id that is added twice": [add(1), add(1)],
    "an id that is added after its delete": [add(1), delete(1), add(1)],
    "an update without an add": [update(1)],
}


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_journal_is_taken_as_one(tmp_path: Path, name: str) -> None:
    write(tmp_path, "g3", {1: image("g3", 1, PLAIN[name]), 2: image("g3", 2, [])})
    assert _is_plain(sources(tmp_path)[0])


@pytest.mark.parametrize("name", ODD)
def test_an_odd_journal_is_analysed_record_by_record(tmp_path: Path, name: str) -> None:
    write(tmp_path, "g3", {1: image("g3", 1, ODD[name]), 2: image("g3", 2, [])})
    assert not _is_plain(sources(tmp_path)[0])


def test_a_large_journal_is_followed_in_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = [add_tx(7, 8), commit(7, 1), add_tx(7, 9), commit(7, 1)]
    write(tmp_path, "g3", {1: image("g3", 1, items), 2: image("g3", 2, [])})
    read_in_runs(monkeypatch)
    reading = read(tmp_path)
    assert reading._plain is not None
    assert [(one.key, one.state) for one in reading.transactions()] == [
        ("7", State.COMMITTED),
        ("7#2", State.COMMITTED),
    ]
