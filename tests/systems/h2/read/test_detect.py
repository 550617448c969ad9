"""Page store files are recognised by content, whatever their names."""

from __future__ import annotations

from pathlib import Path

from tallystick.reading.discovery import discover
from tallystick.systems.h2 import SYSTEM
from tallystick.systems.h2.reader import H2Reading
from tallystick.systems.protocol import ReadOptions
from tests.systems.h2.verdict.test_damage import base, check_everything


def test_files_are_recognised_by_content_and_distinguished(tmp_path: Path) -> None:
    whole = base("clean-512")
    (tmp_path / "a.h2.db").write_bytes(whole)
    (tmp_path / "renamed").write_bytes(whole)
    (tmp_path / "empty.h2.db").write_bytes(b"")
    (tmp_path / "other.mv.db").write_bytes(b"H:2,block:5\n" * 400)
    found = discover(tmp_path, known=[SYSTEM])
    assert [log.name for log in found.logs] == ["a.h2.db", "empty.h2.db", "renamed"]
    assert [Path(path).name for path in found.others] == ["other.mv.db"]
    for log in found.logs:
        check_everything(H2Reading(log, ReadOptions()))
