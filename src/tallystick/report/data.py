"""The pipeline's tables boiled down to what a page shows.

In: the folder of the tables. Out: `ReportData`: counts, and the first rows of what a person
has to act on. Only columns that are needed are read, batch by batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tallystick.errors import LogUnreadableError
from tallystick.reading.triaging import GRAVEST_FIRST
from tallystick.records import Clock, Outcome, Severity, State

ROWS_MAX = 500
"""Rows of a list on the page; it says how many more there are."""

FILES_MAX = 60
"""Files in the segment map: those with most damaged, then most valid bytes."""

LOGS_MAX = 40
"""Logs in the chart of states: those with most open transactions, then with most of all."""

LINES_MAX = 12
"""Logs in the charts over time: those with most transactions."""

POINTS_MAX = 2_000
"""Time buckets in a chart; the newest of each log are kept."""

OUTCOMES = tuple(outcome.value for outcome in Outcome)

ANSWERS = tuple(answer.value for answer in GRAVEST_FIRST)

SEVERITIES = tuple(severity.value for severity in reversed(Severity))

_UNITS = {
    Clock.BOOT_MS.value: "ms",
    Clock.WALL_MS.value: "ms",
    Clock.WALL_US.value: "µs",
    Clock.WALL_NS.value: "ns",
}

_ENDED = (State.COMMITTED.value, State.ROLLED_BACK.value)

_NEEDED = ("files", "transactions", "global_transactions", "findings", "profile")


@dataclass(slots=True)
class ReportData:
    """What the page shows."""

    answers: list[dict[str, Any]] = field(default_factory=list)
    """Logs with their answers, gravest first; empty for tables of before there were answers."""
    answered: Counter[str] = field(default_factory=Counter)
    """Logs by answer, gravest first."""
    states: dict[tuple[str, str], Counter[str]] = field(default_factory=dict)
    """Transactions by state, per (system, log)."""
    resolutions: Counter[str] = field(default_factory=Counter)
    due: list[dict[str, Any]] = field(default_factory=list)
    severities: Counter[str] = field(default_factory=Counter)
    at_risk: Counter[str] = field(default_factory=Counter)
    """Bytes at risk by severity."""
    findings: list[dict[str, Any]] = field(default_factory=list)
    files: list[dict[str, Any]] = field(default_factory=list)
    file_count: int = 0
    bytes: Counter[str] = field(default_factory=Counter)
    profile: list[dict[str, Any]] = field(default_factory=list)
    """Of the logs that are drawn over time."""
    timed_logs: int = 0
    """Logs that have times."""

    @property
    def logs(self) -> int:
        """The number of logs."""
        return len(self.states)

    @property
    def transactions(self) -> int:
        """The number of transactions of all logs."""
        return sum(sum(counts.values()) for counts in self.states.values())

    @property
    def used_logs(self) -> int:
        """Logs that hold transactions."""
        return sum(map(bool, self.states.values()))

    @property
    def telling(self) -> list[tuple[str, str]]:
        """The keys of ``states`` that the chart of states shows, in order."""
        known = [key for key, counts in self.states.items() if counts]
        return sorted(sorted(known, key=self._openness)[:LOGS_MAX])

    def _openness(self, key: tuple[str, str]) -> tuple[int, int, tuple[str, str]]:
        counts = self.states[key]
        ended = sum(counts[state] for state in _ENDED)
        return ended - counts.total(), -counts.total(), key


def load(folder: Path) -> ReportData:
    """Return the figures of the tables in ``folder``.

    Raises `LogUnreadableError` if one is missing.
    """
    for table in _NEEDED:
        if not (folder / table).is_dir():
            raise LogUnreadableError(
                "there is no such table",
                file=str(folder / table),
                advice=f"Build the tables first: tallystick pipeline run SRC --out {folder}",
            )
    data = ReportData()
    if (folder / "logs").is_dir():
        _load_answers(data, folder)
    _load_files(data, folder)
    _load_transactions(data, folder)
    _load_due(data, folder)
    _load_findings(data, folder)
    _load_profile(data, folder)
    return data


def _batches(
    folder: Path, table: str, columns: list[str] | None = None, only: Any = None
) -> Iterator[Any]:
    from pyarrow import ArrowInvalid, dataset

    try:
        found = dataset.dataset(folder / table, format="parquet", exclude_invalid_files=False)
        yield from found.to_batches(columns=columns, filter=only)
    except (ArrowInvalid, OSError) as error:
        raise LogUnreadableError(
            f"cannot read the table: {error}",
            file=str(folder / table),
            advice="The report reads Parquet; run the pipeline with --format parquet",
        ) from error


def _rows(
    folder: Path, table: str, columns: list[str] | None = None, only: Any = None
) -> Iterator[dict[str, Any]]:
    for batch in _batches(folder, table, columns, only):
        yield from batch.to_pylist()


def _load_answers(data: ReportData, folder: Path) -> None:
    counted: Counter[str] = Counter()
    for row in _rows(folder, "logs"):
        counted[row["answer"]] += 1
        data.answers.append(row)
        if len(data.answers) > 4 * ROWS_MAX:
            data.answers = _gravest_logs(data.answers)
    data.answers = _gravest_logs(data.answers)
    data.answered.update({name: counted[name] for name in ANSWERS if counted[name]})


def _gravest_logs(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    def gravity(row: dict[str, Any]) -> tuple[int, int, str]:
        return ANSWERS.index(row["answer"]), -(row["transactions_at_stake"] or 0), row["log"]

    return sorted(rows, key=gravity)[:ROWS_MAX]


def _load_files(data: ReportData, folder: Path) -> None:
    for row in _rows(folder, "files"):
        data.states.setdefault((row["system"], row["log"]), Counter())
        data.file_count += 1
        sizes = {outcome: row[f"{outcome}_bytes"] or 0 for outcome in OUTCOMES}
        data.bytes.update(sizes)
        data.files.append(row | sizes)
        if len(data.files) > 2 * FILES_MAX:
            data.files = _worst(data.files)
    data.files = _worst(data.files)


def _worst(files: list[dict[str, Any]]) -> list[dict[str, Any]]:
    ordered = sorted(files, key=lambda row: (-row["corrupt"] - row["torn"], -row["valid"]))
    return sorted(ordered[:FILES_MAX], key=lambda row: (row["system"], row["log"], row["order"]))


def _load_transactions(data: ReportData, folder: Path) -> None:
    import pyarrow as pa

    keys = ["system", "log", "state"]
    for batch in _batches(folder, "transactions", keys):
        counted = pa.table(batch).group_by(keys).aggregate([([], "count_all")])
        for row in counted.to_pylist():
            counts = data.states.setdefault((row["system"], row["log"]), Counter())
            counts[row["state"]] += row["count_all"]


def _load_due(data: ReportData, folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    newest: dict[str | None, int] = {}
    keys = ["resolution", "coordinator"]
    for batch in _batches(folder, "global_transactions", [*keys, "last_time"]):
        grouped = pa.table(batch).group_by(keys)
        for row in grouped.aggregate([([], "count_all"), ("last_time", "max")]).to_pylist():
            data.resolutions[row["resolution"]] += row["count_all"]
            if (time := row["last_time_max"]) is not None:
                newest[row["coordinator"]] = max(time, newest.get(row["coordinator"], time))
    for row in _rows(folder, "global_transactions", only=pc.field("resolution") != "none"):
        data.due.append(row)
        if len(data.due) > 4 * ROWS_MAX:
            data.due = _most_urgent(data.due)
    data.due = _most_urgent(data.due)
    for row in data.due:
        last = newest.get(row["coordinator"])
        known = last is not None and row["last_time"] is not None
        row["age"] = last - row["last_time"] if known and last is not None else None
        row["unit"] = _UNITS.get(row["clock"] or "", "")


def _most_urgent(due: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what went wrong, then what a restart would lose, then the others, oldest first."""

    def urgency(row: dict[str, Any]) -> tuple[bool, bool, bool, int, bytes]:
        return (
            row["resolution"] != "heuristic_mismatch",
            row["alarm"] != "lost-commit",
            row["last_time"] is None,
            row["last_time"] or 0,
            row["gtrid"],
        )

    return sorted(due, key=urgency)[:ROWS_MAX]


