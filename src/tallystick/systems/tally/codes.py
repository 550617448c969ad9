"""The codes of the findings of native logs."""

from __future__ import annotations

from collections.abc import Iterable

from tallystick.records import Answer, Finding, Severity
from tallystick.systems.answers import Reason, reasons
from tallystick.systems.findings import Code, codes

CODES = codes(
    Code(
        "archive-gap",
        Severity.WARNING,
        "Segments are missing between archived ones.",
        "Look for them where the log's disposer puts files, and in the log itself",
    ),
    Code(
        "broken-chain",
        Severity.LOSS,
        "A segment does not begin with the record after the last one of its predecessor, or was "
        "begun after another one.",
        "Restore the files of the log from one copy, or salvage what can be read",
    ),
    Code(
        "clear-text",
        Severity.WARNING,
        "Some records of an encrypted log are in clear text: they were written before its key was "
        "given.",
        "`tallystick convert LOG NEW --to tally --encryption-key KEY --encryption-key-to KEY` "
        "writes all of them encrypted; then delete the old files",
    ),
    Code(
        "control-repaired",
        Severity.DAMAGE,
        "One copy of the control block is damaged; the other one is used.",
        "Check the disk: bytes of the file have changed, and nothing is lost yet. Opening the log "
        "writes the copy anew, tallystick repair LOG --to COPY does so in a copy",
        whole=True,
    ),
    Code(
        "corrupt-control",
        Severity.DAMAGE,
        "The control block is missing, or both of its copies are damaged.",
        "Restore the file from a copy of the log; or write every whole record to a new log with "
        "tallystick salvage LOG --to NEW --as journal: the control block is not made anew in place",
    ),
    Code(
        "corrupt-group",
        Severity.LOSS,
        "Acknowledged records are damaged or missing.",
        "Restore the file; or salvage, which gives up these records",
    ),
    Code(
        "corrupt-segment-header",
        Severity.LOSS,
        "Both copies of a segment's header are damaged.",
        "Restore the file, or salvage what can be read",
    ),
    Code(
        "double-segment",
        Severity.DAMAGE,
        "Two files claim to be the same segment.",
        "Move the copy away",
    ),
    Code(
        "encrypted",
        Severity.WARNING,
        "Groups are encrypted and no key was given: only their headers were verified.",
        "Give the log's key",
        sealed=True,
    ),
    Code(
        "foreign-segment",
        Severity.WARNING,
        "A segment belongs to another log.",
        "Move it to the folder of its own log",
    ),
    Code(
        "header-repaired",
        Severity.DAMAGE,
        "One copy of a header of a segment or of a group is damaged; the other one is used.",
        "Check the disk: bytes of the file have changed, and nothing is lost yet. Opening the log "
        "writes a segment's header anew; a group's tallystick repair LOG --to COPY does, in a copy",
        whole=True,
    ),
    Code(
        "incomplete-transaction",
        Severity.LOSS,
        "A transaction was committed or prepared, and some of its records are missing.",
        "Restore the missing segments; or salvage, which rolls the transaction back",
    ),
    Code(
        "index-damaged",
        Severity.WARNING,
        "The index of a sealed segment is damaged; its groups are found by walking.",
    ),
    Code(
        "index-missing",
        Severity.INFO,
        "A segment that has a successor has no index; its groups are found by walking.",
    ),
    Code(
        "missing-segment",
        Severity.LOSS,
        "A segment that the control block names is missing.",
        "Restore the file, or salvage what is left",
    ),
    Code(
        "short-segment",
        Severity.DAMAGE,
        "The last segment is shorter than it was made: it was cut, and records may have stood "
        "there.",
        "Restore the file; or salvage, which keeps what is left",
    ),
    Code(
        "torn-tail",
        Severity.WARNING,
        "The last group is not whole: its write never finished, or it was damaged later.",
        "The answer says which of the two is possible. Opening the log cuts here",
    ),
    Code(
        "end-damaged",
        Severity.DAMAGE,
        "The log ends in something that no crash leaves; a group may have stood there.",
        "Copy the log before anything opens it: that cuts off or overwrites its end",
    ),
    Code(
        "unfinished-backup",
        Severity.DAMAGE,
        "A backup of the log was not finished: it is refused, whatever its segments hold.",
        "Remove this folder and take another backup; only where the log itself is gone, salvage "
        "what had been copied",
    ),
    Code(
        "unreadable-group",
        Severity.DAMAGE,
        "The content of a whole group cannot be decoded.",
        "Check that this version of Tallystick knows its format",
    ),
    Code(
        "wrong-key",
        Severity.DAMAGE,
        "A whole group cannot be decrypted: the key is another one, or bytes were altered.",
        "Give the key that the log was written with",
        sealed=True,
    ),
)


