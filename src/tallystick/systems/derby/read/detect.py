"""Recognising Derby's log folder, and gathering what is to be read.

In: the entries of one folder. Out: a `LogSource`, and later the opened `LogFiles`. The database's
``service.properties`` lies beside the folder's files or one folder above; it is read, never needed.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from tallystick.errors import LogFormatError, LogUnreadableError
from tallystick.records import Finding
from tallystick.storage.source import PACKINGS, ByteSource, logical_name, open_source
from tallystick.systems.derby.format.compressed_numbers import format_id
from tallystick.systems.derby.format.crypto import (
    ENCRYPTED,
    LogCipher,
    algorithm_of,
    key_of_password,
)
from tallystick.systems.derby.format.layout import (
    CONTROL_NAMES,
    HEADER_SIZE,
    LOG_FILE,
    LOG_RECORD,
    OBSOLETE_VERSION,
    find_record,
    make_instant,
    read_envelope,
)
from tallystick.systems.derby.read.files import ControlBytes, LogBytes, LogFiles, looks_plain
from tallystick.systems.protocol import (
    Entry,
    Folder,
    LogSource,
    ReadOptions,
    readable_entries,
    unreadable_finding,
)

_FILE_NAME = re.compile(r"log(\d{1,10})\.dat")
_NOTICE = "README_DO_NOT_TOUCH_FILES.txt"
_PROPERTIES = "service.properties"
_SIGNATURE = LOG_FILE.to_bytes(4) + OBSOLETE_VERSION.to_bytes(4)


def file_number(name: str) -> int | None:
    """The number in ``log<N>.dat``, None for any other name."""
    match = _FILE_NAME.fullmatch(name)
    return int(match[1]) if match else None


def detect(folder: Folder) -> list[LogSource]:
    """At most one log: a folder in which one file at least has Derby's signature."""
    entries = list(readable_entries(folder.entries))
    named = [entry for entry in entries if _named(entry.name)]
    if not any(_signed(entry) for entry in named):
        return []
    files = [entry.path for entry in entries if _named(entry.name) or entry.name == _NOTICE]
    return [LogSource("derby", folder.path, tuple(files))]


def _named(name: str) -> bool:
    return name in CONTROL_NAMES or file_number(name) is not None


def _signed(entry: Entry) -> bool:
    """Format id and version; the version is never checked by the engine, so one may be damaged."""
    head = entry.head
    if len(head) < len(_SIGNATURE):
        return False
    if head.startswith(_SIGNATURE):
        return True
    number = file_number(entry.name)
    if number is None:
        return head[4:8] == _SIGNATURE[4:] and len(head) < HEADER_SIZE * 4
    first = int.from_bytes(head[28:36])
    return head[8:16] == number.to_bytes(8) or first == make_instant(number, HEADER_SIZE)


class Gathered:
    """The opened files of a log; close it to release them."""

    def __init__(self, source: LogSource, options: ReadOptions) -> None:
        self.problems: list[Finding] = []
        self._open: list[ByteSource] = []
        files: dict[int, LogBytes] = {}
        controls = []
        for path in source.files:
            name = logical_name(path)
            if not _named(name) or (data := self._read(path, source.path)) is None:
                continue
            number = file_number(name)
            if number is None:
                controls.append(ControlBytes(name, path, data))
            else:
                files[number] = LogBytes(number, path, name, data)
        ordered = dict(sorted(files.items()))
        properties = _properties(source.path)
        if ENCRYPTED not in properties and not all(map(looks_plain, ordered.values())):
            properties[ENCRYPTED] = "true"
        cipher = self._cipher(properties, options, source.path, ordered)
        self.log = LogFiles(ordered, tuple(controls), properties, cipher)

    def close(self) -> None:
        """Release the bytes."""
        for source in self._open:
            source.close()

    def _read(self, path: str, log: str) -> memoryview | None:
        try:
            source = open_source(path)
        except LogUnreadableError as error:
            self.problems.append(unreadable_finding("derby", log, error))
            return None
        self._open.append(source)
        return source.data

    def _cipher(
        self,
        properties: dict[str, str],
        options: ReadOptions,
        path: str,
        files: dict[int, LogBytes],
    ) -> LogCipher | None:
        if properties.get(ENCRYPTED, "").lower() != "true":
            return None
        try:
            return _cipher(properties | dict(options.settings), options, files)
        except LogFormatError as error:
            finding = LogUnreadableError(str(error), file=path, advice=error.advice)
            self.problems.append(unreadable_finding("derby", path, finding, "wrong-key"))
            return None


def _cipher(
    properties: dict[str, str], options: ReadOptions, files: dict[int, LogBytes]
) -> LogCipher | None:
    """Raises `LogFormatError` if the secret does not open the log."""
    if options.boot_password is not None:
        key = key_of_password(properties, options.boot_password)
    elif options.encryption_key is not None:
        key = options.encryption_key
    else:
        return None
    cipher = LogCipher(algorithm_of(properties, key), key)
    for file in files.values():
        if not looks_plain(file) and not _opens(cipher, file):
            raise LogFormatError("the key does not open the log", file=file.path)
    return cipher


def _opens(cipher: LogCipher, file: LogBytes) -> bool:
    place = find_record(file.data, file.number, HEADER_SIZE)
    envelope = None if place is None else read_envelope(file.data, place)
    if envelope is None:
        return True
    body = file.data[envelope.body : envelope.body + envelope.length]
    return cipher.decrypt(body).startswith(format_id(LOG_RECORD))


def _properties(path: str) -> dict[str, str]:
    """The database's properties, empty if they are not there."""
    above = path.rpartition("/")[0] or str(PurePosixPath(path).parent)
    for folder in (path, above):
        for packing in ("", *PACKINGS):
            try:
                with open_source(f"{folder}/{_PROPERTIES}{packing}") as source:
                    return _parse(bytes(source.data).decode("latin-1"))
            except LogUnreadableError:
                continue
    return {}


def _parse(text: str) -> dict[str, str]:
    """Java properties, as far as Derby writes them: one line each, backslash escapes."""
    found = {}
    for line in text.splitlines():
        if line and line[0] not in "#!":
            key, _, value = line.partition("=")
            found[key.strip()] = value.strip().replace("\\", "")
    return found
