"""The pipeline's tables boiled down to what a page shows.

In: the folder of the tables. Out: `ReportData`: counts, and the first rows of what a person
has to act on; of many logs also one for each log that has anything to say. Only columns that are
needed are read, batch by batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tallystick.arrow.parquet import require_parquet
from tallystick.arrow.schemas import log_row
from tallystick.errors import LogUnreadableError
from tallystick.reading.estate import REASONS, answers_of, kind_of
from tallystick.reading.triaging import GRAVEST_FIRST
from tallystick.reconcile.alarms import LOST_COMMIT
from tallystick.records import Answer, AtStake, Judgement, Outcome, Severity, State

ROWS_MAX, LOG_ROWS_MAX = 200, 50
"""Rows of a list on the page, and on that of one log; it says how many more there are."""

FILES_MAX = 60
"""Files in the segment map: those with most damaged, then most valid bytes."""

LOGS_MAX = 40
"""Logs in the list of states: those with most open transactions, then with most of all."""

LINES_MAX = 12
"""Logs over time: those with most transactions."""

POINTS_MIN, POINTS_MAX = 3, 120
"""Time buckets of a line: of fewer nothing is to be seen; the newest of each log are kept."""

PAGES_FROM = 200
"""Of more logs than these, each that has anything to say has a page of its own."""

PLACES = 120
"""Places of a file in the segment map; each stands for as many of its bytes as the others."""

TOLD_BY_OTHERS = "commit-lost"
"""Reason of the answer about a log that its global transaction tells already."""

OUTCOMES = tuple(outcome.value for outcome in Outcome)

ANSWERS = tuple(answer.value for answer in GRAVEST_FIRST)

SEVERITIES = tuple(severity.value for severity in reversed(Severity))

_ENDED = (State.COMMITTED.value, State.ROLLED_BACK.value)

_BY_GRAVITY = ("unused", "stale", "valid", "torn", "corrupt")
"""Outcomes; at one place of a file a later one hides those before it."""

_PLACED = ["file", "offset", "length", "outcome"]

_ADVICE = "The report reads Parquet; run the pipeline with --format parquet, into another folder"

_NEEDED = ("files", "transactions", "global_transactions", "findings", "profile")

Row = dict[str, Any]


@dataclass(slots=True)
class ReportData:
    """What a page shows, of all logs or of one."""

    rows_max: int = ROWS_MAX
    answers: list[Row] = field(default_factory=list)
    """Logs with their answers, gravest first; empty for tables of before there were answers."""
    answered: Counter[str] = field(default_factory=Counter)
    """Logs by answer, gravest first."""
    after_crash: int = 0
    """Safe logs that end as a crash leaves them."""
    states: dict[tuple[str, str], Counter[str]] = field(default_factory=dict)
    """Transactions by state, per (system, log)."""
    resolutions: Counter[str] = field(default_factory=Counter)
    due: list[Row] = field(default_factory=list)
    """Global transactions with something due, the gravest first."""
    lost: int = 0
    """Commits that a restart would lose, as far as they are counted."""
    losing: dict[str, None] = field(default_factory=dict)
    """The logs whose systems would lose them: of coordinators, and of databases."""
    refusing: dict[str, None] = field(default_factory=dict)
    """Logs with which their systems do not start."""
    severities: Counter[str] = field(default_factory=Counter)
    findings: list[Row] = field(default_factory=list)
    files: list[Row] = field(default_factory=list)
    file_count: int = 0
    bytes: Counter[str] = field(default_factory=Counter)
    maps: dict[str, str] = field(default_factory=dict)
    """By file what stands at each of its `PLACES`: the letter of the gravest outcome, or ``-``."""
    profile: dict[str, list[Row]] = field(default_factory=dict)
    """Of the logs that are drawn over time, their buckets."""
    timed_logs: int = 0
    """Logs that have times."""
    of_log: dict[str, ReportData] = field(default_factory=dict)
    """What the page of each log shows that has anything to say; empty where there are few logs."""

    @property
    def logs(self) -> int:
        """The number of logs."""
        return len(self.states)

    @property
    def transactions(self) -> int:
        """The number of transactions of all logs."""
        return sum(sum(counts.values()) for counts in self.states.values())

    @property
    def systems(self) -> dict[str, str]:
        """The system of each log."""
        return {log: system for system, log in self.states}

    @property
    def used_logs(self) -> int:
        """Logs that hold transactions; the page's template asks for it."""
        return sum(map(bool, self.states.values()))

    @property
    def telling(self) -> list[tuple[str, str]]:
        """The keys of ``states`` that the list of states shows, in order."""
        known = [key for key, counts in self.states.items() if counts]
        return sorted(sorted(known, key=self._openness)[:LOGS_MAX])

    @property
    def says_anything(self) -> bool:
        """Whether a person should look at it."""
        grave = self.severities.total() - self.severities[Severity.INFO.value]
        unsafe = self.answered.total() - self.answered[Answer.SAFE.value]
        return bool(self.due or grave or unsafe)

    def _openness(self, key: tuple[str, str]) -> tuple[int, int, tuple[str, str]]:
        counts = self.states[key]
        ended = sum(counts[state] for state in _ENDED)
        return ended - counts.total(), -counts.total(), key

    # -- each takes a row, and keeps the gravest

    def add_answer(self, row: Row) -> None:
        """Take in the answer about a log."""
        self.answered[row["answer"]] += 1
        self.after_crash += bool(row["answer"] == Answer.SAFE and row["after_crash"])
        if row["answer"] == Answer.LOSES and row["reason"] != TOLD_BY_OTHERS:
            self.lost += row["transactions_at_stake"] or 0
            self.losing[row["log"]] = None
        if row["answer"] == Answer.REFUSES:
            self.refusing[row["log"]] = None
        _keep(self.answers, row, _gravity, self.rows_max)

    def add_due(self, row: Row) -> None:
        """Take in a global transaction with something due."""
        self.resolutions[row["resolution"]] += 1
        if row["alarm"] == LOST_COMMIT:
            self.lost += 1
            self.losing[row["coordinator"]] = None
        _keep(self.due, row, _urgency, self.rows_max)

    def add_finding(self, row: Row) -> None:
        """Take in a finding."""
        self.severities[row["severity"]] += 1
        _keep(self.findings, row, _severity, self.rows_max)

    def add_file(self, row: Row) -> None:
        """Take in a file."""
        self.states.setdefault((row["system"], row["log"]), Counter())
        self.file_count += 1
        self.bytes.update({outcome: row[outcome] for outcome in OUTCOMES})
        _keep(self.files, row, _badness, FILES_MAX)

    def finish(self) -> None:
        """Bring every list into its order."""
        self.answered = Counter({one: n for one in ANSWERS if (n := self.answered[one])})
        for rows, key in (
            (self.answers, _gravity), (self.due, _urgency), (self.findings, _severity)
        ):  # fmt: skip
            rows.sort(key=key)
            del rows[self.rows_max :]
        self.files.sort(key=_badness)
        del self.files[FILES_MAX:]
        self.files.sort(key=lambda row: (row["system"], row["log"], row["order"]))


