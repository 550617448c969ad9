"""The codes of the findings about block logs, one row each."""

from __future__ import annotations

from tallystick.records import Answer, Severity
from tallystick.systems.answers import Reason, reasons
from tallystick.systems.findings import Code, codes

ADVICE_ON_LOSS = (
    "Copy the directory before anything else; a start stops here, and with "
    "on_damage=report it goes on without these entries"
)
_ADVICE_ON_HEADERS = (
    "Check the disk: the data is whole, but bytes of the file have changed. tallystick repair "
    "FOLDER --to COPY writes the header anew in a copy"
)

CODES = codes(
    Code(
        "payload-damaged",
        Severity.LOSS,
        "The data of a block does not match its checksum: its entries are lost.",
        ADVICE_ON_LOSS,
    ),
    Code(
        "both-headers-damaged",
        Severity.LOSS,
        "Both headers of a block are damaged, and its data cannot be found.",
        ADVICE_ON_LOSS,
    ),
    Code(
        "lost-at-end",
        Severity.LOSS,
        "Acknowledged blocks are missing at the end of a file, or after the last one.",
        ADVICE_ON_LOSS,
    ),
    Code(
        "missing-blocks",
        Severity.LOSS,
        "Blocks are missing from the sequence of the log.",
        ADVICE_ON_LOSS,
    ),
    Code(
        "missing-transactions",
        Severity.LOSS,
        "Transaction numbers are missing between others, and blocks are lost.",
        "Look for them in the application by their numbers or references",
    ),
    Code(
        "missing-file",
        Severity.DAMAGE,
        "A file is missing from the series.",
        "Look for it where it was moved; a disposer removes the oldest files only",
    ),
    Code(
        "block-size-open",
        Severity.WARNING,
        "Several disk block sizes explain the damaged files, and under none of them all is whole.",
        "Give the size that the writer had (setting disk_block_size) and look again",
    ),
    Code(
        "first-header-damaged",
        Severity.DAMAGE,
        "The first header of a block is damaged; the second one and the data are whole.",
        _ADVICE_ON_HEADERS,
        all_read=True,
    ),
    Code(
        "second-header-damaged",
        Severity.DAMAGE,
        "The second header of a block is damaged; the first one and the data are whole.",
        _ADVICE_ON_HEADERS,
        all_read=True,
    ),
    Code(
        "both-headers-repaired",
        Severity.DAMAGE,
        "Both headers of a block are damaged; together they describe its data.",
        _ADVICE_ON_HEADERS,
        all_read=True,
    ),
    Code(
        "unfinished-tail",
        Severity.WARNING,
        "The last write of a file did not finish; its data is whole and is used.",
    ),
    Code(
        "torn-tail",
        Severity.WARNING,
        "A file ends in a block that is not whole: its write never finished, or it was cut later.",
    ),
    Code(
        "stale-tail",
        Severity.WARNING,
        "A file ends in blocks of an earlier life of its space; they are ignored.",
    ),
)

REASONS = reasons(
    Reason(
        "start-stops",
        Answer.REFUSES,
        "A start stops at the first acknowledged block that is lost.",
    ),
    Reason(
        "odd-tail",
        Answer.CANNOT_TELL,
        "The last block is damaged, and no sector of it was left unwritten: a crash does not "
        "leave that.",
        "a copy of the newest file from before the damage",
    ),
    Reason(
        "odd-size",
        Answer.CANNOT_TELL,
        "The newest file ends inside a sector, which a crash does not leave: it was cut, or a "
        "write failed there.",
        "a copy of the newest file from before it was cut",
    ),
    Reason(
        "other-file",
        Answer.CANNOT_TELL,
        "A file begins with blocks of another file of the log, or holds blocks of a later one, "
        "which no crash leaves: one file was put over another.",
        "a copy of that file from before it was replaced",
    ),
    Reason(
        "mark-damaged",
        Answer.CANNOT_TELL,
        "The mark beside the log is damaged: it would tell whether blocks at either end are gone.",
        "a copy of the mark",
    ),
    Reason(
        "closing-block",
        Answer.SAFE,
        "The sequence of blocks has no gap, and the newest file ends in its closing block.",
    ),
    Reason(
        "last-block-whole",
        Answer.SAFE,
        "The sequence of blocks has no gap up to the last whole one, and after that comes nothing, "
        "or one of which sectors were never written: a block is acknowledged after its sync.",
        after_crash=True,
    ),
)
