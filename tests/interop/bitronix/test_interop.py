"""The real Bitronix, of each line, opens what we wrote, and we what it wrote, in turns."""

from __future__ import annotations

import contextlib
import random
import shutil
from collections.abc import Collection
from pathlib import Path

import pytest

import tallystick
from tallystick.convert import convert
from tallystick.errors import LogLockedError
from tallystick.records import Answer, Severity
from tallystick.roles import DecisionOutcome
from tallystick.systems.bitronix.format.layout import (
    ACTIVE,
    COMMITTED,
    COMMITTING,
    END_RECORD,
    HEADER_LENGTH,
    MEGABYTE,
    PREPARED,
    PREPARING,
    UNKNOWN,
    make_gtrid,
)
from tallystick.systems.bitronix.live.log import DiskJournal
from tallystick.systems.registry import open_decision_log
from tallystick.testing import Reporter, run_and_kill
from tests.interop.bitronix.original import (
    COORDINATES,
    NEW,
    OLD,
    Original,
    on_each_line,
    original,
    read_records,
)
from tests.systems.bitronix.logs import reading_of

pytestmark = pytest.mark.interop

END_MARKER = END_RECORD.to_bytes(4, "big")
NAMES = ("jdbc/billing", "jdbc/orders", "jms/queue")
LONG_NAMES = tuple(f"resource-{number}-{'x' * 200}" for number in range(8))
Model = dict[bytes, frozenset[str]]


def gtrid(number: int) -> bytes:
    return make_gtrid("node-1", 5_000, number)


class Ours:
    """Our journal with the calls of `Original`."""

    def __init__(self, folder: Path, *, boot_clock: bool | None = None) -> None:
        self._journal = DiskJournal(str(folder), max_log_size=MEGABYTE, boot_clock=boot_clock)

    def log(self, status: int, key: bytes, names: Collection[str]) -> None:
        if status == COMMITTING:
            self._journal.log_forced(status, key, names).wait()
        else:
            self._journal.log(status, key, names)

    def force(self) -> None:
        self._journal.force()

    def dangling(self) -> Model:
        records = self._journal.collect_dangling_records()
        return {key: frozenset(one.unique_names) for key, one in records.items()}

    def close(self) -> None:
        self._journal.close()


def work(
    journal: Original | Ours, model: Model, rng: random.Random, first: int, count: int
) -> None:
    """Random transactions: some stay open, some are closed in part, old ones are closed."""
    for number in range(first, first + count):
        key, names = gtrid(number), rng.sample(NAMES + LONG_NAMES, rng.randrange(1, 5))
        journal.log(ACTIVE, key, ())
        journal.log(PREPARING, key, names)
        journal.log(PREPARED, key, names)
        journal.log(COMMITTING, key, names)
        journal.force()
        closed = rng.sample(
            names, rng.choice((0, len(names), len(names), rng.randrange(4) % len(names)))
        )
        if closed:
            journal.log(rng.choice((COMMITTED, COMMITTED, UNKNOWN)), key, closed)
        left = frozenset(names) - frozenset(closed)
        if left:
            model[key] = left
        if len(model) > 20:
            old = rng.choice(sorted(model))
            journal.log(COMMITTED, old, model.pop(old))


@on_each_line
@pytest.mark.parametrize("boot_clock", [True, False])
def test_the_original_opens_what_we_closed(tmp_path: Path, line: str, boot_clock: bool) -> None:
    model: Model = {}
    ours = Ours(tmp_path, boot_clock=boot_clock)
    work(ours, model, random.Random(1), 0, 1500)
    ours.close()
    with original(tmp_path, line) as real:
        real.open()
        assert real.dangling() == model
        for key, names in model.items():
            real.log(COMMITTED, key, names)
        assert real.dangling() == {}
        real.close()
    ours = Ours(tmp_path)
    assert ours.dangling() == {}
    ours.close()


@on_each_line
@pytest.mark.parametrize("after", [1, 17, 400])
def test_the_original_opens_what_a_kill_left(tmp_path: Path, line: str, after: int) -> None:
    def commit(reporter: Reporter) -> None:
        journal = DiskJournal(str(tmp_path), max_log_size=MEGABYTE)
        for number in range(2000):
            reporter.submitted(number)
            journal.log_forced(COMMITTING, gtrid(number), LONG_NAMES[:1]).wait()
            reporter.acknowledged(number)
            if number > 3:
                journal.log(COMMITTED, gtrid(number - 4), LONG_NAMES[:1])

    killed = run_and_kill(commit, after=after)
    with original(tmp_path, line) as real:
        real.open()
        found = real.dangling()
        real.close()
    last = max(int(str(one)) for one in killed.acknowledged)
    expected = {gtrid(number) for number in range(max(0, last - 3), last + 1)}
    assert expected <= found.keys()
    assert {int.from_bytes(key[-4:], "big") for key in found} <= {
        int(str(n)) for n in killed.submitted
    }
    # A kill between the records and the position that counts them: the original stops at the
    # position, ours counts whole records after it, none of which was acknowledged.
    ours = Ours(tmp_path)
    uncounted = {gtrid(last - 4), gtrid(last + 1)} if last > 3 else {gtrid(last + 1)}
    assert ours.dangling().keys() ^ found.keys() <= uncounted
    ours.close()


