"""The summary of a run in figures.

In: the tables. Out: a `RunSummary`: counts, and the first of what is in doubt. Whatever
grows with the input is counted by Spark and never collected.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tallystick.records import jsonable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STRANGER = "not-a-log"
"""Code of the finding about files that are no log."""

FAIL_ON = ("never", "loss", "damage", "warning", "due")
"""What makes a run fail for a scheduler, each more than those before it: acknowledged work that is
lost, damage or a heuristic mismatch, any warning, any global transaction with something due."""

_SEVERITIES = ((), ("loss",), ("loss", "damage"), *2 * (("loss", "damage", "warning"),))

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
        return 2 if not self.logs else int(self.fails("damage"))

    def fails(self, fail_on: str) -> bool:
        """Return True if there is something as grave as ``fail_on``, one of `FAIL_ON`, or graver.

        Raises `ValueError` for another word.
        """
        counted = {"heuristic_mismatch"} if fail_on in ("damage", "warning") else set()
        if fail_on == "due":
            counted = set(self.resolutions) - {"none"}
        return bool(
            sum(self.findings.get(one, 0) for one in _SEVERITIES[FAIL_ON.index(fail_on)])
            + sum(self.resolutions.get(one, 0) for one in counted)
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {name: jsonable(getattr(self, name)) for name in self.__slots__}


def summarise(tables: dict[str, DataFrame], read: list[str], seconds: float) -> RunSummary:
    """Return the summary of all tables: one aggregate for every figure, one query for the lists."""
    outcomes = [name for name in tables["files"].columns if name.endswith("_bytes")]
    counts = _counts(tables, outcomes)
    logs = Counter(system for system, _ in counts["log"])
    transactions: dict[str, dict[str, int]] = {}
    for (system, state), count in sorted(counts["transaction"].items()):
        transactions.setdefault(system, {})[state] = count
    lists = _lists(tables)
    first = next((f"{row['log']}: {row['message']}" for row in lists["stranger"]), None)
    return RunSummary(
        dict(sorted(logs.items())),
        sum(counts["log"].values()),
        {name.removesuffix("_bytes"): counts["bytes"].get((name, None), 0) for name in outcomes},
        _by_name(counts["record"]),
        transactions,
        _by_name(counts["resolution"]),
        lists["due"],
        _by_name(counts["finding"]),
        lists["severe"],
        strangers(first, sum(counts["stranger"].values())),
        read,
        round(seconds, 3),
    )


def strangers(first: str | None, folders: int) -> list[str]:
    """Return one line about findings called not-a-log: the first one, and how many there are."""
    if first is None:
        return []
    if folders > 1:
        more = "another folder" if folders == 2 else f"{folders - 1:,} other folders"
        first += f"; and files in {more}: see the findings called not-a-log"
    return [first]


_Counts = dict[tuple[Any, Any], int]


def _counts(tables: dict[str, DataFrame], outcomes: list[str]) -> defaultdict[str, _Counts]:
    """Count everything in one pass and one shuffle, by what is counted and by two names."""
    from pyspark.sql import functions as F  # noqa: N812 - the field's name for it

    def rows(table: str, what: str, first: str, second: str | None = None) -> DataFrame:
        name = F.lit(None).cast("string") if second is None else F.col(second)
        return tables[table].select(
            F.lit(what).alias("what"),
            F.col(first).alias("first"),
            name.alias("second"),
            F.lit(1).cast("bigint").alias("number"),
        )

    sizes = [F.struct(F.lit(one).alias("first"), F.col(one).alias("number")) for one in outcomes]
    totals = tables["files"].select(F.explode(F.array(*sizes)).alias("size"))
    nothing = F.lit(None).cast("string").alias("second")
    everything = totals.select(F.lit("bytes").alias("what"), "size.first", nothing, "size.number")
    for one in (
        rows("files", "log", "system", "log"),
        rows("records", "record", "outcome"),
        rows("transactions", "transaction", "system", "state"),
        rows("global_transactions", "resolution", "resolution"),
        rows("findings", "finding", "severity"),
        rows("findings", "stranger", "code").where(F.col("first") == STRANGER),
    ):
        everything = everything.unionAll(one)
    found: defaultdict[str, _Counts] = defaultdict(dict)
    grouped = everything.groupBy("what", "first", "second").agg(F.sum("number"))
    for what, first, second, number in grouped.collect():
        found[what][first, second] = number or 0
    return found


def _lists(tables: dict[str, DataFrame]) -> dict[str, list[dict[str, Any]]]:
    """Return the first of what is due, of what is severe, and of what is no log."""
    from pyspark.sql import functions as F  # noqa: N812 - the field's name for it

    judged, findings = tables["global_transactions"], tables["findings"]
    wanted = {
        "due": (judged.where("resolution <> 'none'"), ("resolution", "gtrid"), LISTED_MAX),
        "severe": (
            findings.where("severity in ('damage', 'loss')"),
            ("severity", "log", "offset"),
            LISTED_MAX,
        ),
        "stranger": (findings.where(F.col("code") == STRANGER), ("log",), 1),
    }
    every: DataFrame | None = None
    for name, (frame, order, count) in wanted.items():
        first = frame.orderBy(*order).limit(count)
        one = first.select(F.lit(name).alias("list"), F.struct(*frame.columns).alias(name))
        every = one if every is None else every.unionByName(one, allowMissingColumns=True)
    assert every is not None
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in wanted}
    for row in every.collect():
        found[row["list"]].append(row[row["list"]].asDict(recursive=True))
    for name, (_, order, _) in wanted.items():
        found[name].sort(key=lambda one: [_sorted_first(one[key]) for key in order])
    return found


def _sorted_first(value: Any) -> tuple[bool, Any]:
    return value is not None, value


def _by_name(counts: _Counts) -> dict[str, int]:
    return {name: count for (name, _), count in sorted(counts.items())}
