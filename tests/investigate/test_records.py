"""Records with what stands around them, counted, and as they come."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tallystick import Journal, scan
from tallystick.errors import LogUnreadableError, UnsupportedFormatError
from tallystick.investigate.records import follow, seen_records, statistics
from tallystick.reading.filters import Filter
from tallystick.reading.survey import read_arrow, survey
from tallystick.records import Finding, Kind
from tallystick.systems.tally.live.settings import Settings
from tests.indoubt.estates import EXAMPLES

ESTATE = EXAMPLES / "mid-phase-two"
SMALL = Settings(segment_size=32 << 10, preallocate=False, idle_mark_s=None)
COMMITS = Filter(kinds=frozenset({Kind.COMMIT}))


@pytest.mark.parametrize("context", [0, 1, 2, 1000])
def test_context_is_what_stands_around_each_match_of_its_log(context: int) -> None:
    found = [(one.record.file, one.record.offset, one.fits) for one in seen_records(
        ESTATE, COMMITS, context=context
    )]  # fmt: skip
    expected = []
    by_log: dict[str, list[tuple[str, int, bool]]] = {}
    for one in scan(ESTATE):
        folder = one.file.rpartition("/")[0]
        by_log.setdefault(folder, []).append((one.file, one.offset, one.kind is Kind.COMMIT))
    for records in by_log.values():
        for place, one_found in enumerate(records):
            near = records[max(place - context, 0) : place + context + 1]
            if any(fits for *_, fits in near):
                expected.append(one_found)
    assert found == expected


def test_counts_are_those_of_the_records_and_transactions() -> None:
    for counts, log in zip(statistics(ESTATE), survey(ESTATE).readings(), strict=True):
        records = list(log.records())
        assert counts.kinds == Counter(one.kind for one in records)
        assert counts.bytes == sum(one.length for one in records)
        assert counts.transactions == Counter(one.state for one in log.transactions())
        times = [one.time for one in records if one.time is not None]
        assert (counts.first, counts.last) == (min(times, default=None), max(times, default=None))
    one = next(statistics(ESTATE / "derby", Filter(transaction="295")))
    assert one.transactions == {"prepared": 1}
    # What is asked of records alone says nothing of transactions.
    assert not next(statistics(ESTATE / "derby", Filter(kinds=frozenset({Kind.ADD})))).transactions
    assert 0 < one.kinds.total() < sum(next(statistics(ESTATE / "derby")).kinds.values())


def test_a_live_journal_is_followed_and_each_record_comes_once(tmp_path: Path) -> None:
    bodies: list[bytes] = []
    with Journal(tmp_path / "log", settings=SMALL) as journal:
        journal.append(b"0")
        for seen in follow(tmp_path / "log", Filter(body="0"), poll_s=0.001, idle_s=30):
            bodies.append(seen.record.body or b"")
            assert (seen.time or "").endswith("Z")
            if len(bodies) == 40:
                break
            journal.append(b"other")
            journal.append(b"%d0" % len(bodies) + b"\0" * 3000)
    assert [one.rstrip(b"\0") for one in bodies] == [b"0", *(b"%d0" % n for n in range(1, 40))]


@pytest.mark.parametrize("system", ["artemis", "derby", "bitronix"])
def test_a_log_that_grows_is_followed_by_looking_at_it(system: str, tmp_path: Path) -> None:
    target = tmp_path / "log"
    sources = sorted(one for one in (ESTATE / system).rglob("*") if one.is_file())
    for one in sources:
        copy = target / one.relative_to(ESTATE / system)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(one.read_bytes())
    found = [one.record.offset for one in follow(target, poll_s=0.001, idle_s=0.02)]
    assert found == [one.offset for one in scan(target) if one.outcome == "valid"]


def _remade(log: Path) -> None:
    shutil.rmtree(log)
    with Journal(log, settings=SMALL) as journal:
        journal.append(b"anew")


def _overwritten(log: Path) -> None:
    for segment in log.glob("0*.tally"):
        segment.write_bytes(b"junk" * 4096)


@pytest.mark.parametrize(
    ("happens", "said", "bodies"),
    [
        (shutil.rmtree, "the log is gone", []),
        (_remade, "another log is in its place", [b"anew"]),
        (_overwritten, "header are damaged. Type: tallystick explain ", []),
    ],
)
def test_what_becomes_of_a_log_that_is_followed_is_told_once(
    happens: Callable[[Path], None], said: str, bodies: list[bytes], tmp_path: Path
) -> None:
    log, told = tmp_path / "log", list[str]()
    with Journal(log, settings=SMALL) as journal:
        journal.append(b"one")
    seen = follow(log, poll_s=0.001, idle_s=0.2, tell=told.append)
    assert next(seen).record.body == b"one"
    happens(log)
    assert [one.record.body for one in seen] == bodies
    (text,) = told
    assert said in text


def test_what_cannot_be_followed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedFormatError, match="written over at once"):
        next(follow(ESTATE / "h2"))
    with pytest.raises(LogUnreadableError):
        next(follow(tmp_path / "nothing"))
    with pytest.raises(LogUnreadableError, match="no log"):
        next(follow(tmp_path))


def test_what_no_log_tells_is_not_waited_for() -> None:
    until = Filter(until=datetime(2026, 1, 1, tzinfo=UTC))
    with pytest.raises(UnsupportedFormatError, match="no log here holds times of day"):
        next(follow(ESTATE / "derby", until))


ARTEMIS = EXAMPLES / "orphan" / "artemis"
FROM = Filter(from_lsn=3)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: list(scan(ARTEMIS, FROM)),
        lambda: list(seen_records(ARTEMIS, FROM)),
        lambda: list(seen_records(ARTEMIS, FROM, context=2)),
        lambda: list(statistics(ARTEMIS, FROM)),
        lambda: next(follow(ARTEMIS, FROM)),
        lambda: read_arrow(str(ARTEMIS), wanted=FROM).read_all(),
    ],
)
def test_where_no_record_has_an_lsn_asking_for_one_is_an_error(ask: Callable[[], object]) -> None:
    with pytest.raises(UnsupportedFormatError, match="no record here has an LSN"):
        ask()


def test_a_log_without_lsns_among_others_is_named_where_they_are_asked_for() -> None:
    problems: list[Finding] = []
    found = {one.record.system for one in seen_records(ARTEMIS.parent, FROM, problems=problems)}
    assert found == {"bitronix", "derby", "h2"}
    assert [(one.code, one.log) for one in problems] == [("no-lsns", str(ARTEMIS))]
