"""What a person should know about a log, with the evidence for it.

In: the account of all pieces, recovery and what could not be read. Out: `Finding`s.
"""

from __future__ import annotations

from tallystick.records import Finding, Outcome, Severity
from tallystick.systems.derby.engine.formatting import spelled
from tallystick.systems.derby.engine.recovery import Recovery, control_or_error
from tallystick.systems.derby.format.layout import Control, instant_text
from tallystick.systems.derby.read.analysis import Account
from tallystick.systems.derby.read.byte_ranges import Piece
from tallystick.systems.derby.read.files import LogFiles


def find_all(log: LogFiles, path: str, account: Account, recovery: Recovery) -> list[Finding]:
    """All findings of a log that was read."""
    return [
        *_controls(log, path),
        *_missing_files(log, path, recovery),
        *_sealed(log, path),
        *(_damage(piece, path) for piece in account.damaged),
        *(_odd(piece, path) for piece in account.odd),
        *_lost(account, recovery, path),
        *_boot(recovery, path),
        *_in_doubt(account, recovery, path),
    ]


def _controls(log: LogFiles, path: str) -> list[Finding]:
    found = []
    for control in log.controls:
        problem = control_or_error(control.data)
        if not isinstance(problem, Control):
            found.append(
                Finding(
                    "control-damaged",
                    Severity.DAMAGE,
                    "derby",
                    path,
                    f"{control.name} is damaged: {problem}",
                    file=control.path,
                    offset=0,
                    length=len(control.data),
                    advice="Its twin holds the same bytes",
                )
            )
    if not any(control.name == "log.ctrl" for control in log.controls):
        found.append(
            Finding(
                "control-missing",
                Severity.DAMAGE,
                "derby",
                path,
                "log.ctrl is missing: a restart reads log1.dat from its start, not from the "
                "checkpoint, and does not look at the mirror",
                advice="Copy logmirror.ctrl to log.ctrl before starting the database",
            )
        )
    return found


def _missing_files(log: LogFiles, path: str, recovery: Recovery) -> list[Finding]:
    present = set(log.files)
    needed = {recovery.start >> 32, recovery.checkpoint >> 32 or recovery.start >> 32} - {0}
    between = set(range(min(present), max(present))) if present else set()
    return [
        Finding(
            "missing-file",
            Severity.LOSS if number in needed else Severity.DAMAGE,
            "derby",
            path,
            f"log{number}.dat is missing; what it held can be neither redone nor undone",
            advice="Look for a backup or an archive of the log",
        )
        for number in sorted((needed | between) - present)
    ]


def _sealed(log: LogFiles, path: str) -> list[Finding]:
    if not log.sealed:
        return []
    return [
        Finding(
            "encrypted",
            Severity.INFO,
            "derby",
            path,
            "the log is encrypted and the key is not known: only envelopes were read, no checksum "
            "was verified",
            advice="Give the boot password or the external key",
        )
    ]


def _damage(piece: Piece, path: str) -> Finding:
    torn = piece.outcome is Outcome.TORN
    return Finding(
        "torn-tail" if torn else "damaged",
        Severity.WARNING if torn else Severity.DAMAGE,
        "derby",
        path,
        f"{piece.what} at {instant_text(piece.place)}: {piece.reason}",
        file=piece.file.path,
        offset=piece.offset,
        length=piece.length,
        advice="A restart cuts the log here" if piece.envelope is not None else None,
    )


def _odd(piece: Piece, path: str) -> Finding:
    return Finding(
        "envelope-mismatch",
        Severity.DAMAGE,
        "derby",
        path,
        "the record's instant or trailing length is wrong, which the engine does not notice",
        file=piece.file.path,
        offset=piece.offset,
        length=piece.length,
    )


def _lost(account: Account, recovery: Recovery, path: str) -> list[Finding]:
    commits = account.lost_commits()
    if not commits:
        return []
    first = commits[0]
    return [
        Finding(
            "dropped-commits",
            Severity.LOSS,
            "derby",
            path,
            f"{len(commits)} committed transactions lie behind the end that a restart finds at "
            f"{instant_text(recovery.log_end)}; it drops them without an error",
            file=first.file.path,
            offset=first.offset,
            length=first.length,
            advice="Copy the log folder before anything starts the database",
            bytes_at_risk=account.lost_bytes,
        )
    ]


def _boot(recovery: Recovery, path: str) -> list[Finding]:
    if recovery.boots is False:
        return [Finding("no-boot", Severity.LOSS, "derby", path, f"no boot: {recovery.reason}")]
    if recovery.new_log:
        return [Finding("new-log", Severity.LOSS, "derby", path, recovery.reason)]
    if recovery.past_end:
        return [
            Finding(
                "undo-against-newer-pages",
                Severity.LOSS,
                "derby",
                path,
                f"the checkpoint at {instant_text(recovery.checkpoint)} lies behind the end of the "
                f"log at {instant_text(recovery.log_end)}: undo would meet newer pages",
                advice="Do not start the database; restore the log first",
            )
        ]
    return []


def _in_doubt(account: Account, recovery: Recovery, path: str) -> list[Finding]:
    doubtful = {one.number for one in recovery.in_doubt}
    return [
        Finding(
            "in-doubt",
            Severity.WARNING,
            "derby",
            path,
            f"transaction {one.number} is prepared and waits for its coordinator, as "
            f"{spelled(one.xid)}",
            file=one.evidence[0] if one.evidence else None,
            offset=one.evidence[1] if one.evidence else None,
            gtrid=one.xid.gtrid if one.xid else None,
        )
        for one in account.histories.all
        if one.state == "prepared" and one.number in doubtful
    ]
