"""What holds of an answer that a leader was about to give when it was killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystick.errors import LogFullError
from tallystick.roles.record_ids import IdRefusal
from tallystick.storage.shared.client import Cut
from tallystick.systems.tally.live.shared.batches import REFUSED, encode_lsns, encode_refusal
from tallystick.systems.tally.live.shared.log import SharedTallyLog, _written

EXISTS = encode_refusal(IdRefusal.EXISTS)


@pytest.mark.parametrize(
    ("staged", "end", "holds"),
    [
        ([10, 11, 12], 13, [10, 11, 12]),
        ([10, 11, 12], 12, [10, 11]),
        ([10, 11, 12], 10, []),
        # Refused for the sake of a record, of this batch or another one, that was never written.
        ([EXISTS], 10, []),
        ([10, EXISTS], 10, []),
        ([10, EXISTS, EXISTS], 11, [10]),
        # What was written after the refusal says that all before it was.
        ([EXISTS, 11], 12, [EXISTS, 11]),
        ([10, EXISTS, 11, EXISTS, 12], 12, [10, EXISTS, 11]),
    ],
)
def test_a_refusal_holds_only_if_something_after_it_was_written(
    staged: list[int], end: int, holds: list[int]
) -> None:
    assert list(_written(Cut(encode_lsns(staged), end))) == holds
    run = range(10, 13)
    assert list(_written(Cut(encode_lsns(run), end))) == [lsn for lsn in run if lsn < end]


def test_nothing_holds_of_an_answer_that_was_not_staged_or_refuses_the_batch() -> None:
    assert list(_written(Cut(None, 100))) == list(_written(Cut(b"E[]", 100))) == []


def test_what_there_was_no_room_for_is_refused_by_a_leader_that_was_killed_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SharedTallyLog(str(tmp_path / "log")) as log:
        monkeypatch.setattr(log._client, "ask", lambda _: Cut(encode_lsns([REFUSED, 11]), 12))
        refused, written = [log.append(body) for body in (b"large", b"small")]
        with pytest.raises(LogFullError):
            refused.wait()
        assert written.wait() == 11
        monkeypatch.undo()
