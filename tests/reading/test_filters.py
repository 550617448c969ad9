"""A filter takes the same of records, rows and tables; what it cannot mean is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tallystick import Journal, read_arrow, scan
from tallystick.errors import TallystickError, TransactionUsageError, UnsupportedFormatError
from tallystick.investigate.rows import rows
from tallystick.reading.filters import Filter
from tallystick.records import Fate, Kind, Record, Row
from tallystick.systems.protocol import ReadOptions
from tests.indoubt.estates import EXAMPLES

ESTATE = EXAMPLES / "mid-phase-two"


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        (Filter(kinds=frozenset({Kind.ADD, Kind.COMMIT})), lambda r: r.kind in ("add", "commit")),
        (Filter(from_lsn=30, to_lsn=90), lambda r: 30 <= (r.sequence or 0) <= 90),
        (Filter(to_lsn=20), lambda r: r.sequence is not None and r.sequence <= 20),
        (Filter(outcome="unused"), lambda r: r.outcome == "unused"),
        (Filter(resource="jms/ledger"), lambda r: "jms/ledger" in r.resources),
        (Filter(body="transfer"), lambda r: r.body is not None and b"transfer" in r.body),
        (Filter(body="0x7472616e73"), lambda r: r.body is not None and b"trans" in r.body),
        (Filter(body='",\n'), lambda r: r.body is not None and b'",\n' in r.body),
    ],
)  # fmt: skip
def test_records_are_those_of_a_test_of_each(
    wanted: Filter, fits: Callable[[Record], bool]
) -> None:
    found = [(one.file, one.offset, one.sequence) for one in scan(ESTATE, wanted)]
    every = list(scan(ESTATE))
    assert found == [(one.file, one.offset, one.sequence) for one in every if fits(one)]
    assert len(found) < len(every)
    batches = read_arrow(ESTATE, "records", wanted=wanted).read_all().to_pylist()
    assert [(one["file"], one["offset"], one["sequence"]) for one in batches] == found


def test_text_is_found_as_java_writes_it(tmp_path: Path) -> None:
    codes = ("utf-8", "utf-16-le", "utf-16-be")
    with Journal(tmp_path) as journal:
        for code in (*codes, "utf-32"):
            journal.append("Größe".encode(code))
    found = [one.body for one in scan(tmp_path, Filter(body="öß"))]
    assert found == ["Größe".encode(code) for code in codes]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        (Filter(kinds=frozenset({Kind.DELETE})), lambda r: r.change.kind == "delete"),
        (Filter(outcome="in_doubt"), lambda r: r.fate is Fate.IN_DOUBT),
        (Filter(resource="APP.ACCOUNTS"), lambda r: r.change.collection == "APP.ACCOUNTS"),
        (Filter(from_lsn=2, to_lsn=9), lambda r: 2 <= r.change.commit_sequence <= 9),
        (Filter(body="owner-B152"), lambda r: "owner-B152" in str(r.change.values)),
    ],
)
def test_rows_are_those_of_a_test_of_each(wanted: Filter, fits: Callable[[Row], bool]) -> None:
    found = [str(one) for one in rows(ESTATE, wanted)]
    assert found == [str(one) for one in rows(ESTATE) if fits(one)] != []


def test_transactions_have_their_state_and_their_resources() -> None:
    def states(**asked: Any) -> set[str]:
        table = read_arrow(ESTATE, "transactions", wanted=Filter(**asked)).read_all()
        return set(table["state"].to_pylist())

    assert states(outcome="prepared") == {"prepared"}
    assert states(resource="jms/ledger") <= states()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("number", ["abc", "999999", "29", "", "0x1"])
def test_a_transaction_that_is_not_there_is_an_error_with_candidates(number: str) -> None:
    wanted = Filter(transaction=number)
    readers: list[Callable[[], Any]] = [
        lambda: list(rows(ESTATE, wanted)),
        lambda: list(scan(ESTATE, wanted)),
        lambda: read_arrow(ESTATE, "changes", wanted=wanted).read_all(),
    ]
    for read in readers:
        with pytest.raises(TransactionUsageError, match="Did you mean"):
            read()


def test_a_transaction_that_is_there_without_what_is_asked_for_is_no_error() -> None:
    wanted = Filter(transaction="295", body="no such text")
    assert (list(rows(ESTATE, wanted)), list(scan(ESTATE, wanted))) == ([], [])


@pytest.mark.parametrize(
    ("table", "wanted", "error", "said"),
    [
        ("records", Filter(outcome="committed"), UnsupportedFormatError, "one of valid, torn"),
        ("rows", Filter(outcome="valid"), UnsupportedFormatError, "one of committed, in_doubt"),
        ("changes", Filter(outcome="valid"), UnsupportedFormatError, "no outcome to filter by"),
        ("changes", Filter(resource="r"), UnsupportedFormatError, "no resource to filter by"),
        ("findings", Filter(to_lsn=1), UnsupportedFormatError, "no LSN to filter by"),
        ("records", Filter(body="0x123"), TransactionUsageError, "pairs of digits after 0x"),
    ],
)
def test_what_a_table_cannot_tell_is_refused(
    table: str, wanted: Filter, error: type[TallystickError], said: str
) -> None:
    with pytest.raises(error, match=said):
        list(rows(ESTATE, wanted)) if table == "rows" else read_arrow(ESTATE, table, wanted=wanted)


def test_a_zone_that_is_none_is_refused_whatever_is_read() -> None:
    with pytest.raises(UnsupportedFormatError, match="found Mars/Phobos"):
        ReadOptions(timezone="Mars/Phobos")
    assert ReadOptions(timezone="Europe/Berlin").timezone == "Europe/Berlin"
