"""Branches in doubt, over logs and live resources: listed and explained.

In: paths with logs of any system, a coordinator's directory, databases by name. Out: one
`InDoubt` per global transaction that waits for a decision, with what is due and why, by the
decision table of `tallystick.reconcile.decision_table`. Nothing is written.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tallystick.reading.survey import survey
from tallystick.reading.tables import log_name
from tallystick.reconcile.ids import owner_of
from tallystick.reconcile.resources import Pattern, assign
from tallystick.reconcile.rows import judge_row
from tallystick.records import Finding, Severity, State, Transaction, jsonable
from tallystick.services.transactions.resource import Resource, ResourceUnreachable
from tallystick.services.transactions.xids import FORMAT_ID, time_of
from tallystick.systems.protocol import LogReading, ReadOptions

LIVE = "live:"
"""Prefix of a live resource's name, where other branches have the path of their log."""

_Key = tuple[int, bytes]


@dataclass(frozen=True, slots=True)
class InDoubt:
    """A global transaction with a branch in doubt, or a heuristic outcome that is not settled.

    ``resolution`` is what is due for it, ``branches`` has one entry per branch with what is due
    for it alone, ``age_seconds`` counts from its begin where its id tells that.
    """

    format_id: int
    gtrid: bytes
    owner: str | None
    coordinator: str | None
    decision: str | None
    resolution: str
    branches: tuple[dict[str, Any], ...]
    evidence: str
    age_seconds: float | None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; binary as lower-case hex."""
        return {name: jsonable(getattr(self, name)) for name in self.__slots__}


@dataclass(slots=True)
class InDoubtReport:
    """What is in doubt, and which resources could not be asked."""

    transactions: list[InDoubt]
    unreachable: dict[str, str] = field(default_factory=dict)
    problems: list[Finding] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return what ``tallystick indoubt list --json`` prints."""
        return {
            "transactions": [one.to_dict() for one in self.transactions],
            "unreachable": self.unreachable,
            "problems": [one.to_dict() for one in self.problems],
        }


