"""Rows of every fate: committed ones are those of the table, the others what a system says."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from functools import cache
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tallystick import Journal
from tallystick.errors import TransactionUsageError, UnsupportedFormatError
from tallystick.investigate.asof import Moment, asof
from tallystick.investigate.rows import (
    CSV_COLUMNS,
    export_rows,
    meant_name,
    row_dicts,
    rows,
    rows_of,
)
from tallystick.reading.filters import COLUMNS, EVERYTHING, Filter, time_text
from tallystick.reading.names import log_name
from tallystick.reading.survey import read_arrow, scan, survey
from tallystick.records import Change, Clock, Fate, Finding, Kind, Row
from tallystick.roles import Operation, OperationCode
from tallystick.storage.local import LOCAL
from tallystick.systems.jboss.format.bodies import PACKED_MAGIC, ObjectState, pack_object_state
from tallystick.systems.jboss.format.participants import SUBORDINATE, TRANSACTION
from tallystick.systems.jboss.live.log import CircularJournal, JournalSettings
from tallystick.systems.protocol import FateBatches, LogReading, ReadOptions
from tallystick.systems.registry import open_persist_log
from tallystick.systems.tally.format.bodies import encode_row
from tallystick.systems.tally.format.columns import UnplacedRecord
from tallystick.systems.tally.format.kinds import Code
from tallystick.systems.tally.live.items import UnplacedEnding
from tallystick.systems.tally.live.log import TallyLog
from tests.fixtures import cases, fixture_dir
from tests.indoubt.estates import EXAMPLES
from tests.kit import read_in_runs
from tests.systems.derby.logs import copy, flip
from tests.systems.jboss.format import test_participants as encoded

SEALED = ReadOptions(encryption_key=b"k" * 32)
"""With the key of the one log among the fixtures, of an earlier version, that is encrypted."""


def readings(folder: Path) -> Iterator[LogReading]:
    return survey(folder).readings()


def places(changes: Iterable[Change]) -> Counter[tuple[str, int, int]]:
    return Counter((one.file, one.offset, one.commit_sequence) for one in changes)


def of_fate(found: Iterable[Row], fate: Fate) -> list[Row]:
    return [one for one in found if one.fate is fate]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("system", ["jboss", "h2", "cloudtran", "older", "typed"])
def test_committed_rows_are_the_changes_of_the_table(system: str) -> None:
    """Of each journal of messages and of Derby see below: their rows are those of collections."""
    names = cases(system) or [""]
    seen = 0
    for name in names[:: 5 if system == "jboss" else 1]:
        folder = fixture_dir(system) / name
        found = of_fate(rows(folder, options=SEALED, problems=[]), Fate.COMMITTED)
        of_logs: dict[str, list[Change]] = {}
        for one in found:
            of_logs.setdefault(one.change.log, []).append(one.change)
        for reading in survey(folder, options=SEALED).readings():
            if reading.source.system in ("derby", "bitronix") or is_collected(reading):
                continue
            own = of_logs.get(log_name(reading.source), [])
            changes = [one for one in own if one.kind is not Kind.DECISION]
            assert places(changes) == places(reading.changes()), name
            seen += len(changes)
    assert seen


def is_collected(reading: LogReading) -> bool:
    return reading.source.system == "jboss" and bool(reading.collections())  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["whole/journal", "paged/journal", "narayana/tx-object-store"])
def test_rows_of_journals_are_the_changes_of_their_collections(name: str) -> None:
    for reading in readings(fixture_dir("brokers") / name):
        found = of_fate(reading.fated_changes(), Fate.COMMITTED)  # type: ignore[attr-defined]
        for collection in reading.collections():  # type: ignore[attr-defined]
            own = [one.change for one in found if one.change.collection == collection.name]
            typed = list(reading.changes_of(collection.name))  # type: ignore[attr-defined]
            assert [(one.kind, one.key, one.values) for one in own] == [
                (one.kind, one.key, one.values) for one in typed
            ]
            assert own


def test_rows_of_derby_are_the_changes_of_its_tables_by_column() -> None:
    for name in ("clean", "ddl", "large", "rollbacks", "switch-archive", "threads", "xa-indoubt"):
        for reading in readings(fixture_dir("derby") / name):
            found = of_fate(reading.fated_changes(), Fate.COMMITTED)  # type: ignore[attr-defined]
            for collection in reading.collections():  # type: ignore[attr-defined]
                own = [one.change for one in found if one.change.collection == collection.name]
                typed = list(reading.changes_of(collection.name))  # type: ignore[attr-defined]
                earlier = len(own) - len(typed)  # of a table that had the name before
                assert bool(earlier) == ((name, collection.name) in REMADE)
                later = [*map(without_ordinal, own[earlier:])]
                assert later == [*map(without_ordinal, typed)], name


REMADE = {("ddl", "APP.A"), ("ddl", "APP.E")}


def without_ordinal(one: Change) -> Change:
    """In rows it counts the changes of a transaction in all tables."""
    return replace(one, ordinal=0)


@cache
def by_fate(folder: str) -> dict[Fate, list[Row]]:
    found: dict[Fate, list[Row]] = {fate: [] for fate in Fate}
    for one in rows(folder, problems=[]):  # what is damaged is told besides
        found[one.fate].append(one)
    return found


@pytest.mark.parametrize("name", ["mid-phase-two", "orphan", "heuristic-h2-rolled-back"])
@pytest.mark.parametrize("system", ["h2", "derby", "artemis"])
def test_rows_in_doubt_are_those_of_prepared_branches(name: str, system: str) -> None:
    folder = EXAMPLES / name / system
    prepared = {
        one.gtrid
        for reading in readings(folder)
        for one in reading.transactions()
        if one.state == "prepared"
    }
    found = by_fate(str(folder))[Fate.IN_DOUBT]
    assert {one.change.gtrid for one in found} == prepared
    assert all(one.change.commit_sequence == 0 for one in found)


def test_rows_in_doubt_and_rolled_back_have_the_columns_of_their_tables() -> None:
    found = by_fate(str(fixture_dir("derby") / "xa-indoubt"))
    told = {
        fate: [(one.change.kind.value, one.change.values) for one in found[fate]]
        for fate in (Fate.IN_DOUBT, Fate.UNDONE)
    }
    assert told == {
        Fate.IN_DOUBT: [
            ("add", {"ID": 4, "V": "xa in doubt A"}),
            ("add", {"ID": 5, "V": "more"}),
            ("update", {"V": "in doubt B"}),
        ],
        Fate.UNDONE: [
            ("add", {"ID": 2, "V": "xa rollback"}),
            ("add", {"ID": 6, "V": "active, never prepared"}),
        ],
    }


@pytest.mark.parametrize("case", ["indoubt-many-512", "v1.3.176-indoubt-many-1024"])
def test_what_takes_a_prepared_change_of_h2_back_is_no_row(case: str) -> None:
    """The engine logs the inverse of each change after the prepare record."""
    (undone,) = by_fate(str(fixture_dir("h2") / case))[Fate.UNDONE]
    assert undone.change.kind is Kind.ADD
    assert undone.change.commit_sequence == 0


LOST = {
    ("h2", "corrupt-checksum-2048"): 27,
    ("jboss", "g1a-jbm2-2008-08/circular-reuse-nio-stale-header"): 11,
    ("jboss", "g2-hornetq-2.1.2/format1-appended-by-artemis"): 3,
    ("bitronix", "damaged-position-zero"): None,
    ("bitronix", "rollover-1"): 2,
}


@pytest.mark.parametrize(("system", "case"), LOST, ids="/".join)
def test_rows_that_a_restart_drops_are_given(system: str, case: str) -> None:
    found = by_fate(str(fixture_dir(system) / case))
    expected = LOST[system, case]
    if expected is None:
        assert found[Fate.LOST]
    else:
        assert len(found[Fate.LOST]) == expected


def test_no_row_of_a_log_that_loses_nothing_is_lost() -> None:
    for name in ("mid-phase-two", "orphan", "heuristic-h2-rolled-back", "h2-commit-not-flushed"):
        assert not by_fate(str(EXAMPLES / name))[Fate.LOST]


def test_rows_that_derby_drops_are_those_of_commits_after_damage(tmp_path: Path) -> None:
    whole = by_fate(str(fixture_dir("derby") / "threads"))
    folder = copy("threads", tmp_path / "threads", {"log1.dat": flip(70_000)})
    every, damage = list[Row](), list[Finding]()
    every.extend(rows(folder, problems=damage))
    found: dict[Fate, list[Row]] = {fate: of_fate(every, fate) for fate in Fate}
    assert {one.code for one in damage} == {"damaged"}
    kept, lost = len(found[Fate.COMMITTED]), len(found[Fate.LOST])
    assert kept
    assert lost
    offsets = {one.change.offset for one in whole[Fate.COMMITTED]}
    assert {one.change.offset for one in found[Fate.LOST]} <= offsets
    (reading,) = readings(folder)
    stake = reading.verdict().judgement.at_stake
    assert len({one.change.transaction for one in found[Fate.LOST]}) <= (stake.transactions or 0)
    assert kept + lost <= len(offsets)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A journal with transactions that committed, rolled back, prepared, and did not end."""
    with Journal(tmp_path / "log") as journal:
        for number, end in enumerate(("commit", "rollback", "prepare")):
            transaction = journal.transaction()
            transaction.add(10 + number, end.encode())
            getattr(transaction, end)()
        journal.add(1, b"one")
        for number in range(2, 6):
            journal.update(1, b"%d" % number)
    return tmp_path / "log"


