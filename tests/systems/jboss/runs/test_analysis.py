"""In runs all is found that is found record by record: fixtures, random journals, damaged ones."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from tallystick.errors import LogUnreadableError
from tallystick.records import State
from tallystick.systems.jboss.format.bodies import HEURISTIC_TYPE
from tallystick.systems.jboss.reader import JournalReading
from tallystick.systems.jboss.runs import analysis
from tallystick.systems.protocol import LogSource, ReadOptions
from tallystick.systems.runs import RunCount
from tests.kit import read_in_runs, same_both_ways
from tests.sweeps import Sweep
from tests.systems.jboss.build import (
    add,
    add_tx,
    commit,
    delete,
    image,
    prepare,
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


def test_every_table_is_the_same_both_ways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sweep: Sweep
) -> None:
    in_runs = compared = 0
    monkeypatch.setattr(analysis, "SPENT_MIN", 1)
    chosen = sweep.of([*enumerate(mutants(2, 100))], 34)
    for index, files in chosen:
        write_bundle(files, tmp_path / str(index))
        with suppress(LogUnreadableError):
            for source in sources(tmp_path / str(index)):
                same_both_ways(partial(_reading, source), monkeypatch, refusals=True)
                in_runs += _reading(source).run_count.in_runs > 0
                compared += 1
    assert compared > 0.8 * len(chosen)
    assert in_runs > 0.4 * len(chosen)


def test_a_file_of_any_size_is_read_in_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_in_runs(monkeypatch)
    write(tmp_path, "g3", {1: image("g3", 1, [add(1), delete(1), add(2)], fill=b"\0")})
    os.truncate(tmp_path / "activemq-data-1.amq", 300 << 20)
    reading = read(tmp_path)
    assert reading.verdict().engine["loaded"]
    assert reading.run_count == RunCount(3, 0)


ALIKE = {
    "nothing": [],
    "adds and deletes": [add(1), update(1), delete(1), add(2)],
    "a transaction": [add_tx(7, 8), add_tx(7, 9), commit(7, 2)],
    "an open transaction": [add_tx(7, 8)],
    "the end of a transaction that was reclaimed": [commit(7, 0), rollback(8), delete(3)],
    "an id below a deleted one": [add(5), add(3), delete(5), add(4)],
    "a wrong count": [add_tx(7, 8), commit(7, 2)],
    "a count of nothing": [commit(7, 2)],
    "a second end with a count": [add_tx(7, 8), commit(7, 1), commit(7, 1)],
    "an end with a count before another": [commit(7, 1), add_tx(7, 8), commit(7, 1)],
    "an id that is added twice": [add(1), update(1), add(1), update(1)],
    "an id that is added twice and deleted": [add(1), update(1), add(1), delete(1)],
    "an id that was live is added and deleted": [add(1), add(1), update(1), delete(1), add(2)],
    "a heuristic outcome that is deleted": [add(1, b"", HEURISTIC_TYPE), delete(1)],
    "an update without an add": [update(1), update(2), add(2), update(3), delete(3)],
    "a prepare with a wrong count that is rolled back": [prepare(7, b"", 1), rollback(7)],
    "a prepare with a wrong count that is committed": [prepare(7, b"", 1), commit(7, 1)],
}
OTHERWISE = {"an id that is added after its delete": [add(1), delete(1), add(1)]}
"""Journals of which the loader has to list the records, to know which are live to it."""


@pytest.mark.sampled(18)
@pytest.mark.parametrize("generation", ["g2", "g3"])
@pytest.mark.parametrize("name", ALIKE | OTHERWISE)
def test_odd_journals_are_analysed_in_runs_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, generation: str
) -> None:
    monkeypatch.setattr(analysis, "SPENT_MIN", 1)
    items = (ALIKE | OTHERWISE)[name]
    files = {1: image(generation, 1, items), 2: image(generation, 2, [])}
    write(tmp_path, generation, files)
    same_both_ways(partial(read, tmp_path), monkeypatch)
    found = read(tmp_path)._in_runs
    assert found is not None
    assert found.loaded_alike == (name in ALIKE)


def test_damage_is_joined_to_its_transaction_over_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = bytearray(image("g3", 1, [add(1), add_tx(7, 8), add(2)]))
    damaged[len(image("g3", 1, [add(1), add_tx(7, 8)], 0)) - 1] ^= 1
    write(
        tmp_path, "g3", {1: bytes(damaged), 2: image("g3", 2, [add_tx(7, 9), commit(7, 1), add(3)])}
    )
    same_both_ways(partial(read, tmp_path), monkeypatch)
    (one,) = (one for one in read(tmp_path).findings() if one.code == "partial-transaction")
    assert "1 of its elements is damaged" in one.message


@pytest.mark.parametrize("in_runs", [True, False])
def test_only_the_first_end_of_a_number_misses_its_elements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_runs: bool
) -> None:
    read_in_runs(monkeypatch, always=in_runs)
    for name, missing in (("a second end with a count", False), ("a count of nothing", True)):
        write(tmp_path, "g3", {1: image("g3", 1, ALIKE[name]), 2: image("g3", 2, [])})
        assert (read(tmp_path).judgement.reason == "elements-missing") == missing


def test_a_large_journal_is_followed_in_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = [add_tx(7, 8), commit(7, 1), add_tx(7, 9), commit(7, 1)]
    write(tmp_path, "g3", {1: image("g3", 1, items), 2: image("g3", 2, [])})
    read_in_runs(monkeypatch)
    reading = read(tmp_path)
    assert [(one.key, one.state) for one in reading.transactions()] == [
        ("7", State.COMMITTED),
        ("7#2", State.COMMITTED),
    ]
    assert (reading.run_count.in_runs, reading.run_count.one_by_one) == (4, 0)
