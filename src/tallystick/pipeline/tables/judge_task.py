"""The judgement of few transactions in one task: what larger estates need joins of Spark for.

In: staged ``transactions`` and ``findings``. Out: the table ``global_transactions``, and the
findings that only all logs together show. The rules are those of `tallystick.reconcile`, as ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq

from tallystick.arrow.schemas import batch_of, finding_rows
from tallystick.pipeline.tables.write_task import TableFile
from tallystick.pipeline.task import JUDGED_AT_ONCE as JUDGED_AT_ONCE
from tallystick.reading.coordinators import Coordinator, add_closed, add_coordinators
from tallystick.reading.tables import TABLES
from tallystick.reconcile.alarms import finding_rows_of
from tallystick.reconcile.estate import Estate
from tallystick.reconcile.structures import GLOBAL_TRANSACTIONS
from tallystick.records import Finding


@dataclass(frozen=True, slots=True)
class EstateJudgement:
    """Judges everything; writes below ``root`` files called ``name``.

    ``problems`` are findings of the search for logs, written with the others.
    """

    root: str
    transactions: tuple[str, ...]
    findings: tuple[str, ...]
    problems: tuple[Finding, ...]
    coordinators: tuple[Coordinator, ...]
    resources: Mapping[str, str] | None
    name: str
    codec: str

    def __call__(self) -> None:
        """Judge, and write both tables; doing it again gives the same files."""
        names = ["system", "log", "code", "severity"]
        transactions = (
            row for file in self.transactions for row in pq.read_table(file).to_pylist()
        )
        findings = (
            row for file in self.findings for row in pq.read_table(file, columns=names).to_pylist()
        )
        rows, found = judged(
            transactions, findings, self.problems, self.coordinators, self.resources
        )
        for table, schema, some in (
            ("global_transactions", GLOBAL_TRANSACTIONS, rows),
            ("findings", TABLES["findings"], found),
        ):
            made = TableFile(f"{self.root}/{table}", self.name, schema, self.codec)
            made.add(batch_of(some, schema), keep_empty=True)
            made.close()


def judged(
    transactions: Iterable[dict[str, Any]],
    findings: Iterable[dict[str, Any]],
    problems: Iterable[Finding],
    coordinators: Sequence[Coordinator],
    resources: Mapping[str, str] | None,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Judge the rows of all logs together.

    Args:
        transactions: rows of that table.
        findings: rows of that table, or just their system, log, code and severity.
        problems: findings of the search for logs.
        coordinators: what their directories tell.
        resources: which log a resource name means, where the logs leave it open.

    Returns:
        Rows of ``global_transactions``; and of ``findings``, the problems among them.
    """
    estate = Estate(resources)
    for row in transactions:
        estate.add_row(row)
    estate.add_finding_rows(findings)
    add_coordinators(estate, coordinators)
    add_closed(estate, coordinators)
    rows = list(estate.judged())
    return rows, finding_rows(problems) + finding_rows_of(rows, estate.copies)
