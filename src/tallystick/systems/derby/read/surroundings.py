"""What a boot of Derby opens besides the log: the folder of the database.

In: the folder of a log. Out: `Surroundings`, with what follows from each part. The database is the
folder above the log; a log without ``seg0`` beside it is a log alone. The engine knows files by
their names alone, in small letters. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Final

from tallystick.errors import LogUnreadableError
from tallystick.records import Answer, Part, Surroundings
from tallystick.storage.source import in_the_way, link_to_nothing, logical_name, same_place
from tallystick.systems.derby.format.crypto import ENCRYPTED
from tallystick.systems.derby.format.layout import CONTROL_NAMES, SEGMENT, Control
from tallystick.systems.derby.read.files import (
    LOG_DEVICE,
    LOG_FOLDER,
    PROPERTIES,
    SERVICE,
    SYSTEM_PROPERTIES,
    LogFiles,
    database_of,
    is_log_name,
    log_on_device,
    properties_in,
    system_path,
    system_properties,
)
from tallystick.systems.protocol import LogSource
from tallystick.systems.surroundings import (
    alone,
    names_beside,
    packed_part,
    part_bytes,
    renamed_part,
)

OLD_PROPERTIES: Final = "service.propertiesold"
"""A boot takes it where there is no other that is whole: an update that a crash ended leaves it."""
_LAST_LINE: Final = b"#--- last line, don't put anything after this line ---"
"""Ends a file of properties that was written whole."""
_CIPHER_CHANGES: Final = "derby.storage.databaseEncryptionStatus"
"""Is there from when all containers have another cipher until their old files are removed."""
_PROPERTIES_ID: Final = "derby.storage.propertiesId"
_REQUIRED: Final = (
    SERVICE,
    _PROPERTIES_ID,
    *(f"Sysconglomerates{one}Identifier" for one in ("", "Index1", "Index2", "Index3")),
    *(f"Syscolumns{one}Identifier" for one in ("", "Index1")),
    *(f"Systables{one}Identifier" for one in ("", "Index1", "Index2")),
    *(f"Sysschemas{one}Identifier" for one in ("", "Index1", "Index2")),
)
"""Properties without each of which the database does not boot."""
_NUMBERS: Final = _REQUIRED[1:]
"""Those of them that are numbers of containers."""
_DIGITS: Final = 10
_LAYOUT: Final = "the layout of a database"
_LOCK: Final = "db.lck"


def surroundings_of(log: LogSource, files: LogFiles) -> Surroundings:
    """Return what a boot opens besides a log and its files, without the containers."""
    database = database_of(log)
    names = frozenset(map(logical_name, names_beside(database)))
    if others := sorted({*_of_other_case(names, (SEGMENT,)), *_of_other_case(*_log(log))}):
        return Surroundings(database, "database", (_renamed(database, others[0]),))
    if SEGMENT not in names:
        return alone(log.path)
    if elsewhere := log_elsewhere(log):
        return Surroundings(database, "database", (_other_device(elsewhere),), reads_log=False)
    parts = [_properties(database, files)]
    containers = sorted(names_beside(f"{database}/{SEGMENT}"))
    opened = [*log.files, *(f"{database}/{SEGMENT}/{one}" for one in containers)]
    if (packed := packed_part(opened, _LAYOUT)) is not None:
        parts.append(packed)
    nowhere = link_to_nothing(log.path)
    if log.database:
        parts.append(_log_device(log))
    elif LOG_FOLDER not in names or nowhere:
        state = f"a link to {nowhere}, which is not there," if nowhere else "missing,"
        text = f"The folder of the log is {state} and no boot makes it (XSLAQ)."
        answer = Answer.REFUSES
        parts.append(Part(LOG_FOLDER, log.path, _LAYOUT, there=False, why=text, answer=answer))
    parts += [*_engine(files), *_system(log), *_unwritten(database, log.path)]
    return Surroundings(database, "database", tuple(parts))


def _log(log: LogSource) -> tuple[list[str], list[str]]:
    """Return the names of the files of a log, and as the engine writes them."""
    names = [one for path in log.files if is_log_name(one := logical_name(path))]
    return names, [one.lower() for one in names]


def _of_other_case(names: Collection[str], wanted: Iterable[str]) -> set[str]:
    """Return the names that differ from a wanted one, which is not there, in case alone."""
    lacking = {one for one in wanted if one not in names}
    return {one for one in names if one.lower() in lacking}


def _renamed(database: str, name: str) -> Part:
    """Return the part that files are whose names have letters of another case."""
    why = (
        f"Derby asks for {name.lower()}, not for {name}: it does not find it until it is renamed, "
        "where the file system tells large letters from small ones."
    )
    decided_by = "whether the files are renamed before the start, and the file system of the start"
    return renamed_part(database, _LAYOUT, why, decided_by)


def read_at_boot(database: str) -> frozenset[int]:
    """Return the numbers of the containers that a boot reads, whatever the log says."""
    found = _properties_of(database)
    numbers = (found.get(one, "") for one in _NUMBERS)
    return frozenset(int(one) for one in numbers if one.isdecimal() and len(one) < _DIGITS)


def cipher_changes(database: str) -> bool:
    """Return whether a boot, before it reads the log, ends or undoes a change of the cipher."""
    return _CIPHER_CHANGES in _properties_of(database)


def _properties_of(database: str) -> Mapping[str, str]:
    """Return the properties that a database has; none where they cannot be read."""
    try:
        return properties_in(part_bytes(f"{database}/{taken_properties(database)}") or b"")
    except LogUnreadableError:
        return {}


def taken_properties(database: str) -> str:
    """Return the name of the file of properties that a boot takes."""
    names = frozenset(map(logical_name, names_beside(database)))
    if OLD_PROPERTIES not in names:
        return PROPERTIES
    data = part_bytes(f"{database}/{PROPERTIES}") or b""
    return PROPERTIES if data.rstrip().endswith(_LAST_LINE) else OLD_PROPERTIES


def started_by(files: LogFiles) -> tuple[str, str] | None:
    """Return the oldest version of the engine that starts the database, and the file that has it.

    That is the version of the last engine that was allowed to upgrade it; None if it is unknown.
    """
    for control in files.controls:
        if isinstance(found := control.content_or_error(), Control):
            return f"{found.major}.{found.minor}", control.path
    return None


def bound_by(files: LogFiles) -> str:
    """Return by which version, after "it was", a database may keep identities as they are.

    ``SET GENERATED`` came with Derby 10.13, which takes it of databases of 10.11 or later.
    """
    version, _ = started_by(files) or ("10.13", "")
    _, minor = map(int, version.split("."))
    if minor >= _SETS_GENERATED:
        return ""
    upgraded = ", once it is upgraded (upgrade=true)" if minor < _KEEPS_GENERATED else ""
    text = f"written by Derby {version}, which refuses SET GENERATED"
    return f"{text}: 10.13 or later takes it{upgraded}"


_SETS_GENERATED, _KEEPS_GENERATED = 13, 11
"""Minor versions of an engine that has that statement, and of databases in which it may be used."""


def _engine(files: LogFiles) -> Iterator[Part]:
    if (found := started_by(files)) is not None:
        version, path = found
        text = f"Engines older than {version} refuse the database (XSLAN)."
        yield Part(f"Derby {version} or newer", path, "the control file", fits=True, why=text)


def _system(log: LogSource) -> Iterator[Part]:
    """Yield the system's settings where they say something of the log."""
    if found := system_properties(log):
        text = ", ".join(f"{name}={value}" for name, value in sorted(found.items()))
        by = "the layout of a system: beside its databases"
        yield Part(SYSTEM_PROPERTIES, system_path(log), by, fits=True, why=f"It has {text}.")


