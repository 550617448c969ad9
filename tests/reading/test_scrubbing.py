"""Scrubbing tells rot in any system's log, live ones too, and never calls a write rot."""

from __future__ import annotations

import json
import random
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

import tallystick
from tallystick.cli.watch import scrub as scrubbing_command
from tallystick.reading import explain, scrub
from tallystick.reading.results import is_severe
from tallystick.reading.scrubbing import Scrub
from tallystick.records import Answer
from tallystick.services.journal import Journal
from tallystick.storage.local import LOCAL
from tallystick.systems.tally.format.layout import segment_name
from tallystick.systems.tally.live.settings import Settings
from tests.cli.conftest import Run
from tests.cli.conftest import run as run_fixture
from tests.reading.test_settled import writer
from tests.systems.live_logs import LIVE

SMALL = Settings(segment_size=32 << 10, preallocate=False, idle_mark_s=None)

run = run_fixture


def _written(name: str, folder: Path) -> None:
    log = LIVE[name](LOCAL, str(folder))
    for number in range(1, 120):
        log.put(number)
        if number > 12:
            log.drop(number - 12)
    log.close()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", LIVE)
def test_rot_is_told_where_explain_would_tell_it_and_nowhere_else(
    name: str, tmp_path: Path
) -> None:
    _written(name, tmp_path / "whole")
    healthy = scrub(tmp_path / "whole", rate=0)
    assert not _rot_codes(healthy), healthy.to_dict()
    files = [one for one in _files(tmp_path / "whole") if str(one) not in healthy.others]
    members = [one for one in files if not one.name.startswith("spare-")]
    assert healthy.bytes >= sum(one.stat().st_size for one in members)
    seed = random.randrange(1 << 30)
    rng, rotten = random.Random(seed), 0
    for number in range(13):
        folder = tmp_path / str(number)
        shutil.copytree(tmp_path / "whole", folder)
        path = rng.choice([one for one in _files(folder) if one.stat().st_size])
        _rot(path, rng.randrange(path.stat().st_size))
        for every in _files(folder) if number == 12 else ():  # that cannot stay unseen
            for offset in range(0, every.stat().st_size, 700):
                _rot(every, offset)
        found, expected = scrub(folder, rate=0), explain(folder)
        severe = [one for ones in expected.findings for one in ones if is_severe(one)]
        answers = {one.judgement.answer for one in expected.logs}
        damaged = bool(severe) or bool(answers & {Answer.LOSES, Answer.REFUSES})
        assert found.exit_code == (int(damaged) if expected.logs else 2), f"seed {seed}, {number}"
        assert [one.findings for one in found.logs] in ([severe], []), f"seed {seed}, {number}"
        rotten += bool(_rot_codes(found)) or found.exit_code == 2
        shutil.rmtree(folder)
    assert rotten, f"no damage was told, seed {seed}"


def _rot_codes(found: Scrub) -> set[str]:
    """The codes of damage, without that of H2's rows: they are of a table that is not there."""
    severe = [*found.problems, *(finding for one in found.logs for finding in one.findings)]
    codes = {one.code for one in severe if is_severe(one)} - {"does-not-open"}
    grave = any(one.rotten and not one.findings for one in found.logs)
    return codes | ({"grave"} if grave else set())


def _files(folder: Path) -> list[Path]:
    return sorted(one for one in folder.rglob("*") if one.is_file() and one.name != "lock")


def _rot(path: Path, offset: int) -> None:
    """Spoil 64 bytes of a file, as it is on the disk."""
    content = bytearray(path.read_bytes())
    for place in range(offset, min(offset + 64, len(content))):
        content[place] ^= 0x55
    path.write_bytes(content)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", LIVE)
