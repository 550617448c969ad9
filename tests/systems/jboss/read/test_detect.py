"""Journals among other files of a folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tallystick.systems.jboss.format.layout import SHAPES, encode
from tests.systems.jboss.build import (
    add,
    delete,
    image,
    sources,
    write,
)


def test_two_journals_in_one_folder_are_two_logs(tmp_path: Path) -> None:
    write(tmp_path, "g3", {1: image("g3", 1, [add(1)])})
    write(tmp_path, "g1a", {1: image("g1a", 1, [add(2)])})
    found = sources(tmp_path)
    assert sorted(source.name for source in found) == ["activemq-data.amq", "jbm-data.jbm"]


OTHERS = {
    "text": b"nothing of the kind\n" * 100,
    "zeros": bytes(2048),
    "counting": bytes(range(256)) * 8,
    "ones": b"\0\0\0\1" * 500,
}


@pytest.mark.parametrize("content", OTHERS)
def test_other_files_are_no_journal(content: str, tmp_path: Path) -> None:
    for name in ("data-1.dat", "log1.dat", "plain", "x.bin"):
        (tmp_path / name).write_bytes(OTHERS[content])
    assert sources(tmp_path) == []


@pytest.mark.parametrize("shape", ["g1a", "g1c", "g1d", "g2"])
def test_a_chance_record_of_another_file_amid_other_bytes_is_no_journal(
    shape: str, tmp_path: Path
) -> None:
    """As in log files of Derby whose rows hold a type byte, any numbers and the number 17."""
    chance = encode(SHAPES[shape], replace(delete(77), file_id=983042))
    head = bytes.fromhex("0000008000000009000000000000000700000006000253ef")
    (tmp_path / "log7.dat").write_bytes(head + b"\1\2\3" * 500 + chance + b"\1\2\3" * 1000)
    assert sources(tmp_path) == []


def test_two_records_of_an_earlier_life_after_damage_are_a_journal(tmp_path: Path) -> None:
    stale = image("g1d", 4, [add(1), add(2), add(3)], 4096)[4:]
    path = tmp_path / "old-1.dat"
    path.write_bytes(b"\0\0\0\5" + b"\xff" * 9 + stale)
    assert [source.files for source in sources(tmp_path)] == [(str(path),)]
