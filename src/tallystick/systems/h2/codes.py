"""Codes of the findings of H2 page store files."""

from __future__ import annotations

from tallystick.records import Answer, Severity
from tallystick.systems.answers import ENDS_IN_PREPARE, Reason, reasons
from tallystick.systems.engine_errors import EngineError, engine_errors
from tallystick.systems.findings import Code, codes

CODES = codes(
    Code(
        "file-would-be-replaced",
        Severity.LOSS,
        "The file is so short that the engine replaces it by a new database.",
        "Copy it away before anything opens it",
    ),
    Code(
        "unreadable-structure",
        Severity.DAMAGE,
        "The file header, or a page that lists the log, is damaged.",
        "Type tallystick repair FILE --to COPY, which writes page 0 anew where the pages after it "
        "prove it; if nothing does, restore the damaged page from a backup",
    ),
    Code(
        "encrypted",
        Severity.WARNING,
        "The file is encrypted, or its third header line is damaged.",
        "Give the file password (--boot-password)",
    ),
    Code(
        "header-copy-damaged",
        Severity.DAMAGE,
        "The CRC-32 of a copy of the variable header is wrong.",
        "Type tallystick repair FILE --to COPY: it writes it anew from the other copy, by which "
        "the engine goes, if that is whole",
        all_read=True,
    ),
    Code(
        "header-copies-differ",
        Severity.WARNING,
        "The process ended between writing the two copies of the variable header.",
    ),
    Code(
        "header-names-no-log",
        Severity.DAMAGE,
        "A copy of the variable header with a right CRC-32 leads to no log.",
        "Copy the file before anything opens it; dump it with salvage to see what is in it",
    ),
    Code(
        "header-drops-log",
        Severity.LOSS,
        "The copy of the variable header that the engine uses leads past a log with commits.",
        "Copy the file before anything opens it; the log that is named stands in it whole",
    ),
    Code(
        "file-cut-short",
        Severity.LOSS,
        "The log lists pages that the file does not have: it was cut, or a list is damaged.",
        "Copy the file first; compare its size with a backup, and restore that if it is longer",
    ),
    Code(
        "table-page-empty",
        Severity.LOSS,
        "The root page of a table is zeroed, which had rows, as an index of it shows; the engine "
        "opens the table without any row.",
        "Copy the file before any restart; restore the table from a backup",
    ),
    Code(
        "table-page-zeroed",
        Severity.DAMAGE,
        "The root page of a table is zeroed, and nothing tells whether the table had rows; the "
        "engine opens it without any row.",
        "Copy the file before any restart; hold the table against a backup",
    ),
    Code(
        "table-page-damaged",
        Severity.DAMAGE,
        "A page of a table, an index or the free list is damaged, or in use and called free, and "
        "the log has no image of it: the engine fails, or finds other rows, when it comes to it.",
        "Copy the file before any restart; restore the table from a backup",
    ),
    Code(
        "large-object-damaged",
        Severity.DAMAGE,
        "A block of a large object has another hash than its map says, or a row names an object "
        "that is not there in full.",
        "Copy the file before any restart; restore the rows with these objects from a backup",
    ),
    Code(
        "catalog-damaged",
        Severity.DAMAGE,
        "A statement of the catalog, or a row of the page index, holds what the engine never "
        "writes; or one of both has a table or an index that the other has not.",
        "Copy the file before any restart; compare the table's definition with a backup",
    ),
    Code(
        "does-not-open",
        Severity.DAMAGE,
        "The engine refuses to open the database.",
        "Keep a copy of the file; the log can be read without the engine",
        all_read=True,
    ),
    Code(
        "partial-redo",
        Severity.LOSS,
        "The engine stops redo early without an error; later committed changes are lost.",
        "Copy the file before any restart",
        all_read=True,
    ),
    Code(
        "lost-behind-damage",
        Severity.LOSS,
        "A log page is damaged and whole log pages follow it, which a restart drops.",
        "Copy the file before any restart; dump it with salvage to see what is after",
    ),
    Code(
        "trunk-chain-broken",
        Severity.DAMAGE,
        "The chain of trunk pages ends at a damaged page.",
        "Copy the file before any restart; dump it with salvage to see what is after",
    ),
    Code(
        "log-page-damaged",
        Severity.DAMAGE,
        "The log ends at a page that was written once and is damaged.",
        "Copy the file before any restart; what stood on the page can come from a backup only",
    ),
    Code(
        "page-far-outside",
        Severity.DAMAGE,
        "The log lists a page far after the end of the file; opening could grow the file to it.",
        "Do not open the database; copy the file first",
    ),
    Code(
        "impossible-log-page",
        Severity.DAMAGE,
        "The log lists a page that no log has, of a header, the free list or the page index, or "
        "one twice. Opening the database can fail when it frees the pages of the log.",
        "Copy the file before any restart; open the copy first",
    ),
    Code(
        "torn-record",
        Severity.INFO,
        "The last record was not written whole.",
    ),
    Code(
        "odd-last-record",
        Severity.DAMAGE,
        "The log ends inside its last record, and that is not the beginning of one that the engine "
        "writes: its length or its row is damaged, and records may have stood after it.",
        "Copy the file before any restart; what stood there can come from a backup only",
    ),
    Code(
        "unknown-record-type",
        Severity.LOSS,
        "The engine skips bytes that are no record, and decodes from the middle of something.",
        "Copy the file first",
    ),
    Code(
        "damaged-undo-image",
        Severity.LOSS,
        "An undo image does not expand to a page; the engine restores half of the page.",
        "Copy the file first",
    ),
    Code(
        "damaged-row",
        Severity.LOSS,
        "A row does not fit its length, and the engine reads stale bytes or drops some; or it is "
        "not one of its table: other columns, another key, a removal of one that is not there.",
        "Copy the file first",
    ),
    Code(
        "log-cut-short",
        Severity.LOSS,
        "The engine stops reading the log early without an error.",
        "Copy the file before any restart",
    ),
    Code(
        "uncommitted",
        Severity.INFO,
        "Transactions were active when the process ended; a restart rolls them back.",
    ),
    Code(
        "in-doubt",
        Severity.WARNING,
        "A transaction is prepared and not decided; the database opens read-only.",
        "COMMIT TRANSACTION or ROLLBACK TRANSACTION with this name, then reopen",
    ),
    Code(
        "name-hidden",
        Severity.WARNING,
        "A transaction was prepared under several names; the engine lists the last one only.",
    ),
    Code(
        "changes-behind-prepare",
        Severity.WARNING,
        "Changes were logged after a prepare record; they are lost however it is decided.",
    ),
    Code(
        "stale-names",
        Severity.INFO,
        "Names of finished transactions are in log pages that are no longer in use.",
    ),
)