def test_a_log_that_is_written_meanwhile_is_never_called_rotten(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "log"
    with writer(name, folder) as progress:
        for _ in range(4):
            progress()
            found = scrub(folder, rate=0)
            assert not _rot_codes(found), found.to_dict()


def test_rot_in_a_sealed_segment_is_named_while_the_writer_goes_on(tmp_path: Path) -> None:
    with Journal(tmp_path / "log", settings=SMALL) as journal:
        for _ in range(10):
            journal.append_many([bytes(900)] * 30)
        _rot(tmp_path / "log" / segment_name(3), 12_000)
        found = scrub(tmp_path / "log", rate=0)
        (log,) = found.logs
        (finding,) = log.findings
        assert (finding.code, finding.severity) == ("corrupt-group", "loss")
        assert finding.file == str(tmp_path / "log" / segment_name(3))
        assert finding.offset
        assert "acknowledged record" in finding.message
        assert log.judgement.answer is Answer.REFUSES
        journal.append(b"the writer knows of nothing")


def test_the_rate_limits_the_bytes_of_a_second(tmp_path: Path) -> None:
    with Journal(tmp_path / "log", settings=SMALL) as journal:
        journal.append_many([bytes(900)] * 300)
    start = time.monotonic()
    found = scrub(tmp_path / "log", rate=1_000_000)
    assert found.bytes >= 270_000
    assert time.monotonic() - start >= found.bytes / 1_000_000
    assert found.seconds >= found.bytes / 1_000_000


# -- the command ----------------------------------------------------------------------------------


def test_the_command_names_segment_place_and_loss(tmp_path: Path, run: Run) -> None:
    with Journal(tmp_path / "log", settings=SMALL) as journal:
        journal.append_many([bytes(900)] * 100)
    whole = run("scrub", tmp_path, "--rate", "0")
    assert (whole.code, "1 log, 0 damaged" in whole.out) == (0, True)
    _rot(tmp_path / "log" / segment_name(2), 12_000)
    text = run("scrub", tmp_path, "--once", "--rate", "1GiB/s")
    assert text.code == 1
    for part in ("REFUSES", segment_name(2), "offset", "acknowledged records", "1 damaged"):
        assert part in text.out, part
    answer = run("scrub", tmp_path, "--json")
    (log,) = answer.json["logs"]
    assert answer.code == 1
    assert (log["rotten"], log["settled"], log["answer"]) == (True, True, "refuses")
    assert log["findings"][0]["code"] == "corrupt-group"
    assert answer.json["bytes"] > 90_000


def test_a_log_that_changed_at_each_reading_is_counted_and_not_called_damaged(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Journal(tmp_path / "log", settings=SMALL) as journal:
        journal.append(b"kept")
    found = scrub(tmp_path, rate=0)
    found.logs = [replace(one, settled=False) for one in found.logs]
    monkeypatch.setattr(scrubbing_command, "scrub", lambda *_, **__: found)
    answer = run("scrub", tmp_path)
    assert "1 log, 0 damaged, 1 changing too fast" in " ".join(answer.out.split())
    assert answer.code == 0


def test_without_a_log_the_command_exits_with_2(tmp_path: Path, run: Run) -> None:
    assert run("scrub", tmp_path).code == 2
    assert run("scrub", tmp_path / "nothing").code == 2


@pytest.mark.parametrize(
    ("rate", "bytes_per_s"),
    [("20MB/s", 20e6), ("1.5 gb", 1.5e9), ("64KiB/s", 65536), ("0", 0), ("100b", 100)],
)
def test_rates_are_read_as_people_write_them(
    rate: str, bytes_per_s: float, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tallystick.cli.watch import scrub as scrubbing_command

    taken: list[float] = []

    def noted(path: str, *, rate: float, **_: object) -> object:
        taken.append(rate)
        return tallystick.scrub(path, rate=0)

    monkeypatch.setattr(scrubbing_command, "scrub", noted)
    run("scrub", tmp_path, "--rate", rate)
    assert taken == [bytes_per_s]


@pytest.mark.parametrize(
    "wrong", [("--rate", "fast"), ("--every", "soon"), ("--once", "--every=1h")]
)
def test_wrong_use_is_told(wrong: tuple[str, str], tmp_path: Path, run: Run) -> None:
    assert run("scrub", tmp_path, *wrong).code == 2


def test_every_runs_passes_until_it_is_interrupted(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            raise KeyboardInterrupt

    with Journal(tmp_path / "log", settings=SMALL) as journal:
        journal.append(b"x")
        monkeypatch.setattr("tallystick.cli.watch.scrub.time.sleep", sleep)
        answer = run("scrub", tmp_path, "--every", "1h", "--rate", "0", "--json")
    assert answer.code == 130
    passes = [json.loads(line) for line in answer.out.splitlines()]
    assert [one["logs"][0]["rotten"] for one in passes] == [False] * 3
    assert all(3000 < wait <= 3600 for wait in waits)