@on_each_line
@pytest.mark.parametrize("ending", ["close", "halt"])
def test_we_open_what_the_original_wrote(tmp_path: Path, line: str, ending: str) -> None:
    model: Model = {}
    with original(tmp_path, line) as real:
        real.open()
        work(real, model, random.Random(2), 0, 1200)
        assert real.dangling() == model
        getattr(real, ending)()
    verdict = reading_of(tmp_path).verdict()
    ours = {
        bytes.fromhex(one["gtrid"]): frozenset(one["uniqueNames"])
        for one in verdict.strict["dangling"]
    }
    assert ours == model
    journal = Ours(tmp_path)
    assert journal.dangling() == model
    journal.close()


def test_what_the_original_would_lose_we_find(tmp_path: Path) -> None:
    """After its first change of files it opens the wrong one; the verdict says so beforehand."""
    model: Model = {}
    with original(tmp_path) as real:
        real.open()
        real.log(COMMITTING, gtrid(99_999), NAMES)
        model[gtrid(99_999)] = frozenset(NAMES)
        for number in range(700):
            real.log(COMMITTING, gtrid(number), LONG_NAMES)
            real.log(COMMITTED, gtrid(number), LONG_NAMES)
        real.log(COMMITTING, gtrid(88_888), NAMES)
        model[gtrid(88_888)] = frozenset(NAMES)
        assert real.dangling() == model
        real.close()
    reading = reading_of(tmp_path)
    verdict = reading.verdict()
    predicted = verdict.engine["2.1.4"]["open"]["dangling"]
    with original(tmp_path) as real:
        real.open()
        reported = real.dangling()
        real.halt()
    assert {bytes.fromhex(one["gtrid"]) for one in predicted} == reported.keys()
    stale = [one for one in reading.findings() if one.code == "stale-file-in-use"]
    assert (reported != model) == bool(stale)
    journal = Ours(tmp_path)
    assert journal.dangling() == model
    journal.close()


def test_what_3_0_drops_at_a_change_of_files_we_find(tmp_path: Path) -> None:
    """It carries over only what it has decided itself since it was started."""
    first: Model = {gtrid(99_999): frozenset(NAMES)}
    with original(tmp_path, NEW) as real:
        real.open()
        real.log(COMMITTING, gtrid(99_999), NAMES)
        real.close()
    assert reading_of(tmp_path).judgement.answer is Answer.SAFE
    with original(tmp_path, NEW) as real:
        real.open()
        assert real.dangling() == first
        real.log(COMMITTING, gtrid(88_888), NAMES)
        for number in range(400):
            real.log(COMMITTING, gtrid(number), LONG_NAMES)
            real.log(COMMITTED, gtrid(number), LONG_NAMES)
        second: Model = {gtrid(88_888): frozenset(NAMES)}
        assert real.dangling() == second
        real.close()
    judgement = reading_of(tmp_path).judgement
    assert (judgement.answer, judgement.at_stake.transactions) == (Answer.LOSES, 1)
    journal = Ours(tmp_path)
    assert journal.dangling() == first | second
    journal.close()
    with original(tmp_path, NEW) as real:
        real.open()
        assert real.dangling() == first | second, "and gets it back from us"


def test_3_0_writes_records_that_only_2_1_4_reads(tmp_path: Path) -> None:
    names = [f"{name}-{number}" for number in range(6) for name in LONG_NAMES]
    with original(tmp_path, NEW) as real:
        real.open()
        real.log(COMMITTING, gtrid(1), names)
        real.close()
    assert _who_starts(tmp_path) == [OLD]
    assert reading_of(tmp_path).judgement.reason == "lines-differ"


def test_a_wrong_length_that_leads_to_a_later_marker_stops_only_2_1_4(tmp_path: Path) -> None:
    with original(tmp_path, NEW) as real:
        real.open()
        for number in (1, 2):
            real.log(COMMITTING, gtrid(number), NAMES)
        real.close()
    with (tmp_path / "btm1.tlog").open("r+b") as file:
        content = file.read(MEGABYTE)
        length = content.index(END_MARKER, content.index(END_MARKER) + 1) + 4 - HEADER_LENGTH - 8
        file.seek(HEADER_LENGTH + 4)
        file.write(length.to_bytes(4, "big"))
    assert _who_starts(tmp_path) == [NEW]
    assert reading_of(tmp_path).judgement.reason == "lines-differ"


def _who_starts(folder: Path) -> list[str]:
    """The lines of the original that open a copy of the journal and find its decisions."""
    found = []
    for line in COORDINATES:
        copy = folder / line
        copy.mkdir()
        for file in folder.glob("*.tlog"):
            shutil.copy(file, copy)
        with original(copy, line) as real, contextlib.suppress(AssertionError):
            real.open()
            real.dangling()
            found.append(line)
    return found


