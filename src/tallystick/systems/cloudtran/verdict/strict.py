"""Both judgements of a block log, from its survey.

The engine's is what the documented rules do at a start, once for each policy on damage; the
strict one adds what the numbers of blocks and transactions prove. The rules speak up about
nearly everything themselves, so the two part only where an operator chose to go on, or where
the rules cannot know.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tallystick.records import Difference, Finding, Severity
from tallystick.systems.cloudtran.format.entries import EntryKind
from tallystick.systems.cloudtran.format.layout import SYSTEM_NAME
from tallystick.systems.cloudtran.read.analysis import (
    LOST_AT_END,
    MISSING_BLOCKS,
    MISSING_FILE,
    STALE_TAIL,
    TORN_TAIL,
    UNREADABLE,
    Loss,
    Remark,
    Survey,
)

_GAPS_SHOWN_MAX = 100


def engine_verdict(survey: Survey) -> dict[str, Any]:
    """What a start does under both policies, in the oracle's words."""
    return {"stop_policy": _stop_policy(survey), "report_policy": _report_policy(survey)}


def _stop_policy(survey: Survey) -> dict[str, Any]:
    if not survey.losses:
        return {"ok": True}
    loss = survey.losses[0]
    return {"ok": False, "error": loss.state, "file": loss.name, "offset": loss.offset}


def _report_policy(survey: Survey) -> dict[str, Any]:
    names = [part.name for part in survey.parts]
    redundant = [name for name, flag in zip(names, survey.redundant(), strict=True) if flag]
    return {
        "pending": [
            {"txid": number, "targets": one.pending, "operations": one.operations}
            for number, one in sorted(survey.open.items())
        ],
        "lost": [_loss_json(loss) for loss in survey.losses],
        "warnings": [
            {"code": remark.code, "file": remark.name, "offset": remark.offset}
            for remark in survey.remarks
        ],
        "redundant": redundant,
        "disposable": names[: survey.disposable()],
    }


def _loss_json(loss: Loss) -> dict[str, Any]:
    row: dict[str, Any] = {
        "file": loss.name,
        "offset": loss.offset,
        "state": loss.state,
        "blocks": loss.blocks,
    }
    if loss.suspects is not None:
        row["count"] = loss.count
        row["suspects"] = [
            {"kind": suspect.kind.name.lower(), "txid": suspect.number} for suspect in loss.suspects
        ]
    return row


def strict_verdict(
    survey: Survey, outcomes: Mapping[str, int], found: Sequence[Finding]
) -> dict[str, Any]:
    """What the bytes prove; ``in_doubt`` has the transactions that a target may or may not hold."""
    closed = len(survey.closed)
    return {
        "records": {outcome: count for outcome, count in outcomes.items() if count},
        "transactions": {"pending": len(survey.open), "committed": closed},
        "in_doubt": [
            {"transaction": number, "targets": one.pending}
            for number, one in sorted(survey.open.items())
        ],
        "lost": [_loss_json(loss) for loss in survey.losses]
        + [{"transactions": [one[0], one[-1]]} for one in lost_numbers(survey)],
        "findings": dict(Counter(finding.code for finding in found)),
    }


# -- findings ----------------------------------------------------------------------------

_LOSS_WORDS = {
    "payload-damaged": "a block of {count} entries is damaged: its checksum fails",
    "both-headers-damaged": "both headers of a block are damaged; {blocks} block(s) cannot be read",
    LOST_AT_END: "{blocks} acknowledged block(s) are missing at the end of this file",
    MISSING_BLOCKS: "{blocks} block(s) before this one are missing from the log",
    UNREADABLE: "the file could not be read",
}
_REMARK_WORDS = {
    "first-header-damaged": "the first header of a block is damaged; the data is whole",
    "second-header-damaged": "the second header of a block is damaged; the data is whole",
    "both-headers-repaired": "both headers of a block are damaged; together they give its data",
    TORN_TAIL: "the file ends in a write that never finished",
    STALE_TAIL: "what follows is left over from an earlier life of the file; it is ignored",
    MISSING_FILE: "a file before this one is missing from the series",
}


def findings(survey: Survey, log: str) -> list[Finding]:
    """Losses first, then remarks, then what the transaction numbers prove."""
    paths = {part.name: part.path for part in survey.parts}
    found = [_loss_finding(loss, log, paths[loss.name]) for loss in survey.losses]
    found += [_remark_finding(remark, log, paths[remark.name]) for remark in survey.remarks]
    if gaps := lost_numbers(survey):
        found.append(_gap_finding(gaps, log))
    return found


