"""Every single-bit flip of a log: repaired, or reported corrupt, or provably unused.

Never a wrong record, never a silent cut of acknowledged data.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tallystick.errors import CorruptLogError, TallystickError
from tallystick.records import Outcome, Severity
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.salvage import salvage
from tallystick.testing import MemoryFileSystem
from tests.sweeps import SEED
from tests.systems.tally.build import (
    FOLDER,
    TINY,
    every_kind,
    reading,
    say,
    segments_of_plain,
    tiny_log,
)

Row = tuple[int | None, str, bytes | None]


def _rows(fs: MemoryFileSystem) -> list[Row]:
    return [
        (one.sequence, one.type, one.body)
        for one in reading(fs).records()
        if one.outcome is Outcome.VALID
    ]


def _contents(fs: MemoryFileSystem) -> dict[str, bytearray]:
    files = {}
    for name in fs.list(FOLDER):
        path = f"{FOLDER}/{name}"
        file = fs.open(path)
        files[path] = bytearray(file.pread(file.size(), 0))
        file.close()
    return files


def _unused(fs: MemoryFileSystem) -> dict[str, list[tuple[int, int]]]:
    return {
        file.path: [
            (span.offset, span.end)
            for span in file.spans
            if span.outcome in (Outcome.UNUSED, Outcome.STALE)
        ]
        for file in reading(fs).files()
    }


def _verdict(files: dict[str, bytearray], good: list[Row]) -> str:
    """What became of a log with one flipped bit, checked against what it held."""
    fs = MemoryFileSystem(files)
    try:
        one = reading(fs)
        found = _rows(fs)
        findings = one.findings()
    except TallystickError:
        return "corrupt"
    bad = [item for item in findings if item.severity in (Severity.DAMAGE, Severity.LOSS)]
    if bad:
        assert found == good[: len(found)], "a wrong record before the damage"
        return "corrupt"
    assert found == good, "records were cut or changed without a word"
    return "repaired" if findings else "silent"


def _flip_all(fs: MemoryFileSystem, bits: range, step: int) -> Counter[str]:
    good, unused = _rows(fs), _unused(fs)
    counts: Counter[str] = Counter()
    for path, content in _contents(fs).items():
        if path.endswith("lock"):
            continue
        for offset in range(SEED % step, len(content), step):
            inert = any(begin <= offset < end for begin, end in unused[path])
            if inert and offset % 97:
                counts["unused, not tried"] += len(bits)
                continue
            for bit in bits:
                files = {**_contents(fs)}
                files[path][offset] ^= 1 << bit
                verdict = _verdict(files, good)
                assert verdict != "silent" or inert, f"{path} byte {offset} bit {bit}"
                counts["unused" if inert else verdict] += 1
    return counts


def test_every_byte_of_a_log_of_all_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    counts = _flip_all(every_kind(), range(3, 4), 59)
    say(capsys, f"bit flips of a log of all kinds: {dict(counts)}")
    assert counts["corrupt"] > 40
    assert counts["repaired"] > 3


def test_every_byte_of_several_segments(capsys: pytest.CaptureFixture[str]) -> None:
    counts = _flip_all(segments_of_plain(), range(6, 7), 101)
    say(capsys, f"bit flips of several segments: {dict(counts)}")
    assert counts["corrupt"] > 40


@pytest.mark.soak
@pytest.mark.parametrize("make", [every_kind, segments_of_plain])
def test_every_single_bit(make: type[MemoryFileSystem], capsys: pytest.CaptureFixture[str]) -> None:
    counts = _flip_all(make(), range(8), 1)
    say(capsys, f"all single-bit flips: {dict(counts)}")


def test_flip_in_acknowledged_group_is_refused_with_what_follows() -> None:
    fs = MemoryFileSystem()
    log = tiny_log(fs)
    for number in range(5):
        log.append(b"record %d" % number).wait()
    log.close()
    files = _contents(fs)
    path = f"{FOLDER}/0000000000000001.tally"
    files[path][8192 + 2 * 512 + 140] ^= 1
    with pytest.raises(CorruptLogError, match="1 acknowledged record from record 3 on") as caught:
        TallyLog(FOLDER, settings=TINY, fs=MemoryFileSystem(files))
    assert caught.value.offset == 8192 + 2 * 512
    assert "whole records follow from record 4" in str(caught.value)
    assert "salvage" in str(caught.value)


def test_salvage_gives_what_follows_damage() -> None:
    fs = segments_of_plain()
    files = _contents(fs)
    path = f"{FOLDER}/0000000000000001.tally"
    files[path][8192 + 1536 + 200] ^= 1
    one = reading(MemoryFileSystem(files))
    believed = [record for record in one.records() if record.outcome is Outcome.VALID]
    salvaged = [record for record in one.records(salvage=True) if record.attributes.get("salvaged")]
    assert [record.sequence for record in believed] == [1]
    assert [record.sequence for record in salvaged] == list(range(3, 31))


def test_salvage_writes_a_new_log_and_counts_what_is_lost() -> None:
    fs = every_kind()
    files = _contents(fs)
    place = 8192 + 6 * 512  # the group of the add in transaction 7
    files[f"{FOLDER}/0000000000000001.tally"][place + 150] ^= 1
    damaged = MemoryFileSystem(files)
    report = salvage(FOLDER, "/new", settings=TINY, fs=damaged)
    assert (report.lost, report.rolled_back) == (1, [7])
    assert "corrupt-group" in {finding.code for finding in report.findings}
    again = reading(damaged, folder="/new")
    assert again.verdict().engine["opened"]
    assert len(list(again.records())) == report.records == len(_rows(fs)) - 1
    with pytest.raises(FileExistsError):
        salvage(FOLDER, "/new", settings=TINY, fs=damaged)