_PRESUMED = (
    "The engine acknowledges a commit up to WRITE_DELAY (500 ms) before it writes it: such commits "
    "may be missing; with LOG=0, which no file tells, all since the last checkpoint."
)

REASONS = reasons(
    Reason(
        "does-not-open",
        Answer.REFUSES,
        "The engine refuses to open the database.",
    ),
    Reason(
        "encrypted",
        Answer.CANNOT_TELL,
        "The file is encrypted and its file password was not given, or is another one; or its "
        "third header line is damaged.",
        "the file password, with --boot-password",
    ),
    Reason(
        "changes-lost",
        Answer.LOSES,
        "The engine opens the file without some of the changes that stand in it.",
    ),
    Reason(
        "header-only",
        Answer.CANNOT_TELL,
        "The file ends where the engine has not written more of it while it makes a new database; "
        "or it was cut there.",
        "whether there was a database before; a copy of it",
    ),
    Reason(
        "older-header",
        Answer.CANNOT_TELL,
        "The engine goes by the first copy of the header, which is older than the second one: it "
        "writes the first one first, so that copy was put there, and may lead to an older log.",
        "what the second copy of the header leads to, in the place of the first one",
    ),
    Reason(
        "later-log",
        Answer.CANNOT_TELL,
        "A page is of a later log than the header leads to, and the engine does not come to it: "
        "the header, or the rest of the file, was put there from another time.",
        "a copy of the file that was taken at one moment",
    ),
    Reason(
        "record-after-fill",
        Answer.CANNOT_TELL,
        "A record stands after the zeros with which a flush fills its page: the engine begins the "
        "next record on another page.",
        "a copy of the file from before",
    ),
    Reason(
        "closed-in-one-copy",
        Answer.CANNOT_TELL,
        "The header in force names no log, as closing the database leaves it, and its other copy "
        "names one: a crash came between writing them, or the one in force was put there.",
        "whether the database was being closed; a copy of the file from before",
    ),
    Reason(
        "log-not-named",
        Answer.CANNOT_TELL,
        "No header names a log, as closing the database leaves it, but closing also cuts the file "
        "after its last page in use and gives the header a key that no page of a log has.",
        "a copy of the file from before; the commits on the pages of logs, against the tables",
    ),
    Reason(
        "log-closed",
        Answer.SAFE,
        "Both copies of the header name no log, as closing the database leaves it: every change "
        "is in the tables.",
    ),
    Reason(
        "flushed-end",
        Answer.SAFE,
        "Every log page is whole, and the last one ends in the zeros of a flush, which only the "
        "last page has. " + _PRESUMED,
        after_crash=True,
    ),
    Reason(
        ENDS_IN_PREPARE,
        Answer.SAFE,
        "Every log page is whole, the last one ends in a prepared transaction, which is in doubt "
        f"now, and nothing of the log was written after it. {_PRESUMED} The commit of the prepared "
        "transaction may be one of them: its coordinator knows.",
        after_crash=True,
    ),
    Reason(
        "full-last-page",
        Answer.SAFE,
        "Every log page is whole and full, as within a transaction that is longer than a page and "
        "after a checkpoint, and nothing of the log was written after them. " + _PRESUMED,
        after_crash=True,
    ),
    Reason(
        "log-begun",
        Answer.SAFE,
        "The log that the header names has just begun, and nothing of it was written. " + _PRESUMED,
        after_crash=True,
    ),
    Reason(
        "log-freed",
        Answer.SAFE,
        "Nothing is left of the log that the header names, as while the database is being opened: "
        "every change of it is written to the tables before its pages are freed.",
        after_crash=True,
    ),
    Reason(
        "being-created",
        Answer.SAFE,
        "The process ended while it made the database, which never had a log or a table.",
        after_crash=True,
    ),
)