def _unwritten(database: str, log: str) -> Iterator[Part]:
    """Yield the files that each boot writes and cannot, for what stands in their place."""
    path = f"{database}/{_LOCK}"
    if there := in_the_way(path):
        text = f"In the place of {_LOCK} is {there}. A boot that cannot write it opens the "
        text += "database to read only, without redo: what the log alone has is not there."
        if Path(path).is_fifo():
            text = f"{_LOCK} is a pipe: a boot reads it, and waits for ever."
        answer, decided_by = Answer.CANNOT_TELL, f"whether {_LOCK} is removed before the start"
        yield Part(_LOCK, path, _LAYOUT, True, False, text, answer, decided_by=decided_by)
        return
    for name in CONTROL_NAMES:
        # Links are no file to a boot that looks for log.ctrl: what follows is the log's own answer.
        if not (there := in_the_way(path := f"{log}/{name}")) or (
            name == CONTROL_NAMES[0] and not Path(path).exists()
        ):
            continue
        text = f"In the place of {name} is {there}, and a boot writes it: the database does not "
        text += "boot (XSLAE)."
        yield Part(name, path, _LAYOUT, fits=False, why=text, answer=Answer.REFUSES)


def looked_for(log: str, number: int) -> Iterator[Part]:
    """Yield what a boot finds where it looks for more of a log, if that is no file."""
    name = f"log{number}.dat"
    if Path(path := f"{log}/{name}").exists() and (there := in_the_way(path)):
        text = f"In the place of {name} is {there}, and a boot looks there for more of the log: "
        text += "the database does not boot."
        yield Part(name, path, _LAYOUT, fits=False, why=text, answer=Answer.REFUSES)


