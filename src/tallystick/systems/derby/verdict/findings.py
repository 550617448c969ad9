"""The findings of a log, with their evidence.

In: the files, the analysis of all bytes and the engine's recovery. Out: `Finding`s.
"""

from __future__ import annotations

from collections.abc import Iterator

from tallystick.printable import counted
from tallystick.records import Finding, Outcome, Severity
from tallystick.systems.derby.codes import CODES
from tallystick.systems.derby.engine.analysis import LogAnalysis
from tallystick.systems.derby.engine.recovery import JUDGED_VERSION, PREALLOCATED
from tallystick.systems.derby.engine.result import Recovery
from tallystick.systems.derby.format.field_types import global_id_text
from tallystick.systems.derby.format.layout import (
    CONTROL_NAMES,
    LOG_RECORD_FIXED_OVERHEAD_SIZE,
    SYSTEM_NAME,
    Control,
    instant_text,
)
from tallystick.systems.derby.read.files import LogFiles
from tallystick.systems.derby.read.spans import ByteRange
from tallystick.systems.findings import FindingBuilder
from tallystick.systems.surroundings import lying_beside

_SHOWN = 3
_NO_CONTROL = (
    "Both control files are unusable: take log.ctrl from the latest backup, with the log files of "
    "that backup, and copy the log folder before anything starts the database"
)
_NO_FILE = (
    "No file of the log is there: look for its folder where it was moved, and at logDevice in "
    "service.properties; else put the database of the latest backup back, with its log"
)


def find_all(log: LogFiles, path: str, analysis: LogAnalysis, recovery: Recovery) -> list[Finding]:
    """Return all findings of the log at ``path``."""
    build = FindingBuilder(SYSTEM_NAME, path, CODES)
    return [
        *_controls(build, log),
        *_missing_files(build, log, recovery),
        *_sealed(build, log),
        *(_damage(build, one) for one in analysis.damaged),
        *(_mismatch(build, one) for one in analysis.mismatched),
        *_lost(build, analysis, recovery),
        *_boot(build, recovery),
        *_gaps(build, recovery),
        *_in_doubt(build, analysis, recovery),
    ]


def _controls(build: FindingBuilder, log: LogFiles) -> Iterator[Finding]:
    intact = [one for one in log.controls if isinstance(one.content_or_error(), Control)]
    for control in log.controls:
        problem = control.content_or_error()
        if isinstance(problem, str):
            yield build(
                "control-damaged",
                f"{control.name} is damaged: {problem}",
                file=control.path,
                offset=0,
                length=len(control.data),
                advice=None if intact else _NO_CONTROL,
            )
        elif (problem.major, problem.minor) > JUDGED_VERSION:
            yield build(
                "newer-version",
                f"{control.name} is of version {problem.version}: engines older than that refuse "
                "it (XSLAN), and this verdict is by the rules of "
                + ".".join(map(str, JUDGED_VERSION)),
                file=control.path,
            )
    if not any(control.name == CONTROL_NAMES[0] for control in log.controls):
        yield build(
            "control-missing",
            "log.ctrl is missing: a restart reads log1.dat from its start, not from the "
            "checkpoint, and does not look at the mirror",
            advice=None if intact else _NO_CONTROL if log.files or log.controls else _NO_FILE,
        )


def _missing_files(build: FindingBuilder, log: LogFiles, recovery: Recovery) -> list[Finding]:
    present = set(log.files)
    needed = {recovery.start >> 32, recovery.checkpoint >> 32 or recovery.start >> 32} - {0}
    lost = recovery.lost_file
    between = set(range(min(present), max(present))) if present else set()
    # No restart reads what is before its start: an archive, or a file that could not be deleted.
    unread = recovery.start >> 32 if recovery.boots and recovery.finds_checkpoint else 0
    return [
        build(
            "missing-file",
            _missing_text(number, lost, unread) + _copies(f"{build.log}/log{number}.dat"),
            severity=_missing_severity(number, needed, unread),
            advice=None if log.files or log.controls else _NO_FILE,
        )
        for number in sorted((needed | between | {lost} - {0}) - present)
    ]


