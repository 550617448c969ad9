"""Report what an operator should know of a journal, each with its place.

In: an `Evidence`. Out: `Finding`s: differences first, then damage, files, transactions.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from tallystick.records import Finding, Severity, State
from tallystick.systems.findings import FindingBuilder
from tallystick.systems.jboss.codes import CODES
from tallystick.systems.jboss.format.layout import SYSTEM_NAME, RecordType
from tallystick.systems.jboss.read.analysis import GONE_MAX, Analysis
from tallystick.systems.jboss.read.files import JournalFiles
from tallystick.systems.jboss.read.spans import never_begun
from tallystick.systems.jboss.read.transactions import transactions
from tallystick.systems.jboss.verdict.differences import Evidence, differences

_OPEN_STATES = {
    State.INCOMPLETE: ("incomplete-transaction", "is thrown away at a restart"),
    State.ACTIVE: ("open-transaction", "never ended and is thrown away at a restart"),
    State.PREPARED: ("in-doubt", "is in doubt: its coordinator must decide"),
}
_ACKNOWLEDGED = (RecordType.COMMIT.name, RecordType.PREPARE.name)
"""What the journal acknowledges once it is written, with all elements before it."""


def findings(evidence: Evidence, *, beside_newer: bool = False) -> Iterator[Finding]:
    """Yield all findings of a journal; ``beside_newer``: files of Artemis lie beside HornetQ's."""
    build = FindingBuilder(SYSTEM_NAME, evidence.log, CODES)
    analysis = evidence.analysis
    yield from _differences(build, evidence)
    yield from _damaged(build, analysis)
    yield from _same_ids(build, analysis)
    yield from _missing(build, analysis)
    yield from _transactions(build, analysis)
    yield from _leftovers(build, evidence.journal)
    if beside_newer:
        text = "Artemis, whose files lie in the same folder, never reads these files of HornetQ."
        yield build("older-generation", text, file=evidence.journal.files[0].path)


def _differences(build: FindingBuilder, evidence: Evidence) -> Iterator[Finding]:
    for one in differences(evidence):
        dropped = evidence.analysis.dropped if one.what.startswith("records-") else ()
        yield build(
            one.what,
            f"{one.meaning} The loader {one.engine}; {one.strict}.",
            severity=one.severity,
            file=one.file,
            offset=one.offset,
            bytes_at_risk=sum(placed.item.length for placed in dropped),
        )


def _damaged(build: FindingBuilder, analysis: Analysis) -> Iterator[Finding]:
    for code, damaged in (("damaged-record", analysis.damage), ("torn-record", analysis.torn)):
        for damage in damaged:
            yield build(
                code,
                f"A record cannot be used: {damage.reason}.",
                file=damage.path,
                offset=damage.offset,
                length=damage.length,
                bytes_at_risk=damage.length if code == "damaged-record" else 0,
            )


def _same_ids(build: FindingBuilder, analysis: Analysis) -> Iterator[Finding]:
    """Yield files of one id: a copy, or a damaged header. HornetQ loads them in directory order."""
    for before, one in pairwise(analysis.readings):
        if one.file.file_id == before.file.file_id == one.effective_id:
            yield build(
                "same-file-id",
                f"{before.file.name} and {one.file.name} both have the id {one.effective_id}: "
                "which is loaded first can differ from machine to machine.",
                file=one.file.path,
                offset=0,
            )


def _missing(build: FindingBuilder, analysis: Analysis) -> Iterator[Finding]:
    for number, placed in analysis.orphan_updates.items():
        yield build(
            "update-without-add",
            f"Record {number} is live and was updated, but its add is nowhere: the file that held "
            "it is gone, and a file with a live record is never reclaimed.",
            file=placed.path,
            offset=placed.item.offset,
        )
    if gone := analysis.missing_ids():
        listed = ", ".join(str(number) for number in gone[:GONE_MAX])
        yield build(
            "missing-file-ids",
            f"No file has the ids {listed}{' and more' if len(gone) > GONE_MAX else ''}: "
            "reclaimed, compacted, or lost.",
        )


def _transactions(build: FindingBuilder, analysis: Analysis) -> Iterator[Finding]:
    for one in transactions(build.log, analysis):
        if one.state not in _OPEN_STATES:
            continue
        code, what = _OPEN_STATES[one.state]
        ended = one.state is State.INCOMPLETE and one.evidence_type in _ACKNOWLEDGED
        file, offset = one.evidence or (None, None)
        yield build(
            code,
            f"Transaction {one.transaction} {what}{': ' if one.holes else ''}{one.holes}.",
            severity=Severity.DAMAGE if ended else None,
            file=file,
            offset=offset,
            bytes_at_risk=one.bytes if ended else 0,
            gtrid=one.gtrid,
        )


def _leftovers(build: FindingBuilder, journal: JournalFiles) -> Iterator[Finding]:
    for path, role in journal.leftovers.items():
        yield build(
            "compaction-leftover",
            f"A {role}: a restart carries the compaction out or drops it, and deletes this file.",
            file=path,
        )
    for file in journal.files:
        if file.header is None:
            yield build(
                "short-file",
                "The file is shorter than its header; Artemis deletes it, older code refuses.",
                file=file.path,
                length=file.size,
            )
        elif never_begun(file.head):
            yield build(
                "file-without-header",
                "The file was created and filled, and its header never written: a crash came "
                "between. HornetQ and Artemis refuse to start with it.",
                file=file.path,
            )