def _keep(rows: list[Row], row: Row, key: Callable[[Row], Any], most: int) -> None:
    """Add a row; of many more than ``most`` only the first by ``key`` are kept."""
    rows.append(row)
    if len(rows) > 4 * most:
        rows.sort(key=key)
        del rows[most:]


def _gravity(row: Row) -> tuple[int, int, str]:
    return ANSWERS.index(row["answer"]), -(row["transactions_at_stake"] or 0), row["log"]


def _urgency(row: Row) -> tuple[int, bool, int, bytes]:
    order = list(REASONS).index(kind_of(row))
    return order, row["last_time"] is None, row["last_time"] or 0, row["gtrid"]


def _severity(row: Row) -> tuple[int, str]:
    return SEVERITIES.index(row["severity"]), row["log"] or ""


def _badness(row: Row) -> tuple[int, int]:
    return -row["corrupt"] - row["torn"], -row["valid"]


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
    loaded = _Loaded(folder)
    loaded.load_files()
    loaded.load_transactions()
    loaded.load_due()
    if (folder / "logs").is_dir():
        loaded.load_answers()
    loaded.load_findings()
    loaded.load_profile()
    loaded.finish()
    return loaded.whole


class _Loaded:
    """What all tables tell of the whole, and of each log where they are many."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.whole = ReportData()
        self._of_log: dict[str | None, ReportData] = {}

    def _parts(self, *logs: str | None) -> Iterator[ReportData]:
        """Yield what a row of these logs goes into."""
        yield self.whole
        for log in dict.fromkeys(logs):
            if log in self._of_log:
                yield self._of_log[log]

    def load_files(self) -> None:
        for row in self._rows("files"):
            row |= {outcome: row[f"{outcome}_bytes"] or 0 for outcome in OUTCOMES}
            self.whole.add_file(row)

    def load_transactions(self) -> None:
        """Count transactions by log and state."""
        import pyarrow as pa

        whole, keys = self.whole, ["system", "log", "state"]
        for batch in self._batches("transactions", keys):
            table = pa.table(batch)
            for row in table.group_by(keys).aggregate([([], "count_all")]).to_pylist():
                counts = whole.states.setdefault((row["system"], row["log"]), Counter())
                counts[row["state"]] += row["count_all"]
        if whole.logs > PAGES_FROM:
            for key, counts in whole.states.items():
                self._of_log[key[1]] = ReportData(LOG_ROWS_MAX, states={key: counts})
            for row in self._rows("files"):  # only now it is known that there are many logs
                row |= {outcome: row[f"{outcome}_bytes"] or 0 for outcome in OUTCOMES}
                self._of_log[row["log"]].add_file(row)

    def load_due(self) -> None:
        import pyarrow.compute as pc

        table = "global_transactions"
        for batch in self._batches(table, ["resolution"], pc.field("resolution") == "none"):
            self.whole.resolutions["none"] += len(batch)
        for row in self._rows(table, only=pc.field("resolution") != "none"):
            for part in self._parts(row["coordinator"], *(one["log"] for one in row["branches"])):
                part.add_due(row)

    def load_answers(self) -> None:
        """Take in the answers, those that the other logs change as they are then."""
        rows = {row["log"]: row for row in self._rows("logs")}
        own = {log: _judgement(row) for log, row in rows.items()}
        told = answers_of(self._open(), own, self.whole.systems)
        for log, row in rows.items():
            for part in self._parts(log):
                part.add_answer(
                    row
                    | (log_row(told[log], row["system"], log, row["format"]) if log in told else {})
                )

    def _open(self) -> Iterator[Row]:
        """Return the global transactions by which others change the answer about a log.

        Those with a prepared branch, or with one of which its log, which is here, has nothing.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        columns = ["gtrid", "coordinator", "decision", "branches", "resolution", "alarm"]
        for batch in self._batches("global_transactions", columns):
            branches = batch["branches"]
            one = pc.list_flatten(branches)
            state, log = pc.struct_field(one, "state"), pc.struct_field(one, "log")
            is_open = pc.is_in(state, pa.array([State.PREPARED.value, State.UNKNOWN.value]))
            is_open = pc.and_(is_open, pc.is_valid(log))
            places = pc.list_parent_indices(branches).filter(is_open).unique()
            yield from batch.take(places).to_pylist()

    def load_findings(self) -> None:
        for row in self._rows("findings"):
            for part in self._parts(row["log"]):
                part.add_finding(row)

    def load_profile(self) -> None:
        import pyarrow.compute as pc

        per_log: dict[str, list[Row]] = {}
        whole = pc.field("bucket").is_valid() & pc.field("resource").is_null()
        for row in self._rows("profile", only=whole):
            per_log.setdefault(row["log"], []).append(row)
        self.whole.timed_logs = len(per_log)
        lines = {
            log: sorted(rows, key=lambda row: row["bucket"])[-POINTS_MAX:]
            for log, rows in per_log.items()
            if len(rows) >= POINTS_MIN
        }

        def busyness(log: str) -> tuple[int, str]:
            return -sum(row["transactions"] or 0 for row in per_log[log]), log

        drawn = sorted(sorted(lines, key=busyness)[:LINES_MAX])
        self.whole.profile = {log: lines[log] for log in drawn}
        for log, part in self._of_log.items():
            part.timed_logs = int(log in per_log)
            part.profile = {log: lines[log]} if log and log in lines else {}

    def finish(self) -> None:
        whole = self.whole
        for part in (whole, *self._of_log.values()):
            part.finish()
        whole.of_log = {
            log: part for log, part in self._of_log.items() if log and part.says_anything
        }
        whole.maps = self._maps({row["file"]: row["size"] for row in whole.files})
        for part in whole.of_log.values():
            part.maps = whole.maps

    def _maps(self, sizes: dict[str, int]) -> dict[str, str]:
        """Return, for each file, the gravest outcome of the records at each of `PLACES` places."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        if not sizes or not (self._folder / "records").is_dir():
            return {}
        names, kinds = pa.array(sizes), pa.array(_BY_GRAVITY)
        length = np.maximum(np.fromiter(sizes.values(), np.int64), 1)
        found = np.zeros(len(sizes) * PLACES, np.intp)
        for batch in self._batches("records", _PLACED, pc.field("file").isin(names)):
            number = pc.index_in(batch["file"], names).to_numpy()
            rank = pc.index_in(batch["outcome"], kinds).to_numpy() + 1
            begin = batch["offset"].to_numpy()
            end = begin + np.maximum(batch["length"].to_numpy(), 1)
            size = length[number]
            first, last = begin * PLACES // size, (end * PLACES - 1) // size
            first, last = (number * PLACES + np.clip(one, 0, PLACES - 1) for one in (first, last))
            for one in np.unique(rank):
                # Begins count up and ends down: the sum is above zero where any record reaches.
                steps = np.bincount(first[rank == one], minlength=len(found) + 1)
                steps -= np.bincount(last[rank == one] + 1, minlength=len(found) + 1)
                held = np.cumsum(steps)[:-1] > 0
                found[held] = np.maximum(found[held], one)
        letters = np.array(["-", *(kind[0] for kind in _BY_GRAVITY)])[found]
        return {
            file: "".join(letters[place : place + PLACES])
            for file, place in zip(sizes, range(0, len(found), PLACES), strict=True)
        }

    def _batches(
        self, table: str, columns: list[str] | None = None, only: Any = None
    ) -> Iterator[Any]:
        from pyarrow import ArrowInvalid, dataset

        place = self._folder / table
        try:
            require_parquet(place, _ADVICE)
            found = dataset.dataset(place, format="parquet", exclude_invalid_files=False)
            yield from found.to_batches(columns=columns, filter=only)
        except (ArrowInvalid, OSError, UnicodeEncodeError) as error:  # Arrow's paths are UTF-8
            raise LogUnreadableError(
                f"cannot read the table: {error}",
                file=str(place),
                advice=_ADVICE,
            ) from error

    def _rows(self, table: str, only: Any = None) -> Iterator[Row]:
        for batch in self._batches(table, only=only):
            yield from batch.to_pylist()


def _judgement(row: Row) -> Judgement:
    """Return the answer that a row of the table ``logs`` holds."""
    stake = AtStake(row["transactions_at_stake"], row["rows_at_stake"])
    decided = row["decided_by"] or ""
    answer, after_crash = Answer(row["answer"]), bool(row["after_crash"])
    return Judgement(answer, row["reason"] or "", row["text"] or "", after_crash, stake, decided)
