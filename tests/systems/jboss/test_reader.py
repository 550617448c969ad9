"""Settings of the reader, and files that are no data files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystick.errors import UnsupportedFormatError
from tallystick.systems.jboss.format.layout import CONTROL_FILE
from tallystick.systems.protocol import END, Split
from tests.systems.jboss.build import add, image, read, sources, write


def test_a_control_file_is_no_journal_of_its_own(tmp_path: Path) -> None:
    write(tmp_path, "g3", {1: image("g3", 1, [add(1)])})
    (tmp_path / CONTROL_FILE).write_bytes(image("g3", 0x77, [add(1, b"\0" * 12)]))
    (source,) = sources(tmp_path)
    assert str(tmp_path / CONTROL_FILE) in source.files


def test_changes_end_with_the_configured_size(tmp_path: Path) -> None:
    write(tmp_path, "g1a", {1: image("g1a", 1, [add(1), add(2)])})
    size = len(image("g1a", 1, [add(1)], 0))
    assert [one.key for one in read(tmp_path).changes()] == ["1", "2"]
    cut = read(tmp_path, file_size=str(size))
    assert [record["id"] for record in cut.verdict().engine["live_records"]] == [1]
    assert [one.key for one in cut.changes()] == ["1"]


def test_a_part_that_is_longer_than_its_file_ends_with_it(tmp_path: Path) -> None:
    write(tmp_path, "g3", {1: image("g3", 1, [add(1), add(2)])})
    reading = read(tmp_path)
    (path,) = reading.source.files
    (batch,) = reading.batches(Split(path, 0, END))
    assert batch.column("record_id").to_pylist() == [1, 2]


@pytest.mark.parametrize("setting", ["generation", "file_size", "user_version"])
def test_a_setting_that_does_not_fit_is_refused(setting: str, tmp_path: Path) -> None:
    write(tmp_path, "g1a" if setting == "file_size" else "g3", {1: image("g3", 1, [add(1)])})
    with pytest.raises(UnsupportedFormatError, match=setting):
        read(tmp_path, **{setting: "other"}).verdict()
