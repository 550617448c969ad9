"""The table of codes of Derby's findings."""

from __future__ import annotations

from tallystick.records import Answer, Severity
from tallystick.systems.answers import Reason, reasons
from tallystick.systems.engine_errors import EngineError, engine_errors
from tallystick.systems.findings import Code, codes

COPY_FIRST = "Copy the log folder before anything starts the database"

CODES = codes(
    Code(
        "wrong-key",
        Severity.DAMAGE,
        "The boot password or key that was given does not open the encrypted log.",
        "Give the secret that the database was created with, and its encryptionAlgorithm",
        sealed=True,
    ),
    Code(
        "encrypted",
        Severity.INFO,
        "The log is encrypted and no key was given: only record envelopes were read.",
        "Give the boot password or the external key",
        sealed=True,
    ),
    Code(
        "control-damaged",
        Severity.DAMAGE,
        "A control file is too short, or its checksum or format id is wrong.",
        "Its twin holds the same bytes",
    ),
    Code(
        "newer-version",
        Severity.INFO,
        "The log is of a newer version than the engine that these rules were tried on.",
        "Start it with this version or a newer one: older engines refuse it",
    ),
    Code(
        "control-missing",
        Severity.DAMAGE,
        "log.ctrl does not exist: a restart scans from log1.dat instead of from the checkpoint.",
        "Copy logmirror.ctrl to log.ctrl before starting the database",
    ),
    Code(
        "missing-file",
        Severity.DAMAGE,
        "A log file does not exist; the severity is loss if a restart needs it.",
        "Look for a backup or an archive of the log",
    ),
    Code(
        "torn-tail",
        Severity.WARNING,
        "The last group is not whole: its write never finished, or it was damaged later.",
    ),
    Code(
        "cut-short",
        Severity.DAMAGE,
        "A log file ends inside a group and is smaller than the 1 MiB that Derby gives it by "
        "default before it writes records. With derby.storage.fileSyncTransactionLog or a smaller "
        "derby.storage.logSwitchInterval a crash can leave this; otherwise the file was cut, and "
        "commits may have gone with its end.",
        "Look for a whole copy of the file; derby.properties has the settings that decide",
    ),
    Code(
        "damaged",
        Severity.DAMAGE,
        "A group or a range of bytes is damaged, and whole records follow it.",
        COPY_FIRST,
    ),
    Code(
        "envelope-mismatch",
        Severity.DAMAGE,
        "A record's instant or trailing length is wrong in a way that the engine does not notice.",
        COPY_FIRST,
    ),
    Code(
        "dropped-commits",
        Severity.LOSS,
        "There are committed transactions after the end that a restart finds; it drops them.",
        COPY_FIRST,
    ),
    Code(
        "no-boot",
        Severity.LOSS,
        "The database does not start with this log.",
        "Keep a copy of the log folder as it is; deleting it loses every change that is not in "
        "the data files yet",
    ),
    Code(
        "unlogged-build",
        Severity.INFO,
        "A container that the log creates was filled without log records, as the index on a "
        "populated table is: only its file holds that content.",
    ),
    Code(
        "page-gap",
        Severity.WARNING,
        "Changes of a page are missing from the log: the database starts only if the page is "
        "newer in its container's file.",
        "Keep a copy of the whole database before anything starts it; starting a second copy tells",
    ),
    Code(
        "new-log",
        Severity.LOSS,
        "A restart finds no log to recover from and creates an empty one.",
        "Look for the missing log files before starting the database",
    ),
    Code(
        "undo-against-newer-pages",
        Severity.LOSS,
        "The checkpoint is after the end of the log: undo would change newer pages.",
        "Do not start the database; restore the log first",
    ),
    Code(
        "in-doubt",
        Severity.WARNING,
        "A prepared transaction waits for the decision of its coordinator.",
        "List it with tallystick indoubt list, beside the log of its coordinator",
    ),
)

