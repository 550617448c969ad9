"""Logs are found by content."""

from __future__ import annotations

from pathlib import Path

from tallystick.reading.discovery import discover
from tallystick.systems.cloudtran import SYSTEM
from tallystick.systems.cloudtran.format.entries import encode_entry
from tallystick.systems.cloudtran.format.layout import Prologue, encode_block
from tests.systems.cloudtran.blocks import NAME, block, block_data, entry, reading, sample


def found(folder: Path) -> list[tuple[str, str]]:
    logs = discover(folder, known=[SYSTEM]).logs
    return [(log.name, " ".join(Path(file).name for file in log.files)) for log in logs]


def test_log_is_found_by_content_among_other_files(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(sample("normal"))
    (tmp_path / "readme.txt").write_text("nothing")
    (tmp_path / "empty").touch()
    assert found(tmp_path) == [("", NAME)]


def test_log_is_found_though_its_first_header_is_gone(tmp_path: Path) -> None:
    data = block(0, 1, entry(1, bytes(6000)))
    (tmp_path / NAME.replace(".ctlog", ".log")).write_bytes(bytes(84) + data[84:])
    assert found(tmp_path) == [("", NAME.replace(".ctlog", ".log"))]
    assert [one.transaction for one in reading(tmp_path).records()] == [1]


def test_signature_of_another_writer_is_learned_or_given(tmp_path: Path) -> None:
    foreign = bytes(range(100, 164))
    body = block_data(Prologue(1, 1), encode_entry(entry(5)))
    (tmp_path / NAME).write_bytes(encode_block(0, 1, body, 512, foreign))
    assert found(tmp_path) == [("", NAME)]
    assert [one.transaction for one in reading(tmp_path).records()] == [5]
    given_so = reading(tmp_path, signature=foreign.hex(), disk_block_size="512")
    assert [one.transaction for one in given_so.records()] == [5]