class _Gathering:
    """Parts of global transactions, in the form that the decision table takes."""

    def __init__(self) -> None:
        self.parts: dict[_Key, list[dict[str, Any]]] = defaultdict(list)
        self.journals: dict[bytes | None, dict[str, dict[str, Any]]] = defaultdict(dict)
        self.systems: dict[str, str] = {}
        self.damaged: set[str] = set()
        """Logs of which not all can be read."""

    def add_transaction(self, one: Transaction, log: str, clock: str) -> None:
        if one.gtrid is None or one.attributes.get("settled"):
            return
        file, offset = one.evidence or (None, None)
        self._add(one.format_id, one.gtrid, {
            "system": one.system, "log": log, "state": one.state.value, "bqual": one.bqual,
            "participants": one.participants, "open_participants": one.open_participants,
            "last_time": one.last_time, "clock": clock, "evidence_file": file,
            "evidence_offset": offset, "evidence_type": one.evidence_type,
        })  # fmt: skip
        self.systems[log] = one.system
        if one.bqual is None:
            self._cover(owner_of(one.gtrid), log, one)

    def add_damage(self, reading: LogReading, log: str) -> None:
        """Note whether a coordinator's log may have lost a decision."""
        if any(log in known for known in self.journals.values()) and any(
            one.severity in (Severity.DAMAGE, Severity.LOSS) for one in reading.findings()
        ):
            self.damaged.add(log)

    def add_live(self, resource: Resource) -> None:
        log = LIVE + resource.name
        self.systems[log] = "live"
        for xid in resource.in_doubt():
            self._add(xid.format_id, xid.gtrid, {
                "system": "live", "log": log, "state": State.PREPARED.value, "bqual": xid.bqual,
                "participants": (), "open_participants": (), "last_time": None, "clock": None,
                "evidence_file": None, "evidence_offset": None,
                "evidence_type": f"in doubt in {resource.name} now",
            })  # fmt: skip

    def add_journal(self, owner: bytes, log: str) -> None:
        """Add a coordinator's log, even if it holds nothing about a transaction in doubt."""
        self.journals[owner].setdefault(log, {"log": log, "since": None, "until": None})

    def _add(self, format_id: int | None, gtrid: bytes, part: dict[str, Any]) -> None:
        self.parts[FORMAT_ID if format_id is None else format_id, gtrid].append(part)

    def _cover(self, owner: bytes | None, log: str, one: Transaction) -> None:
        known = self.journals[owner].setdefault(log, {"log": log, "since": None, "until": None})
        times = [t for t in (known["since"], one.first_time) if t is not None]
        ends = [t for t in (known["until"], one.last_time) if t is not None]
        known["since"], known["until"] = min(times, default=None), max(ends, default=None)

    def judged(self, names: Iterable[str]) -> Iterable[dict[str, Any]]:
        """Yield the judgement of each global transaction that waits for a decision."""
        pairs = self._pairs(names)
        met = self._met(names)
        for (format_id, gtrid), parts in sorted(self.parts.items()):
            owner = owner_of(gtrid)
            row = judge_row({
                "format_id": format_id, "gtrid": gtrid, "owner": owner, "parts": parts,
                "resources": pairs, "undone": (),
                "journals": [
                    one | {"logs": met[one["log"]], "damaged": one["log"] in self.damaged}
                    for one in self.journals.get(owner, {}).values()
                ],
            })  # fmt: skip
            waiting = any(branch["state"] == "prepared" for branch in row["branches"])
            if waiting or row["resolution"] == "heuristic_mismatch":
                yield row

    def _met(self, names: Iterable[str]) -> dict[str, set[str]]:
        """Return, per journal, the logs of its branches; live resources belong to each."""
        live = {LIVE + name for name in names}
        met: dict[str, set[str]] = defaultdict(live.copy)
        for parts in self.parts.values():
            logs = {part["log"] for part in parts if part["bqual"] is not None}
            for part in parts:
                if part["bqual"] is None:
                    met[part["log"]] |= logs
        return met

    def _pairs(self, names: Iterable[str]) -> list[dict[str, str]]:
        """Return which log a coordinator's resource name means; live ones are named already."""
        live = {name: LIVE + name for name in names}
        counts: dict[str, dict[tuple[frozenset[str], frozenset[str]], int]] = defaultdict(dict)
        for parts in self.parts.values():
            logs = frozenset(part["log"] for part in parts if part["bqual"] is not None)
            for part in parts:
                if part["bqual"] is None and part["participants"]:
                    key = frozenset(part["participants"]), logs
                    counts[part["log"]][key] = counts[part["log"]].get(key, 0) + 1
        journals = {log for one in self.journals.values() for log in one}
        pairs = []
        for journal in sorted(journals):
            patterns = [Pattern(n, logs, c) for (n, logs), c in counts[journal].items()]
            meant = assign(patterns, self.systems) | live
            pairs += [{"journal": journal, "name": n, "log": log} for n, log in meant.items()]
        return pairs


def list_in_doubt(
    paths: Sequence[str],
    resources: Mapping[str, Resource] | None = None,
    *,
    options: ReadOptions | None = None,
) -> InDoubtReport:
    """Return what is in doubt in the logs below ``paths`` and in live ``resources``.

    A path may be the directory of a `TransactionManager`. Nothing is written. Raises
    `LogUnreadableError` for a path that cannot be read.
    """
    known = resources or {}
    gathering, report = _Gathering(), InDoubtReport([])
    for path in paths:
        node = Path(path) / "node"
        if node.is_file():
            gathering.add_journal(node.read_bytes().strip(), str(Path(path) / "decisions"))
        found = survey(path, options=options)
        names = {log_name(source) for source in found.logs}
        for reading in found.readings():
            if _is_copy(log_name(reading.source), names):
                continue
            with found.guard(reading.source):
                for one in reading.transactions():
                    gathering.add_transaction(one, log_name(reading.source), reading.clock.value)
                gathering.add_damage(reading, log_name(reading.source))
        report.problems += [one for one in found.problems if one.code != "no-log"]
    for name, resource in known.items():
        try:
            gathering.add_live(resource)
        except ResourceUnreachable as answer:
            report.unreachable[name] = str(answer)
    report.transactions = [_in_doubt(row) for row in gathering.judged(known)]
    return report


def _is_copy(log: str, logs: set[str]) -> bool:
    """Return True for ``bank.h2.db.before-operator`` beside ``bank.h2.db``: an older copy."""
    return any(log.startswith(f"{other}.") for other in logs)


def _in_doubt(row: dict[str, Any]) -> InDoubt:
    begun = time_of(row["gtrid"])
    return InDoubt(
        row["format_id"],
        row["gtrid"],
        row["owner"],
        row["coordinator"],
        row["decision"],
        row["resolution"],
        tuple(row["branches"]),
        row["evidence"],
        None if begun is None else time.time() - begun / 1000,
    )
