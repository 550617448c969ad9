"""What a person should know of a journal, each with its evidence.

In: a `Judgement`. Out: `Finding`s, by severity of what they tell.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from tallystick.records import Finding, Severity, State
from tallystick.systems.jboss.format.layout import SYSTEM_NAME, Name
from tallystick.systems.jboss.read.analysis import Damage
from tallystick.systems.jboss.read.transactions import Judgement, transactions
from tallystick.systems.jboss.verdict.strict import GONE_MAX, differences, missing_ids

_ADVICE = {
    "records-appended": "Copy the journal now; export it with --salvage before any restart",
    "records-unheaded": "Copy the journal now; export it with --salvage before any restart",
    "partial-transaction": "Find out from the application what the transaction did, and repair it",
    "load": "Copy the journal, then repair or remove what the message names",
    "deleted-and-added-again": "An application should never use an id again",
}


def findings(judgement: Judgement) -> Iterator[Finding]:
    """All findings of a journal."""
    for one in differences(judgement):
        yield Finding(
            one.what,
            one.severity,
            SYSTEM_NAME,
            judgement.path,
            f"{one.meaning} The loader {one.engine}; {one.strict}.",
            file=one.file,
            offset=one.offset,
            advice=_ADVICE.get(one.what),
            bytes_at_risk=_at_risk(judgement, one.what),
        )
    for hurt in judgement.analysis.damage:
        yield _damaged(judgement, hurt, "damaged-record", Severity.DAMAGE)
    for hurt in judgement.analysis.torn:
        yield _damaged(judgement, hurt, "torn-record", Severity.INFO)
    yield from _twins(judgement)
    yield from _missing(judgement)
    yield from _transactions(judgement)
    yield from _aside(judgement)


def _at_risk(judgement: Judgement, what: str) -> int:
    if not what.startswith("records-"):
        return 0
    return sum(placed.item.length for placed in judgement.analysis.dropped)


def _damaged(judgement: Judgement, hurt: Damage, code: str, severity: Severity) -> Finding:
    return Finding(
        code,
        severity,
        SYSTEM_NAME,
        judgement.path,
        f"A record cannot be used: {hurt.reason}.",
        file=hurt.path,
        offset=hurt.offset,
        length=hurt.length,
        advice=None if severity is Severity.INFO else "Compare with a copy or a replica",
        bytes_at_risk=0 if severity is Severity.INFO else hurt.length,
    )


def _twins(judgement: Judgement) -> Iterator[Finding]:
    """Files of one id: a copy, or a damaged header. Their order is the directory's in HornetQ."""
    for before, one in pairwise(judgement.analysis.readings):
        if one.file.file_id() == before.file.file_id() == one.effective_id:
            yield Finding(
                "same-file-id",
                Severity.WARNING,
                SYSTEM_NAME,
                judgement.path,
                f"{before.file.name} and {one.file.name} both have the id {one.effective_id}: "
                "which is loaded first can differ from machine to machine.",
                file=one.file.path,
                offset=0,
                advice="If one is a copy, take it away; if a header is damaged, repair it",
            )


def _missing(judgement: Judgement) -> Iterator[Finding]:
    for number, placed in judgement.analysis.orphan_updates.items():
        yield Finding(
            "update-without-add",
            Severity.LOSS,
            SYSTEM_NAME,
            judgement.path,
            f"Record {number} is live and was updated, but its add is nowhere: the file that held "
            "it is gone, and a file with a live record is never reclaimed.",
            file=placed.path,
            offset=placed.item.offset,
            advice="Look for the missing file in backups",
        )
    gone = missing_ids(judgement)
    if gone:
        listed = ", ".join(str(number) for number in gone[:GONE_MAX])
        yield Finding(
            "missing-file-ids",
            Severity.INFO,
            SYSTEM_NAME,
            judgement.path,
            f"No file has the ids {listed}{' and more' if len(gone) > GONE_MAX else ''}: "
            "reclaimed, compacted, or lost.",
        )


def _transactions(judgement: Judgement) -> Iterator[Finding]:
    texts = {
        State.INCOMPLETE: ("incomplete-transaction", "is thrown away at a restart"),
        State.ACTIVE: ("open-transaction", "never ended and is thrown away at a restart"),
        State.PREPARED: ("in-doubt", "is in doubt: its coordinator must decide"),
    }
    for one in transactions(judgement):
        if one.state not in texts:
            continue
        code, what = texts[one.state]
        ended = one.state is State.INCOMPLETE and one.evidence_type == Name.COMMIT.name
        file, offset = one.evidence or (None, None)
        yield Finding(
            code,
            Severity.DAMAGE if ended else Severity.INFO,
            SYSTEM_NAME,
            judgement.path,
            f"Transaction {one.transaction} {what}{': ' if one.holes else ''}{one.holes}.",
            file=file,
            offset=offset,
            bytes_at_risk=one.bytes if ended else 0,
            gtrid=one.gtrid,
        )


def _aside(judgement: Judgement) -> Iterator[Finding]:
    for path, role in judgement.journal.aside.items():
        yield Finding(
            "compaction-leftover",
            Severity.WARNING,
            SYSTEM_NAME,
            judgement.path,
            f"A {role}: a restart carries the compaction out or drops it, and deletes this file.",
            file=path,
        )
    for file in judgement.journal.files:
        if file.header is None:
            yield Finding(
                "short-file",
                Severity.WARNING,
                SYSTEM_NAME,
                judgement.path,
                "The file is shorter than its header; Artemis deletes it, older code refuses.",
                file=file.path,
                length=file.size,
            )
        elif file.size and file.head in (b"J" * len(file.head), bytes(len(file.head))):
            yield Finding(
                "file-without-header",
                Severity.WARNING,
                SYSTEM_NAME,
                judgement.path,
                "The file was created and filled, and its header never written: a crash came "
                "between. HornetQ and Artemis refuse to start with it.",
                file=file.path,
                advice="It holds nothing; remove it after a copy",
            )
