"""Many processes that open, append, close and are killed at once: all of them go on."""

from __future__ import annotations

import os
import random
import signal
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from tallystick import Journal
from tallystick.systems.tally.live.settings import Settings

_SETTINGS = Settings(segment_size=64 << 10)
_AT_ONCE = 8
_OPENINGS = 6


def _work(path: Path, seed: int, report: int) -> None:
    rng = random.Random(seed)
    for opening in range(_OPENINGS):
        with Journal(path, shared=True, settings=_SETTINGS) as journal:
            for number in range(rng.randrange(4)):
                body = f"{seed}.{opening}.{number}"
                os.write(report, f"A {body} {journal.append(body.encode())}\n".encode())
            if rng.random() < 0.06:
                os.kill(os.getpid(), signal.SIGKILL)


def _process(path: Path, seed: int, report: int) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            _work(path, seed, report)
        except BaseException:
            text = traceback.format_exc().replace("\n", " | ")[-2000:]
            os.write(report, f"E {text}\n".encode())
        finally:
            os._exit(0)
    return pid


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_processes_that_take_and_leave_the_lead_at_once_lose_nothing_and_get_no_error(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    start = random.randrange(1 << 30)
    record_property("figure", f"seed {start}")
    path = tmp_path / "log"
    reports = tmp_path / "reports"
    report = os.open(reports, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    pids = [_process(path, start + number, report) for number in range(_AT_ONCE)]
    for number in range(_AT_ONCE, 2 * _AT_ONCE):
        os.waitpid(pids.pop(0), 0)
        pids.append(_process(path, start + number, report))
    for pid in pids:
        os.waitpid(pid, 0)
    os.close(report)
    lines = [line.split(" ", 2) for line in reports.read_text().splitlines()]
    assert [line for line in lines if line[0] == "E"] == []
    acknowledged = {body.encode(): int(lsn) for _, body, lsn in lines}
    with Journal(path, settings=_SETTINGS) as journal:
        found = [(one.body, one.sequence) for one in journal.replay()]
    assert len({body for body, _ in found}) == len(found), "nothing is written twice"
    assert acknowledged.items() <= dict(found).items()
