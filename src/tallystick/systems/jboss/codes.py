"""The codes of the findings of circular journals."""

from __future__ import annotations

from typing import Final

from tallystick.records import Answer, Severity
from tallystick.systems.answers import Reason, reasons
from tallystick.systems.engine_errors import EngineError, engine_errors
from tallystick.systems.findings import Code, codes

_EXPORT_FIRST = "Copy the journal now; export it with --salvage before any restart"

CODES: Final = codes(
    Code(
        "load",
        Severity.DAMAGE,
        "The journal's own loader gives up with an exception: the application would not start.",
        "Copy the journal, then repair or remove what the message names",
        all_read=True,
    ),
    Code(
        "records-appended",
        Severity.LOSS,
        "Newer code appended records to a file of the older format; the loader ignores them.",
        _EXPORT_FIRST,
        all_read=True,
    ),
    Code(
        "records-unheaded",
        Severity.LOSS,
        "A file was reused and its header not renewed; the loader ignores all its new records.",
        _EXPORT_FIRST,
        all_read=True,
    ),
    Code(
        "partial-transaction",
        Severity.LOSS,
        "A committed or prepared transaction lacks elements, and the loader uses the rest.",
        "Find out from the application what the transaction did, and repair it",
    ),
    Code(
        "damaged-end",
        Severity.DAMAGE,
        "A transaction has no end, and a damaged record after it may have been its commit.",
        "Find out from the application whether the transaction committed; compare with a copy",
    ),
    Code(
        "deleted-and-added-again",
        Severity.WARNING,
        "An id was deleted and added again; the loader's list form hides its records.",
        "An application should never use an id again",
    ),
    Code(
        "revived",
        Severity.LOSS,
        "The loader shows records that were deleted.",
        "Compare with a copy before the application reads them; delete them again after the start",
        all_read=True,
    ),
    Code(
        "damaged-record",
        Severity.DAMAGE,
        "A record was damaged after it was written.",
        "Compare with a copy or a replica",
    ),
    Code(
        "torn-record",
        Severity.INFO,
        "The last write did not finish; it was never acknowledged.",
    ),
    Code(
        "same-file-id",
        Severity.WARNING,
        "Two files have the same id; which one is loaded first is undefined.",
        "If one is a copy, take it away; if a header is damaged, repair it",
    ),
    Code(
        "update-without-add",
        Severity.LOSS,
        "A live record was updated, but its add is missing: a file is gone.",
        "Look for the missing file in backups",
    ),
    Code(
        "missing-file-ids",
        Severity.INFO,
        "Ids between the lowest and the highest have no file: reclaimed, compacted, or lost.",
    ),
    Code(
        "incomplete-transaction",
        Severity.INFO,
        "Elements of a transaction are missing, and the loader discards it.",
    ),
    Code(
        "open-transaction",
        Severity.INFO,
        "A transaction neither prepared nor ended; the loader discards it.",
    ),
    Code(
        "in-doubt",
        Severity.INFO,
        "A transaction is prepared, and its outcome is not in the journal.",
    ),
    Code(
        "state-cut",
        Severity.DAMAGE,
        "The state of a transaction in a store of files is empty, cut, damaged or that of another.",
        "Copy the store; settle by hand what its resources hold prepared: recovery cannot, and "
        "moves what it cannot read to `Expired`",
    ),
    Code(
        "state-passed-over",
        Severity.WARNING,
        "The state of a transaction in a store of files is hidden, a shadow, locked, under a name "
        "or folders that Narayana does not write, or not in the folder of its type or hash: no "
        "recovery reads it.",
        "Find out who hid or renamed it; under its Uid alone, and without UID_lock and "
        "UID_lock.lock of a process that has ended, recovery goes by it again",
    ),
    Code(
        "recovery-ends",
        Severity.DAMAGE,
        "A file or folder in a store by hash has a name that is no Uid: recovery ends there with "
        "an error.",
        "Move it out of the store after a copy",
        all_read=True,
    ),
    Code(
        "state-expired",
        Severity.WARNING,
        "Recovery has given up a transaction, and moved its state to `Expired`.",
        "Look at its resources for prepared branches, and settle them by hand",
    ),
    Code(
        "compaction-leftover",
        Severity.WARNING,
        "A crash interrupted a compaction or the creation of a file.",
    ),
    Code(
        "short-file",
        Severity.WARNING,
        "A file is shorter than its header; Artemis deletes it, older code does not start.",
    ),
    Code(
        "put-aside",
        Severity.INFO,
        "Files that a broker has put aside, or keeps for replay: no start reads them.",
    ),
    Code(
        "older-generation",
        Severity.WARNING,
        "Files of HornetQ lie in the folder of a journal of Artemis, which never reads them.",
        "Export their messages, or start HornetQ with a copy of them",
    ),
    Code(
        "file-without-header",
        Severity.WARNING,
        "A file was created and filled, and its header never written.",
        "It holds nothing; remove it after a copy",
    ),
)