def test_a_journal_gives_rows_of_every_transaction(journal: Path) -> None:
    found = {one.change.key: one.fate for one in rows(journal)}
    assert found == {
        "10": Fate.COMMITTED, "11": Fate.UNDONE, "12": Fate.IN_DOUBT, "1": Fate.COMMITTED
    }  # fmt: skip


def test_rows_of_a_journal_after_damage_are_lost(journal: Path) -> None:
    updates = [one for one in scan(journal) if one.type == "update"]
    damaged = updates[1]
    path = Path(damaged.file)
    content = bytearray(path.read_bytes())
    content[damaged.offset] ^= 1
    path.write_bytes(content)
    damage = list[Finding]()
    found = [one for one in rows(journal, problems=damage) if one.change.key == "1"]
    assert [(one.change.after, one.fate) for one in found] == [
        (b"one", Fate.COMMITTED), (b"2", Fate.COMMITTED), (b"4", Fate.LOST), (b"5", Fate.LOST)
    ]  # fmt: skip
    assert [one.code for one in damage] == ["corrupt-group"]


FILTERS = (
    Filter(),
    *(Filter(frozenset({one})) for one in Fate),
    *(Filter(outcome=one) for one in (Fate.COMMITTED, Fate.UNDONE)),
    Filter(key="1"), Filter(key="12", outcome="in_doubt"), Filter(key="99"),
    Filter(kinds=frozenset({Kind.UPDATE})), Filter(kinds=frozenset({Kind.ADD, Kind.DELETE})),
    Filter(transaction="1"), Filter(from_lsn=5), Filter(to_lsn=5), Filter(from_lsn=3, to_lsn=9),
    Filter(since=datetime(2020, 1, 1)), Filter(until=datetime(2020, 1, 1)),
    Filter(body="one"), Filter(body="rollback", outcome="undone"), Filter(body="0x7072"),
    Filter(gtrid=b"global".hex()), Filter(table=""), Filter(resource=""),
)  # fmt: skip


