"""Branches in doubt, over logs and live resources: listed and explained.

In: paths with logs of any system, a coordinator's directory, databases by name. Out: one
`InDoubt` per global transaction that waits for a decision, with what is due and why, by the
decision table of `tallystick.reconcile`, as the pipeline judges, too. Nothing is written.
"""

from __future__ import annotations

import math
import sys
import time
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tallystick.errors import CorruptLogError, LogUnreadableError
from tallystick.printable import counted, shell_quoted, shell_words
from tallystick.reading.discovery import PATH_UNREAD
from tallystick.reading.estate import Gatherer, gravest_first, is_waiting
from tallystick.reading.settled import settled_findings
from tallystick.reading.survey import NO_LOG, Survey, survey
from tallystick.reconcile.estate import Estate
from tallystick.reconcile.ids import Maker, find_gtrid, maker_of
from tallystick.records import Finding, State, Xid, jsonable
from tallystick.roles.coordinator_files import IDENTITIES
from tallystick.services.page_store.recovery import owner_of
from tallystick.services.transactions.deadlines import TimedResources, start_call
from tallystick.services.transactions.resource import Resource
from tallystick.services.transactions.xids import time_of
from tallystick.storage.local import LOCAL
from tallystick.storage.signals import interrupt_in
from tallystick.systems.protocol import LogSource, ReadOptions
from tallystick.systems.registry import system

ANSWER_SECONDS = 10.0
"""Time for each resource to list its branches."""

LIVE = "live:"
"""Prefix of a live resource's name, where other branches have the path of their log."""

PAGE_STORE, JOURNAL = "page store", "journal"
EMBEDDED = (f"{PAGE_STORE} ", f"{JOURNAL} ")
"""How identities of embedded stores begin, which only their process can open: their logs tell."""


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
        shown = {name: jsonable(getattr(self, name)) for name in self.__slots__}
        return shown | {"made": self.made and self.made.to_dict()}

    @property
    def made(self) -> Maker | None:
        """Who made the id and when, where it tells that."""
        return maker_of(self.format_id, self.gtrid)

    def xids(self) -> Iterator[Xid]:
        """Yield its branches, first as one without a name."""
        for bqual in (b"", *(branch["bqual"] or b"" for branch in self.branches)):
            yield Xid(self.format_id, self.gtrid, bqual)


@dataclass(slots=True)
class InDoubtReport:
    """What is in doubt, and which resources could not be asked.

    Attributes:
        transactions: what is in doubt.
        unreachable: why a resource could not be asked, by its name.
        problems: what could not be read.
        unproved: why something else may be in doubt, a sentence each; empty if nothing can.
        looked_at: logs that were read, and resources that were given.
        unnamed: prepared branches whose names are no XA ids: system, log, name and evidence.
        command: what to type to ask the databases that were not asked; empty if none is known.
        settled: the other global transactions, for which nothing is due.
    """

    transactions: list[InDoubt]
    unreachable: dict[str, str] = field(default_factory=dict)
    problems: list[Finding] = field(default_factory=list)
    unproved: list[str] = field(default_factory=list)
    looked_at: int = 0
    unnamed: list[dict[str, Any]] = field(default_factory=list)
    command: str = ""
    settled: list[dict[str, Any]] = field(default_factory=list, repr=False)

    def find(self, text: str) -> list[InDoubt]:
        """Return the global transaction that a person means by an id, in doubt or not.

        Args:
            text: the id, or its beginning, as of `tallystick.reconcile.ids.find_gtrid`.

        Returns:
            One, or one for each format id.

        Raises:
            TransactionUsageError: there is none that was seen, or more than one.
        """
        known = [*self.transactions, *map(in_doubt_of, self.settled)]
        gtrid = find_gtrid(text, (xid for one in known for xid in one.xids()))
        return [one for one in known if one.gtrid == gtrid]

    @property
    def found(self) -> bool:
        """Whether anything is in doubt."""
        return bool(self.transactions or self.unnamed)

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
            "unnamed": self.unnamed,
            "next": self.command or None,
        }


def list_in_doubt(
    paths: Sequence[str],
    resources: Mapping[str, Resource] | None = None,
    *,
    options: ReadOptions | None = None,
) -> InDoubtReport:
    """Return what is in doubt in the logs below ``paths`` and in live ``resources``.

    A path may be the directory of a `TransactionManager`. Nothing is written. Raises
    `LogUnreadableError` for the one path if it cannot be read (one of several is among the
    problems), and `UnsupportedFormatError` for a setting that no system found there knows.
    """
    known = TimedResources(resources or {}, ANSWER_SECONDS).now()
    report, estate = InDoubtReport([]), Estate()
    found = survey(paths, options=options).refuse_unknown_settings() if paths else None
    gathered = _gathered(found, report, estate) if found is not None else None
    handled = sys.exception()
    asked = {name: start_call(resource, "in_doubt") for name, resource in known.items()}
    for name, wait in asked.items():
        log = LIVE + name
        try:
            estate.add_resource(name, log, [_live_part(log, name, xid) for xid in wait()])
        except Exception as answer:  # whatever it is, the others must be asked
            if interrupt_in(answer, handled) is not None:
                raise
            estate.add_resource(name, log, ())
            report.unreachable[name] = str(answer)
    if gathered is not None:
        gathered.add_closed()
    report.looked_at += len(known)
    judged = list(estate.judged())
    report.transactions = [in_doubt_of(row) for row in gravest_first(judged)]
    report.settled = [row for row in judged if not is_waiting(row)]
    report.unnamed = [one for one in estate.unnamed if one["log"] not in estate.copies]
    unseen = _waiting_unseen(estate, judged)
    unread = {one.log for one in report.problems if one.code == PATH_UNREAD}  # said as it is
    report.unproved += _unproved(estate.damaged - unread, unseen)
    seen = {*known, *(b["resource"] for row in judged for b in row["branches"] if b["log"])}
    if found is None or gathered is None:
        return report
    if unasked := dict(_not_asked(report, gathered, seen, unseen)):
        report.command = _asking(found.paths, dict.fromkeys(known, "") | unasked)
    return report