def _log_device(log: LogSource) -> Part:
    if log.files:
        text = "The log is where service.properties says."
        return Part(LOG_DEVICE, log.path, PROPERTIES, fits=True, why=text)
    return _no_device(log.path)


def _other_device(path: str) -> Part:
    """Return the log that a boot reads in the place of this one."""
    if not any(map(is_log_name, map(logical_name, names_beside(path)))):
        return _no_device(path)
    text = f"{PROPERTIES} names {path} as the folder of the log: a boot reads that one, and none "
    text += "of these files."
    return Part(LOG_DEVICE, path, PROPERTIES, why=text, answer=Answer.CANNOT_TELL)


def _no_device(path: str) -> Part:
    text = f"{PROPERTIES} names {path} as the folder of the log, and no log is there"
    answer = Answer.REFUSES
    if not PurePath(path).is_absolute():
        text += " from here: where it is depends on the folder in which the engine starts. Without "
        text += "one there"
        answer = Answer.CANNOT_TELL
    text += ": the database does not boot (XSLAB)."
    return Part(LOG_DEVICE, path, PROPERTIES, there=False, why=text, answer=answer)


def log_elsewhere(log: LogSource) -> str:
    """Return the folder of the log that a boot reads in its place; else nothing."""
    device = "" if log.database else log_on_device(_properties_of(database_of(log)))
    return "" if not device or same_place(device, log.path) else device


def put_aside(log: LogSource) -> str:
    """Return why no boot reads a log, where the database that it lies in names another place."""
    device = log_elsewhere(log)
    return f"no boot reads it, as {PROPERTIES} names {device} as the folder of the log" * bool(
        device
    )


def _properties(database: str, files: LogFiles) -> Part:
    name, path = PROPERTIES, f"{database}/{PROPERTIES}"
    try:
        name = taken_properties(database)
        path = f"{database}/{name}"
        data = part_bytes(path)
    except LogUnreadableError as error:
        text = f"{error}. A boot needs it."
        return Part(name, path, _LAYOUT, why=text, answer=Answer.CANNOT_TELL)
    if data is None:
        text = f"{PROPERTIES} is missing: Derby does not find the database (XJ004, XBM0A)."
        return Part(name, path, _LAYOUT, there=False, why=text, answer=Answer.REFUSES)
    found = properties_in(data)
    lacking = next((one for one in _REQUIRED if one not in found), None)
    if lacking is not None:
        text = f"{name} does not have the property {lacking}: the database does not boot (XCY03)."
        return Part(name, path, _LAYOUT, fits=False, why=text, answer=Answer.REFUSES)
    numberless = next((one for one in _NUMBERS if not found[one].isdecimal()), None)
    if numberless is not None:
        text = f"{name} has no number as {numberless}: the database does not boot."
        return Part(name, path, _LAYOUT, fits=False, why=text, answer=Answer.REFUSES)
    if files.cipher is not None and found.get(ENCRYPTED, "").lower() != "true":
        text = f"{name} does not say that the database is encrypted ({ENCRYPTED}), and its log is: "
        text += "the database does not boot (XBM0U)."
        return Part(name, path, _LAYOUT, fits=False, why=text, answer=Answer.REFUSES)
    return Part(name, path, _LAYOUT, fits=True, why="It has what a boot needs.")
