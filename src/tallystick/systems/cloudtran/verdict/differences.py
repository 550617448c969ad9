"""What a start does without a message, or with less than the bytes prove.

In: the `LogAnalysis` of the files. Out: `Difference`s. The documented rules report nearly
everything themselves, so the verdicts differ only where an operator chose to go on, or where the
rules cannot know.
"""

from __future__ import annotations

from tallystick.records import Difference, Severity
from tallystick.systems.cloudtran.format.entries import EntryKind
from tallystick.systems.cloudtran.runs.analysis import TORN_TAIL, LogAnalysis, LogWarning, Loss
from tallystick.systems.cloudtran.verdict.findings import loss_text, lost_numbers, numbers_text


def differences(analysis: LogAnalysis) -> list[Difference]:
    """Return what a start does without a message, or with less than the bytes prove."""
    paths = {file.name: file.path for file in analysis.files}
    found = [_loss_difference(analysis, loss, paths.get(loss.name, "")) for loss in analysis.losses]
    if gaps := lost_numbers(analysis):
        text = numbers_text(gaps)
        found.append(
            Difference(
                "transactions after the damage",
                "counts lost blocks, not transactions",
                f"never seen although later ones are there: {text}",
                f"a start with on_damage=report never applies {text}, and says so nowhere",
            )
        )
    found += [_tail_difference(one, paths[one.name]) for one in _newest_torn(analysis)]
    return found


def _loss_difference(analysis: LogAnalysis, loss: Loss, path: str) -> Difference:
    again = sorted(
        one.number
        for one in loss.suspects or ()
        if one.kind is EntryKind.PERSISTED and one.number in analysis.open
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
        loss_text(loss, loss.blocks or "some"),
        f"going on loses for good: {loss.suspects_text or 'entries that cannot be named'}",
        Severity.LOSS,
        path,
        loss.offset,
        refuses=True,
    )


def _newest_torn(analysis: LogAnalysis) -> list[LogWarning]:
    newest = analysis.files[-1].name if analysis.files else None
    torn = [one for one in analysis.warnings if one.code == TORN_TAIL and one.name == newest]
    charged = {(loss.name, loss.offset) for loss in analysis.losses}
    return [one for one in torn if (one.name, one.offset) not in charged]


def _tail_difference(warning: LogWarning, path: str) -> Difference:
    return Difference(
        "end of the newest file",
        "takes it for a write that never finished, with a warning",
        "cannot be told from a last write that was acknowledged and cut off later",
        "if the disk was damaged rather than the power lost, the last commits are gone",
        Severity.WARNING,
        path,
        warning.offset,
    )
