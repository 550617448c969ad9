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
        "Type tallystick repair DATABASE --to COPY: it writes the file anew from its twin",
        all_read=True,
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
        "Type tallystick repair DATABASE --to COPY: it makes the file from logmirror.ctrl; start "
        "the copy",
        all_read=True,
    ),
    Code(
        "missing-file",
        Severity.DAMAGE,
        "A log file does not exist; the severity is loss if a restart needs it, and warning if it "
        "begins after it.",
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
        all_read=True,
    ),
    Code(
        "dropped-commits",
        Severity.LOSS,
        "There are committed transactions after the end that a restart finds; it drops them.",
        COPY_FIRST,
        all_read=True,
    ),
    Code(
        "no-boot",
        Severity.LOSS,
        "The database does not start with this log.",
        "Keep a copy of the log folder as it is; deleting it loses every change that is not in "
        "the data files yet",
        all_read=True,
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
        all_read=True,
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
        "The log is encrypted, and no key was given, or one that does not open it.",
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
        Answer.CANNOT_TELL,
        "An end marker is written after the header of the next file, and that file is missing: "
        "what was committed in it, if anything was, is lost.",
        "the missing log file, from a backup",
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
        "The last log file ends with its last record and is smaller than the files before it, or "
        "than the 1 MiB that Derby gives the first by default: it was cut, or a system property, "
        "derby.storage.logSwitchInterval or fileSyncTransactionLog, was set.",
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

_NEXT = (
    "Look up the error that follows it: below it in derby.log, which lies where the process was "
    'started or in derby.system.home, after "Caused by" in a stack trace, or from '
    "getNextException() in Java"
)

ERRORS = engine_errors(
    EngineError(
        "XJ040",
        "The database did not start. This only wraps the error that says why.",
        _NEXT,
        ("no-boot", "part-refused", "encrypted"),
        wraps=True,
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
        "A change in the log cannot be redone. This only wraps the error that says why.",
        _NEXT,
        ("part-refused", "no-boot", "boot-depends"),
        wraps=True,
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
    EngineError(
        "XBM01",
        "The boot failed. This only wraps the error that says why.",
        _NEXT,
        ("no-boot", "part-refused", "encrypted"),
        wraps=True,
    ),
    EngineError(
        "XBM02",
        "A class that the boot needs is not on the class path.",
        "Start with all jars of Derby of one version; the files of the database are not the cause",
    ),
    EngineError(
        "XBM05",
        "The jars of Derby on the class path lack their version, or are of several.",
        "Start with all jars of Derby of one version; the files of the database are not the cause",
    ),
    EngineError(
        "XBM07",
        "The boot password is shorter than 8 bytes, so it is not that of this database.",
        "Give the right one to us with --boot-password, to Derby as bootPassword",
        ("encrypted",),
    ),
    EngineError(
        "XBM08",
        "The storage that the URL or service.properties names cannot be made.",
        "Look at the URL, and at the classes it needs; the files are not the cause",
    ),
    EngineError(
        "XBM0B",
        "service.properties cannot be written: rights, a full disk, or a read-only file system.",
        "Make room, or give the owner's rights back; change nothing else",
    ),
    EngineError(
        "XBM0C",
        "The security manager, or the rights of the process, keep Derby from a file.",
        "Give the process the rights of the files' owner",
    ),
    EngineError(
        "XBM0G",
        "The provider of the encryption is missing.",
        "Install the provider that encrypted the database; the files are not the cause",
    ),
    EngineError(
        "XBM0H",
        "A folder cannot be made: rights, a full disk, or a file of that name.",
        "Make room, or give the owner's rights back",
    ),
    EngineError(
        "XBM0I",
        "A folder of the database cannot be removed.",
        "Look at the rights of the folder above",
    ),
    EngineError(
        "XBM0J",
        "A database is made where a folder of that name is.",
        "Look whose folder it is before anything is put over it",
    ),
    EngineError(
        "XBM0P",
        "The database lies where Derby cannot write, as in a jar, and recovery has to write.",
        "Open a copy of it in a folder that can be written",
    ),
    EngineError(
        "XBM0Q",
        "A file of the backup that is restored is missing.",
        "Restore another backup; this one is not whole",
        ("part-refused",),
    ),
    EngineError(
        "XBM0R",
        "A file of the database cannot be removed.",
        "Look at the rights of its folder",
    ),
    EngineError(
        "XBM0S",
        "A file of the database cannot be renamed.",
        "Look at the rights of its folder, and for a process that has it open",
    ),
    EngineError(
        "XBM0Y",
        "The folder of the backup that is restored is not there.",
        "Look at the path of the backup",
    ),
    EngineError(
        "XBM0Z",
        "A file of the backup cannot be copied: rights, or a full disk.",
        "Make room, then restore again into an empty folder",
    ),
    EngineError(
        "XSDB0",
        "A page in memory is not what was expected.",
        "Take a copy of the database before any other start; compare seg0 and log with a backup",
        ("part-refused",),
    ),
    EngineError(
        "XSDB1",
        "A page in seg0 has a format that this version does not know: it is damaged.",
        "Use log and seg0 of one older copy",
        ("part-refused",),
    ),
    EngineError(
        "XSDB2",
        "The first page of a container in seg0 has an unknown format: it is damaged.",
        "Use log and seg0 of one older copy",
        ("part-refused",),
    ),
    EngineError(
        "XSDB3",
        "The first page of a container says something else than before: files of two databases, "
        "or damage.",
        "Use log and seg0 of one copy",
        ("part-refused",),
    ),
    EngineError(
        "XSDB5",
        "The log changes a page behind the end of its file in seg0: the file is cut, or of an "
        "earlier moment.",
        "Use log and seg0 of one copy",
        (
            "part-refused",
            "boot-depends",
        ),
    ),
    EngineError(
        "XSDB7",
        "Another process may have the database open, by its dbex.lck; this one goes on all the "
        "same.",
        "End one of both processes at once; two that write damage the database",
    ),
    EngineError(
        "XSDB8",
        "Another process may have the database open, by its dbex.lck, and this one was told not "
        "to go on.",
        "End that process; to delete dbex.lck while it runs can damage the database",
    ),
    EngineError(
        "XSDB9",
        "The file of a stream in seg0 is damaged.",
        "Use log and seg0 of one older copy",
        ("part-refused",),
    ),
    EngineError(
        "XSDBA",
        "An object could not be made on a page of a container.",
        _NEXT,
        wraps=True,
    ),
    EngineError(
        "XSDBB",
        "A page in seg0 has a format that this version does not know: it is damaged.",
        "Use log and seg0 of one older copy",
        ("part-refused",),
    ),
    EngineError(
        "XSDBC",
        "The first page of a container cannot be written.",
        "Make room, or look at the disk; then start again",
    ),
    EngineError(
        "XSDF0",
        "A file that recovery makes in seg0 is there already.",
        "Use log and seg0 of one copy",
    ),
    EngineError(
        "XSDF1",
        "A file in seg0 cannot be made: rights, or a full disk.",
        "Make room, or give the owner's rights back",
    ),
    EngineError(
        "XSDF3",
        "The folder seg0 cannot be made.",
        "Make room, or give the owner's rights back",
    ),
    EngineError(
        "XSDF4",
        "The file of a table that was dropped cannot be removed.",
        "Look at the rights of seg0",
    ),
    EngineError(
        "XSDF6",
        "A page that says which pages of a table are in use is missing: its file is cut.",
        "Use log and seg0 of one older copy",
        ("part-refused",),
    ),
    EngineError(
        "XSDFB",
        "The database is read-only, and the operation writes.",
        "Look why it is: rights, a medium, or a start without the log",
    ),
    EngineError(
        "XSDFD",
        "A page was read twice and differed: the disk, or the memory, is failing.",
        "Copy the database to another disk before anything else",
    ),
    EngineError(
        "XSDFI",
        "Recovery could not write to seg0: most likely the disk is full.",
        "Make room and start again; delete nothing in log or seg0",
    ),
    EngineError(
        "XSDG0",
        "A page in seg0 cannot be read: its file is cut, or the disk fails.",
        "Copy the database; use log and seg0 of one older copy",
        ("part-refused",),
    ),
    EngineError(
        "XSDG1",
        "A page in seg0 cannot be written: a full disk, or a quota.",
        "Make room and start again; delete nothing in log or seg0",
    ),
    EngineError(
        "XSDG3",
        "The first page of a container, which describes it, cannot be read or written.",
        f"{_NEXT}; look at the rights and the disk of seg0",
        ("part-refused",),
        wraps=True,
    ),
    EngineError(
        "XSDG4",
        "The description of a table or index cannot be read.",
        "Copy the database; use log and seg0 of one older copy",
        ("part-refused",),
    ),
    EngineError(
        "XSDG6",
        "The backup that is restored has no seg0.",
        "Restore another backup; this one is not whole",
        ("part-refused",),
    ),
    EngineError(
        "XSDG7",
        "The old folder cannot be removed, so the backup is not restored.",
        "Restore it into an empty folder",
    ),
    EngineError(
        "XSDG8",
        "A folder of the backup cannot be copied: rights, or a full disk.",
        "Make room, then restore again into an empty folder",
    ),
    EngineError(
        "XSDG9",
        "A thread of Derby was interrupted while it read or wrote.",
        "Find what interrupts threads of the application; then start again",
    ),
    EngineError(
        "XSLA0",
        "The log cannot be forced to disk: what was not acknowledged may be missing.",
        "Make room, or look at the disk; then start again",
    ),
    EngineError(
        "XSLA1",
        "A change went to the log and could not be made in the store; recovery may meet the same.",
        "Copy the database before any other start",
        (
            "part-refused",
            "boot-depends",
        ),
    ),
    EngineError(
        "XSLA2",
        "The log could not be read or written, and the system stopped.",
        "Look at the disk and the rights of the folder log; then start again",
    ),
    EngineError(
        "XSLA3",
        "The log holds something that is no record: it is damaged.",
        "Use an undamaged copy of the log",
        (
            "no-boot",
            "damaged",
            "odd-group",
        ),
    ),
    EngineError(
        "XSLA5",
        "The log cannot be read to roll a transaction back.",
        "Use an undamaged copy of the log",
        (
            "no-boot",
            "damaged",
        ),
    ),
    EngineError(
        "XSLA6",
        "Recovery failed. This only wraps the error that says why.",
        f"{_NEXT}; keep a copy of log and seg0 of this moment",
        (
            "no-boot",
            "part-refused",
            "boot-depends",
        ),
        wraps=True,
    ),
    EngineError(
        "XSLA8",
        "A transaction cannot be rolled back: what it changed is not in seg0 as the log says.",
        "Use log and seg0 of one copy",
        (
            "part-refused",
            "boot-depends",
        ),
    ),
    EngineError(
        "XSLAA",
        "An earlier error stopped the store.",
        "Look for the first error in derby.log",
    ),
    EngineError(
        "XSLAE",
        "log.ctrl cannot be written: rights, a full disk, or a read-only file system.",
        "Make room, or give the owner's rights back",
    ),
    EngineError(
        "XSLAF",
        "The database was opened read-only, and recovery has pages to write.",
        "Open a copy of it in a folder that can be written",
    ),
    EngineError(
        "XSLAH",
        "The database was opened read-only, and something writes.",
        "Open a copy of it in a folder that can be written",
    ),
    EngineError(
        "XSLAI",
        "The checkpoint cannot be written to the log.",
        "Make room and start again; delete nothing in the folder log",
    ),
    EngineError(
        "XSLAJ",
        "An earlier error stopped the log.",
        "Look for the first error in derby.log",
    ),
    EngineError(
        "XSLAK",
        "The numbers of log files are used up.",
        "Copy the rows to a new database",
    ),
    EngineError(
        "XSLAL",
        "A record of the log is larger than a log file may be: it is damaged, or the limit was "
        "lowered.",
        "Use an undamaged copy of the log",
        (
            "no-boot",
            "damaged",
        ),
    ),
    EngineError(
        "XSLAM",
        "log.ctrl cannot be read, so the format of the database is not known.",
        "Look at the rights and the disk of the folder log",
    ),
    EngineError(
        "XSLAP",
        "A beta version made the database: no release upgrades it.",
        "Copy the rows with that version",
    ),
    EngineError(
        "XSLAQ",
        "No log file can be made in the folder log: rights, a full disk, or logDevice names no "
        "folder.",
        "Make room, or give the owner's rights back; look at logDevice in service.properties",
    ),
    EngineError(
        "XSLAR",
        "A log file of the backup cannot be copied: rights, or a full disk.",
        "Make room, then restore again into an empty folder",
    ),
    EngineError(
        "XSLAS",
        "The backup that is restored has no folder log.",
        "Restore another backup; this one is not whole",
        (
            "no-boot",
            "part-refused",
        ),
    ),
    EngineError(
        "XSLAT",
        "The folder that logDevice names has a log already, perhaps of another database.",
        "Look whose log it is before anything is put over it",
        ("part-refused",),
    ),
    EngineError(
        "XSLB5",
        "The log is cut before a place that recovery still needs.",
        "Put the missing log files of this copy back",
        ("no-boot",),
    ),
    EngineError(
        "XSLB8",
        "Recovery was sent behind the end of the log.",
        "Use log and log.ctrl of one copy",
        (
            "checkpoint-past-end",
            "no-boot",
        ),
    ),
    EngineError(
        "XSRS8",
        "logDevice was changed: it can be given only when a database is made.",
        "Put the folder log where service.properties says",
    ),
    EngineError(
        "XSTB0",
        "A transaction cannot be rolled back. This only wraps the error that says why.",
        _NEXT,
        wraps=True,
    ),
    EngineError(
        "XSTB2",
        "A change cannot be logged, perhaps as the database is read-only.",
        "Look why it is: rights, a medium, or an earlier error",
    ),
    EngineError(
        "XSTB3",
        "A transaction cannot be rolled back, since an earlier error took the log away.",
        "Look for the first error in derby.log",
    ),
    EngineError(
        "XSTB5",
        "A database that was being made without a log failed.",
        "Make it anew",
    ),
    EngineError(
        "XSCH1",
        "The container of a table has no file in seg0.",
        "Put its file back from the copy that the log belongs to",
        ("part-refused",),
    ),
    EngineError(
        "XSAI2",
        "A table or index that the catalogue names has no container in seg0.",
        "Put its file back from the copy that the log belongs to",
        ("part-refused",),
    ),
    EngineError(
        "XBCXA",
        "The boot password is wrong.",
        "Give the right one to us with --boot-password, to Derby as bootPassword",
        ("encrypted",),
    ),
    EngineError(
        "XBCXK",
        "The encryption key is not that with which the database was made.",
        "Give Derby the right encryptionKey",
        ("encrypted",),
    ),
    EngineError(
        "XBCXL",
        "The file verifyKey.dat, which tells whether an encryption key is right, cannot be read.",
        "Put it back from a copy of this database",
        ("encrypted",),
    ),
    EngineError(
        "XJ041",
        "The database could not be made. This only wraps the error that says why.",
        _NEXT,
        wraps=True,
    ),
    EngineError(
        "XJ048",
        "The attributes of the URL contradict each other, as create beside restoreFrom.",
        "Give one of them",
    ),
    EngineError(
        "XJ050",
        "An earlier version made the database: it opens, and some operations need an upgrade.",
        "Upgrade a copy first; afterwards earlier versions do not open it",
    ),
    EngineError(
        "XJ081",
        "Attributes that create, restore or recover contradict each other.",
        "Give one of them",
    ),
    EngineError(
        "XJ001",
        "An exception of Java itself, whose class the message names, ended the start or the "
        "statement.",
        _NEXT,
        wraps=True,
    ),
    EngineError(
        "XJ015",
        "Derby was shut down in order, which it says by this.",
        "Nothing is to be done",
    ),
    EngineError(
        "08000",
        "A thread was interrupted, and Derby closed its connection.",
        "Find what interrupts threads of the application; then connect again",
    ),
    EngineError(
        "08001",
        "The server of Derby cannot be reached.",
        "Look at host and port, and whether the server runs; the files are not the cause",
    ),
    EngineError(
        "08003",
        "The connection is closed: an earlier error, or a shutdown, has done it.",
        "Look for the first error in derby.log",
    ),
    EngineError(
        "08004",
        "The connection was refused: user or password are wrong, or the server finds no such "
        "database.",
        "Look at user, password and the path in the URL; that the database did not start stands in "
        "derby.log of the server",
    ),
    EngineError(
        "08006",
        "The database was shut down in order, which Derby says by this; of a client, its "
        "connection to the server broke.",
        "After a shutdown nothing is to be done; else look for the first error in derby.log of the "
        "server",
    ),
    EngineError(
        "58009",
        "Client and server of Derby did not understand each other, and the connection broke.",
        "Look for the first error in derby.log of the server",
    ),
    EngineError(
        "XJ028",
        "The URL is none that Derby understands.",
        "Look at the URL; the files of the database are not the cause",
    ),
    EngineError(
        "XJ049",
        "Attributes of the URL that make the database contradict each other.",
        "Look at the URL; the files of the database are not the cause",
    ),
    EngineError(
        "XCY00",
        "A property has a value that Derby does not take.",
        "Look at service.properties, derby.properties and the URL",
    ),
    EngineError(
        "XCY03",
        "service.properties lacks a property that a boot needs.",
        "Put service.properties of this database back",
        ("part-refused",),
    ),
    EngineError(
        "XBM03",
        "The URL names a collation that Derby does not know.",
        "Look at the URL; the files of the database are not the cause",
    ),
    EngineError(
        "XBM04",
        "This Java has no collation for the language of the database.",
        "Start with a Java that has it; the files of the database are not the cause",
    ),
    EngineError(
        "XBM0K",
        "The URL names a storage that Derby does not know.",
        "Look at the URL; the files of the database are not the cause",
    ),
    EngineError(
        "XBM0L",
        "The class of the authentication is not what Derby asks for.",
        "Look at derby.authentication.provider; the files are not the cause",
    ),
    EngineError(
        "XBM0M",
        "The class of the authentication cannot be made.",
        "Look at derby.authentication.provider; the files are not the cause",
    ),
    EngineError(
        "XBM0N",
        "The driver of JDBC cannot be registered.",
        "Start with all jars of Derby of one version; the files of the database are not the cause",
    ),
    EngineError(
        "XBM0T",
        "The URL does not tell which storage is meant.",
        "Look at the URL; the files of the database are not the cause",
    ),
    EngineError(
        "XBM0U",
        "A class that the files name by its number is not in these jars: a later version wrote "
        "them, or they are damaged.",
        "Start with the version that had the database last, and all its jars",
        ("no-boot", "part-refused"),
    ),
    EngineError(
        "XBM0V",
        "A class that the files name cannot be loaded: jars are missing, or of another version.",
        "Start with all jars of Derby of one version; the files of the database are not the cause",
    ),
    EngineError(
        "XBM0W",
        "A class that the files name cannot be made: jars are of another version.",
        "Start with all jars of Derby of one version; the files of the database are not the cause",
    ),
    EngineError(
        "XBM0X",
        "The URL names a language that Derby does not know.",
        "Look at the URL; the files of the database are not the cause",
    ),
    EngineError(
        "XBCX0",
        "The provider of the encryption raised an error.",
        _NEXT,
        ("encrypted",),
        wraps=True,
    ),
    EngineError(
        "XBCXF",
        "The provider of the encryption is not on the class path.",
        "Install the provider that encrypted the database; the files are not the cause",
    ),
    EngineError(
        "XBCXG",
        "The provider does not have the algorithm of the encryption.",
        "Install the provider that encrypted the database; the files are not the cause",
    ),
    EngineError(
        "40XT0",
        "The store met a state that its code does not expect.",
        "Copy the database before any other start; look for the first error in derby.log",
    ),
    EngineError(
        "XSLB1",
        "A change could not be written to the log, most likely as it is too large.",
        "Copy the database before any other start; look for the first error in derby.log",
    ),
    EngineError(
        "XSLB2",
        "A change is too large for the log.",
        "Write it in smaller pieces; the files are not the cause",
    ),
    EngineError(
        "XSLB6",
        "A record of length 0 was to be written to the log.",
        "Look for the first error in derby.log",
    ),
    EngineError(
        "XSLB9",
        "The log was stopped: an earlier error, or a shutdown, has done it.",
        "Look for the first error in derby.log",
    ),
)