REASONS = reasons(
    Reason(
        "state-cut",
        Answer.CANNOT_TELL,
        "The state of a transaction is empty, cut, damaged or that of another one: its first write "
        "did not end, and nothing was told to commit; or a later one did not, for which Narayana "
        "empties the file; or something else destroyed a decision.",
        "which of its branches the resources hold prepared, and which have committed",
    ),
    Reason(
        "state-passed-over",
        Answer.CANNOT_TELL,
        "The state of a transaction is hidden, only a shadow, locked, under a name or folders "
        "that Narayana does not write, or not in the folder of its type or hash: recovery does "
        "not finish it, and its branches stay prepared.",
        "whether it was hidden on purpose, or is a copy that an interrupted write left; whether "
        "what locked it still runs; whether the file system tells large letters from small ones",
    ),
    Reason(
        "recovery-ends",
        Answer.REFUSES,
        "In a store by hash lies a file or folder whose name is no Uid: recovery ends with an "
        "error when it comes to it, and finishes no transaction until it is gone.",
    ),
    Reason(
        "state-expired",
        Answer.CANNOT_TELL,
        "Recovery has given up a transaction that was decided, or whose state it could not read: "
        "it never finishes it, and branches that are still prepared stay so.",
        "which of its branches the resources hold prepared, and which have committed",
    ),
    Reason(
        "states-whole",
        Answer.SAFE,
        "Every state of a transaction is whole: it is forced before the first branch is told to "
        "commit, and recovery goes by it.",
        after_crash=True,
    ),
    Reason(
        "no-state",
        Answer.SAFE,
        "The store has no state of a transaction, as where none was decided, or all have ended: "
        "recovery finishes none, and what resources hold prepared was not decided here.",
    ),
    Reason(
        "load-refused",
        Answer.REFUSES,
        "The journal's own loader gives up, and the application does not start.",
    ),
    Reason(
        "records-lost",
        Answer.LOSES,
        "A restart drops records, applies a transaction in part, or shows deleted records.",
    ),
    Reason(
        "file-missing",
        Answer.LOSES,
        "Live records were updated and their adds are nowhere: a file with a live record is never "
        "reclaimed, so one is missing.",
    ),
    Reason(
        "elements-missing",
        Answer.CANNOT_TELL,
        "Elements of a transaction stand in a file that is gone: reclaimed, or lost.",
        "the missing file, from a backup",
    ),
    Reason(
        "same-file-id",
        Answer.CANNOT_TELL,
        "Two files have the same id: one is a copy, or its header is damaged.",
        "which of the two files the journal wrote",
    ),
    Reason(
        "odd-id",
        Answer.CANNOT_TELL,
        "A header or a record has an id that no journal gives there: of another file, higher than "
        "that of the newest file, or, in an empty file, lower than that of its name, or a new one "
        "although a record before it is neither live nor deleted.",
        "a copy of the files from before",
    ),
    Reason(
        "odd-record",
        Answer.CANNOT_TELL,
        "A record stands where no journal appends it: an add of an id that is there, or a "
        "delete or rollback of nothing although every file is there, and in its first life, or "
        "although its number is that of a transaction or record that is there.",
        "a copy of the files from before",
    ),
    Reason(
        "ids-missing",
        Answer.CANNOT_TELL,
        "Each file id is given out once, and one has no owner. Records after it do not go on from "
        "the ids before it: its file may have held records that are named nowhere else.",
        "a listing of the journal's folder from before",
    ),
    Reason(
        "compaction-pending",
        Answer.CANNOT_TELL,
        "A compaction, or the creation of a file, was not finished, and a file of it is gone or "
        "holds records, which no crash leaves.",
        "a copy of the journal's folder from before",
    ),
    Reason(
        "gap-between-records",
        Answer.CANNOT_TELL,
        "Between two records of one life of a file stand bytes that no append leaves: records may "
        "have stood there.",
        "a copy of the file from before",
    ),
    Reason(
        "odd-end",
        Answer.CANNOT_TELL,
        "After the last record stand bytes that are neither the fill of a file, nor an earlier "
        "life of it, nor an unfinished record.",
        "a copy of the file from before",
    ),
    Reason(
        "room-left",
        Answer.CANNOT_TELL,
        "A file ends before it is full although the first record of the next file would have fit: "
        "records may have stood there, or the change of files was forced.",
        "a copy of the file from before",
    ),
    Reason(
        "empty-after-full",
        Answer.CANNOT_TELL,
        "The last file with records is full, and two files were opened after it: the first of them "
        "is opened ahead, the second when a record comes, and that record is not there.",
        "a copy of the files from before",
    ),
    Reason(
        "next-file-missing",
        Answer.CANNOT_TELL,
        "The newest file is full, or a compaction may have left it, and a journal opens the next "
        "file before it needs it.",
        "a listing of the journal's folder from before",
    ),
    Reason(
        "room-ahead",
        Answer.SAFE,
        "Whole records stand end to end, and the newest file has room for the largest of them: a "
        "next one, which a crash kept from being created, would hold nothing yet.",
        after_crash=True,
    ),
    Reason(
        "next-file",
        Answer.SAFE,
        "Whole records stand end to end, nothing was written after the last one, and the next file "
        "is there: a record is acknowledged after its sync.",
        after_crash=True,
    ),
)

