"""Rows at a moment are those of the changes replayed up to it, and what is not known is said."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick import Journal, scan
from tallystick.errors import TallystickError, TransactionUsageError, UnsupportedFormatError
from tallystick.investigate.asof import Known, Moment, asof
from tallystick.investigate.rows import rows
from tallystick.reading.survey import survey
from tallystick.records import Change, Fate, Kind
from tests.indoubt.estates import EXAMPLES

ESTATE = EXAMPLES / "mid-phase-two"
GTRID = "62616e6b2d3100000000004e6d6e00000003"


def committed(path: Path) -> list[Change]:
    return [one.change for one in rows(path) if one.fate is Fate.COMMITTED]


def replayed(changes: list[Change], limit: int) -> dict[tuple[str, str], Any]:
    """Return the rows by a replay of all changes up to a commit."""
    found: dict[tuple[str, str], Any] = {}
    for one in changes:
        place = one.collection, one.key
        if one.commit_sequence > limit:
            continue
        if one.kind is Kind.DELETE:
            found.pop(place, None)
        elif one.kind is Kind.UPDATE and one.values is not None:
            found[place] = {**found.get(place, {}), **one.values}
        elif one.kind in (Kind.ADD, Kind.UPDATE):
            found[place] = dict(one.values) if one.values is not None else one.after
    return found


@pytest.mark.parametrize("system", ["derby", "h2", "artemis"])
def test_rows_are_those_of_the_committed_changes(system: str) -> None:
    path = ESTATE / system
    changes = committed(path)
    commits = sorted({one.commit_sequence for one in changes})
    for limit in commits[:: max(len(commits) // 6, 1)]:
        then = [one for one in asof(path, Moment(lsn=limit)) if one.known is Known.WHOLE]
        expected = replayed(changes, limit)
        found = {
            (one.collection, one.key): dict(one.values) if one.values is not None else one.image
            for one in then
            if one.commit is not None
        }
        assert found == {place: expected[place] for place in found}
        missing = expected.keys() - found.keys()
        told = {(one.collection, one.key): one for one in asof(path, Moment(lsn=limit))}
        assert all(told[place].known is Known.PART for place in missing)


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["add", "update", "delete"]), st.integers(0, 4), st.booleans()
    ),
    min_size=1, max_size=25,
)  # fmt: skip


@settings(deadline=None, max_examples=25)
@given(operations=OPERATIONS, cut=st.integers(0, 25))
def test_a_journal_at_an_lsn_is_a_replay_of_what_was_committed(
    tmp_path_factory: pytest.TempPathFactory,
    operations: list[tuple[str, int, bool]],
    cut: int,
) -> None:
    path = tmp_path_factory.mktemp("asof") / "log"
    live = set[int]()
    with Journal(path) as journal:
        journal.append(b"begin")
        for number, (operation, key, commits) in enumerate(operations):
            if (operation == "add") == (key in live):
                continue
            with journal.transaction() as transaction:
                if operation == "delete":
                    transaction.delete(key)
                else:
                    getattr(transaction, operation)(key, b"%d" % number)
                if not commits:
                    transaction.rollback()
            if commits:
                live = live | {key} if operation == "add" else live
                live = live - {key} if operation == "delete" else live
    changes = committed(path)
    limit = max(1, *(one.commit_sequence for one in changes)) if len(changes) <= cut else (
        max(changes[cut].commit_sequence, 1)
    )  # fmt: skip
    found = {(one.collection, one.key): one.image for one in asof(path, Moment(lsn=limit))}
    assert found == replayed(changes, limit)


def test_a_time_is_the_lsn_of_its_moment(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        for number in range(3):
            journal.add(number, b"%d" % number)
    changes = committed(tmp_path)
    begin = datetime(1970, 1, 1, tzinfo=UTC)
    for one in changes:
        moment = begin + timedelta(microseconds=one.time or 0)
        by_time = [row.key for row in asof(tmp_path, Moment(time=moment))]
        assert by_time == [other.key for other in changes if (other.time or 0) <= (one.time or 0)]
    with pytest.raises(UnsupportedFormatError, match="the log begins after that moment"):
        list(asof(tmp_path, Moment(time=begin)))


def test_before_a_transaction_is_after_the_commit_before_it() -> None:
    path = ESTATE / "h2"
    changes = committed(path)
    commit = next(one.commit_sequence for one in changes if (one.gtrid or b"").hex() == GTRID)
    expected = list(asof(path, Moment(lsn=commit - 1)))
    for spelled in (GTRID, GTRID.upper(), GTRID[:30]):
        assert list(asof(path, Moment(before=spelled))) == expected
    assert [one.known for one in asof(ESTATE / "derby", Moment(before="288"))]


def test_what_comes_later_changes_no_row(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        journal.add(1, b"first")
        journal.append(b"here")
        lsn = [one.sequence for one in scan(tmp_path)][-1]
        journal.update(1, b"second")
        journal.add(2, b"later")
    found = {one.key: one.image for one in asof(tmp_path, Moment(lsn=lsn))}
    assert found["1"] == b"first"
    assert "2" not in found


MEASURED = """
import sys, tracemalloc
from tallystick import Journal, scan
from tallystick.investigate.asof import Moment, asof

