"""The differences between what the engine would do and what the bytes prove, for operators.

In: the analysis of all bytes and the engine's recovery. Out: `Difference`s.
"""

from __future__ import annotations

from tallystick.printable import counted
from tallystick.records import Difference, Outcome, Severity
from tallystick.systems.derby.engine.analysis import LogAnalysis
from tallystick.systems.derby.engine.result import Recovery
from tallystick.systems.derby.format.layout import instant_text
from tallystick.systems.derby.read.spans import ByteRange


def differences(analysis: LogAnalysis, recovery: Recovery) -> tuple[Difference, ...]:
    """Return every point in which the engine and the bytes differ."""
    found = []
    if analysis.lost_records:
        found.append(_dropped(analysis, recovery))
    elif analysis.damaged and recovery.may_boot:
        found.append(_unneeded(analysis.damaged[0], recovery))
    if recovery.boots is False:
        found.append(_no_boot(analysis, recovery))
    if recovery.depends:
        found.append(_undecided(recovery))
    if recovery.lost_file and recovery.may_boot:
        found.append(_lost_file(recovery))
    if recovery.new_log and recovery.may_boot:
        found.append(_new_log(recovery))
    if recovery.past_end and recovery.may_boot and not recovery.new_log:
        found.append(_past_end(recovery))
    return tuple(found)


def _dropped(analysis: LogAnalysis, recovery: Recovery) -> Difference:
    commits = len(analysis.lost_commits())
    end = recovery.log_end
    acknowledged = any(one.outcome is Outcome.CORRUPT for one in analysis.damaged)
    first = analysis.damaged[0] if analysis.damaged else None
    dropped = counted(commits, "committed transaction") if commits else "these records"
    return Difference(
        "records after the end of the log",
        f"takes {instant_text(end)} for the end of the log: {recovery.end_reason or 'end reached'}",
        f"after it: {counted(analysis.lost_records, 'record')}, among them "
        f"{counted(commits, 'commit')}",
        f"A restart drops {dropped} without an error"
        + (" and overwrites them with zeros" if recovery.fuzzy else "")
        + ". Copy the log folder before anything starts the database.",
        Severity.LOSS if acknowledged or commits else Severity.WARNING,
        first.file.path if first else None,
        first.offset if first else None,
    )


def _unneeded(one: ByteRange, recovery: Recovery) -> Difference:
    return Difference(
        "damage that recovery does not meet",
        f"starts at {instant_text(recovery.start)} and does not look there",
        f"{one.what} at {instant_text(one.place)}: {one.reason}",
        "A restart is not hurt by it. Something damaged the file, though; an archive or a backup "
        "that holds it could not be rolled forward.",
        Severity.DAMAGE,
        one.file.path,
        one.offset,
    )


def _no_boot(analysis: LogAnalysis, recovery: Recovery) -> Difference:
    return Difference(
        "boot",
        f"does not boot: {recovery.reason}",
        f"{counted(analysis.records['valid'], 'record')} intact",
        "The database does not start. Keep the log folder as it is; deleting it loses every change "
        "that is not in the data files yet.",
        Severity.LOSS,
        refuses=True,
    )


def _undecided(recovery: Recovery) -> Difference:
    return Difference(
        "boot",
        f"boots or not: {recovery.reason}",
        f"the log alone does not tell; {recovery.depends} decides",
        "Whether the database starts cannot be told from the log. Copy the whole database before "
        "anything starts it.",
        Severity.WARNING,
    )


def _lost_file(recovery: Recovery) -> Difference:
    name = f"log{recovery.lost_file}.dat"
    return Difference(
        "the last log file",
        f"takes {instant_text(recovery.log_end)} for the end of the log: {recovery.end_reason}",
        f"an end marker is written only when the next file exists: {name} is missing",
        f"A restart drops what {name} held, if anything, without an error. Look for it before "
        "anything starts the database; only a backup of a database that archives its "
        "log leaves it out.",
        Severity.DAMAGE,
    )


def _new_log(recovery: Recovery) -> Difference:
    return Difference(
        "the log",
        recovery.reason,
        "the changes since the last checkpoint stand nowhere else",
        "The database starts, with one line of warning, and every change that is not in the data "
        "files is gone.",
        Severity.LOSS,
    )


def _past_end(recovery: Recovery) -> Difference:
    return Difference(
        "undo against newer pages",
        f"redoes up to {instant_text(recovery.log_end)} and undoes what is open there",
        f"the checkpoint at {instant_text(recovery.checkpoint)} says that the pages are newer",
        "Undo would work on pages that already hold later changes; whole tables can vanish.",
        Severity.LOSS,
    )
