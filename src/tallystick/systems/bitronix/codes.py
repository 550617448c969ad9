"""The codes of the findings about Bitronix journals, one row each."""

from __future__ import annotations

from tallystick.records import Answer, Severity
from tallystick.systems.answers import Reason, reasons
from tallystick.systems.engine_errors import EngineError, engine_errors
from tallystick.systems.findings import Code, codes

_PUT_BACK = "Put the file back from a backup; do not delete the pair, it may hold open decisions"
_REPAIR = "tallystick repair FOLDER --to COPY"
_START_OVER = f"Type {_REPAIR}: it mends a copy, or says that nothing proves a mend"

OTHER_TIME = "other-time"
OF_OTHER_TIME = (
    "The older file has room for the record with which the newer one begins, and the manager "
    "changes files only when one is full: one was put back, or the clock went back"
)
MADE_APART = (
    "The older file was never used, and the newer one was in use before, or more time lies between "
    "their headers than a first start takes to make both files: one is of another journal, or of "
    "another time"
)
DO_NOT_FOLLOW = (
    "The newer file does not go on where the older one ends: numbers of records are missing, or a "
    "decision that was open was not copied. What stood between them is gone, or one is of another "
    "journal"
)

CODES = codes(
    Code(
        "missing-file",
        Severity.DAMAGE,
        "One of the two files of the journal is missing.",
        "Look for it where it was moved; records of recent decisions may be in it",
    ),
    Code(
        "file-too-short",
        Severity.DAMAGE,
        "A file has fewer bytes than a file header; the manager loops at start.",
        _PUT_BACK,
    ),
    Code(
        "lengths-differ",
        Severity.DAMAGE,
        "The two files differ in length: one was cut, or they do not belong together.",
        "Put the right file back from a backup; do not delete the pair, it may hold "
        "decisions that nothing else knows",
    ),
    Code(
        "format-id",
        Severity.DAMAGE,
        "The first four bytes of a file are not Btnx; the manager does not check them.",
        "Check that the file is a journal and belongs to its pair",
    ),
    Code(
        "header-position",
        Severity.DAMAGE,
        "The position in a file header lies outside the records.",
        _START_OVER,
    ),
    Code(
        "stale-file-in-use",
        Severity.LOSS,
        "The manager would open the older of the two files: decisions in the newer one are lost.",
        f"Do not start the manager with it: type {_REPAIR}, and start it with the copy",
        whole=True,
    ),
    Code(
        "swap-timestamp",
        Severity.WARNING,
        "A timestamp is an offset in the file, as 2.1.3 and 2.1.4 leave it after changing files.",
        f"Type {_REPAIR}: it writes a valid timestamp",
    ),
    Code(
        "unclean",
        Severity.INFO,
        "The manager was not shut down in order.",
    ),
    Code(
        "torn-tail",
        Severity.WARNING,
        "The last record in a file was not written completely.",
        f"Type {_REPAIR}: it cuts the record off",
    ),
    Code(
        "damaged-record",
        Severity.DAMAGE,
        "No whole record with a right CRC stands where the file header counts one.",
        _START_OVER,
    ),
    Code(
        "hole",
        Severity.DAMAGE,
        "Zeros stand where the file header counts a record.",
        _START_OVER,
    ),
    Code(
        "lost-behind-damage",
        Severity.DAMAGE,
        "A whole record after damage is skipped by the manager; a LOSS if it is a decision.",
        "Type tallystick salvage FOLDER --to NEW --as journal: it keeps every whole record",
    ),
    Code(
        "uncounted-record",
        Severity.WARNING,
        "A whole record lies after the position in the file header; a LOSS if it is a decision "
        "that no crash leaves there.",
        f"Type {_REPAIR}: it counts the record",
    ),
    Code(
        "unreadable-for-3.0",
        Severity.WARNING,
        "The 3.0 line cannot read a record that 2.1.4 can read.",
        "Close the open decisions with 2.1.4 before changing to the 3.0 line",
    ),
    Code(
        "more-findings",
        Severity.DAMAGE,
        "A file has more findings than are listed.",
        "Copy both files; tallystick dump --salvage lists every record that is left",
    ),
    Code(
        "server-ids",
        Severity.WARNING,
        "The journal holds transactions of several server ids.",
        "Give each manager a journal and a server id of its own",
    ),
    Code(
        "server-id-altered",
        Severity.INFO,
        "A server id may have been cut or altered by the manager.",
        "Choose a server id of at most 51 ASCII characters",
    ),
)

REASONS = reasons(
    Reason(
        "start-refused",
        Answer.REFUSES,
        "The manager does not start with this journal.",
    ),
    Reason(
        "decision-changed",
        Answer.LOSES,
        "A restart loses a decision to commit, revives a closed one, or takes it to be open on "
        "other resources.",
    ),
    Reason(
        "decision-not-counted",
        Answer.CANNOT_TELL,
        "A restart does not know of the last decisions, which the file header does not count. A "
        "crash before they were forced leaves them so: nobody was told, and no branch committed.",
        "the databases of the resources: whether a branch of them is committed",
    ),
    Reason(
        "older-file-in-use",
        Answer.CANNOT_TELL,
        "The manager opens the older file; no decision differs now, and its next change of files "
        "overwrites the newer one.",
        "the newer file, put in use before the start",
    ),
    Reason(
        "lines-differ",
        Answer.CANNOT_TELL,
        "2.1.4 and the 3.0 line do different things with this journal, and either may have "
        "written it.",
        "which line of the manager starts with the journal",
    ),
    Reason(
        OTHER_TIME,
        Answer.CANNOT_TELL,
        f"{OF_OTHER_TIME}. Or: {MADE_APART[0].lower()}{MADE_APART[1:]}. "
        f"Or: {DO_NOT_FOLLOW[0].lower()}{DO_NOT_FOLLOW[1:]}.",
        "both files as they were at one moment",
    ),
    Reason(
        "same-time",
        Answer.CANNOT_TELL,
        "Both files bear the same time: one may be a copy that was put over the other.",
        "which of the two files the manager wrote last",
    ),
    Reason(
        "closed-header",
        Answer.SAFE,
        "Whole records stand up to the position in both file headers, and the later file says that "
        "the manager was shut down in order.",
    ),
    Reason(
        "unclean-header",
        Answer.SAFE,
        "Whole records stand up to the position in both file headers, and nothing newer follows: "
        "a record is forced before its transaction is told to commit.",
        after_crash=True,
    ),
    Reason(
        "notes-not-counted",
        Answer.SAFE,
        "Whole records stand up to the position in both file headers. Those after it, as a crash "
        "leaves them, decide nothing: their transactions have no branch left, or roll back.",
        after_crash=True,
    ),
)

_NEXT = (
    'Look up the error that follows it: after "Caused by" in the stack trace, or in the log of '
    "the application"
)

ERRORS = engine_errors(
    EngineError(
        "CorruptedTransactionLogException",
        "A record of the journal is damaged where the manager reads it.",
        f"{_START_OVER}. Keep both files before any start: with skipCorruptedLogs the manager goes "
        "on without the decisions that it cannot read",
        ("start-refused", "damaged"),
    ),
    EngineError(
        "InitializationException",
        "The manager did not start. This only wraps the error that says why.",
        _NEXT,
        ("start-refused",),
        wraps=True,
    ),
)