@pytest.mark.sampled(10)
@pytest.mark.parametrize("wanted", FILTERS, ids=range(len(FILTERS)))
def test_filters_take_the_same_rows_of_columns_and_one_by_one(
    journal: Path, monkeypatch: pytest.MonkeyPatch, wanted: Filter
) -> None:
    told = []
    for always in (False, True):
        read_in_runs(monkeypatch, always=always)
        (reading,) = readings(journal)
        assert isinstance(reading, FateBatches)
        assert (reading.fated_batches(10) is not None) == always
        told.append([*rows_of(reading, set(), wanted)])
    assert told[0] == told[1]


def test_keys_and_tables_of_databases_take_the_same_rows_of_columns_and_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    in_columns = 0
    for name in cases("h2")[:40:4]:
        for reading in readings(fixture_dir("h2") / name):
            every, told = [*rows_of(reading, set())], []
            wanted = [Filter(key=one.change.key, body="a") for one in every[:1]]
            wanted += [Filter(table=one.change.collection) for one in every[-1:]]
            for always in (False, True):
                read_in_runs(monkeypatch, always=always)
                again = survey(fixture_dir("h2") / name).read(reading.source)
                assert isinstance(again, FateBatches)
                in_columns += again.fated_batches(10) is not None
                told.append([[*rows_of(again, set(), one)] for one in wanted])
            assert told[0] == told[1]
    assert in_columns


