"""What the findings advise can be done: salvage of a log whose control block is gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystick.errors import CorruptLogError
from tallystick.storage.local import LOCAL
from tallystick.systems.tally import SYSTEM
from tallystick.systems.tally.format.layout import CONTROL_NAME
from tallystick.systems.tally.format.sealing import KeyMissingError, WrongKeyError
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.roles.undo_redo_log import TallyUndoRedoLog
from tallystick.systems.tally.live.salvage import salvage
from tallystick.systems.tally.read.files import read_folder
from tests.roles.contract_undo_redo_log import recovered

BODIES = [b"one", b"two", b"three"]


@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_a_log_without_control_block_is_refused_and_can_be_salvaged(
    tmp_path: Path, how: str
) -> None:
    source, target = tmp_path / "log", tmp_path / "new"
    with TallyLog(str(source)) as log:
        for body in BODIES:
            log.append_durably(body)
    control = source / CONTROL_NAME
    if how == "missing":
        control.unlink()
    else:
        control.write_bytes(bytes(control.stat().st_size))
    before = {path.name: path.read_bytes() for path in source.iterdir()}
    with pytest.raises(CorruptLogError, match="control block"):
        TallyLog(str(source))
    target.mkdir()
    report = salvage(str(source), str(target))
    assert (report.records, report.lost) == (len(BODIES), 0)
    assert {path.name: path.read_bytes() for path in source.iterdir()} == before
    with TallyLog(str(target)):
        pass
    (finding,) = read_folder(LOCAL, str(source))[0].findings
    assert finding.code == "corrupt-control"
    assert finding.advice == SYSTEM.code_table["corrupt-control"].advice
    assert "tallystick salvage LOG" in (finding.advice or "")


@pytest.mark.parametrize("key", [None, bytes(32)])
def test_what_cannot_be_decrypted_is_not_salvaged_as_an_empty_log(
    tmp_path: Path, key: bytes | None
) -> None:
    with TallyLog(str(tmp_path / "log"), key=lambda: b"k" * 32) as log:
        log.append_durably(b"one")
    provider = None if key is None else lambda: key
    with pytest.raises((KeyMissingError, WrongKeyError)):
        salvage(str(tmp_path / "log"), str(tmp_path / "new"), key=provider)


def test_a_number_of_which_records_are_missing_is_rolled_back_that_once(tmp_path: Path) -> None:
    log = TallyUndoRedoLog(str(tmp_path / "log"))
    for row in (b"first", b"missing", b"third", b"last"):
        log.log_row(3, 16, row[0], row)
        log.flush().wait()
        log.commit(3).wait()
    log.close()
    (segment,) = (path for path in (tmp_path / "log").iterdir() if b"missing" in path.read_bytes())
    segment.write_bytes(segment.read_bytes().replace(b"missing", b"Missing"))
    report = salvage(str(tmp_path / "log"), str(tmp_path / "new"))
    assert (report.lost, report.rolled_back) == (1, [3])
    again = TallyUndoRedoLog(str(tmp_path / "new"))
    assert sorted(recovered(again).rows.values()) == [b"first", b"last", b"third"]
    again.close()
