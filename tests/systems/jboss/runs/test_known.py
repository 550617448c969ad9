"""What parts hand on of files says of a journal what a reading of all of it says."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tallystick.errors import LogUnreadableError
from tallystick.reading.tables import batches_of
from tallystick.systems.jboss.format.layout import Item
from tallystick.systems.jboss.format.messages import REFERENCE
from tallystick.systems.jboss.reader import JournalReading
from tallystick.systems.jboss.runs import analysis, known
from tallystick.systems.protocol import LogSource, NotClosedInPartsError, ReadOptions
from tests.kit import closed_alike, read_in_runs
from tests.systems.jboss.build import (
    add,
    add_tx,
    commit,
    delete,
    image,
    rollback,
    sources,
    update,
    write,
)
from tests.systems.jboss.mutants import journal, mutants
from tests.systems.jboss.mutants import write as write_bundle

WHOLE = 1 << 20
"""Bytes of a split that is a file."""


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have short journals read in runs, and few records be enough to leave some out."""
    read_in_runs(monkeypatch)
    for module in (analysis, known):
        monkeypatch.setattr(module, "SPENT_MIN", 1)
    monkeypatch.setattr(known, "FIRST_RECORDS", 0)


@pytest.fixture(name="taken")
def _taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether what was known of each file was taken, as folds go on."""
    found: list[bool] = []

    class Noting(known.KnownParts):
        def apply(self, *arguments: Any) -> bool:
            found.append(super().apply(*arguments))
            return found[-1]

    monkeypatch.setattr("tallystick.systems.jboss.columns.closing.KnownParts", Noting)
    return found


def _reading(source: LogSource) -> JournalReading:
    return JournalReading(source, ReadOptions())


def _rests(source: LogSource, size: int = WHOLE) -> list[bytes]:
    rests, reading = [], _reading(source)
    for split in reading.splits(size):
        closed = reading.close_split(split, 100)
        list(closed.batches)
        rest = closed.rest()
        assert rest is not None
        rests.append(rest)
    return rests


def _tables(reading: JournalReading) -> dict[str, list[dict[str, Any]]]:
    return {
        one: [row for each in batches_of(reading, one) for row in each.to_pylist()]
        for one in ("files", "findings", "logs")
    }


def _told(reading: JournalReading) -> dict[str, list[dict[str, Any]]]:
    verdict = json.loads(json.dumps(reading.verdict().to_dict()))
    return _tables(reading) | {"verdict": [verdict]}


def _same(source: LogSource, size: int = WHOLE) -> None:
    """Assert that parts tell all of a journal that a reading of all of it tells."""
    told, whole = _reading(source).knowing(_rests(source, size)), _reading(source)
    assert _told(told) == _told(whole)
    ours, theirs = (one._journal_evidence.analysis for one in (told, whole))
    assert list(ours.live.items()) == list(theirs.live.items())
    assert {key: [*one] for key, one in ours.updates.items()} == {
        key: [*one] for key, one in theirs.updates.items()
    }
    assert (ours.closed, ours.outcomes) == (theirs.closed, theirs.outcomes)


def _log(folder: Path, *files: list[Item], size: int = 4096) -> LogSource:
    images = {at: image("g3", at, items, size) for at, items in enumerate(files, 1)}
    write(folder, "g3", images)
    return sources(folder)[0]


def _ordinary(begin: int) -> list[Item]:
    """Adds of which some are updated, some deleted, and a transaction."""
    adds = [add(begin + number) for number in range(6)]
    ends = [update(begin), update(begin), update(begin + 1), delete(begin + 1), delete(begin + 2)]
    return [*adds, *ends, add_tx(begin, begin + 7), commit(begin, 1)]


@pytest.mark.parametrize("first", [1, 64])
def test_random_journals_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: list[bool], first: int
) -> None:
    monkeypatch.setattr("tallystick.systems.jboss.columns.closing.FIRST_NUMBERS", first)
    closed = 0
    for seed in range(first, first + 12):
        write_bundle(journal(seed), tmp_path / str(seed))
        for source in sources(tmp_path / str(seed)):
            closed += closed_alike(_reading(source), (700, WHOLE)[seed % 2])
    assert closed > 3
    assert taken.count(True) > 8


def test_damaged_journals_in_parts(tmp_path: Path, taken: list[bool]) -> None:
    for index, files in enumerate(mutants(5, 12)):
        write_bundle(files, tmp_path / str(index))
        with suppress(LogUnreadableError):
            for source in sources(tmp_path / str(index)):
                closed_alike(_reading(source), WHOLE)
    assert taken.count(True) > 3


NEXT = {
    "records": _ordinary(20),
    "what the file before has added": [delete(1), update(4), delete(4), *_ordinary(20)],
    "a transaction that began before": [add_tx(9, 30), commit(9, 1), *_ordinary(40)],
    "a rollback of one that began before": [rollback(9), *_ordinary(40)],
    "messages that wait": [add(21), update(21, bytes(7) + b"\3", REFERENCE), add(22), delete(21)],
    "nothing": [],
}


@pytest.mark.parametrize("size", [WHOLE, 1000])
@pytest.mark.parametrize("case", NEXT)
def test_a_file_after_another_is_not_read(
    tmp_path: Path, taken: list[bool], monkeypatch: pytest.MonkeyPatch, case: str, size: int
) -> None:
    if case.startswith(("a t", "a r")):
        # Else it would close the first one that it meets alone, as no other is in its file.
        monkeypatch.setattr("tallystick.systems.jboss.columns.closing.FIRST_NUMBERS", 1)
    _same(_log(tmp_path, [*_ordinary(1), add_tx(9, 15)], NEXT[case]), size)
    assert taken == [True, True]


OTHERWISE = {
    "an id that was live before": [add(3), delete(3)],
    "an id below one that was": [add(-5), update(-5), delete(-5)],
    "an id of a transaction that is open": [add(15), commit(9, 0), delete(15)],
}


@pytest.mark.parametrize("case", OTHERWISE)
def test_what_the_files_before_contradict_is_read(
    tmp_path: Path, taken: list[bool], case: str
) -> None:
    source = _log(tmp_path, [*_ordinary(1), add_tx(9, 15)], OTHERWISE[case])
    try:
        _same(source)
    except NotClosedInPartsError:  # the loader lists what was added again
        assert not _reading(source)._in_runs.loaded_alike  # type: ignore[union-attr]
    assert taken == [True, False]


def test_a_transaction_that_was_closed_too_early_is_followed_in_its_file(
    tmp_path: Path, taken: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tallystick.systems.jboss.columns.closing.FIRST_NUMBERS", 1)
    late = [add_tx(5, 40), commit(5, 1), add_tx(9, 41), commit(9, 1)]
    _same(_log(tmp_path, [add(1), add_tx(9, 15)], late))
    assert taken == [True, False]


def test_ids_below_those_of_first_records_are_followed(
    tmp_path: Path, taken: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids are given before their records are appended: some are below those before a file."""
    monkeypatch.setattr(known, "FIRST_RECORDS", 2)
    late = [add(13), add(15), delete(13), add(16), delete(16), update(15)]
    _same(_log(tmp_path, [add(1), add(14)], late))
    assert taken == [True, True]


