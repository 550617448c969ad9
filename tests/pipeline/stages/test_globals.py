"""``global_transactions`` on small frames: every row of the decision table."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tallystick.arrow.schemas import FINDINGS, TRANSACTIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BITRONIX = 0x42746E78
A, B, C = "jdbc/a", "jdbc/b", "jms/c"
LOGS = {A: ("derby", "/e/derby"), B: ("h2", "/e/h2"), C: ("jboss", "/e/artemis")}

Row = dict[str, Any]


def gtrid(number: int, owner: bytes = b"bank-1") -> bytes:
    """An id as Bitronix builds it, at time 1000 + number."""
    return owner + (1_000 + number).to_bytes(8, "big") + number.to_bytes(4, "big")


def note(number: int, state: str, names: tuple[str, ...] = (A, B, C), **more: Any) -> Row:
    """The coordinator's last word."""
    row = {
        "system": "bitronix",
        "log": "/e/bitronix",
        "key": gtrid(number).hex(),
        "state": state,
        "format_id": BITRONIX,
        "gtrid": gtrid(number),
        "participants": list(names),
        "open_participants": list(names) if state == "committing" else [],
        "first_time": 1_000 + number,
        "last_time": 1_001 + number,
        "records": 4,
        "evidence_file": "/e/bitronix/part1.tlog",
        "evidence_offset": 100 * number,
        "evidence_type": state.upper(),
    }
    return row | more


def branch(number: int, name: str, state: str, owner: bytes = b"bank-1") -> Row:
    """A branch in the log of the resource of that name."""
    system, log = LOGS[name]
    return {
        "system": system,
        "log": log,
        "key": f"{number}-{name}",
        "state": state,
        "format_id": BITRONIX,
        "gtrid": gtrid(number, owner),
        "bqual": gtrid(number, owner) + name.encode(),
        "last_time": None,
        "records": 3,
        "evidence_file": f"{log}/log",
        "evidence_offset": number,
        "evidence_type": "PREPARE",
    }


def settled(number: int) -> list[Row]:
    """A finished transaction, so that names and logs can be matched."""
    return [note(number, "committed"), *(branch(number, name, "committed") for name in LOGS)]


LOCAL = [note(1, "committed", (A,)), branch(1, A, "committed")]
CASES: dict[str, tuple[Callable[[int], list[Row]], str | None, str, str | None]] = {
    "committing-and-in-doubt-is-to-be-committed": (
        lambda n: [
            note(n, "committing"),
            branch(n, A, "committed"),
            branch(n, B, "prepared"),
            branch(n, C, "prepared"),
        ],
        "commit",
        "commit",
        None,
    ),
    "committing-with-nothing-in-doubt-is-finished": (
        lambda n: [note(n, "committing"), *(branch(n, name, "committed") for name in LOGS)],
        "commit",
        "none",
        None,
    ),
    "committed-and-in-doubt-is-a-lost-commit": (
        lambda n: [
            note(n, "committed"),
            branch(n, A, "committed"),
            branch(n, B, "prepared"),
            branch(n, C, "committed"),
        ],
        "commit",
        "commit",
        "lost-commit",
    ),
    "closed-for-a-name-that-is-in-doubt-is-a-lost-commit": (
        lambda n: [
            note(n, "committing", open_participants=[C]),
            branch(n, A, "prepared"),
            branch(n, B, "committed"),
            branch(n, C, "prepared"),
        ],
        "commit",
        "commit",
        "lost-commit",
    ),
    "prepared-without-decision-is-to-be-rolled-back": (
        lambda n: [note(n, "undecided"), *(branch(n, name, "prepared") for name in LOGS)],
        "undecided",
        "rollback",
        None,
    ),
    "in-doubt-without-any-record-is-to-be-rolled-back": (
        lambda n: [branch(n, A, "prepared"), branch(n, B, "prepared")],
        None,
        "rollback",
        None,
    ),
    "rolled-back-by-the-coordinator-and-in-doubt-is-to-be-rolled-back": (
        lambda n: [note(n, "rolled_back"), branch(n, A, "rolled_back"), branch(n, B, "prepared")],
        "rollback",
        "rollback",
        None,
    ),
    "a-heuristic-record-asks-for-a-look-at-each-resource": (
        lambda n: [note(n, "heuristic"), branch(n, A, "committed"), branch(n, B, "rolled_back")],
        None,
        "heuristic_mismatch",
        "heuristic-outcome",
    ),
    "rolled-back-against-the-decision-is-a-mismatch": (
        lambda n: [note(n, "committing"), branch(n, A, "prepared"), branch(n, B, "rolled_back")],
        "commit",
        "heuristic_mismatch",
        "heuristic-mismatch",
    ),
    "committed-without-a-decision-is-a-mismatch": (
        lambda n: [note(n, "undecided"), branch(n, A, "committed"), branch(n, B, "prepared")],
        "undecided",
        "heuristic_mismatch",
        "heuristic-mismatch",
    ),
    "committed-against-a-rollback-is-a-mismatch": (
        lambda n: [note(n, "rolled_back"), branch(n, A, "committed"), branch(n, B, "rolled_back")],
        "rollback",
        "heuristic_mismatch",
        "heuristic-mismatch",
    ),
    "all-committed-without-a-decision-is-a-mismatch": (
        lambda n: [note(n, "undecided"), *(branch(n, name, "committed") for name in LOGS)],
        "undecided",
        "heuristic_mismatch",
        "heuristic-mismatch",
    ),
    "never-prepared-against-the-decision-is-a-mismatch": (
        lambda n: [note(n, "committed"), branch(n, A, "active"), branch(n, C, "committed")],
        "commit",
        "heuristic_mismatch",
        "heuristic-mismatch",
    ),
    "one-phase-is-known-to-its-resource-alone": (
        lambda n: [note(n, "committing", (A,)), branch(n, A, "rolled_back")],
        "commit",
        "none",
        None,
    ),
    "working-at-the-halt-needs-nothing": (
        lambda n: [note(n, "active", ()), branch(n, A, "active")],
        "undecided",
        "none",
        None,
    ),
}