def _load_findings(data: ReportData, folder: Path) -> None:
    for row in _rows(folder, "findings"):
        data.severities[row["severity"]] += 1
        data.at_risk[row["severity"]] += row["bytes_at_risk"] or 0
        data.findings.append(row)
        if len(data.findings) > 4 * ROWS_MAX:
            data.findings = _gravest(data.findings)
    data.findings = _gravest(data.findings)


def _gravest(findings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    order = {severity: place for place, severity in enumerate(SEVERITIES)}
    return sorted(findings, key=lambda row: (order[row["severity"]], row["log"] or ""))[:ROWS_MAX]


def _load_profile(data: ReportData, folder: Path) -> None:
    import pyarrow.compute as pc

    per_log: dict[str, list[dict[str, Any]]] = {}
    whole = pc.field("bucket").is_valid() & pc.field("resource").is_null()
    for row in _rows(folder, "profile", only=whole):
        per_log.setdefault(row["log"], []).append(row)
    data.timed_logs = len(per_log)

    def busyness(log: str) -> tuple[int, str]:
        return -sum(row["transactions"] or 0 for row in per_log[log]), log

    drawn = sorted(sorted(per_log, key=busyness)[:LINES_MAX])
    for log in drawn:
        rows = sorted(per_log[log], key=lambda row: row["bucket"])
        data.profile += rows[-POINTS_MAX // len(drawn) :]
