"""Both verdicts of a journal, and where they part, in words.

In: a `Judgement`: what the bytes prove, and what the journal's own loader makes of them. Out: the
`Verdict` with its differences.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from tallystick.records import Difference, Finding, Outcome, Severity, State, Transaction, Verdict
from tallystick.systems.jboss.format.layout import SYSTEM_NAME, Name
from tallystick.systems.jboss.read.analysis import Analysis
from tallystick.systems.jboss.read.replay import Ended, Placed
from tallystick.systems.jboss.read.transactions import (
    Judgement,
    damaged_elements,
    lost_elements,
    missing_files,
    transactions,
)

GONE_MAX = 64
"""Missing file ids are named up to this many."""


def verdict(judgement: Judgement, findings: list[Finding], format_name: str) -> Verdict:
    """Both verdicts side by side."""
    return Verdict(
        SYSTEM_NAME,
        judgement.path,
        format_name,
        judgement.engine.to_dict(),
        _strict(judgement, findings),
        tuple(differences(judgement)),
    )


def _strict(judgement: Judgement, findings: list[Finding]) -> dict[str, Any]:
    analysis = judgement.analysis
    every = list(transactions(judgement))
    return {
        "records": {outcome.value: analysis.outcomes[outcome] for outcome in Outcome},
        "transactions": dict(Counter(one.state.value for one in every)),
        "in_doubt": [_in_doubt(one) for one in every if one.state is State.PREPARED],
        "lost": list(_lost(judgement, every)),
        "findings": dict(Counter(finding.code for finding in findings)),
        "live_records": sum(len(records) for records in analysis.live.values()),
        "missing_file_ids": missing_ids(judgement)[:GONE_MAX],
    }


def _in_doubt(one: Transaction) -> dict[str, Any]:
    return {
        "transaction": one.transaction,
        "format_id": one.format_id,
        "gtrid": one.gtrid,
        "bqual": one.bqual,
        "complete": one.complete,
    }


def _lost(judgement: Judgement, every: list[Transaction]) -> Iterator[dict[str, Any]]:
    if judgement.engine.error:
        yield {"what": "everything", "why": f"the load stops: {judgement.engine.error}"}
    for placed in judgement.analysis.dropped:
        yield {
            "what": "record",
            "id": placed.item.record_id,
            "transaction": placed.item.transaction,
            "file": placed.path,
            "offset": placed.item.offset,
            "why": "whole, but the loader does not see it",
        }
    for one in every:
        if one.holes and one.state in (State.COMMITTED, State.PREPARED):
            yield {"what": "elements", "transaction": one.transaction, "why": one.holes}


def missing_ids(judgement: Judgement) -> list[int]:
    """File ids between the lowest and the highest that no file has, at most `GONE_MAX` + 1."""
    ids = sorted({one.effective_id for one in judgement.analysis.readings})
    gone: list[int] = []
    for before, after in pairwise(ids):
        gone += range(before + 1, min(after, before + GONE_MAX + 2))
        if len(gone) > GONE_MAX:
            break
    return gone[: GONE_MAX + 1]


def differences(judgement: Judgement) -> Iterator[Difference]:
    """Where a restart does something else than the bytes say."""
    engine, analysis = judgement.engine, judgement.analysis
    if engine.error:
        yield Difference(
            "load",
            f"gives up: {engine.error}",
            f"{analysis.outcomes[Outcome.VALID]} whole records can be read",
            "The journal would not start. Nothing is lost yet, but nothing is available either.",
            Severity.DAMAGE,
            refuses=True,
        )
        return
    yield from _dropped(analysis)
    for ended in analysis.ended:
        if ended.complete and ended.known and ended.end.item.name is Name.COMMIT:
            yield from _partial(judgement, ended)
    replay = analysis.replay
    for one in replay.in_doubt() if replay is not None else ():
        if one.prepared is not None and (holes := missing_files(judgement, one.prepared.item)):
            yield _partly(one.prepared, "is in doubt with what is left of it", holes, Severity.LOSS)
    yield from _ids(judgement)


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


def _partial(judgement: Judgement, ended: Ended) -> Iterator[Difference]:
    engine = "is applied with the rest of its elements"
    if holes := damaged_elements(judgement, ended):
        yield _partly(ended.end, engine, holes, Severity.LOSS)
    elif holes := lost_elements(judgement, ended):
        yield _partly(ended.end, engine, holes, Severity.WARNING)


def _partly(end: Placed, engine: str, holes: str, severity: Severity) -> Difference:
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


def _ids(judgement: Judgement) -> Iterator[Difference]:
    if judgement.analysis.dropped:
        return
    lost, revived = judgement.lost_ids(), judgement.revived_ids()
    if lost:
        yield Difference(
            "deleted-and-added-again",
            f"hides ids {_some(lost)}",
            "their last event is an add",
            "The loader's list form drops every record of an id that is deleted anywhere, "
            "even if it was added again later.",
            Severity.WARNING,
        )
    if revived:
        yield Difference(
            "revived",
            f"shows ids {_some(revived)}",
            "they are deleted",
            "Deleted records come back to life.",
        )


def _some(ids: list[int]) -> str:
    text = ", ".join(str(number) for number in ids[:10])
    return text if len(ids) <= 10 else f"{text} and {len(ids) - 10} more"
