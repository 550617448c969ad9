"""What is known of where a segment's zeros begin changes nothing that is read of the log."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tallystick.storage import source
from tallystick.systems.protocol import LogSource
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.settings import Settings
from tallystick.systems.tally.read.files import FileAccess
from tallystick.systems.tally.reader import TallyReading

SETTINGS = Settings(segment_size=1 << 19, idle_mark_s=None, spares=1)
"""A segment has more zeros than it takes for their end to be looked for."""


def _log(path: Path, chance: random.Random) -> LogSource:
    """A log of a few segments, of which one may have been another one before."""
    with TallyLog(str(path), settings=SETTINGS) as log:
        for number in range(chance.randrange(1, 60)):
            log.append(bytes(chance.randrange(3_000)) + b"%d" % number).wait()
            if chance.random() < 0.05:
                log.roll()
            if chance.random() < 0.05:
                log.reclaim(log.next_lsn)
    files = sorted(str(one) for one in path.iterdir() if one.suffix == ".tally")
    return LogSource("tally", str(path), tuple(files))


def _damage(log: LogSource, chance: random.Random) -> None:
    path = Path(chance.choice(log.files))
    data = bytearray(path.read_bytes())
    used = len(data.rstrip(b"\0")) or 1
    at = chance.choice([chance.randrange(used), chance.randrange(len(data)), used])
    match chance.choice(["bit", "zeros", "noise", "cut", "group elsewhere", "none"]):
        case "bit":
            data[min(at, len(data) - 1)] ^= 1 << chance.randrange(8)
        case "zeros":
            data[at : at + 5_000] = bytes(len(data[at : at + 5_000]))
        case "noise":
            data[at : at + 900] = chance.randbytes(len(data[at : at + 900]))
        case "cut":
            del data[at:]
        case "group elsewhere":
            place = chance.randrange(len(data) >> 9) << 9
            data[place : place + 4096] = data[8192:12288]
    path.write_bytes(data)


def _told(reading: TallyReading) -> list[Any]:
    return [
        list(reading.files()),
        [one.to_dict() for one in reading.findings()],
        reading.judgement,
        [one.to_dict() for one in reading.records(salvage=True)],
        [repr(one) for one in reading.transactions()],
    ]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("seed", range(200))
@pytest.mark.parametrize("whole_max", [0, source.READ_WHOLE_MAX], ids=["mapped", "read"])
def test_a_log_tells_the_same_whether_its_zeros_are_known_or_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, whole_max: int
) -> None:
    chance = random.Random(seed)
    log = _log(tmp_path, chance)
    _damage(log, chance)
    plain = _told(TallyReading(log, access=FileAccess()))
    monkeypatch.setattr(source, "SETTLED_NS", -(1 << 62))
    monkeypatch.setattr(source, "READ_WHOLE_MAX", whole_max)
    assert _told(TallyReading(log)) == plain
