"""Branches in doubt, over logs and live resources: listed and explained.

In: paths with logs of any system, a coordinator's directory, databases by name. Out: one
`InDoubt` per global transaction that waits for a decision, with what is due and why, by the
decision table of `tallystick.reconcile`, as the pipeline judges, too. Nothing is written.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tallystick.reading.names import log_name
from tallystick.reading.settled import settled_findings
from tallystick.reading.survey import NO_LOG, survey
from tallystick.reconcile.coverage import hides_records
from tallystick.reconcile.decision_table import Resolution
from tallystick.reconcile.estate import Estate
from tallystick.records import Finding, State, Xid, jsonable
from tallystick.services.transactions.coordinator_dir import (
    CLOSED_FILE,
    LOG_FOLDER,
    LOST_FILE,
    NODE_FILE,
    ClosedDecisions,
)
from tallystick.services.transactions.deadlines import TimedResources, start_call
from tallystick.services.transactions.resource import Resource, ResourceUnreachable
from tallystick.services.transactions.xids import time_of
from tallystick.systems.protocol import LogReading, ReadOptions
from tallystick.systems.registry import NATIVE

ANSWER_SECONDS = 10.0
"""Time for each resource to list its branches."""

LIVE = "live:"
"""Prefix of a live resource's name, where other branches have the path of their log."""


@dataclass(frozen=True, slots=True)
class InDoubt:
    """A global transaction with a branch in doubt, or a heuristic outcome that is not settled.

    ``resolution`` is what is due for it; ``alarm``, a key of `tallystick.reconcile.alarms.ADVICE`,
    says why not to rely on that alone. ``branches`` has one entry per branch with what is due
    for it, ``age_seconds`` counts from its begin where its id tells that.
    """

    format_id: int
    gtrid: bytes
    owner: str | None
    coordinator: str | None
    decision: str | None
    resolution: str
    alarm: str | None
    branches: tuple[dict[str, Any], ...]
    evidence: str
    age_seconds: float | None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; binary as lower-case hex."""
        return {name: jsonable(getattr(self, name)) for name in self.__slots__}


@dataclass(slots=True)
class InDoubtReport:
    """What is in doubt, and which resources could not be asked.

    Attributes:
        transactions: what is in doubt.
        unreachable: why a resource could not be asked, by its name.
        problems: what could not be read.
        unproved: why something else may be in doubt, a sentence each; empty if nothing can.
        looked_at: logs that were read, and resources that were given.
    """

    transactions: list[InDoubt]
    unreachable: dict[str, str] = field(default_factory=dict)
    problems: list[Finding] = field(default_factory=list)
    unproved: list[str] = field(default_factory=list)
    looked_at: int = 0

    @property
    def whole(self) -> bool:
        """Whether all was seen: nothing else can be in doubt."""
        return not (self.unreachable or self.problems or self.unproved)

    def to_dict(self) -> dict[str, Any]:
        """Return what ``tallystick indoubt list --json`` prints."""
        return {
            "transactions": [one.to_dict() for one in self.transactions],
            "unreachable": self.unreachable,
            "problems": [one.to_dict() for one in self.problems],
            "unproved": self.unproved,
        }


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
    known = TimedResources(resources or {}, ANSWER_SECONDS).now()
    report = InDoubtReport([])
    estate = gathered(paths, report, options)
    asked = {name: start_call(resource, "in_doubt") for name, resource in known.items()}
    for name, wait in asked.items():
        log = LIVE + name
        try:
            estate.add_resource(name, log, [_live_part(log, name, xid) for xid in wait()])
        except ResourceUnreachable as answer:
            estate.add_resource(name, log, ())
            report.unreachable[name] = str(answer)
    for path in paths:
        if (Path(path) / NODE_FILE).is_file():
            closed = ClosedDecisions(Path(path)).among(estate.in_doubt())
            file = str(Path(path) / CLOSED_FILE)
            estate.add_closed_decisions(NATIVE, _decisions(path), file, closed)
    report.looked_at += len(known)
    judged = list(estate.judged())
    report.transactions = [_in_doubt(row) for row in judged if _waits(row)]
    report.unproved += _unproved(estate, judged)
    return report


def gathered(
    paths: Sequence[str], report: InDoubtReport, options: ReadOptions | None = None
) -> Estate:
    """Return what the logs below ``paths`` hold; what cannot be read joins ``report``."""
    estate = Estate()
    for path in paths:
        node = Path(path) / NODE_FILE
        is_coordinator = node.is_file()
        if is_coordinator:
            estate.add_coordinator(node.read_bytes().strip(), _decisions(path))
            if (Path(path) / LOST_FILE).is_file():
                estate.damaged.add(_decisions(path))
        found = survey(path, options=options)
        for reading in found.readings():
            with found.guard(reading.source):
                _add_log(estate, reading, settled_findings(reading, found.known, found.options))
            report.looked_at += 1
        problems = found.problems
        if is_coordinator and any(one.code == NO_LOG for one in problems):
            problems = [one for one in problems if one.code != NO_LOG]
            report.unproved.append(
                f"{path}: the decisions of this coordinator are not there; give the path of its log"
            )
        estate.damaged.update(one.log for one in problems if _hides(one))
        report.problems += problems
    return estate


def _decisions(coordinator: str) -> str:
    return str(Path(coordinator) / LOG_FOLDER)


def _add_log(estate: Estate, reading: LogReading, findings: Iterable[Finding]) -> None:
    log = log_name(reading.source)
    for one in reading.transactions():
        estate.add_transaction(one, log, reading.clock.value)
    if any(map(_hides, findings)):
        estate.damaged.add(log)


def _hides(one: Finding) -> bool:
    return hides_records(one.system, one.code, one.severity)


def _live_part(log: str, name: str, xid: Xid) -> dict[str, Any]:
    return {
        "system": "live", "log": log, "state": State.PREPARED.value,
        "format_id": xid.format_id, "gtrid": xid.gtrid, "bqual": xid.bqual,
        "participants": (), "open_participants": (), "last_time": None, "clock": None,
        "evidence_file": None, "evidence_offset": None, "attributes": None,
        "evidence_type": f"in doubt in {name} now",
    }  # fmt: skip


def _waits(row: dict[str, Any]) -> bool:
    waiting = any(branch["state"] == "prepared" for branch in row["branches"])
    return waiting or row["resolution"] == Resolution.HEURISTIC_MISMATCH


def _unproved(estate: Estate, judged: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield why a branch may be in doubt that was not found."""
    for log in sorted(estate.damaged):
        yield f"{log}: damaged, so a prepared branch or a decision may be gone"
    decided, unseen = estate.open_decisions(), Counter[str]()
    for row in judged:
        names = decided.get(row["gtrid"], set())
        unseen.update(
            branch["resource"]
            for branch in row["branches"]
            if branch["resource"] in names and branch["state"] == "unknown" and not branch["log"]
        )
    for name, count in sorted(unseen.items()):
        yield (
            f"{count} decisions to commit are open at {name}, which was not looked at: give its "
            f"log, or --resource {name}=URL"
        )


def _in_doubt(row: dict[str, Any]) -> InDoubt:
    begun = time_of(row["gtrid"])
    return InDoubt(
        row["format_id"],
        row["gtrid"],
        row["owner"],
        row["coordinator"],
        row["decision"],
        row["resolution"],
        row["alarm"],
        tuple(row["branches"]),
        row["evidence"],
        None if begun is None else time.time() - begun / 1000,
    )