def frame_of(spark: SparkSession, rows: list[Row]) -> DataFrame:
    """A ``transactions`` table of these rows."""
    from tallystick.pipeline.source.batch import spark_schema

    shaped = [tuple(row.get(name) for name in TRANSACTIONS.names) for row in rows]
    return spark.createDataFrame(shaped, spark_schema(TRANSACTIONS))


SETTLED = [row for number in (10, 11, 90) for row in settled(number)] + LOCAL


MORE = [
    note(60, "committing"),
    *(branch(60, name, "prepared") for name in LOGS),
    note(61, "committed"),
    branch(61, A, "committed"),
    branch(62, A, "prepared", b"bank-10"),
    branch(62, B, "committed", b"bank-10"),
    branch(63, A, "prepared", b"ghost"),
    branch(64, A, "committed", b"ghost"),
    branch(64, B, "rolled_back", b"other"),
    branch(64, C, "committed", b"other"),
    branch(65, A, "committed"),
    branch(65, B, "committed"),
    branch(0, A, "committed"),
    branch(0, B, "committed"),
    note(66, "committed", last_time=2_001),
    note(66, "committing", last_time=2_000, evidence_file="/e/bitronix/part2.tlog"),
    branch(66, A, "prepared"),
]


@pytest.fixture(scope="module")
def table(spark: SparkSession) -> dict[bytes, Any]:
    """All cases judged at once, by gtrid: they do not touch each other."""
    from tallystick.pipeline.stages import global_transactions

    rows = [row for n, case in enumerate(CASES.values(), 20) for row in case[0](n)]
    found = global_transactions(frame_of(spark, SETTLED + MORE + rows))
    return {bytes(row.gtrid): row for row in found.collect()}


@pytest.mark.parametrize("name", CASES)
def test_decision_table(table: dict[bytes, Any], name: str) -> None:
    row = table[gtrid(20 + list(CASES).index(name))]
    assert (row.decision, row.resolution, row.alarm) == CASES[name][1:]
    assert row.coordinator == "/e/bitronix"
    assert row.owner == "bank-1"


def test_names_are_matched_to_logs_by_what_occurs_together(table: dict[bytes, Any]) -> None:
    row = table[gtrid(60)]
    assert {one.resource: (one.system, one.log) for one in row.branches} == LOGS
    assert [one.due for one in row.branches] == ["commit"] * 3


def test_a_name_without_a_branch_is_unknown(table: dict[bytes, Any]) -> None:
    states = {one.resource: one.state for one in table[gtrid(61)].branches}
    assert states == {A: "committed", B: "unknown", C: "unknown"}


