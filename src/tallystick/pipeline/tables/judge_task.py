"""The judgement of few transactions in one task: what larger estates need joins of Spark for.

In: staged ``transactions`` and ``findings``. Out: the table ``global_transactions``, and the
findings that only all logs together show. The rules are those of `tallystick.reconcile`, as ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow.parquet as pq

from tallystick.arrow.schemas import batch_of, finding_rows
from tallystick.pipeline.tables.write_task import TableFile
from tallystick.reading.tables import TABLES
from tallystick.reconcile.alarms import finding_rows_of
from tallystick.reconcile.coverage import hides_records
from tallystick.reconcile.estate import Estate
from tallystick.reconcile.structures import GLOBAL_TRANSACTIONS
from tallystick.records import Finding, Severity

JUDGED_AT_ONCE = 50_000
"""The most transactions that one task judges: they and their judgements are in memory."""


@dataclass(frozen=True, slots=True)
class EstateJudgement:
    """Judges everything; writes below ``root`` files called ``name``.

    ``problems`` are findings of the search for logs, written with the others.
    """

    root: str
    transactions: tuple[str, ...]
    findings: tuple[str, ...]
    problems: tuple[Finding, ...]
    resources: Mapping[str, str] | None
    name: str
    codec: str

    def __call__(self) -> None:
        """Judge, and write both tables; doing it again gives the same files."""
        estate = Estate(self.resources)
        for file in self.transactions:
            for row in pq.read_table(file).to_pylist():
                estate.add_row(row)
        for file in self.findings:
            found = pq.read_table(file, columns=["system", "log", "code", "severity"])
            estate.damaged |= {
                row["log"]
                for row in found.to_pylist()
                if hides_records(row["system"], row["code"], Severity(row["severity"]))
            }
        judged = list(estate.judged())
        rows = finding_rows(self.problems) + finding_rows_of(judged, estate.copies)
        for table, schema, some in (
            ("global_transactions", GLOBAL_TRANSACTIONS, judged),
            ("findings", TABLES["findings"], rows),
        ):
            made = TableFile(f"{self.root}/{table}", self.name, schema, self.codec)
            made.add(batch_of(some, schema), keep_empty=True)
            made.close()
