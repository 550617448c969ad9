"""Findings about a block log: losses, warnings, and missing transaction numbers.

In: the `LogAnalysis` of the files. Out: a `Finding` each, with file and offset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tallystick.errors import LogUnreadableError
from tallystick.records import Finding, Severity
from tallystick.systems.cloudtran.codes import ADVICE_ON_LOSS
from tallystick.systems.cloudtran.runs.analysis import (
    LOST_AT_END,
    MISSING_BLOCKS,
    MISSING_FILE,
    STALE_TAIL,
    TORN_TAIL,
    UNREADABLE,
    LogAnalysis,
    LogWarning,
    Loss,
)
from tallystick.systems.findings import FindingBuilder

_GAPS_SHOWN_MAX = 100
_LOSS_WORDS = {
    "payload-damaged": "a block of {count} entries is damaged: its checksum fails",
    "both-headers-damaged": "both headers of a block are damaged; {blocks} block(s) cannot be read",
    LOST_AT_END: "{blocks} acknowledged block(s) that came after this place are missing",
    MISSING_BLOCKS: "{blocks} block(s) before this one are missing from the log",
    UNREADABLE: "the file could not be read",
}
_WARNING_WORDS = {
    "first-header-damaged": "the first header of a block is damaged; the data is whole",
    "second-header-damaged": "the second header of a block is damaged; the data is whole",
    "both-headers-repaired": "both headers of a block are damaged; together they give its data",
    "unfinished-tail": "the last write of the file did not finish; its data is whole and is used",
    TORN_TAIL: "the file ends in a block that is not whole",
    STALE_TAIL: "what follows is left over from an earlier life of the file; it is ignored",
    MISSING_FILE: "a file before this one is missing from the series",
}


def findings(
    analysis: LogAnalysis, build: FindingBuilder, errors: Mapping[str, LogUnreadableError]
) -> list[Finding]:
    """Return losses first, then warnings, then what the transaction numbers prove.

    ``errors`` are those of the files that cannot be read, by path.
    """
    paths = {file.name: file.path for file in analysis.files}
    found = [
        _unreadable_finding(errors[path], build)
        if loss.state == UNREADABLE
        else _loss_finding(loss, build, path)
        for loss, path in ((loss, paths.get(loss.name, "")) for loss in analysis.losses)
    ]
    found += [_warning_finding(one, build, paths[one.name]) for one in analysis.warnings]
    if gaps := lost_numbers(analysis):
        text = "transactions were logged and cannot be read any more: " + numbers_text(gaps)
        found.append(build("missing-transactions", text))
    return found


def _unreadable_finding(error: LogUnreadableError, build: FindingBuilder) -> Finding:
    """Return what the error says, as a loss: a start does not have the file's blocks either."""
    found = build.unreadable(error)
    advice = found.advice or build.table[UNREADABLE].advice
    return replace(found, severity=Severity.LOSS, advice=advice)


def _loss_finding(loss: Loss, build: FindingBuilder, path: str) -> Finding:
    blocks = "an unknown number of" if loss.blocks is None else loss.blocks
    return build(
        loss.state,
        loss_text(loss, blocks),
        severity=Severity.LOSS,
        file=path,
        offset=loss.offset,
        found=loss.suspects_text or None,
        advice=ADVICE_ON_LOSS,
    )


def loss_text(loss: Loss, blocks: int | str) -> str:
    """Return a loss in words, with ``blocks`` as the number of blocks."""
    return _LOSS_WORDS[loss.state].format(count=loss.count, blocks=blocks)


def _warning_finding(warning: LogWarning, build: FindingBuilder, path: str) -> Finding:
    return build(warning.code, _WARNING_WORDS[warning.code], file=path, offset=warning.offset)


def lost_numbers(analysis: LogAnalysis) -> list[range]:
    """Return transaction numbers that no readable entry has, between numbers that entries have.

    Empty unless blocks are lost: a number can also belong to a commit that was refused.
    """
    return list(analysis.seen.gaps()) if analysis.losses else []


def numbers_text(ranges: list[range]) -> str:
    """Return ``3, 7-9`` and so on, cut after `_GAPS_SHOWN_MAX` ranges."""
    # A range of more than 2^63 numbers has no len().
    pairs = [(one.start, one.stop - 1) for one in ranges]
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in pairs]
    more = len(texts) - _GAPS_SHOWN_MAX
    return ", ".join(texts[:_GAPS_SHOWN_MAX]) + (f" and {more} more ranges" if more > 0 else "")