for pairs in (100, 300, 12_000):  # the first loads what is needed
    log = f"{sys.argv[1]}/{pairs}"
    with Journal(log) as journal:
        journal.add(1, b"first")
        lsn = [one.sequence for one in scan(log)][-1]
        for begin in range(2, 2 + pairs, 100):
            with journal.transaction() as transaction:
                for number in range(begin, begin + 100):
                    transaction.add(number, b"")
                    transaction.delete(number)
    tracemalloc.start()
    assert [one.key for one in asof(log, Moment(lsn=lsn))] == ["1"]
    print(tracemalloc.get_traced_memory()[1])
    tracemalloc.stop()
"""


@pytest.mark.long
def test_rows_that_come_and_go_later_cost_no_memory(tmp_path: Path) -> None:
    program = [sys.executable, "-c", MEASURED, str(tmp_path)]  # other tests would be measured, too
    said = subprocess.run(program, capture_output=True, text=True, check=True).stdout
    _, few, many = map(int, said.split())
    assert many - few < 11_700 * 100


def test_a_row_from_before_the_log_is_told_by_the_database_or_not_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without the database only the log tells."""
    path = ESTATE / "derby"
    first = min(one.commit_sequence for one in committed(path))
    known = {one.known for one in asof(path, Moment(lsn=first - 1))}
    assert known <= {Known.WHOLE, Known.NOTHING}
    (reading,) = survey(path).readings()
    monkeypatch.setattr(type(reading), "rows_before", lambda *_: iter(()))
    for one in asof(path, Moment(lsn=max(c.commit_sequence for c in committed(path)))):
        assert one.known in (Known.WHOLE, Known.PART)


@pytest.mark.parametrize(
    ("system", "moment", "table", "error", "said"),
    [
        ("h2", Moment(lsn=0), None, UnsupportedFormatError, "the log begins after that moment"),
        ("derby", Moment(lsn=3), None, UnsupportedFormatError, "expected LSN 4294967320 or later"),
        ("artemis", Moment(lsn=5), None, UnsupportedFormatError, "begins after that moment"),
        ("h2", Moment(time=datetime(2026, 1, 1)), None, UnsupportedFormatError, "times of day"),
        ("h2", Moment(lsn=9), "ACCOUNTS", UnsupportedFormatError, "Did you mean PUBLIC.ACCOUNTS_3"),
        ("h2", Moment(lsn=9), 'a,"\n', UnsupportedFormatError, "There are"),
        ("h2", Moment(before="5"), None, TransactionUsageError, "Name its global id, or an LSN"),
        ("derby", Moment(before="295"), None, TransactionUsageError, "changes no row"),
        ("derby", Moment(before="77777"), None, TransactionUsageError, "Did you mean"),
        ("derby", Moment(before="abc"), None, TransactionUsageError, "too short"),
        ("derby", Moment(before="ffffffff"), None, TransactionUsageError, "no global transaction"),
    ],
)  # fmt: skip
def test_what_is_no_moment_of_the_log_is_an_error(
    system: str, moment: Moment, table: str | None, error: type[TallystickError], said: str
) -> None:
    with pytest.raises(error, match=said):
        list(asof(ESTATE / system, moment, table))


def test_before_a_transaction_of_which_the_number_means_several_its_commit_follows_it() -> None:
    """Sessions of H2 have numbers, and any number of transactions each."""
    path = ESTATE / "h2"
    changes = [one for one in committed(path) if one.transaction is not None]
    number = Counter(one.transaction for one in changes).most_common(1)[0][0]
    commits = sorted({one.commit_sequence for one in changes if one.transaction == number})
    with pytest.raises(TransactionUsageError, match=f"or its commit as {number}@"):
        list(asof(path, Moment(before=number)))
    found = list(asof(path, Moment(before=f"{number}@{commits[1]}")))
    assert found == list(asof(path, Moment(lsn=commits[1] - 1)))
    with pytest.raises(TransactionUsageError, match=f"transaction {number}@999999999"):
        list(asof(path, Moment(before=f"{number}@999999999")))