def test_the_evidence_names_file_and_offset(table: dict[bytes, Any]) -> None:
    evidence = table[gtrid(60)].evidence
    assert "COMMITTING in /e/bitronix/part1.tlog offset 6000" in evidence
    assert "PREPARE in /e/h2/log offset 60" in evidence


@pytest.mark.parametrize(("number", "owner"), [(62, b"bank-10"), (63, b"ghost")])
def test_owners_are_compared_whole(table: dict[bytes, Any], number: int, owner: bytes) -> None:
    row = table[gtrid(number, owner)]
    assert (row.coordinator, row.decision, row.resolution) == (None, None, "foreign")
    assert row.owner == owner.decode()


def test_a_finished_transaction_of_an_absent_coordinator_needs_nothing(
    table: dict[bytes, Any],
) -> None:
    assert table[gtrid(64, b"ghost")].resolution == "none"


def test_branches_that_ended_in_two_ways_are_a_mismatch_whoever_decided(
    table: dict[bytes, Any],
) -> None:
    row = table[gtrid(64, b"other")]
    assert (row.coordinator, row.alarm) == (None, "heuristic-mismatch")
    assert "against the commit of another branch" in row.evidence


def test_a_missing_log_is_no_proof_that_nothing_is_in_doubt(spark: SparkSession) -> None:
    from tallystick.pipeline.stages import global_transactions

    rows = [*settled(10), *LOCAL, note(50, "committing", (A, "jdbc/away"))]
    (row,) = (
        global_transactions(frame_of(spark, [*rows, branch(50, A, "committed")]))
        .where("hex(gtrid) = '" + gtrid(50).hex().upper() + "'")
        .collect()
    )
    assert row.resolution == "none"
    assert "no log here tells of jdbc/away" in row.evidence


@pytest.fixture(scope="module")
def damaged(spark: SparkSession) -> dict[bytes, Any]:
    """Rows over a journal of which not all can be read, by gtrid."""
    from tallystick.pipeline.source.batch import spark_schema
    from tallystick.pipeline.stages import global_transactions

    rows = [
        *SETTLED,
        *(branch(20, name, "prepared") for name in LOGS),
        note(21, "undecided"),
        branch(21, A, "prepared"),
        branch(22, A, "committed"),
        branch(22, B, "committed"),
        note(23, "committing"),
        branch(23, A, "prepared"),
        note(24, "undecided"),
        *(branch(24, name, "committed") for name in LOGS),
    ]
    reported = {"code": "damaged-record", "severity": "damage", "log": "/e/bitronix"}
    finding = tuple(reported.get(name) for name in FINDINGS.names)
    findings = spark.createDataFrame([finding], spark_schema(FINDINGS))
    found = global_transactions(frame_of(spark, rows), findings=findings)
    return {bytes(row.gtrid): row for row in found.collect()}


@pytest.mark.parametrize(
    ("number", "resolution", "alarm"),
    [
        (20, "rollback", "doubtful-abort"),
        (21, "rollback", "doubtful-abort"),
        (22, "none", "missing-decision"),
        (23, "commit", None),
        (24, "none", "missing-decision"),
    ],
)
def test_a_damaged_journal_proves_commits_and_no_abort(
    damaged: dict[bytes, Any], number: int, resolution: str, alarm: str | None
) -> None:
    row = damaged[gtrid(number)]
    assert (row.resolution, row.alarm) == (resolution, alarm)


def test_a_commit_that_the_journal_should_know_and_does_not_is_a_mismatch(
    table: dict[bytes, Any],
) -> None:
    assert table[gtrid(65)].resolution == "heuristic_mismatch"


def test_a_commit_older_than_the_journal_is_no_mismatch(table: dict[bytes, Any]) -> None:
    assert table[gtrid(0)].resolution == "none"


def test_the_last_word_counts_whatever_file_it_stands_in(table: dict[bytes, Any]) -> None:
    assert table[gtrid(66)].alarm == "lost-commit"


def test_a_map_of_resources_settles_what_is_ambiguous(spark: SparkSession) -> None:
    from tallystick.pipeline.stages import global_transactions

    rows = [note(50, "committing"), branch(50, A, "prepared")]
    given = {A: "/e/h2", B: "/e/derby"}
    (row,) = global_transactions(frame_of(spark, rows), given).collect()
    assert [one.resource for one in row.branches if one.log == "/e/derby"] == [B]
