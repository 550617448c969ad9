"""A leader that stops between the look whether it leads and a change of a file, and then wakes."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tallystick.storage.shared import epochs
from tallystick.storage.shared.leader import Heart
from tallystick.systems.tally.live.settings import Settings
from tallystick.systems.tally.live.shared.log import SharedTallyLog
from tests.systems.tally.live.shared.kit import check, wait_for

_SETTINGS = Settings(segment_size=16 << 10, idle_mark_s=None)
_RECORDS = 8


class _Stop:
    """Stops the thread that makes a change of this number as the leader, and the leader's heart."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._made = 0
        self.heart: Heart | None = None
        self.stopped, self.wake = threading.Event(), threading.Event()
        self.change = ""

    def __call__(self, change: str) -> None:
        self._made += 1
        if self._made == self._number:
            self.change = change
            assert self.heart is not None
            self.heart.stop()
            self.stopped.set()
            assert self.wake.wait(60)


class _Appender(threading.Thread):
    """Appends records to a log and notes their LSNs."""

    def __init__(self, log: SharedTallyLog, name: str) -> None:
        super().__init__(daemon=True)
        self._log = log
        self._of = name
        self.acknowledged: dict[bytes, int] = {}

    def run(self) -> None:
        for number in range(_RECORDS):
            body = b"%s-%d" % (self._of.encode(), number) + bytes(400)
            self.acknowledged[body.rstrip(b"\0")] = self._log.append_durably(body)


def _run(path: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the change before which the first leader was stopped; empty if it made fewer."""
    stop = _Stop(number)

    class ThisHeart(Heart):
        def __init__(self, epoch: epochs.Epoch) -> None:
            super().__init__(epoch)
            stop.heart = stop.heart or self

    monkeypatch.setattr("tallystick.systems.tally.live.shared.service.Heart", ThisHeart)
    logs: list[SharedTallyLog] = []
    opening = threading.Thread(
        target=lambda: logs.append(SharedTallyLog(str(path), settings=_SETTINGS, before=stop)),
        daemon=True,
    )
    opening.start()
    wait_for(lambda: stop.stopped.is_set() or logs)
    running = [_Appender(logs[0], "first")] if logs else []
    for one in running:
        one.start()
    wait_for(lambda: stop.stopped.is_set() or not running[0].is_alive())
    other = SharedTallyLog(str(path), settings=_SETTINGS)
    appender = _Appender(other, "other")
    appender.start()
    appender.join(60)
    assert len(appender.acknowledged) == _RECORDS
    stop.wake.set()
    opening.join(60)
    for one in running:
        one.join(60)
        assert len(one.acknowledged) == _RECORDS
    again = _Appender(logs[0], "again")
    again.run()
    logs[0].close()
    after = _Appender(other, "after")
    after.run()
    other.close()
    everything = [*running, appender, again, after]
    acknowledged = {body: lsn for one in everything for body, lsn in one.acknowledged.items()}
    assert check(path, acknowledged) == len(acknowledged) == _RECORDS * len(everything)
    return stop.change


@pytest.mark.long(4)
def test_a_leader_that_stops_before_any_change_and_wakes_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every change: recovery, groups, making and naming of segments, the index, control block."""
    monkeypatch.setattr(epochs, "SILENCE_S", 0.15)
    seen: list[str] = []
    while True:
        change = _run(tmp_path / str(len(seen)), len(seen) + 1, monkeypatch)
        if not change:
            break
        seen.append(change)
    print(len(seen), "changes")  # noqa: T201 - the figures of the run
    assert len(seen) > 40
    assert {"pwrite", "datasync", "create", "allocate", "rename", "sync_dir"} <= set(seen)