def outputs(folder: Path, target: Path, wanted: Filter = EVERYTHING) -> list[object]:
    """Return what every form, and the dictionaries, have of the rows of a folder."""
    told: list[object] = []
    for form in ("csv", "jsonl", "parquet"):
        count = export_rows(folder, form, target, wanted, problems=[])
        told += [count, pq.read_table(target) if form == "parquet" else target.read_bytes()]
    return [*told, [*row_dicts(folder, wanted, problems=[])]]


ODD_NAME = 'a",\n'


@pytest.mark.parametrize("wanted", [EVERYTHING, Filter(body="o"), Filter(outcome="undone")])
def test_every_form_is_the_same_of_columns_and_one_by_one(
    journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: Filter
) -> None:
    folder = tmp_path / ODD_NAME
    journal.rename(folder)
    told = []
    for always in (False, True):
        read_in_runs(monkeypatch, always=always)
        told.append(outputs(folder, tmp_path / "out", wanted))
    assert told[0] == told[1]


def test_every_form_of_databases_is_the_same_of_columns_and_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for system, every in (("h2", 9), ("jboss", 40), ("typed", 2)):
        for name in cases(system)[::every]:
            told = []
            for always in (False, True):
                read_in_runs(monkeypatch, always=always)
                told.append(outputs(fixture_dir(system) / name, tmp_path / "out"))
            assert told[0] == told[1], name


def test_decisions_are_rows_of_their_resources() -> None:
    folder = EXAMPLES / "mid-phase-two" / "bitronix"
    found = by_fate(str(folder))
    for reading in readings(folder):
        expected = Counter(
            (one.gtrid, name)
            for one in reading.transactions()
            for name in one.participants or ("",)
        )
        told = [one.change for of in found.values() for one in of]
        assert Counter((one.gtrid, one.collection) for one in told) == expected
    assert {one.change.values["decision"] for one in found[Fate.UNDONE] if one.change.values} == {
        "active", "rolled back", "undecided"
    }  # fmt: skip


DOUBT = frozenset({Fate.IN_DOUBT})
NARAYANA = fixture_dir("brokers") / "narayana/tx-object-store"
HALTED = "0:ffff7f000001:a661:6b070de7:17"
FIRST, PLAIN = "java:/first", "Participants$Plain"


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        (Filter(transaction=HALTED), [(FIRST, "committing"), (PLAIN, "committing")]),
        (Filter(table=FIRST), [(FIRST, "committing")]),
        (Filter(frozenset({Fate.UNKNOWN})), [(PLAIN, "heuristic")]),
        (Filter(DOUBT), []),
    ],
)
def test_decisions_in_a_journal_of_narayana_are_rows_of_their_resources(
    wanted: Filter, told: list[tuple[str, str]]
) -> None:
    found = [one.change for one in rows(NARAYANA, wanted)]
    assert [(one.collection, (one.values or {})["decision"]) for one in found] == told
    for one in found:  # its ids are those to type on
        assert one.gtrid is not None
        again = Filter(gtrid=one.gtrid.hex()[:-4], transaction=one.transaction, key=one.key)
        assert one in [each.change for each in rows(NARAYANA, again)]


def test_a_subordinate_that_is_prepared_is_in_doubt(tmp_path: Path) -> None:
    raw = PACKED_MAGIC + encoded.number(1) + encoded.xid() + encoded.text("other")
    state = raw + encoded.state(encoded.branch(), status=encoded.PREPARED).removeprefix(
        PACKED_MAGIC
    )
    body = pack_object_state(ObjectState(encoded.UID, TRANSACTION + SUBORDINATE, state))
    with CircularJournal(
        str(tmp_path), JournalSettings(prefix="jbossts", extension="txlog")
    ) as log:
        log.append_add_record(1, 0, body).wait()
    found = [one.change for one in rows(tmp_path, Filter(DOUBT))]
    assert [(one.collection, one.gtrid, one.transaction) for one in found] == [
        ("java:/db", encoded.XID.gtrid, encoded.NAMED)
    ]


