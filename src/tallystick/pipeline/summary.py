"""The summary of a run in figures.

In: the tables. Out: a `RunSummary`: counts, and the first of what is in doubt. Whatever
grows with the input is counted by Spark and never collected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tallystick.records import jsonable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LISTED_MAX = 50
"""Global transactions, and findings, that a summary lists."""


@dataclass(slots=True)
class RunSummary:
    """The tables in figures."""

    logs: dict[str, int]
    """Logs by system."""
    files: int
    bytes: dict[str, int]
    """Bytes by outcome."""
    records: dict[str, int]
    """Records by outcome."""
    transactions: dict[str, dict[str, int]]
    """By system, transactions by state."""
    resolutions: dict[str, int]
    """Global transactions by what is due."""
    due: list[dict[str, Any]]
    """The first global transactions with something due."""
    findings: dict[str, int]
    """Findings by severity."""
    severe: list[dict[str, Any]]
    """The first findings of damage or loss."""
    no_log: list[str]
    """What is to be said of files that are no log of any known system."""
    read: list[str]
    """Logs that this run read; the others had not changed."""
    seconds: float

    @property
    def exit_code(self) -> int:
        """0 fine, 1 damage or disagreement found, 2 nothing could be read."""
        if not self.logs:
            return 2
        wrong = self.resolutions.get("heuristic_mismatch", 0)
        return int(bool(self.findings.get("damage", 0) + self.findings.get("loss", 0) + wrong))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {name: jsonable(getattr(self, name)) for name in self.__slots__}


def summarise(tables: dict[str, DataFrame], read: list[str], seconds: float) -> RunSummary:
    """Return the summary of all tables."""
    from pyspark.sql import functions as F  # noqa: N812 - the field's name for it

    files = tables["files"]
    outcomes = [name for name in files.columns if name.endswith("_bytes")]
    sums = files.agg(F.count("*"), *(F.coalesce(F.sum(name), F.lit(0)) for name in outcomes))
    (count, *totals) = sums.first() or (0,)
    due = tables["global_transactions"].where("resolution <> 'none'")
    severe = tables["findings"].where("severity in ('damage', 'loss')")
    others = tables["findings"].where("code = 'not-a-log'").select("log", "message")
    return RunSummary(
        _counts(files.select("system", "log").distinct(), "system"),
        count,
        {name.removesuffix("_bytes"): total for name, total in zip(outcomes, totals, strict=True)},
        _counts(tables["records"], "outcome"),
        _by_two(tables["transactions"], "system", "state"),
        _counts(tables["global_transactions"], "resolution"),
        _rows(due.orderBy("resolution", "gtrid")),
        _counts(tables["findings"], "severity"),
        _rows(severe.orderBy("severity", "log", "offset")),
        strangers(others),
        read,
        round(seconds, 3),
    )


def strangers(others: DataFrame) -> list[str]:
    """Return one line about the findings (``log``, ``message``) with the code not-a-log."""
    first = others.orderBy("log").first()
    if first is None:
        return []
    folders = others.count()
    text = f"{first.log}: {first.message}"
    if folders > 1:
        more = "another folder" if folders == 2 else f"{folders - 1:,} other folders"
        text += f"; and files in {more}: see the findings called not-a-log"
    return [text]


def _counts(frame: DataFrame, column: str) -> dict[str, int]:
    return {row[0]: row[1] for row in frame.groupBy(column).count().orderBy(column).collect()}


def _by_two(frame: DataFrame, first: str, second: str) -> dict[str, dict[str, int]]:
    counts: dict[str, dict[str, int]] = {}
    for row in frame.groupBy(first, second).count().orderBy(first, second).collect():
        counts.setdefault(row[0], {})[row[1]] = row[2]
    return counts


def _rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.take(LISTED_MAX)]