def fatal(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings for which opening a log is refused: damage that takes records."""
    severe = (Severity.DAMAGE, Severity.LOSS)
    return [one for one in findings if one.severity in severe and not CODES[one.code].whole]


REASONS = reasons(
    Reason(
        "archive-gap",
        Answer.CANNOT_TELL,
        "These are archived segments of a log, and some between them are not here.",
        "the missing segments",
        archive=True,
    ),
    Reason(
        "archive-end",
        Answer.CANNOT_TELL,
        "These are archived segments of a log; the last one ends in a group that is not whole, and "
        "only the segment after it says whether records were cut there.",
        "the segment that follows",
        archive=True,
    ),
    Reason(
        "archive-unnamed",
        Answer.CANNOT_TELL,
        "These are archived segments, whole and sealed, or what is left of a log that has lost its "
        "control block and its last segments: nothing here tells which of the two.",
        "the log's control block; or the log that has archived them",
    ),
    Reason(
        "archived-segments",
        Answer.SAFE,
        "These are archived segments of a log, every one whole up to its end. The log itself is "
        "elsewhere, and no restart opens them. What is open in them may have ended in later ones.",
        archive=True,
    ),
    Reason(
        "refused",
        Answer.REFUSES,
        "Opening the log is refused: acknowledged data is damaged or missing.",
    ),
    Reason(
        "encrypted",
        Answer.CANNOT_TELL,
        "Groups are encrypted and no key was given.",
        "the log's key",
    ),
    Reason(
        "odd-group",
        Answer.CANNOT_TELL,
        "The last group is damaged, and no sector of it was left unwritten: a crash does not leave "
        "that. Opening the log cuts it off.",
        "a copy of the segment from before the damage",
    ),
    Reason(
        "odd-end",
        Answer.CANNOT_TELL,
        "Where the next group is due stands something that no crash leaves: no group, no zeros, "
        "and nothing of an earlier life of the segment. Opening the log writes over it.",
        "a copy of the segment from before the damage",
    ),
    Reason(
        "misplaced-group",
        Answer.CANNOT_TELL,
        "The group that is due at the end, or a later one, stands at another place of the segment: "
        "a disk wrote it where it does not belong. Opening the log goes on without it.",
        "a copy of the segment from before the damage",
    ),
    Reason(
        "never-used",
        Answer.SAFE,
        "The first segment is there alone, nothing was ever written to it, and there is no control "
        "block, which a creation writes after it: opening makes the log anew.",
        after_crash=True,
    ),
    Reason(
        "durable-mark",
        Answer.SAFE,
        "Every group is whole up to the record that the control block says was durable, and none "
        "was written after it.",
    ),
    Reason(
        "last-group-whole",
        Answer.SAFE,
        "Every group is whole up to the end of the log, where nothing was written: a group is "
        "acknowledged after its sync.",
        after_crash=True,
    ),
    Reason(
        "last-group-cut",
        Answer.SAFE,
        "Every group is whole but the last one, of which sectors, or the end, were never written: "
        "it was not acknowledged.",
        after_crash=True,
    ),
)
