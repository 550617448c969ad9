"""Changes between two places: what the whole journal tells, from the files with a share in them."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tallystick.errors import CorruptLogError, LogUnreadableError, TallystickError
from tallystick.records import Change, Outcome
from tallystick.storage.source import open_source
from tallystick.systems.jboss.engine.loader import configured_size
from tallystick.systems.jboss.format.layout import FORMAT_HEADER, Item
from tallystick.systems.jboss.read import changes, files
from tallystick.systems.jboss.read.changes import changes_between_of_all, place_of
from tallystick.systems.jboss.read.classify import read_files
from tallystick.systems.jboss.read.files import JournalFiles
from tallystick.systems.jboss.reader import JournalReading
from tallystick.systems.protocol import LogSource, ReadOptions
from tests.kit import read_in_runs
from tests.systems.jboss.build import (
    add,
    add_tx,
    commit,
    delete_tx,
    file_name,
    image,
    prepare,
    read,
    rollback,
    sources,
    write,
)
from tests.systems.jboss.mutants import mutants
from tests.systems.jboss.mutants import write as write_bundle

FILES = 12


@pytest.fixture(autouse=True)
def _settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files count as unchanged at once, and nothing is known of any."""
    monkeypatch.setattr("tallystick.storage.source.SETTLED_NS", 0)
    monkeypatch.setattr(changes, "_known", changes._Known())


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that are opened, by name."""
    found: list[str] = []

    def opening(path: str) -> object:
        found.append(Path(path).name)
        return open_source(path)

    monkeypatch.setattr(files, "open_source", opening)
    return found


def _journal(folder: Path, items: dict[int, list[Item]]) -> None:
    """Write a journal of `FILES` files; those without items hold one add each."""
    contents = {number: items.get(number, [add(number)]) for number in range(1, FILES + 1)}
    images = {number: image("g3", number, each) for number, each in contents.items()}
    write(folder, "g3", images)


def _names(*numbers: int) -> set[str]:
    return {file_name("g3", number) for number in numbers}


def _between(folder: Path, after: int | None, until: int) -> list[str]:
    return [one.key for one in read(folder).changes_between(after, until)]


def _end(folder: Path, number: int, index: int = -1) -> int:
    """The place of a record of a file."""
    journal = read(folder).journal
    reading = next(one for one in read_files(journal) if one.file.file_id == number)
    return place_of(reading.file, reading.ranges[index].row.end)


def test_a_step_without_commits_reads_its_own_files_only(tmp_path: Path, opened: list[str]) -> None:
    _journal(tmp_path, {FILES: [add(40), add(41), add(42)]})
    after, until = _end(tmp_path, FILES, 0), _end(tmp_path, FILES)
    opened.clear()
    assert _between(tmp_path, after, until) == ["41", "42"]
    assert set(opened) == _names(FILES)


def test_a_step_reads_earlier_files_once_and_then_those_with_elements(
    tmp_path: Path, opened: list[str]
) -> None:
    elements = {3: [add_tx(7, 30)], 5: [add(5), add_tx(7, 50), add_tx(8, 51)]}
    last = [add(40), add_tx(7, 41), commit(7, 1), add_tx(9, 60), commit(9, 1)]
    _journal(tmp_path, {**elements, FILES: last})
    places = [_end(tmp_path, FILES, index) for index in range(5)]
    assert _between(tmp_path, places[0], places[2]) == ["30", "50", "41"]
    opened.clear()
    assert _between(tmp_path, places[0], places[2]) == ["30", "50", "41"]
    assert set(opened) == _names(3, 5, FILES)
    opened.clear()
    assert _between(tmp_path, places[2], places[4]) == ["60"]
    assert set(opened) == _names(FILES)


def test_files_after_the_last_place_are_not_read(tmp_path: Path, opened: list[str]) -> None:
    _journal(tmp_path, {})
    until = _end(tmp_path, 3)
    opened.clear()
    assert _between(tmp_path, None, until) == ["1", "2", "3"]
    assert set(opened) == _names(1, 2, 3)


NUMBER_AGAIN = {
    "ended before": [[add_tx(7, 8), commit(7, 1)], []],
    "rolled back in between": [[add_tx(7, 8)], [rollback(7)]],
    "ended and begun again in one file": [[add_tx(7, 8), commit(7, 1), add_tx(7, 9)], []],
    "committed in between and begun again": [[add_tx(7, 8)], [commit(7, 0), delete_tx(7, 9)]],
    "prepared before": [[add_tx(7, 8)], [prepare(7, b"extra", 0)]],
    "prepared alone": [[prepare(7, b"extra", 0)], []],
}


@pytest.mark.parametrize("in_runs", [True, False])
@pytest.mark.parametrize("name", NUMBER_AGAIN)
def test_a_number_that_was_used_before_is_followed_back_to_its_last_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, in_runs: bool
) -> None:
    read_in_runs(monkeypatch, always=in_runs)
    first, second = NUMBER_AGAIN[name]
    _journal(tmp_path, {2: first, 6: second, FILES: [add(40), add_tx(7, 70), commit(7, 1)]})
    after, until = _end(tmp_path, FILES, 0), _end(tmp_path, FILES)
    reading = read(tmp_path)
    expected = [one for one in reading.changes() if after < one.commit_sequence <= until]
    assert expected
    assert list(reading.changes_between(after, until)) == expected


def _damage(folder: Path, number: int) -> None:
    """Change the size of the body of the first record of a file, of two."""
    path = folder / file_name("g3", number)
    content = bytearray(path.read_bytes())
    content[FORMAT_HEADER.size + 17] ^= 1
    path.write_bytes(content)
    os.utime(path, (1, 1))  # whatever the clock's tick, it is another time than before


def _damaged(folder: Path) -> tuple[int, int, int]:
    """A journal that was read once, whose third file is then damaged: places of the last file."""
    items = {3: [add(3), add(30)], FILES: [add(40), add(41), add_tx(9, 60), commit(9, 1)]}
    _journal(folder, items)
    first, second, last = (_end(folder, FILES, index) for index in (0, 1, -1))
    assert _between(folder, first, last) == ["41", "60"]
    _damage(folder, 3)
    return first, second, last


def test_damage_in_an_earlier_file_stops_a_step_with_a_commit(tmp_path: Path) -> None:
    first, _, last = _damaged(tmp_path)
    with pytest.raises(CorruptLogError, match="records are damaged"):
        _between(tmp_path, first, last)


def test_damage_in_an_earlier_file_does_not_stop_a_step_without(tmp_path: Path) -> None:
    first, second, _ = _damaged(tmp_path)
    assert _between(tmp_path, first, second) == ["41"]


def test_damage_in_a_later_file_stops_the_step_that_reaches_it(tmp_path: Path) -> None:
    _journal(tmp_path, {3: [add(3), add(30)]})
    places = [_end(tmp_path, number) for number in (2, 3)]
    _damage(tmp_path, 3)
    assert _between(tmp_path, None, places[0]) == ["1", "2"]
    with pytest.raises(CorruptLogError, match="records are damaged"):
        _between(tmp_path, places[0], places[1])


def test_what_is_known_of_files_is_forgotten_where_it_is_too_much(
    tmp_path: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    many = {number: [add_tx(number, 1), add_tx(number + 100, 2)] for number in range(1, FILES)}
    _journal(tmp_path, {**many, FILES: [add(40), add_tx(9, 60), commit(9, 1)]})
    after, until = _end(tmp_path, FILES, 0), _end(tmp_path, FILES)
    monkeypatch.setattr(changes, "NUMBERS_MAX", 6)
    assert _between(tmp_path, after, until) == ["1", "60"]
    opened.clear()
    assert _between(tmp_path, after, until) == ["1", "60"]
    assert len(set(opened)) > FILES // 2


def _found(found: Iterable[Change]) -> list[Change] | tuple[type, str]:
    try:
        return list(found)
    except TallystickError as error:
        return type(error), str(error)


def _places(journal: JournalFiles) -> Iterator[int]:
    for one in read_files(journal):
        with suppress(CorruptLogError):
            for each in one.ranges:
                if each.outcome is Outcome.VALID:
                    yield place_of(one.file, each.row.end)


def _compared(source: LogSource, rng: random.Random) -> tuple[int, int]:
    """Compare both ways at some places; return how many gave changes, and how many errors."""
    reading = JournalReading(source, ReadOptions())
    journal, size = reading.journal, configured_size(reading.journal.files, {})
    places = list(_places(journal)) or [1 << 32]
    counts = [0, 0]
    for _ in range(4):
        after, until = sorted(rng.choice(places) for _ in range(2))
        start = rng.choice((after, after, after - 1, after + 7, None))
        read = changes_between_of_all(journal, source.path, size, start, until, skip_lost=False)
        whole = _found(read)
        found = _found(reading.changes_between(start, until))
        counts[isinstance(whole, tuple)] += 1
        if isinstance(whole, tuple) and isinstance(found, list):
            # damage in a file that the step does not need is no error of the step
            assert whole[0] is CorruptLogError
            loaded = _found(reading.changes())
            whole = [one for one in loaded if isinstance(one, Change)]
            whole = [one for one in whole if (start or 0) < one.commit_sequence <= until]
        assert found == whole or whole[0] is CorruptLogError
    return counts[0], counts[1]


@pytest.mark.parametrize("in_runs", [True, False])
def test_changes_of_damaged_journals_are_those_of_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_runs: bool
) -> None:
    read_in_runs(monkeypatch, always=in_runs)
    rng = random.Random(in_runs)
    alike = failed = 0
    for index, bundle in enumerate(mutants(5, 40)):
        write_bundle(bundle, tmp_path / str(index))
        with suppress(LogUnreadableError):
            for source in sources(tmp_path / str(index)):
                counts = _compared(source, rng)
                alike, failed = alike + counts[0], failed + counts[1]
    assert alike > 40
    assert failed > 10
