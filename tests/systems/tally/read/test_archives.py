"""Segments that have left their log are read as what they are, wherever a disposer put them."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import tallystick
from tallystick.disposal.archive import ArchiveDisposer
from tallystick.disposal.disposers import CompressDisposer, MoveDisposer
from tallystick.disposal.retention import Chain, Copying
from tallystick.disposal.worker import LogDisposer, dispose_of
from tallystick.errors import TallystickError
from tallystick.reading import explain, verify
from tallystick.records import Answer, Finding
from tallystick.services.journal import Journal
from tallystick.systems.tally.format.layout import SUFFIX, segment_name
from tallystick.systems.tally.live.roles import TallyPersistLog
from tests.systems.tally.live.test_retention import filled

DISPOSERS: dict[str, Callable[[str], LogDisposer]] = {
    "moved": MoveDisposer,
    "compressed": CompressDisposer,
    "by URL": ArchiveDisposer,
    "both, by a chain": lambda folder: Chain(
        [Copying(CompressDisposer(f"{folder}-too")), MoveDisposer(folder)]
    ),
}


def _archived(
    log: TallyPersistLog, disposer: LogDisposer, *, named: bool = True
) -> list[str]:  # the names in the log
    paths = [str(path) for path in log.disposable()]
    for path in paths:
        own = Path(path).name
        dispose_of(disposer, path, log.archive_name(path) if named else own)
        log.disposed(path)
    return paths


def _numbers(path: Path) -> tuple[list[int], list[Finding]]:
    problems: list[Finding] = []
    records = list(tallystick.scan(path, problems=problems))
    return [one.record_id or 0 for one in records if one.type == "persisting"], problems


@pytest.mark.parametrize("how", DISPOSERS)
def test_archived_segments_are_a_log_of_their_own(how: str, tmp_path: Path) -> None:
    log, written = filled(tmp_path / "log", recycle=False)
    archive = tmp_path / "archive"
    count = len(_archived(log, DISPOSERS[how](str(archive))))
    log.close()
    assert count > 2
    archived, problems = _numbers(archive)
    kept, _ = _numbers(tmp_path / "log")
    assert (archived + kept, problems) == (written, [])
    (found,) = explain(archive).logs
    assert (found.judgement.answer, found.judgement.reason) == (Answer.SAFE, "archived-segments")
    assert "archived segments" in found.judgement.text
    assert verify(archive).exit_code == 0
    assert tallystick.read_arrow(archive).read_all().num_rows >= len(archived)


def test_two_logs_share_an_archive_and_one_lies_beside_its_own(tmp_path: Path) -> None:
    archive, written = tmp_path / "log-0", []
    away = tmp_path / "away"
    for number in range(2):
        log, numbers = filled(tmp_path / f"log-{number}", recycle=False)
        written += numbers
        _archived(log, MoveDisposer(str(away)))
        log.close()
    for path in away.iterdir():
        path.rename(archive / path.name)
    assert len(explain(archive).logs) == 3
    assert {one.judgement.answer for one in explain(archive).logs} == {Answer.SAFE}
    assert sorted(_numbers(archive)[0] + _numbers(tmp_path / "log-1")[0]) == sorted(written)
    again = TallyPersistLog(str(archive))
    assert not list(again.pending())
    again.close()


def test_a_gap_and_a_damaged_header_among_archived_segments_are_reported(tmp_path: Path) -> None:
    log, _ = filled(tmp_path / "log", recycle=False)
    archive = tmp_path / "archive"
    _archived(log, MoveDisposer(str(archive)))
    log.close()
    first, second, *_ = sorted(archive.iterdir())
    content = bytearray(second.read_bytes())
    second.unlink()
    (found,) = explain(archive).logs
    assert (found.judgement.answer, found.judgement.reason) == (Answer.CANNOT_TELL, "archive-gap")
    assert len(_numbers(archive)[0]) > 0
    content[60] ^= 1
    content[4096 + 60] ^= 1
    second.write_bytes(content)
    (found,) = explain(archive).logs
    assert found.judgement.answer is Answer.CANNOT_TELL
    assert "corrupt-segment-header" in {one.code for one in verify(archive).findings}
    assert first.exists()


def test_archives_of_before_are_read_and_not_mistaken_for_a_proof(tmp_path: Path) -> None:
    log, written = filled(tmp_path / "log", recycle=False)
    archive = tmp_path / "archive"
    _archived(log, CompressDisposer(str(archive)), named=False)
    log.close()
    assert (archive / f"{segment_name(1)}.gz").exists()
    archived, problems = _numbers(archive)
    assert (archived, problems) == (written[: len(archived)], [])
    (found,) = explain(archive).logs
    assert (found.judgement.answer, found.judgement.reason) == (
        Answer.CANNOT_TELL, "archive-unnamed",
    )  # fmt: skip


def test_a_log_that_has_lost_its_control_block_is_no_archive(tmp_path: Path) -> None:
    log, _ = filled(tmp_path / "log", recycle=False)
    log.close()
    (tmp_path / "log" / "control.tally").unlink()
    (found,) = explain(tmp_path / "log").logs
    assert found.judgement.answer is Answer.REFUSES
    with pytest.raises(TallystickError, match="control block"):
        Journal(tmp_path / "log")


@pytest.mark.parametrize("named", [True, False])
def test_no_opening_makes_a_log_of_archived_segments_or_removes_one(
    named: bool, tmp_path: Path
) -> None:
    log, _ = filled(tmp_path / "log", recycle=False)
    archive = tmp_path / "archive"
    _archived(log, MoveDisposer(str(archive)), named=named)
    log.close()
    before = {one.name: one.read_bytes() for one in archive.iterdir()}
    with pytest.raises(TallystickError):
        Journal(archive)
    after = {one.name: one.read_bytes() for one in archive.iterdir() if one.suffix == SUFFIX}
    assert after == before


def test_a_packed_segment_that_was_cut_is_reported(tmp_path: Path) -> None:
    log, _ = filled(tmp_path / "log", recycle=False)
    archive = tmp_path / "archive"
    _archived(log, MoveDisposer(str(archive)))
    log.close()
    last = sorted(archive.iterdir())[-1]
    packed = gzip.compress(last.read_bytes())
    last.unlink()
    (archive / f"{last.name}.gz").write_bytes(packed[: len(packed) // 2])
    assert verify(archive).exit_code == 1
    shutil.rmtree(archive)