def test_keys_are_named_where_no_row_has_columns(tmp_path: Path) -> None:
    with Journal(tmp_path / "log") as journal, journal.transaction() as transaction:
        transaction.add(1, b"one")
    with pytest.raises(UnsupportedFormatError, match=r"has the key 'id=1'\. Did you mean 1"):
        list(rows(tmp_path, Filter(key="id=1")))


@pytest.mark.parametrize("system", ["derby", "h2"])
def test_a_row_is_found_by_the_value_of_a_column(system: str) -> None:
    """Updates of Derby have the columns that they change alone, and no key among them."""
    folder = EXAMPLES / "mid-phase-two" / system
    doubtful = {one.change.collection: one.change.key for one in rows(folder, Filter(DOUBT))}
    table, key = next(one for one in doubtful.items() if "ACCOUNTS" in one[0])
    expected = list(rows(folder, Filter(table=table, key=key)))
    known = next(one.change.values for one in expected if "ID" in (one.change.values or {}))
    assert list(rows(folder, Filter(table=table, key=f"id={(known or {})['ID']}"))) == expected
    assert len(expected) > 1
    with pytest.raises(UnsupportedFormatError, match="nothing here has the key 'ID='"):
        list(rows(folder, Filter(key="ID=")))


def test_rows_from_before_the_log_are_found_by_the_value_of_a_column() -> None:
    """Of these tables the log alone does not tell which row has which value."""
    for reading in readings(fixture_dir("derby_databases")):
        if reading.source.system == "derby":
            for one in reading.collections():  # type: ignore[attr-defined]
                for key, values in reading.rows_before(one.name):  # type: ignore[attr-defined]
                    changed = list(rows(reading.source.path, Filter(table=one.name, key=key)))
                    for name, value in values.items():
                        if changed and isinstance(value, int):
                            wanted = Filter(table=one.name, key=f"{name}={value}")
                            by_value = list(rows(reading.source.path, wanted))
                            assert all(row in by_value for row in changed)
                            return
    pytest.fail("no such row")