REASONS = reasons(
    Reason(
        "no-boot",
        Answer.REFUSES,
        "The database does not boot with this log.",
    ),
    Reason(
        "encrypted",
        Answer.CANNOT_TELL,
        "The log is encrypted and no key was given.",
        "the boot password or the external key",
    ),
    Reason(
        "boot-depends",
        Answer.CANNOT_TELL,
        "Whether the database boots does not follow from the log.",
        "a second copy of the database, booted",
    ),
    Reason(
        "new-log",
        Answer.CANNOT_TELL,
        "The engine finds no log to recover from and creates an empty one: what was committed "
        "after the last checkpoint, if anything was, is lost.",
        "the missing log files, or the control file, from a backup",
    ),
    Reason(
        "checkpoint-past-end",
        Answer.CANNOT_TELL,
        "The checkpoint is after the end of the log: what was committed after it, if anything was, "
        "is lost, and undo meets newer pages.",
        "a copy of the log from before the damage; a second copy of the database, booted",
    ),
    Reason(
        "last-file-missing",
        Answer.LOSES,
        "An end marker is written after the header of the next file, and that file is missing.",
    ),
    Reason(
        "commits-dropped",
        Answer.LOSES,
        "Committed transactions stand after the end that a restart finds, and after what the "
        "last checkpoint wrote to the pages; it drops them.",
    ),
    Reason(
        "older-control",
        Answer.CANNOT_TELL,
        "The control file that a boot uses is older than the log: it was put back, and pages may "
        "be newer than the checkpoint that it names.",
        "the newer control file, or a second copy of the database, booted",
    ),
    Reason(
        "no-checkpoint",
        Answer.CANNOT_TELL,
        "No checkpoint is recorded at the place that the control file names, or with marks that it "
        "cannot have: recovery starts elsewhere, or leaves changes out.",
        "the control file from before the damage, or a second copy of the database, booted",
    ),
    Reason(
        "files-after-end",
        Answer.CANNOT_TELL,
        "The log ends before its last file, and the later files do not continue it.",
        "the log file in which it ends, from a backup",
    ),
    Reason(
        "not-preallocated",
        Answer.CANNOT_TELL,
        "The last log file ends with its last record and is smaller than the 1 MiB that Derby "
        "gives it by default: it was cut, or derby.storage.fileSyncTransactionLog was set.",
        "derby.properties: with --set derby.storage.fileSyncTransactionLog=true the end is sound",
    ),
    Reason(
        "odd-size",
        Answer.CANNOT_TELL,
        "The last log file has no size that Derby gives a new one, or ends inside the length that "
        "follows its last record: it was cut.",
        "a copy of the log file from before it was cut",
    ),
    Reason(
        "odd-group",
        Answer.CANNOT_TELL,
        "The last group is damaged, and no sector of it was left unwritten, or one was written in "
        "part: a crash does not leave that.",
        "a copy of the log file from before the damage",
    ),
    Reason(
        "zeros-to-the-end",
        Answer.SAFE,
        "Every group from the start of recovery on is whole, and after the last one the "
        "preallocated file was never written: a commit is acknowledged after its group is synced.",
        after_crash=True,
    ),
    Reason(
        "unfinished-group",
        Answer.SAFE,
        "Every group from the start of recovery on is whole but the last one, of which whole "
        "sectors were never written: no commit in it was acknowledged.",
        after_crash=True,
    ),
    Reason(
        "never-synced",
        Answer.SAFE,
        "The control file says that derby.system.durability=test was set: nothing is synced. The "
        "log ends as a kill of the process leaves it; where the machine stopped, commits that were "
        "acknowledged may be missing without a trace.",
        after_crash=True,
    ),
    Reason(
        "file-begun",
        Answer.SAFE,
        "The last file has nothing but its header: a switch makes it, ends the file before with "
        "the groups that wait, and fills the new file with zeros; no commit in those groups was "
        "acknowledged.",
        after_crash=True,
    ),
    Reason(
        "file-grown",
        Answer.SAFE,
        "Every group from the start of recovery on is whole, and the file, which is not "
        "preallocated any more, ends with the last one: a commit is acknowledged after its group "
        "is synced.",
        after_crash=True,
    ),
)

ERRORS = engine_errors(
    EngineError(
        "XJ040",
        "The database did not start; the next exception in the chain says why.",
        "Look up the error that follows it",
    ),
    EngineError(
        "XJ004",
        "No database is found there: the folder, or what a boot needs of service.properties, is "
        "missing.",
        "Put service.properties of this database back; do not create a database over the folder",
        ("part-refused",),
    ),
    EngineError(
        "XBM0A",
        "The folder of the database is there, and its service.properties is not.",
        "Put service.properties of this database back; do not create a database over the folder",
        ("part-refused",),
    ),
    EngineError(
        "XSDB4",
        "A page in seg0 is older than what the log changes: its file is of an earlier moment than "
        "the log, or a write of it was lost.",
        "Use log and seg0 of one copy; without the log the changes that only it holds are gone",
        ("part-refused", "boot-depends"),
    ),
    EngineError(
        "XSDG2",
        "A page in seg0 has a wrong checksum: it is damaged, or was written in part.",
        "Use log and seg0 of one older copy",
        ("part-refused",),
    ),
    EngineError(
        "40XD2",
        "A container that recovery changes has no file in seg0.",
        "Put its file back from the copy that the log belongs to",
        ("part-refused",),
    ),
    EngineError(
        "XSDB6",
        "Another process has the database open, by its db.lck.",
        "End that process; to delete db.lck while it runs can damage the database",
    ),
    EngineError(
        "XBM06",
        "The boot password of the encrypted database is wrong or missing.",
        "Give it to us with --boot-password, to Derby as bootPassword",
        ("encrypted",),
    ),
    EngineError(
        "XSLA4",
        "The log cannot be written: most likely the disk is full.",
        "Make room and start again; delete nothing in the folder log",
    ),
    EngineError(
        "XSLA7",
        "A change in the log cannot be redone; the next exception says why.",
        "Look up the error that follows it",
        ("part-refused", "no-boot", "boot-depends"),
    ),
    EngineError(
        "XSLAB",
        "A file of the log is missing, or logDevice names another place.",
        "Put the file, or the folder log, of this copy back; look at logDevice in "
        "service.properties",
        ("no-boot", "part-refused"),
    ),
    EngineError(
        "XSLAC",
        "A file of the log has a format that this version does not know.",
        "Look whether the file is damaged, or a later version wrote it",
        ("no-boot",),
    ),
    EngineError(
        "XSLAD",
        "The lengths at both ends of a record in the log differ: it is damaged.",
        "Use an undamaged copy of the log",
        ("no-boot", "damaged"),
    ),
    EngineError(
        "XSLAN",
        "A later version created or upgraded the database.",
        "Start it with that version, or a later one",
        ("no-boot", "part-refused"),
    ),
    EngineError(
        "XSLAO",
        "Recovery met something in the log that it does not expect.",
        "Use an undamaged copy of the log",
        ("no-boot",),
    ),
)
