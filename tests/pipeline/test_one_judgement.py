"""``indoubt`` and the pipeline judge every global transaction alike.

The one gathers in a process, the other with joins of Spark: resolution, alarm, and every branch
must be the same.
"""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tallystick.errors import TallystickError
from tallystick.indoubt.listing import InDoubtReport, gathered
from tallystick.pipeline.options import SourceOptions
from tallystick.pipeline.planning import find, tasks
from tallystick.pipeline.task import judged_batches
from tallystick.reading.coordinators import add_closed
from tallystick.roles.coordinator_files import CLOSED_FILE, LOST_FILE
from tests.fixtures import fixture_dir
from tests.indoubt.estates import EXAMPLES, committed_by_hand, damaged_decision
from tests.reading.test_estate import TABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMPARED = ("owner", "coordinator", "decision", "resolution", "alarm", "last_time", "clock")

Answers = dict[tuple[int, bytes], tuple[Any, ...]]


def of_pipeline(spark: SparkSession, root: Path) -> Answers:
    """What the stages say of all logs below a folder."""
    from tallystick.pipeline.stages import reconciled

    reader = spark.read.format("tallystick").option("path", str(root))
    transactions = reader.option("table", "transactions").load().localCheckpoint()
    findings = reader.option("table", "findings").load()
    coordinators = find([str(root)]).coordinators()
    rows = reconciled(transactions, None, findings, coordinators).rows.collect()
    return {
        (row.format_id, bytes(row.gtrid)): _answer(
            {**row.asDict(), "branches": [one.asDict() for one in row.branches]}
        )
        for row in rows
    }


def of_indoubt(root: Path) -> Answers:
    """What ``tallystick indoubt`` says of them."""
    known = gathered([str(root)], InDoubtReport([]))
    add_closed(known, find([str(root)]).coordinators())
    rows = known.judged()
    return {(row["format_id"], row["gtrid"]): _answer(row) for row in rows}


def _answer(row: dict[str, Any]) -> tuple[Any, ...]:
    branches = sorted(
        repr({**one, "bqual": None if one["bqual"] is None else bytes(one["bqual"]).hex()})
        for one in row["branches"]
    )
    return (*(row[name] for name in COMPARED), branches)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "root", [fixture_dir("estate"), EXAMPLES, EXAMPLES / "heuristic-h2-rolled-back"], ids=str
)
def test_both_say_the_same_of_an_estate(spark: SparkSession, root: Path) -> None:
    answers = of_indoubt(root)
    assert answers
    assert answers == of_pipeline(spark, root)


@pytest.mark.parametrize("case", ["heuristic-h2-rolled-back", "presumed-abort"])
def test_both_say_the_same_of_a_branch_that_was_committed_by_hand(
    spark: SparkSession, tmp_path: Path, case: str
) -> None:
    root = committed_by_hand(tmp_path / "estate", case)
    assert of_indoubt(root) == of_pipeline(spark, root)


@pytest.mark.long
@pytest.mark.sampled(2)
@pytest.mark.parametrize("system", ["bitronix", "derby", "h2", "jboss"])
def test_both_say_the_same_of_logs_with_every_damage(spark: SparkSession, system: str) -> None:
    root = fixture_dir(system)
    assert of_indoubt(root) == of_pipeline(spark, root)


def test_both_say_the_same_where_copies_lie_beside_the_logs(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = tmp_path / "estate"
    shutil.copytree(EXAMPLES / "mid-phase-two", root)
    shutil.copytree(root / "artemis", root / "artemis-backup")
    answers = of_indoubt(root)
    assert answers == of_pipeline(spark, root)
    assert not any("artemis-backup" in str(one) for one in answers.values())


def test_both_say_the_same_where_a_decision_is_damaged(spark: SparkSession, tmp_path: Path) -> None:
    root = damaged_decision(tmp_path / "estate")
    answers = of_indoubt(root)
    assert answers == of_pipeline(spark, root)
    assert "doubtful-abort" in {one[COMPARED.index("alarm")] for one in answers.values()}


def of_source(root: Path, most: int = 50_000) -> Answers:
    """What the table ``global_transactions`` of the data source says."""
    options = SourceOptions((str(root),), table="global_transactions")
    (task,) = tasks(options)
    batches = judged_batches(task.pieces, options, task.coordinators, most)
    rows = [row for batch in batches for row in batch.to_pylist()]
    return {(row["format_id"], row["gtrid"]): _answer(row) for row in rows}


def _decisions_lost(folder: Path) -> Path:
    root = TABLE["commit-lost of ours"][0](folder)
    (root / "coordinator" / CLOSED_FILE).unlink()
    (root / "coordinator" / LOST_FILE).touch()
    return root


def _never_decided(folder: Path) -> Path:
    root = TABLE["commit-lost of ours"][0](folder)
    (root / "coordinator" / CLOSED_FILE).unlink()
    return root


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (TABLE["decided-elsewhere"][0], ("rollback", "decided-elsewhere")),
        (TABLE["commit-lost of ours"][0], ("commit", "lost-commit")),
        (_decisions_lost, ("rollback", "doubtful-abort")),
        (_never_decided, ("rollback", None)),
    ],
)
def test_all_say_the_same_of_what_stands_beside_the_log_of_a_coordinator(
    spark: SparkSession, tmp_path: Path, make: Any, said: tuple[Any, ...]
) -> None:
    root = make(tmp_path)
    answers = of_indoubt(root)
    assert {one[3:5] for one in answers.values()} == {said}
    assert answers == of_pipeline(spark, root)
    assert answers == of_source(root)


@pytest.mark.parametrize("root", [fixture_dir("estate"), EXAMPLES], ids=str)
def test_the_source_s_table_says_the_same(root: Path) -> None:
    answers = of_indoubt(root)
    assert answers == of_source(root)
    with pytest.raises(TallystickError, match="more than 3 transactions"):
        of_source(root, most=3)


def test_the_source_s_table_can_be_asked_in_sql(spark: SparkSession) -> None:
    spark.sql(
        "CREATE TEMPORARY VIEW due USING tallystick "
        f"OPTIONS (path '{EXAMPLES}', table 'global_transactions')"
    )
    counts = spark.sql("SELECT resolution, count(*) AS n FROM due GROUP BY resolution").collect()
    rows = gathered([str(EXAMPLES)], InDoubtReport([])).judged()
    assert {row["resolution"]: row["n"] for row in counts} == Counter(
        row["resolution"] for row in rows
    )