@pytest.mark.parametrize(
    ("line", "boot_clock"),
    [(OLD, None), (OLD, True), (OLD, False), (NEW, None), (NEW, True)],
    ids=["2.1.4 first", "boot, 2.1.4", "wall, 2.1.4", "3.0 first", "boot, 3.0"],
)
def test_it_and_we_in_turns(tmp_path: Path, line: str, boot_clock: bool | None) -> None:
    model: Model = {}
    rng = random.Random(5)
    rounds = 12
    if boot_clock is not None:
        Ours(tmp_path, boot_clock=boot_clock).close()
    for number in range(0, rounds, 2):
        with original(tmp_path, line) as real:
            real.open()
            assert real.dangling() == model, f"round {number}"
            work(real, model, rng, number * 1000, rng.randrange(1, 700))
            rng.choice((real.close, real.halt))()
        ours = Ours(tmp_path, boot_clock=boot_clock)
        assert ours.dangling() == model, f"round {number + 1}"
        work(ours, model, rng, number * 1000 + 1000, rng.randrange(1, 700))
        ours.close()
    damage = [one for one in reading_of(tmp_path).findings() if one.severity is Severity.DAMAGE]
    assert damage == []


@on_each_line
def test_locks_exclude_each_other(tmp_path: Path, line: str) -> None:
    with original(tmp_path, line) as real:
        real.open()
        with pytest.raises(LogLockedError):
            DiskJournal(str(tmp_path))
        real.close()
        ours = Ours(tmp_path)
        with pytest.raises(AssertionError, match="locked"):
            real.open()
        ours.close()


@on_each_line
def test_the_cursor_of_the_original_reads_every_record(tmp_path: Path, line: str) -> None:
    with DiskJournal(str(tmp_path), max_log_size=MEGABYTE) as journal:
        for number in range(500):
            journal.log(COMMITTING, gtrid(number), NAMES)
    _, count = read_records(tmp_path / "btm1.tlog", line)
    assert count == 500


@on_each_line
def test_the_original_opens_what_was_converted_and_goes_on(tmp_path: Path, line: str) -> None:
    with contextlib.closing(open_decision_log(tmp_path / "from")) as log:
        for number in range(300):
            log.decide(gtrid(number), NAMES).wait()
            if number % 3:
                log.finish(gtrid(number), NAMES[: number % 3 + 1], DecisionOutcome.COMMITTED)
        model = {key: frozenset(one.resources) for key, one in log.open_decisions().items()}
    assert {len(names) for names in model.values()} == {1, 3}
    convert(tmp_path / "from", tmp_path / "to", "bitronix", service=True)
    decisions = tmp_path / "to" / "decisions"
    with original(decisions, line) as real:
        real.open()
        assert real.dangling() == model
        real.log(COMMITTED, gtrid(0), NAMES)
        real.log(COMMITTING, gtrid(1000), NAMES)
        real.force()
        real.close()
    model[gtrid(1000)] = model.pop(gtrid(0))
    convert(decisions, tmp_path / "back", "tally")
    with contextlib.closing(open_decision_log(tmp_path / "back")) as log:
        assert {key: frozenset(one.resources) for key, one in log.open_decisions().items()} == model


@pytest.mark.sampled(2)
@on_each_line
@pytest.mark.parametrize(
    "copy", ["{} (1).tlog", "{}.tlog.bak", "Copy of {}.tlog", "{} - Copy.tlog"]
)
def test_copies_beside_the_files_are_not_opened_and_no_journal(
    line: str, copy: str, tmp_path: Path
) -> None:
    with original(tmp_path, line) as journal:
        journal.open()
        journal.log(COMMITTING, gtrid(1), NAMES)
        journal.force()
        journal.halt()
    for stem in ("btm1", "btm2"):
        shutil.copy(tmp_path / f"{stem}.tlog", tmp_path / copy.format(stem))
    found = tallystick.explain(tmp_path)
    assert [one.judgement.answer for one in found.logs] == [Answer.SAFE]
    with original(tmp_path, line) as journal:
        journal.open()
        assert journal.dangling() == {gtrid(1): frozenset(NAMES)}
        journal.halt()


@on_each_line
def test_it_does_not_start_with_a_copy_in_the_place_of_one_file(line: str, tmp_path: Path) -> None:
    with original(tmp_path, line) as journal:
        journal.open()
        journal.log(COMMITTING, gtrid(1), NAMES)
        journal.force()
        journal.halt()
    (tmp_path / "btm1.tlog").rename(tmp_path / "btm1 (1).tlog")
    (found,) = tallystick.explain(tmp_path).logs
    assert found.judgement.answer is Answer.CANNOT_TELL
    with original(tmp_path, line) as journal, pytest.raises(AssertionError, match="open"):
        journal.open()