ESTATE = EXAMPLES / "mid-phase-two"
GTRID = "62616e6b2d3100000000004e6e5100000059"


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        (Filter(), 248),
        (Filter(DOUBT), 12),
        (Filter(DOUBT, gtrid=GTRID), 7),
        (Filter(DOUBT, gtrid=GTRID.upper()[:-1]), 7),
        (Filter(DOUBT, table="APP.ACCOUNTS"), 1),
        (Filter(DOUBT, table="7"), 2),
        (Filter(table="APP.ACCOUNTS", key="1:12"), 6),
        (Filter(DOUBT, transaction="295"), 2),
        (Filter(frozenset({Fate.IN_DOUBT, Fate.LOST}), key="251"), 2),
        (Filter(DOUBT, table="APP.ACCOUNTS", body='1:12",\n'), 0),
    ],
)
def test_all_that_is_asked_for_must_fit(wanted: Filter, count: int) -> None:
    found = list(rows(ESTATE, wanted))
    assert len(found) == count
    assert all(not wanted.fates or one.fate in wanted.fates for one in found)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("wanted", "error", "said"),
    [
        (Filter(gtrid="6"), TransactionUsageError, "too short"),
        (Filter(gtrid=""), TransactionUsageError, "too short"),
        (Filter(gtrid="62616e6b"), TransactionUsageError, "begin with"),
        (Filter(gtrid="ffffffff"), TransactionUsageError, "no global transaction"),
        (Filter(table="ACCOUNTS"), UnsupportedFormatError, "Did you mean APP.ACCOUNTS"),
        (Filter(table="APP.ACCOUNTS", key="1:1299"), UnsupportedFormatError, "Did you mean 1:1"),
        (Filter(table="app.acounts"), UnsupportedFormatError, "Did you mean APP.ACCOUNTS"),
        (Filter(table="x,y\n\"'"), UnsupportedFormatError, "There are"),
    ],
)
def test_what_is_not_there_is_an_error_that_names_what_is(
    wanted: Filter, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        list(rows(ESTATE, wanted))


def test_a_table_without_a_row_of_that_fate_is_no_error() -> None:
    assert list(rows(ESTATE, Filter(frozenset({Fate.LOST}), table="APP.ACCOUNTS"))) == []


def test_times_are_those_of_the_day_in_any_zone(journal: Path) -> None:
    times = [one["time"] for one in row_dicts(journal)]
    assert all(one.endswith("Z") for one in times)
    last = max(datetime.fromisoformat(one) for one in times)
    after = last.astimezone(timezone(timedelta(hours=9))) + timedelta(seconds=1)
    assert len(list(rows(journal, Filter(until=after)))) == len(times)
    assert list(rows(journal, Filter(since=after))) == []
    assert list(rows(journal, Filter(since=after.astimezone(UTC).replace(tzinfo=None)))) == []


def test_a_log_without_times_of_day_is_named_where_times_are_asked_for() -> None:
    problems: list[Finding] = []
    wanted = Filter(since=datetime(2020, 1, 1, tzinfo=UTC))
    assert list(rows(ESTATE / "h2", wanted, problems=problems)) == []
    assert [one.code for one in problems] == ["no-times"]


@pytest.mark.parametrize(
    ("time", "clock", "said"),
    [
        (0, Clock.WALL_MS, "1970-01-01T00:00:00.000Z"),
        (1_000_001, Clock.WALL_US, "1970-01-01T00:00:01.000Z"),
        (-1, Clock.WALL_NS, "1969-12-31T23:59:59.999Z"),
        (1 << 62, Clock.WALL_MS, None),
        (5, Clock.BOOT_MS, None),
        (None, Clock.WALL_MS, None),
    ],
)
def test_a_time_is_iso_where_the_clock_allows(
    time: int | None, clock: Clock, said: str | None
) -> None:
    assert time_text(time, clock) == said


KEYS = (b"a,b", b'say "x"', b"two\nlines", "ü".encode(), b"'; drop")


def test_keys_with_commas_quotes_and_newlines_are_found_and_written(tmp_path: Path) -> None:
    log = open_persist_log(tmp_path / "log", "cloudtran")
    operations = [Operation(OperationCode.INSERT, "t", key, b"v") for key in KEYS]
    log.persisting(["a"], operations)[1].wait()
    log.close()
    for key in KEYS:
        (found,) = rows(tmp_path / "log", Filter(key=key.decode()))
        assert found.change.key == key.decode()
    out = io.BytesIO()
    assert export_rows(tmp_path / "log", "csv", out) == len(KEYS)
    told = list(csv.DictReader(io.StringIO(out.getvalue().decode(), newline="")))
    assert [one["key"] for one in told] == [key.decode() for key in KEYS]


def test_the_history_of_a_row_has_what_emptied_its_table(tmp_path: Path) -> None:
    log = TallyLog(str(tmp_path / "log"), fs=LOCAL)
    for one in (
        UnplacedRecord(Code.REDO_ADD, encode_row(3, b"old"), 10, 100),
        UnplacedRecord(Code.REDO_ADD, encode_row(4, b"another table"), 10, 101),
        UnplacedEnding(Code.COMMIT, 10),
        UnplacedRecord(Code.TRUNCATE, encode_row(3), 11),
        UnplacedEnding(Code.COMMIT, 11),
    ):
        log.submit(one).wait()
    log.close()
    kinds = {
        key: [one.change.kind for one in rows(tmp_path, Filter(key=key))] for key in ("100", "101")
    }
    assert kinds == {"100": [Kind.ADD, Kind.TRUNCATE], "101": [Kind.ADD]}
    assert [one.change.kind for one in rows(tmp_path, Filter(key="100", transaction="11"))] == [
        Kind.TRUNCATE
    ]


def test_every_form_has_the_same_rows(tmp_path: Path) -> None:
    told = list(row_dicts(ESTATE, Filter(DOUBT)))
    for form in ("csv", "jsonl", "parquet"):
        target = tmp_path / form
        assert export_rows(ESTATE, form, target, Filter(DOUBT)) == len(told)
        assert target.stat().st_mode & 0o777 == 0o600
    lines = [json.loads(line) for line in (tmp_path / "jsonl").read_text().splitlines()]
    assert lines == told
    with (tmp_path / "csv").open(newline="") as file:
        read = list(csv.DictReader(file))
    parquet = pq.read_table(tmp_path / "parquet").to_pylist()
    for one, text, row in zip(told, read, parquet, strict=True):
        for name in CSV_COLUMNS:
            plain = json.dumps(one[name], separators=(",", ":")) if name == "values" else one[name]
            assert text[name] == ("" if one[name] is None else str(plain)), name
            held = row[name].hex() if isinstance(row[name], bytes) else row[name]
            assert held == (None if one[name] is None else plain), name
    with pytest.raises(ValueError, match="unknown form"):
        export_rows(ESTATE, "xml", tmp_path / "x")


TABLES = {
    "records": Filter(transaction="295"),
    "changes": Filter(table="PUBLIC.ACCOUNTS_2", key="251"),
    "transactions": Filter(gtrid=GTRID),
    "findings": Filter(gtrid=GTRID),
}


@pytest.mark.parametrize("table", TABLES)
def test_tables_and_records_are_filtered_in_the_same_way(table: str) -> None:
    wanted = TABLES[table]
    found = read_arrow(ESTATE, table, wanted=wanted).read_all().to_pylist()
    every = read_arrow(ESTATE, table).read_all().to_pylist()
    columns = COLUMNS[table]
    named = columns.keys() - {"time", "kind", "LSN"}
    asked = {name: getattr(wanted, name) for name in named}
    asked = {columns[name]: one for name, one in asked.items() if one is not None}
    assert found == [one for one in every if all(fits(one[name], asked[name]) for name in asked)]
    assert found or table == "findings"
    if table == "records":
        told = [one.offset for one in scan(ESTATE, wanted)]
        assert told == [one["offset"] for one in found]


def fits(value: object, text: str) -> bool:
    return value is not None and (value.hex() if isinstance(value, bytes) else str(value)) == text


@pytest.mark.parametrize("table", ["files", "logs", "findings", "transactions"])
def test_a_table_that_cannot_tell_refuses_the_filter(table: str) -> None:
    with pytest.raises(UnsupportedFormatError, match="has no key to filter by"):
        read_arrow(ESTATE, table, wanted=Filter(key="1"))


@pytest.mark.parametrize("name", ["app.accounts", "App.Accounts", "APP.ACCOUNTS"])
def test_the_only_table_of_a_name_in_another_case_is_meant(name: str) -> None:
    derby = EXAMPLES / "orphan" / "derby"
    exact = list(rows(derby, Filter(table="APP.ACCOUNTS")))
    assert list(rows(derby, Filter(table=name))) == exact
    problems: list[Finding] = []
    list(rows(derby, Filter(table=name, since=datetime(2026, 1, 1, tzinfo=UTC)), problems=problems))
    assert len(problems) == 1
    then = [one.key for one in asof(derby, Moment(lsn=1 << 62), name)]
    assert then == [one.key for one in asof(derby, Moment(lsn=1 << 62), "APP.ACCOUNTS")]


@pytest.mark.parametrize(
    ("name", "meant"), [("a.b", "a.b"), ("A.b", "A.b"), ("C", "c"), ("d", "d"), (None, None)]
)
def test_of_names_that_differ_in_case_only_none_is_meant_by_a_third(
    name: str | None, meant: str | None
) -> None:
    assert meant_name(name, {"a.b", "A.B", "c"}) == meant


@pytest.mark.parametrize("table", ["rows", "changes"])
def test_a_kind_that_only_records_have_is_refused_with_those_of_rows(table: str) -> None:
    for kind in Kind:
        wanted = Filter(kinds=frozenset({kind}))
        if kind in ("add", "update", "delete", "truncate", "decision"):
            wanted.require_columns(table)
            continue
        with pytest.raises(UnsupportedFormatError, match="expected one of add, update, delete"):
            wanted.require_columns(table)


@pytest.mark.parametrize("system", ["h2", "derby", "artemis"])
def test_a_transaction_is_found_by_its_number_and_its_commit(system: str) -> None:
    path = EXAMPLES / "mid-phase-two" / system
    every = [one for one in rows(path) if one.fate is Fate.COMMITTED and one.change.transaction]
    last = every[-1].change
    name = f"{last.transaction}@{last.commit_sequence}"
    expected = [
        one for one in every
        if (one.change.transaction, one.change.commit_sequence)
        == (last.transaction, last.commit_sequence)
    ]  # fmt: skip
    assert list(rows(path, Filter(transaction=name))) == expected != []
    found = read_arrow(path, "changes", wanted=Filter(transaction=name))
    assert found.read_all().num_rows == len(expected)
    with pytest.raises(TransactionUsageError, match=r"Did you mean .*@"):
        list(rows(path, Filter(transaction=f"{last.transaction}@999999999")))
