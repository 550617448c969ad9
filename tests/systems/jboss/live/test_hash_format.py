"""The calculated hash has a generation mark of its own, which every other reader refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystick.errors import UnsupportedFormatError
from tallystick.systems.jboss.format.layout import FORMAT_HEADER, HASH_FORMAT, SHAPES
from tallystick.systems.jboss.live.log import CircularJournal, JournalSettings
from tallystick.systems.jboss.read.generations import GENERATIONS
from tests.systems.jboss.build import add, image, read, write

HASH = JournalSettings(checksum="hash", file_size=4096)
PLAIN = JournalSettings(file_size=4096)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A journal with the hash, of one record."""
    with CircularJournal(str(tmp_path), HASH) as journal:
        journal.append_add_record(1, 0, b"body").wait()
    return tmp_path


def test_files_carry_the_mark(folder: Path) -> None:
    files = sorted(folder.glob("*.amq"))
    versions = {FORMAT_HEADER.unpack_from(one.read_bytes())[0] for one in files}
    assert versions == {HASH_FORMAT}
    assert SHAPES["g3"].format_version != HASH_FORMAT


def test_no_other_generation_accepts_it() -> None:
    accepting = [name for name, one in GENERATIONS.items() if HASH_FORMAT in one.accepts]
    assert accepting == ["hash"]
    assert GENERATIONS["hash"].accepts == (HASH_FORMAT,)


def test_live_journals_of_the_two_kinds_refuse_each_other(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedFormatError, match="another format version"):
        CircularJournal(str(folder), PLAIN)
    other = tmp_path / "plain"
    with CircularJournal(str(other), PLAIN) as journal:
        journal.append_add_record(1, 0, b"body").wait()
    with pytest.raises(UnsupportedFormatError, match="another format version"):
        CircularJournal(str(other), HASH)


def test_a_plain_file_among_them_refuses_the_load(tmp_path: Path) -> None:
    write(tmp_path, "hash", {1: image("hash", 1, [add(1)], fill=bytes(1))})
    write(tmp_path, "g3", {2: image("g3", 2, [add(2)], fill=bytes(1))})
    engine = read(tmp_path).verdict().engine
    assert not engine["loaded"]


def test_a_flipped_bit_of_the_body_is_seen_with_the_hash_only(folder: Path) -> None:
    (path,) = (one for one in folder.glob("*.amq") if b"body" in one.read_bytes())
    path.write_bytes(path.read_bytes().replace(b"body", b"bodz"))
    assert [one["id"] for one in read(folder).verdict().engine["live_records"]] == []
