"""The check of all records changed, and changed back: no other byte differs, nothing is lost."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from tallystick.errors import CorruptLogError, LogWriteError, UnsupportedFormatError
from tallystick.systems.jboss.live.checks import convert_checks
from tallystick.systems.jboss.live.log import CircularJournal, JournalSettings
from tests.fixtures import cases, fixture_dir
from tests.systems.jboss.build import read
from tests.systems.jboss.test_fixtures import manifest

ARTEMIS = [
    case
    for case in cases("jboss")
    if case.startswith("g3-artemis")
    and manifest(case)["files"]
    and not manifest(case).get("damage")
    and manifest(case)["oracle"]["loaded"]
]


def unpacked(case: str, folder: Path) -> Path:
    folder.mkdir()
    for one in manifest(case)["files"]:
        packed = (fixture_dir("jboss") / case / one["stored_as"]).read_bytes()
        (folder / one["name"]).write_bytes(gzip.decompress(packed))
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def loaded(folder: Path) -> dict[str, Any]:
    engine = read(folder).verdict().engine
    return {
        name: engine[name] for name in ("loaded", "live_records", "prepared_transactions", "max_id")
    }


def convertible(case: str) -> bool:
    """Journals whose last record is torn, or that stand in the middle of a compaction, are not."""
    words = ("torn", "mismatch", "format-1", "crash-compact", "compact-crash")
    return not any(word in case for word in words)


@pytest.mark.sampled(10)
@pytest.mark.parametrize("case", [case for case in ARTEMIS if convertible(case)])
def test_a_journal_goes_to_the_hash_and_back_byte_for_byte(case: str, tmp_path: Path) -> None:
    extension = manifest(case)["extension"]
    origin = unpacked(case, tmp_path / "origin")
    before, expected = contents(origin), loaded(origin)
    count = convert_checks(origin, tmp_path / "hash", "hash", extension=extension)
    assert loaded(tmp_path / "hash") == expected
    assert contents(origin) == before
    back = convert_checks(tmp_path / "hash", tmp_path / "back", "size", extension=extension)
    assert back == count
    assert contents(tmp_path / "back") == before
    changed = sum(
        one != other
        for name, content in before.items()
        for one, other in zip(content, (tmp_path / "hash" / name).read_bytes(), strict=True)
    )
    stale = sum(one.outcome.value == "stale" for f in read(origin).files() for one in f.spans)
    assert changed <= 4 * (count + stale) + 4 * len(before)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    with CircularJournal(str(tmp_path / "a"), JournalSettings(file_size=4096)) as journal:
        for number in range(50):
            journal.append_add_record(number, 0, b"body" * 20).wait()
    return tmp_path / "a"


def test_a_converted_journal_is_gone_on_with(journal: Path, tmp_path: Path) -> None:
    assert convert_checks(journal, tmp_path / "b", "hash") == 50
    settings = JournalSettings(file_size=4096, checksum="hash")
    with CircularJournal(str(tmp_path / "b"), settings) as other:
        assert sorted(other.contents()[0]) == list(range(50))
        other.append_add_record(50, 0, b"more").wait()
    assert convert_checks(tmp_path / "b", tmp_path / "c", "size") == 51
    with CircularJournal(str(tmp_path / "c"), JournalSettings(file_size=4096)) as again:
        assert sorted(again.contents()[0]) == list(range(51))


def test_a_damaged_journal_is_not_converted(journal: Path, tmp_path: Path) -> None:
    first = min(journal.glob("*.amq"), key=lambda path: int(path.stem.split("-")[-1]))
    content = bytearray(first.read_bytes())
    content[16 + 6 + 8 + 3] ^= 1
    first.write_bytes(content)
    before = contents(journal)
    with pytest.raises(CorruptLogError, match="not whole"):
        convert_checks(journal, tmp_path / "b", "hash")
    assert not (tmp_path / "b").exists()
    assert contents(journal) == before


def test_the_check_that_it_has_and_a_target_that_exists_are_refused(
    journal: Path, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedFormatError, match="another format version"):
        convert_checks(journal, tmp_path / "b", "size")
    (tmp_path / "b").mkdir()
    with pytest.raises(LogWriteError, match="exists"):
        convert_checks(journal, tmp_path / "b", "hash")
