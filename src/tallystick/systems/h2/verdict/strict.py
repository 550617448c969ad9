"""What the bytes of one file prove, and both judgements put together.

In: an `EngineResult` and the findings. Out: a `Verdict` whose engine part has the oracle's keys.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from tallystick.records import Deferred, Finding, Judgement, Outcome, Severity, State, Verdict
from tallystick.storage.source import logical_name
from tallystick.systems.answers import judgement_of
from tallystick.systems.h2.codes import CODES, REASONS
from tallystick.systems.h2.engine.opening import EngineResult
from tallystick.systems.h2.engine.report import engine_part
from tallystick.systems.h2.format.layout import SYSTEM_NAME
from tallystick.systems.h2.read.transactions import LoggedTransaction
from tallystick.systems.h2.verdict.answer import grounds
from tallystick.systems.h2.verdict.differences import differences
from tallystick.systems.h2.verdict.losses import lost_with
from tallystick.systems.held_back import held_back


def verdict_of(result: EngineResult, log: str, form: str, findings: Sequence[Finding]) -> Verdict:
    """Return the verdict of one file; ``form`` is the version of its format."""
    return Verdict(
        SYSTEM_NAME,
        log,
        form,
        Deferred(partial(engine_part, result)),
        strict_part(result, findings),
        differences(findings),
        judgement(result, findings),
    )


def judgement(result: EngineResult, findings: Sequence[Finding]) -> Judgement:
    """Return the answer about the file.

    The engine writes two copies of its header for the damage of one, and goes by the other. Where
    that names a log, damage to the first one decides nothing; where it names none, that may have.
    """
    decided = "header-copy-damaged" if _names_log(result) else None
    asked = [one for one in findings if one.code != decided]
    return judgement_of(REASONS, CODES, grounds(result, findings), asked)


def _names_log(result: EngineResult) -> bool:
    header = result.file.header
    return header is not None and bool(header.first_trunk or header.first_data)


def unreadable_verdict(log: str, form: str, finding: Finding) -> Verdict:
    """Return the verdict of a file that cannot be read."""
    strict = {
        "records": {},
        "transactions": {},
        "in_doubt": [],
        "lost": {"records": 0, "rows": 0, "ends": []},
        "findings": {finding.code: 1},
    }
    judgement = judgement_of(REASONS, CODES, (), [finding])
    return Verdict(SYSTEM_NAME, log, form, {}, strict, judgement=judgement)


def strict_part(result: EngineResult, findings: Sequence[Finding]) -> dict[str, Any]:
    """Count records and transactions; list what is in doubt and what a restart would lose."""
    digest = result.digest
    records = Counter() if digest is None else digest.outcomes
    states = Counter() if digest is None else digest.states
    return {
        "records": {outcome.value: records[outcome] for outcome in Outcome if records[outcome]},
        "transactions": {one.value: states[one] for one in State if states[one]},
        "in_doubt": [] if digest is None else [_in_doubt(one) for one in digest.prepared],
        "lost": _lost(result, findings),
        "findings": dict(sorted(Counter(one.code for one in findings).items())),
        "opens": result.opening.opened,
        "redo": _redo_bytes(result),
    } | _held_back(result)


def _held_back(result: EngineResult) -> dict[str, Any]:
    """Return what the oldest open transaction holds: the log pages from its first record on.

    A checkpoint frees the pages before it, but for these. So a transaction of the last section
    holds nothing back.
    """
    stream, recovery = result.file.stream, result.recovery
    oldest = None if result.digest is None else result.digest.oldest
    if stream is None or recovery is None or oldest is None:
        return {}
    section, start = oldest.begin
    if recovery.last_section is None or section >= recovery.last_section:
        return {}
    pages = len(stream.data_pages) - start // stream.body_size
    name = f"transaction {oldest.name}, " if oldest.name else ""
    return {
        "held_back": held_back(
            f"{name}session {oldest.session}",
            logical_name(stream.pages.file).rpartition("/")[2],
            stream.file_offset(start),
            [pages * stream.pages.page_size],
        )
    }


def _redo_bytes(result: EngineResult) -> int | None:
    """Return how many bytes of log pages an opening reads; None where it reads none."""
    stream = result.file.stream
    if stream is None or result.redo is None:
        return None
    return len(stream.data_pages) * stream.pages.page_size


def _in_doubt(one: LoggedTransaction) -> dict[str, Any]:
    """Return a transaction in doubt as the verdict lists it."""
    form: dict[str, Any] = {
        "transaction": one.name,
        "session": one.session,
        "changes": one.count,
    }
    xid = one.xid
    if xid is not None:
        form |= {"format_id": xid.format_id, "gtrid": xid.gtrid, "bqual": xid.bqual}
    return form


def _lost(result: EngineResult, findings: Sequence[Finding]) -> dict[str, Any]:
    """Count commits as ``records``, at least; a loss whose size is not known counts as one."""
    losses = [one for one in findings if one.severity is Severity.LOSS]
    # What a file that was cut has lost is gone: a restart loses no more of it.
    counted = [lost_with(result, one.code) for one in losses if one.code != "file-cut-short"]
    return {
        "records": sum(max(1, one.commits) for one in counted),
        "rows": sum(one.rows for one in counted),
        "ends": [_loss(one) for one in losses],
    }


def _loss(finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "what": finding.message,
        "offset": finding.offset,
        "bytes_at_risk": finding.bytes_at_risk,
    }
