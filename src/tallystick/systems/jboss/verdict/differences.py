"""Find where a restart does something else than the bytes say.

In: an `Evidence`. Out: `Difference`s; `Difference.what` is the code of the finding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from tallystick.printable import first_of
from tallystick.records import Difference, Outcome, Severity, Transaction
from tallystick.systems.jboss.engine.loader import EngineLoad
from tallystick.systems.jboss.format.layout import COMMIT
from tallystick.systems.jboss.read.analysis import Analysis
from tallystick.systems.jboss.read.files import JournalFiles
from tallystick.systems.jboss.read.replay import EndedTransaction, OpenTransaction, PlacedRecord
from tallystick.systems.jboss.read.transactions import (
    damaged_elements,
    damaged_ends,
    lost_elements,
    missing_files,
)

IDS_LISTED = 10
"""Record ids are listed up to this many."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a verdict is based on.

    Attributes:
        log: the name of the log.
        journal: its files.
        analysis: what the bytes prove.
        error: the exception that ends a load, if one does.
        lost_ids: ids that are live by the bytes and not in the loader's list, in log order.
        revived_ids: ids in the loader's list that are not live by the bytes.
        coordinated: the transactions whose coordinator keeps their states in the journal.
        given: the ids that the broker gave after its last start; None if they are not known.
    """

    log: str
    journal: JournalFiles
    analysis: Analysis
    error: str = ""
    lost_ids: Sequence[int] = ()
    revived_ids: Sequence[int] = ()
    coordinated: Sequence[Transaction] = ()
    given: range | None = None

    @classmethod
    def of(cls, log: str, journal: JournalFiles, analysis: Analysis, engine: EngineLoad) -> Self:
        """Return the evidence about a journal of which the loader lists all records."""
        listed = {one.record_id: None for one in engine.live if one.record_id is not None}
        lost = [number for number in analysis.live if number not in listed]
        revived = [number for number in listed if number not in analysis.live]
        return cls(log, journal, analysis, engine.error, lost, revived)


def differences(evidence: Evidence) -> Iterator[Difference]:
    """Yield every difference; if the load gives up, only that one."""
    analysis = evidence.analysis
    if evidence.error:
        yield Difference(
            "load",
            f"gives up: {evidence.error}",
            f"{analysis.outcomes[Outcome.VALID]} whole records can be read",
            "The journal would not start. Nothing is lost yet, but nothing is available either.",
            Severity.DAMAGE,
            refuses=True,
        )
        return
    yield from _dropped(analysis)
    for ended in analysis.ended:
        if ended.complete and ended.known and ended.end.kind == COMMIT:
            yield from _partial(analysis, ended)
    for one in analysis.open:
        if one.prepared is not None and not one.invalid:
            yield from _partial_in_doubt(analysis, one.prepared)
        if one.prepared is None:
            yield from _damaged_end(analysis, one)
    if not analysis.dropped:
        yield from _ids(evidence)


def _dropped(analysis: Analysis) -> Iterator[Difference]:
    texts = {
        "appended": "Everything that the newer code appended to a file of the older format is gone "
        "at the next load, without a message.",
        "unheaded": "Everything written since the file was last reused is gone at the next load, "
        "without a message: its header still carries the old id.",
    }
    for why, count in analysis.dropped_because.items():
        first = analysis.dropped[0]
        yield Difference(
            f"records-{why}",
            f"drops {count} whole records",
            f"{count} whole records stand in the files",
            texts[why],
            file=first.path,
            offset=first.item.offset,
        )


def _partial(analysis: Analysis, ended: EndedTransaction) -> Iterator[Difference]:
    engine = "is applied with the rest of its elements"
    if holes := damaged_elements(analysis, ended):
        yield _partly(ended.end, engine, holes, Severity.LOSS)
    elif holes := lost_elements(analysis, ended):
        yield _partly(ended.end, engine, holes, Severity.WARNING)


def _partial_in_doubt(analysis: Analysis, prepared: PlacedRecord) -> Iterator[Difference]:
    if holes := missing_files(analysis, prepared.item):
        yield _partly(prepared, "is in doubt with what is left of it", holes, Severity.LOSS)


def _damaged_end(analysis: Analysis, one: OpenTransaction) -> Iterator[Difference]:
    if ends := damaged_ends(analysis, one):
        yield Difference(
            "damaged-end",
            f"throws transaction {one.transaction} away",
            "a damaged record after its elements may have been its commit",
            f"Whether transaction {one.transaction} committed cannot be told any more.",
            Severity.DAMAGE,
            file=ends[0].path,
            offset=ends[0].offset,
        )


def _partly(end: PlacedRecord, engine: str, holes: str, severity: Severity) -> Difference:
    number = end.item.transaction
    return Difference(
        "partial-transaction",
        f"transaction {number} {engine}",
        holes,
        f"A restart applies transaction {number} in part and says nothing: it checks no more than "
        "the elements in files that are there, or in the file of its end.",
        severity,
        file=end.path,
        offset=end.item.offset,
    )


def _ids(evidence: Evidence) -> Iterator[Difference]:
    lost, revived = evidence.lost_ids, evidence.revived_ids
    if lost:
        yield Difference(
            "deleted-and-added-again",
            f"hides ids {first_of(lost, IDS_LISTED)}",
            "their last event is an add",
            "The loader's list form drops every record of an id that is deleted anywhere, "
            "even if it was added again later.",
            Severity.WARNING,
        )
    if revived:
        yield Difference(
            "revived",
            f"shows ids {first_of(revived, IDS_LISTED)}",
            "they are deleted",
            "Deleted records come back to life.",
        )
