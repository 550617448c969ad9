"""A last segment that was cut: made and synced at its full size, so no crash leaves it shorter."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystick.errors import CorruptLogError
from tallystick.reading import explain
from tallystick.records import Answer
from tallystick.storage.local import LOCAL
from tallystick.systems.tally.format.layout import DATA_OFFSET, SECTOR_SIZE
from tallystick.systems.tally.live.log import TallyLog
from tests.systems.live_logs import Tally

SIZE = Tally.SETTINGS.segment_size
DECISIONS = 5


def made(folder: Path, *, closed: bool) -> dict[str, bytes]:
    """Return the files of a log of some acknowledged decisions."""
    live = Tally(LOCAL, str(folder))
    for number in range(1, DECISIONS + 1):
        live.put(number)
    files = {one.name: one.read_bytes() for one in folder.iterdir()}
    live.close()
    if closed:
        files = {one.name: one.read_bytes() for one in folder.iterdir()}
    return files


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize(
    "size",
    [512, DATA_OFFSET, DATA_OFFSET + SECTOR_SIZE, DATA_OFFSET + 2 * SECTOR_SIZE - 1, SIZE - 1],
)
def test_a_cut_last_segment_is_refused_and_never_safe(
    tmp_path: Path, size: int, closed: bool
) -> None:
    files = made(tmp_path / "made", closed=closed)
    copy = tmp_path / "copy"
    copy.mkdir()
    for name, content in files.items():
        (copy / name).write_bytes(content[:size] if name.startswith("00") else content)
    (verdict,) = explain(copy).logs
    assert verdict.judgement.answer is Answer.REFUSES
    assert "was cut" in verdict.judgement.text or "damaged" in verdict.judgement.text
    with pytest.raises(CorruptLogError):
        TallyLog(str(copy), settings=Tally.SETTINGS)
    assert all((copy / name).read_bytes()[:512] == content[:512] for name, content in files.items())


def test_a_spare_that_was_cut_is_no_part_of_the_log(tmp_path: Path) -> None:
    made(tmp_path, closed=True)
    (tmp_path / "spare-9").write_bytes(bytes(100))
    (verdict,) = explain(tmp_path).logs
    assert verdict.judgement.answer is Answer.SAFE
    live = Tally(LOCAL, str(tmp_path))
    assert live.numbers() == set(range(1, DECISIONS + 1))
    live.close()
