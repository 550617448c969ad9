"""``global_transactions`` over a large estate with every fault, against what really happened."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tallystick
from tests.pipeline.bank import NAMES, STATES, Truth, write_bank

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OWNERS = ("site-1", "site-10", "x", "site-1", "s" * 51)
"""One is a prefix of another, two coordinators have the same, one is as long as they get."""

SYSTEMS = ("derby", "h2", "jboss", "tally")

Bank = tuple[dict[bytes, Truth], dict[bytes, Any]]


@pytest.fixture(scope="module")
def bank(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Bank:
    """The truth, and the rows of the table, by gtrid."""
    return judged(spark, tmp_path_factory.mktemp("bank"), OWNERS, rounds=1)


def judged(spark: SparkSession, root: Path, owners: Sequence[str], rounds: int) -> Bank:
    """Write a bank, and have Spark judge it."""
    from tallystick.pipeline.stages import global_transactions

    truths = write_bank(root, owners, rounds)
    source = spark.read.format("tallystick").option("table", "transactions").load(str(root))
    rows = global_transactions(source.localCheckpoint()).collect()
    found = {bytes(row.gtrid): row for row in rows}
    assert len(rows) == len(found)
    return truths, found


def differences(bank: Bank) -> Iterator[str]:
    """What the table says otherwise than the truth, in words."""
    truths, found = bank
    for gtrid, truth in truths.items():
        row = found.pop(gtrid, None)
        name = f"{gtrid.hex()} {truth.kind}"
        if row is None:
            yield f"{name}: is not there"
            continue
        reported = (row.decision, row.resolution, row.alarm, row.coordinator)
        kind = truth.kind
        expected = (kind.decision, kind.resolution, kind.alarm, truth.coordinator)
        if reported != expected:
            yield f"{name}: {reported} instead of {expected}: {row.evidence}"
        yield from (f"{name}: {text}" for text in _branches(truth, row))
    yield from (f"{gtrid.hex()}: never was" for gtrid in found)


def _branches(truth: Truth, row: Any) -> Iterator[str]:
    places = zip(NAMES, SYSTEMS, truth.logs, truth.kind.branches, strict=True)
    there = {(one.system, one.log): one for one in row.branches if one.log}
    named = {one.resource: one for one in row.branches}
    for name, system, log, letter in places:
        one = there.get((system, log)) or named.get(name)
        if one is None:
            # Only a coordinator that is here, and wrote the name down, knows of it.
            if letter != "-":
                yield f"no branch in {log}"
            continue
        if one.state != STATES[letter]:
            yield f"{name} {one.state} instead of {STATES[letter]}"
        if one.resource != name and truth.coordinator is not None and row.decision:
            yield f"{one.log} is called {one.resource} instead of {name}"
        due = row.resolution if row.resolution != "heuristic_mismatch" else None
        if (one.due is not None) != (letter == "P") or (due and one.due not in (due, None)):
            yield f"{name} {one.state}: {one.due} is due"


def test_every_global_transaction_is_told_as_it_was(bank: Bank) -> None:
    truths, found = bank
    wrong = list(differences((truths, dict(found))))
    assert not wrong, "\n".join(wrong[:6])


@pytest.mark.soak
def test_every_transaction_of_a_large_estate_is_told_as_it_was(
    spark: SparkSession, tmp_path: Path
) -> None:
    owners = [*OWNERS, *(f"branch-{number}" for number in range(10))]
    truths, found = judged(spark, tmp_path, owners, rounds=10)
    assert len(truths) > 4_000
    assert list(differences((truths, found))) == []


PLACE = re.compile(r"(\w+) in (\S+) offset (\d+)")


def test_the_evidence_names_records_of_this_transaction(bank: Bank) -> None:
    _, found = bank
    files = {match[2] for row in found.values() for match in PLACE.finditer(row.evidence)}
    records = {
        (record.file, record.offset): record
        for folder in {str(Path(file).parent) for file in files}
        for record in tallystick.scan(folder)
    }
    for gtrid, row in found.items():
        for name, file, offset in PLACE.findall(row.evidence):
            record = records[file, int(offset)]
            assert record.type == name
            assert record.gtrid in (gtrid, None)