_NEXT = (
    'Look up the error that follows it: after "Caused by" below it in log/artemis.log of the '
    "broker, or in server.log of the application server"
)

ERRORS = engine_errors(
    EngineError(
        "AMQ149001",
        "A file of the journal has another user version: another application wrote it.",
        "Look whether the folder is that of this journal",
        ("load-refused",),
    ),
    EngineError(
        "AMQ149002",
        "A file of the journal has a format version that this code does not read.",
        "Start the version that wrote it, and export the messages with it",
        ("load-refused",),
    ),
    EngineError(
        "AMQ142013",
        "A prepared transaction lacks elements: the load throws it away.",
        "Keep a copy of the journal before any start; its coordinator may have decided to commit",
        ("records-lost", "elements-missing"),
    ),
    EngineError(
        "AMQ142014",
        "A transaction lacks elements: the load throws it away.",
        "Keep a copy of the journal before any start; look for the file that is missing",
        ("records-lost", "elements-missing"),
    ),
    EngineError(
        "AMQ142015",
        "A transaction was never ended: the load throws it away.",
        "Nothing of it was acknowledged, if every file is there",
    ),
    EngineError(
        "AMQ144007",
        "A file of the journal is shorter than its header: Artemis removes it.",
        "A crash while a file is created leaves such a file, and nothing was in it",
    ),
    EngineError(
        "AMQ224000",
        "The start of the broker failed. This only wraps the error that says why.",
        _NEXT,
        ("load-refused", "part-refused"),
        wraps=True,
    ),
    EngineError(
        "AMQ224097",
        "The broker did not start. This only wraps the error that says why.",
        _NEXT,
        ("load-refused", "part-refused"),
        wraps=True,
    ),
    EngineError(
        "AMQ222010",
        "A file of the broker could not be read or written, and the broker stops.",
        "Make room, or look at the disk and at the file that the message names; then start again",
    ),
    EngineError(
        "AMQ149000",
        "A file of the journal cannot be renamed.",
        "Look at the rights of its folder, and for a process that has it open",
    ),
    EngineError(
        "AMQ149003",
        "A file of the journal was used that is not open.",
        "Look for the first error in artemis.log",
    ),
    EngineError(
        "AMQ149004",
        "A file of the journal cannot be opened.",
        "Look at the rights of the file and its folder; then start again",
    ),
    EngineError(
        "AMQ149005",
        "A message is larger than a record of the journal may be: it was not sent, and nothing is "
        "damaged.",
        "Put large properties of the message into its body",
    ),
    EngineError(
        "AMQ221005",
        "A large message was not sent to its end: the start deletes its file.",
        "Nothing of it was acknowledged, if the whole journal is there",
    ),
    EngineError(
        "AMQ221015",
        "Messages of pages were taken from a queue that the bindings do not have: the start "
        "deletes the note.",
        "Keep a copy of the broker before any start; look whether bindings and journal are of one "
        "moment",
        ("part-lost",),
    ),
    EngineError(
        "AMQ221018",
        "No record names a large message: the start deletes its file.",
        "Keep a copy of the broker before any start; look whether journal and large messages are "
        "of one moment",
        ("part-lost", "records-lost"),
    ),
    EngineError(
        "AMQ221019",
        "No queue has a message of the journal: the start deletes it.",
        "Keep a copy of the broker before any start; look whether bindings and journal are of one "
        "moment",
        ("part-lost", "records-lost"),
    ),
    EngineError(
        "AMQ221034",
        "The broker waits for the lock of its journal: another broker has it open.",
        "End that broker, or leave this one as its backup; delete no server.lock while one runs",
    ),
    EngineError(
        "AMQ222005",
        "A divert in broker.xml has no address to forward to, and is not made.",
        "Mend broker.xml; the files of the broker are not the cause",
    ),
    EngineError(
        "AMQ222028",
        "A page that the journal names is not there: its messages are taken to be read.",
        "Keep a copy of the broker before any start; put the pages of the same moment back",
        ("part-lost",),
    ),
    EngineError(
        "AMQ222030",
        "A page was read in part, and is renamed to .invalidPage.",
        "Keep a copy of the broker before any start; put the page of the same moment back",
        ("part-lost",),
    ),
    EngineError(
        "AMQ222033",
        "A page ends within a message, which is not read.",
        "A crash leaves such a page, and nothing of that message was acknowledged; else put the "
        "page of the same moment back",
        ("part-lost",),
    ),
    EngineError(
        "AMQ222035",
        "A folder of pages lacks address.txt: its pages are not read.",
        "Put address.txt of that folder back",
        ("part-lost",),
    ),
    EngineError(
        "AMQ222043",
        "The bindings do not have the queue of a message, which is dropped.",
        "Keep a copy of the broker before any start; look whether bindings and journal are of one "
        "moment",
        ("part-lost",),
    ),
    EngineError(
        "AMQ222045",
        "The bindings do not have the queue of a message of a prepared transaction, which is "
        "dropped.",
        "Keep a copy of the broker before any start; look whether bindings and journal are of one "
        "moment",
        ("part-lost", "beside-the-log"),
    ),
    EngineError(
        "AMQ222047",
        "The bindings do not have the queue of a note about pages.",
        "Keep a copy of the broker before any start; look whether bindings and journal are of one "
        "moment",
        ("part-lost",),
    ),
    EngineError(
        "AMQ222049",
        "A record of the journal is of a kind that this version does not know.",
        "Start the version that wrote it; it may be damaged, too",
        ("records-lost", "damaged"),
    ),
    EngineError(
        "AMQ222210",
        "The disk is fuller than max-disk-usage: the broker takes no messages.",
        "Make room; nothing is damaged",
    ),
    EngineError(
        "AMQ222212",
        "The disk is full: the broker takes no messages for an address.",
        "Make room; nothing is damaged",
    ),
    EngineError(
        "AMQ224008",
        "An id could not be written to the journal.",
        "Make room, or look at the disk; then start again",
    ),
)