def _missing_text(number: int, lost: int, unread: int) -> str:
    name = f"log{number}.dat is missing"
    if number < unread:
        return f"{name}; a restart begins at log{unread}.dat, and does not need it"
    proved = f", and the end marker of log{lost - 1}.dat proves it was there" * (number == lost)
    return f"{name}; what it held can be neither redone nor undone{proved}"


def _missing_severity(number: int, needed: set[int], unread: int) -> Severity | None:
    if number < unread:
        return Severity.WARNING
    return Severity.LOSS if number in needed else None


def _copies(path: str) -> str:
    beside = lying_beside(path).rstrip(".")
    return f". {beside}" if beside else ""


def _sealed(build: FindingBuilder, log: LogFiles) -> Iterator[Finding]:
    if log.sealed:
        yield build(
            "encrypted",
            f"the log is encrypted, and {log.why_sealed}: only envelopes were read, no checksum "
            "was verified",
            advice="Give the right boot password or external key" if log.key_given else None,
        )


def _damage(build: FindingBuilder, one: ByteRange) -> Finding:
    code = "torn-tail" if one.outcome is Outcome.TORN else "damaged"
    if (
        code == "torn-tail"
        and one.file.size < PREALLOCATED
        and any(one.file.data[-LOG_RECORD_FIXED_OVERHEAD_SIZE:])
    ):
        code = "cut-short"
    return build(
        code,
        f"{one.what} at {instant_text(one.place)}: {one.reason}",
        file=one.file.path,
        offset=one.offset,
        length=one.length,
        advice="A restart cuts the log here" if one.envelope is not None else None,
    )


def _mismatch(build: FindingBuilder, one: ByteRange) -> Finding:
    return build(
        "envelope-mismatch",
        "the record's instant or trailing length is wrong, which the engine does not notice",
        file=one.file.path,
        offset=one.offset,
        length=one.length,
    )


def _lost(build: FindingBuilder, analysis: LogAnalysis, recovery: Recovery) -> Iterator[Finding]:
    commits = analysis.lost_commits()
    if commits:
        lie, them = ("lies", "it") if len(commits) == 1 else ("lie", "them")
        yield build(
            "dropped-commits",
            f"{counted(len(commits), 'committed transaction')} {lie} after the end that a restart "
            f"finds at {instant_text(recovery.log_end)}; it drops {them} without an error",
            file=commits[0].file.path,
            offset=commits[0].offset,
            length=commits[0].length,
            bytes_at_risk=analysis.lost_bytes,
        )


def _boot(build: FindingBuilder, recovery: Recovery) -> Iterator[Finding]:
    if recovery.boots is False:
        yield build("no-boot", f"no boot: {recovery.reason}")
    elif recovery.new_log:
        yield build("new-log", recovery.reason)
    elif recovery.past_end:
        yield build(
            "undo-against-newer-pages",
            f"the checkpoint at {instant_text(recovery.checkpoint)} lies after the end of the "
            f"log at {instant_text(recovery.log_end)}: undo would meet newer pages",
        )


def _gaps(build: FindingBuilder, recovery: Recovery) -> Iterator[Finding]:
    for built, code in ((True, "unlogged-build"), (False, "page-gap")):
        gaps = [gap for gap in recovery.gaps if gap.built is built]
        if gaps:
            files = sorted({gap.file for gap in gaps})
            yield build(
                code,
                f"changes of pages, {len(gaps):,} in all, follow changes that are not in the "
                f"log; the first: {gaps[0]}. Which version the page has stands in {_some(files)}",
            )


def _some(names: list[str]) -> str:
    """Return the first names, and how many others there are."""
    shown = ", ".join(names[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN} others" if len(names) > _SHOWN else shown


def _in_doubt(
    build: FindingBuilder, analysis: LogAnalysis, recovery: Recovery
) -> Iterator[Finding]:
    numbers = {one.number for one in recovery.in_doubt}
    for one in analysis.transactions.prepared():
        if one.number in numbers:
            file, offset = one.evidence or (None, None)
            yield build(
                "in-doubt",
                f"transaction {one.number} is prepared and waits for its coordinator, as "
                f"{global_id_text(one.xid)}",
                file=file,
                offset=offset,
                gtrid=one.xid.gtrid if one.xid else None,
            )