def _loss_finding(loss: Loss, log: str, path: str) -> Finding:
    blocks = "an unknown number of" if loss.blocks is None else loss.blocks
    words = _LOSS_WORDS[loss.state].format(count=loss.count, blocks=blocks)
    return Finding(
        loss.state,
        Severity.LOSS,
        SYSTEM_NAME,
        log,
        words,
        file=path,
        offset=loss.offset,
        found=_suspects_text(loss) or None,
        advice="Copy the directory before anything else; a start stops here, and with "
        "on_damage=report it goes on without these entries",
    )


def _suspects_text(loss: Loss) -> str:
    return ", ".join(f"{one.kind.name.lower()} {one.number}" for one in loss.suspects or ())


def _remark_finding(remark: Remark, log: str, path: str) -> Finding:
    damaged = remark.code not in (TORN_TAIL, STALE_TAIL)
    return Finding(
        remark.code,
        Severity.DAMAGE if damaged else Severity.WARNING,
        SYSTEM_NAME,
        log,
        _REMARK_WORDS[remark.code],
        file=path,
        offset=remark.offset,
    )


def _gap_finding(gaps: list[range], log: str) -> Finding:
    return Finding(
        "missing-transactions",
        Severity.LOSS,
        SYSTEM_NAME,
        log,
        "transactions were logged and cannot be read any more: " + numbers_text(gaps),
        advice="Look for them in the application by their numbers or references",
    )


def lost_numbers(survey: Survey) -> list[range]:
    """Transaction numbers that no readable entry has although greater and smaller ones do.

    Told only where blocks are lost: a number can also have gone to a commit that was refused.
    """
    return list(survey.seen.gaps()) if survey.losses else []


def numbers_text(ranges: list[range]) -> str:
    """``3, 7-9`` and so on, cut where it would fill a page."""
    texts = [str(one[0]) if len(one) == 1 else f"{one[0]}-{one[-1]}" for one in ranges]
    more = len(texts) - _GAPS_SHOWN_MAX
    return ", ".join(texts[:_GAPS_SHOWN_MAX]) + (f" and {more} more ranges" if more > 0 else "")


# -- where the two part ------------------------------------------------------------------


def differences(survey: Survey) -> list[Difference]:
    """What a start does without a word, or with less than the bytes prove."""
    paths = {part.name: part.path for part in survey.parts}
    found = [_loss_difference(survey, loss, paths[loss.name]) for loss in survey.losses]
    if gaps := lost_numbers(survey):
        text = numbers_text(gaps)
        found.append(
            Difference(
                "transactions behind the damage",
                "counts lost blocks, not transactions",
                f"never seen although later ones are there: {text}",
                f"a start with on_damage=report never applies {text}, and says so nowhere",
            )
        )
    found += [_tail_difference(one, paths[one.name]) for one in _newest_torn(survey)]
    return found


def _loss_difference(survey: Survey, loss: Loss, path: str) -> Difference:
    again = sorted(
        one.number
        for one in loss.suspects or ()
        if one.kind is EntryKind.PERSISTED and one.number in survey.open
    )
    if again and all(one.kind is EntryKind.PERSISTED for one in loss.suspects or ()):
        numbers = ", ".join(map(str, again))
        return Difference(
            "transactions come back",
            f"applies {numbers} again",
            f"the damaged entries said that {numbers} had reached their targets",
            "harmless where applying is idempotent; otherwise look before replaying",
            Severity.WARNING,
            path,
            loss.offset,
        )
    return Difference(
        loss.state,
        "refuses to start; with on_damage=report it goes on without",
        _LOSS_WORDS[loss.state].format(count=loss.count, blocks=loss.blocks or "some"),
        f"going on loses for good: {_suspects_text(loss) or 'entries that cannot be named'}",
        Severity.LOSS,
        path,
        loss.offset,
        refuses=True,
    )


def _newest_torn(survey: Survey) -> list[Remark]:
    newest = survey.parts[-1].name if survey.parts else None
    torn = [one for one in survey.remarks if one.code == TORN_TAIL and one.name == newest]
    charged = {(loss.name, loss.offset) for loss in survey.losses}
    return [one for one in torn if (one.name, one.offset) not in charged]


def _tail_difference(remark: Remark, path: str) -> Difference:
    return Difference(
        "end of the newest file",
        "takes it for a write that never finished, with a warning",
        "cannot be told from a last write that was acknowledged and cut off later",
        "if the disk was damaged rather than the power lost, the last commits are gone",
        Severity.WARNING,
        path,
        remark.offset,
    )