def test_a_file_that_was_written_since_is_read(tmp_path: Path, taken: list[bool]) -> None:
    source = _log(tmp_path, _ordinary(1), _ordinary(20))
    rests = _rests(source)
    source = _log(tmp_path, _ordinary(1), [*_ordinary(20), add(40)])
    assert _told(_reading(source).knowing(rests)) == _told(_reading(source))
    assert taken == [True, False]


def test_only_what_follows_the_last_record_is_read_again(tmp_path: Path) -> None:
    source = _log(tmp_path, _ordinary(1), _ordinary(20))
    rests, expected = _rests(source), _tables(_reading(source))
    for path in source.files:
        data = Path(path).read_bytes()
        Path(path).write_bytes(data[:20] + bytes(80) + data[100:])
    assert _tables(_reading(source).knowing(rests)) == expected


def test_a_file_of_which_too_much_remains_is_read(
    tmp_path: Path, taken: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known, "PACKED_MAX", 10)
    _same(_log(tmp_path, _ordinary(1), _ordinary(20)))
    assert taken == [False, False]


def test_what_the_loader_does_not_list_is_asked_of_the_whole(tmp_path: Path) -> None:
    source = _log(tmp_path, [add(1), delete(1)], [add(1)])
    with pytest.raises(NotClosedInPartsError):
        _reading(source).knowing(_rests(source))