def gathered(paths: Sequence[str], report: InDoubtReport) -> Estate:
    """Return what the logs below ``paths`` hold; what cannot be read joins ``report``."""
    estate = Estate()
    _gathered(survey(paths), report, estate)
    return estate


def _gathered(found: Survey, report: InDoubtReport, estate: Estate) -> Gatherer:
    gatherer = Gatherer(found.paths, found.logs, estate, least=0, most=math.inf)
    for reading in found.readings():
        with found.guard(reading.source):
            gatherer.add(reading, settled_findings(reading, found.known, found.options))
        report.looked_at += 1
    without = {one.log for one in found.problems if one.code == NO_LOG}
    absent = [one.folder for one in gatherer.coordinators if one.folder in without]
    problems = [one for one in found.problems if one.code != NO_LOG or one.log not in absent]
    report.unproved += [
        f"{path}: the decisions of this coordinator are not there; give the path of its log"
        for path in absent
    ]
    gatherer.add_unread(problems)
    report.problems += problems
    return gatherer


def _live_part(log: str, name: str, xid: Xid) -> dict[str, Any]:
    return {
        "system": "live", "log": log, "state": State.PREPARED.value,
        "format_id": xid.format_id, "gtrid": xid.gtrid, "bqual": xid.bqual,
        "participants": (), "open_participants": (), "last_time": None, "clock": None,
        "evidence_file": None, "evidence_offset": None, "attributes": None,
        "evidence_type": f"in doubt in {name} now",
    }  # fmt: skip


def _waiting_unseen(estate: Estate, judged: Iterable[dict[str, Any]]) -> Counter[str]:
    """Return at which names that were not looked at decisions to commit are open, and how many."""
    decided, unseen = estate.open_decisions(), Counter[str]()
    for row in judged:
        names = decided.get(row["gtrid"], set())
        unseen.update(
            branch["resource"]
            for branch in row["branches"]
            if branch["resource"] in names and branch["state"] == "unknown" and not branch["log"]
        )
    return unseen


def _unproved(damaged: Iterable[str], unseen: Counter[str]) -> Iterator[str]:
    """Yield why a branch may be in doubt that was not found."""
    for log in sorted(damaged):
        yield f"{log}: damaged, so a prepared branch or a decision may be gone"
    for name, count in sorted(unseen.items()):
        yield (
            f"{counted(count, 'decision')} to commit not known to be carried out at {name}, which "
            f"was not looked at: give its log, or --resource {name}=URL"
        )


def _not_asked(
    report: InDoubtReport,
    gathered: Gatherer,
    seen: Container[str],
    said: Container[str],
) -> Iterator[tuple[str, str]]:
    """Yield the databases that directories of coordinators name and nobody has asked.

    With their identities, so far as they are noted. The report says it of each, but of those that
    were ``said``.
    """
    for one in gathered.coordinators:
        folder = one.folder
        try:
            identities = IDENTITIES.read(LOCAL, folder)
        except (CorruptLogError, LogUnreadableError) as error:
            report.unproved.append(f"{folder}: which databases it has cannot be told: {error}")
            identities = {}
        names = dict.fromkeys(gathered.estate.names_in(one.log), "") | identities
        left = [
            (name, identity)
            for name, identity in sorted(names.items())
            if name not in seen and not _is_among(identity, gathered.logs)
        ]
        if new := [name for name, _ in left if name not in said]:
            report.unproved.append(
                f"{', '.join(new)}: not asked; a branch of the coordinator {folder} may be "
                "prepared there, with its locks"
            )
        yield from left


def _asking(paths: Sequence[str], names: Mapping[str, str]) -> str:
    """Return the command that asks these databases, too; embedded ones by their logs."""
    embedded = [name for name, identity in names.items() if identity.startswith(EMBEDDED)]
    logs = [shell_quoted(f"PATH-OF-{name}") for name in sorted(embedded)]
    asked = sorted(set(names) - set(embedded))
    given = [f"--resource {shell_quoted(name)}=URL" for name in asked]
    return " ".join(["tallystick indoubt list", shell_words(paths), *logs, *given])


def _is_among(identity: str, logs: Iterable[LogSource]) -> bool:
    """Return True if one of the logs is that of the embedded store with this identity."""
    kind, _, number = identity.rpartition(" ")
    if kind == PAGE_STORE:
        return any(owner_of(Path(one.path).resolve().parent, LOCAL) == identity for one in logs)
    if kind != JOURNAL:
        return False
    files = (file for one in logs for file in system(one.system).read(one, ReadOptions()).files())
    return any(file.identity and number.startswith(f"{file.identity:014x}") for file in files)


def in_doubt_of(row: Mapping[str, Any]) -> InDoubt:
    """Return what a row of the table ``global_transactions`` tells."""
    begun, now = time_of(row["gtrid"]), time.time() * 1000
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
        None if begun is None or begun > now else (now - begun) / 1000,
    )