_NEXT = (
    'Look up the error that follows it: after "Caused by" in the stack trace, or in the file '
    ".trace.db beside the database"
)

ERRORS = engine_errors(
    EngineError(
        "90020",
        "Another process has the database open.",
        "End that process; look for it before you delete a .lock.db",
    ),
    EngineError(
        "90030",
        "The file is damaged where the engine reads it when it opens the database.",
        "Type tallystick repair FILE --to COPY: it mends page 0 and the headers where other pages "
        "prove them; else use an undamaged copy, as H2's recovery tool drops what it cannot read",
        ("does-not-open",),
    ),
    EngineError(
        "90048",
        "The file has a header or a version that this version of H2 does not know.",
        "Look whether it is H2's, and which version wrote it",
        ("does-not-open",),
    ),
    EngineError(
        "90049",
        "The file password of the encrypted file is wrong or missing.",
        "Give it to us with --boot-password, to H2 before the user's password",
        ("encrypted",),
    ),
    EngineError(
        "42000",
        "H2 cannot parse a statement of its catalogue again, often as a name in it is a keyword.",
        "Open it with the version that wrote it, and rename what has that name",
        ("does-not-open",),
    ),
    EngineError(
        "42001",
        "H2 cannot parse a statement of its catalogue again, often as a name in it is a keyword.",
        "Open it with the version that wrote it, and rename what has that name",
        ("does-not-open",),
    ),
    EngineError(
        "50000",
        "The engine met something that its code does not expect: of a database that does not "
        "open, most often a damaged page or row.",
        "Type tallystick repair FILE --to COPY; if nothing proves a mend, look for the first cause "
        "in the trace file, and use an undamaged copy",
        (
            "does-not-open",
            "damaged",
        ),
    ),
    EngineError(
        "50004",
        "The class or data that a row holds is of an unknown type: it is damaged, or a later "
        "version wrote it.",
        "Open a copy with the version that wrote it",
        (
            "does-not-open",
            "damaged",
        ),
    ),
    EngineError(
        "50100",
        "The file uses what this version of H2 does not support.",
        "Open it with the version that wrote it",
        ("does-not-open",),
    ),
    EngineError(
        "90011",
        "The path in the URL is relative in a way that later versions refuse.",
        "Write ./ before it, or give the whole path; the file is not the cause",
    ),
    EngineError(
        "90013",
        "No database is found there, and this URL does not make one.",
        "Look at the path: the URL leaves .h2.db, or .mv.db, out",
    ),
    EngineError(
        "90021",
        "A setting of the URL does not fit the database.",
        "Leave the setting out; the file is not the cause",
    ),
    EngineError(
        "90024",
        "A file cannot be renamed.",
        "Look at the rights of the folder, and for a process that has the file open",
    ),
    EngineError(
        "90025",
        "A file cannot be removed.",
        "Look at the rights of the folder, and for a process that has the file open",
    ),
    EngineError(
        "90028",
        "A file cannot be read or written: the disk is full, or fails, or the file is cut.",
        "Make room, or copy the file to another disk; then start again",
    ),
    EngineError(
        "90031",
        "A file cannot be read or written: the disk is full, or fails, or the file is cut.",
        "Make room, or copy the file to another disk; then start again",
    ),
    EngineError(
        "90034",
        "The trace file, x.trace.db, cannot be written: the database itself is not the cause.",
        "Make room, or give the owner's rights back",
    ),
    EngineError(
        "90043",
        "A trigger of the catalogue cannot be made, often as its class is not on the class path.",
        "Put the class on the class path",
    ),
    EngineError(
        "90050",
        "The password lacks the file password before the user's.",
        "Give file password, a space, and the user's password",
    ),
    EngineError(
        "90055",
        "The cipher of the URL is not that of the file.",
        "Give the CIPHER with which the database was made",
        ("encrypted",),
    ),
    EngineError(
        "90060",
        "The method of file locks in the URL is not known.",
        "Leave FILE_LOCK out; the file is not the cause",
    ),
    EngineError(
        "90062",
        "A file cannot be made: rights, a full disk, or a folder that is missing.",
        "Make room, or give the owner's rights back",
    ),
    EngineError(
        "90097",
        "The database is read-only: the file, or the medium, cannot be written.",
        "Open a copy of it in a folder that can be written; recovery has to write",
    ),
    EngineError(
        "90098",
        "An earlier error, such as a full disk, closed the database.",
        "Look for the first error in the trace file; then open it again",
    ),
    EngineError(
        "90108",
        "The memory does not suffice.",
        "Give the process more memory; damage can look like a very long value",
    ),
    EngineError(
        "90109",
        "A view of the catalogue is not valid, as a table of it is gone.",
        "Make the view anew; its rows are those of its tables",
    ),
    EngineError(
        "90111",
        "A linked table cannot be reached: it is in another database.",
        "Look at that database; what is in this one is not the cause",
    ),
    EngineError(
        "90112",
        "A row that recovery or a rollback deletes is not in an index: index and table differ.",
        "Copy the file; copy the rows with SCRIPT to a new database",
        (
            "damaged",
            "does-not-open",
        ),
    ),
    EngineError(
        "90121",
        "The database was closed already, as when the process ends.",
        "Look for who closes it; the file is not the cause",
    ),
    EngineError(
        "90124",
        "A file is not there: of a large object in files, or one that a statement names.",
        "Put the file back from the copy that the database belongs to",
        ("part-lost",),
    ),
    EngineError(
        "90129",
        "A transaction that is to be committed or rolled back by its name is not in doubt here.",
        "List those in doubt: tallystick indoubt list PATH",
    ),
    EngineError(
        "90131",
        "Two transactions changed one row at a time.",
        "Try again; the file is not the cause",
    ),
    EngineError(
        "90133",
        "A setting cannot be changed while the database is open.",
        "Close it first",
    ),
    EngineError(
        "90135",
        "The database is open for one connection only.",
        "Close that connection",
    ),
    EngineError(
        "90138",
        "The name of the database cannot be that of a file.",
        "Give another name",
    ),
    EngineError(
        "90141",
        "Values of a Java class are stored, and the class that writes them was changed.",
        "Open it with the serializer that wrote it",
    ),
    EngineError(
        "90143",
        "A row of an index is not in its table: index and table differ.",
        "Copy the file; copy the rows with SCRIPT to a new database",
        (
            "damaged",
            "does-not-open",
        ),
    ),
    EngineError(
        "90146",
        "No database is found there, and IFEXISTS keeps this URL from making one.",
        "Look at the path: the URL leaves .h2.db, or .mv.db, out",
    ),
    EngineError(
        "90149",
        "No database is found there, and remote URLs make none.",
        "Look at the path: the URL leaves .h2.db, or .mv.db, out",
    ),
    EngineError(
        "8000",
        "The database did not open. This only wraps the error that says why.",
        _NEXT,
        ("does-not-open", "encrypted"),
        wraps=True,
    ),
    EngineError(
        "28000",
        "User or password is wrong, or the database asks for both.",
        "Give those of a user of this database; the file is not the cause",
    ),
    EngineError(
        "90067",
        "The connection to the server of H2 broke, or the server cannot be reached.",
        "Look whether the server runs; the error that closed the database stands in its trace file",
    ),
)
