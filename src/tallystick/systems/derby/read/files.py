"""The files of one log in memory: numbered log files, control files, database properties.

In: a `LogSource` and the caller's secret, or opened bytes. Out: `LogFiles`, with the clear bytes
of record bodies where the key is known. The database's ``service.properties`` is beside the log
files or one folder above; it is read, never needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tallystick.errors import LogFormatError, LogUnreadableError
from tallystick.records import Finding
from tallystick.storage.crc import crc32
from tallystick.storage.recent import RecentSource, RecentSources
from tallystick.storage.source import (
    PACKINGS,
    ByteSource,
    folder_above,
    logical_name,
    open_source,
    slashed,
)
from tallystick.systems.derby.codes import CODES
from tallystick.systems.derby.format import layout
from tallystick.systems.derby.format.compressed_numbers import format_id
from tallystick.systems.derby.format.crypto import (
    ENCRYPTED,
    LogCipher,
    algorithm_of,
    key_of_password,
)
from tallystick.systems.derby.format.record_body import Body, decode_body
from tallystick.systems.findings import FindingBuilder
from tallystick.systems.java_properties import parse_properties
from tallystick.systems.protocol import LogSource, ReadOptions
from tallystick.systems.surroundings import names_beside

_FILE_NAME = re.compile(r"log(0|[1-9]\d{0,9})\.dat", re.IGNORECASE)
PROPERTIES = "service.properties"
SERVICE, LOG_DEVICE = "derby.serviceProtocol", "logDevice"
"""Properties that every database has, and that names the folder of `LOG_FOLDER` elsewhere."""
LOG_FOLDER = "log"
SYSTEM_PROPERTIES, _STORAGE = "derby.properties", "derby.storage."
"""Settings of the system beside its databases, and what those of a log begin with."""
_PLAIN = format_id(layout.LOG_RECORD)
_PROBED = 3


def file_number(name: str) -> int | None:
    """Return the number in ``log<N>.dat``, in letters of either case; None for any other name."""
    match = _FILE_NAME.fullmatch(name)
    return int(match[1]) if match else None


def is_log_name(name: str) -> bool:
    """Return whether a log file or a control file can have this name."""
    return name.lower() in layout.CONTROL_NAMES or file_number(name) is not None


def log_names(names: Iterable[str]) -> list[str]:
    """Return the names that files of a log have.

    Where none is as the engine writes it, those that differ in the case of letters, as file
    systems leave them that do not tell it.
    """
    found = [one for one in names if is_log_name(one)]
    return [one for one in found if one == one.lower()] or found


class SealedBodyError(LogFormatError):
    """A record body is encrypted and there is no key for it."""


@dataclass(frozen=True, slots=True)
class LogBytes:
    """One numbered log file."""

    number: int
    source: ByteSource | RecentSource

    @property
    def path(self) -> str:
        """Where it is stored."""
        return self.source.path

    @property
    def name(self) -> str:
        """Its name without packing suffix."""
        return self.source.name

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self.source.size

    @property
    def data(self) -> memoryview:
        """Return its bytes; to be kept no longer than they are read."""
        return self.source.data

    def part(self, begin: int, end: int) -> memoryview:
        """Return some of its bytes, which need not be near those that were read last."""
        source = self.source
        return source.data[begin:end] if isinstance(source, ByteSource) else source.part(begin, end)

    def checksum_holds(self, envelope: layout.Envelope, body: Body | None) -> bool | None:
        """Return whether the data after a checksum record has its CRC; None for other records."""
        if body is None or body.operation != layout.CHECKSUM_OPERATION:
            return None
        size = body.fields["dataLength"]
        covered = self.data[envelope.end : envelope.end + max(size, 0)]
        return bool(len(covered) == size and crc32(covered) == body.fields["checksumValue"])


def has_header(file: LogBytes) -> bool:
    """Return whether a file begins with the format id of log files, and with its own number."""
    if file.size < layout.HEADER_SIZE:
        return False
    found, _, number, _ = layout.HEADER.unpack_from(file.data)
    return bool(found == layout.LOG_FILE and number == file.number)


def previous_end(file: LogBytes) -> int:
    """Return the instant of the end of the file before, which the header has; 0 without one."""
    return layout.HEADER.unpack_from(file.data)[3] if file.size >= layout.HEADER_SIZE else 0


def looks_plain(file: LogBytes) -> bool:
    """Return False if most of the file's first records do not begin with a record's format id.

    One ciphertext in 65,536 begins with it by chance.
    """
    # Some of them, as a single one may be damaged.
    votes: list[bool] = []
    place = layout.find_record(file.data, file.number, layout.HEADER_SIZE)
    while place is not None and len(votes) < _PROBED:
        envelope = layout.read_envelope(file.data, place)
        assert envelope is not None
        votes.append(file.data[envelope.body : envelope.body + len(_PLAIN)] == _PLAIN)
        place = layout.find_record(file.data, file.number, envelope.end)
    return sum(votes) * 2 >= len(votes)


@dataclass(frozen=True, slots=True)
class ControlBytes:
    """One control file."""

    name: str
    path: str
    data: memoryview

    def content_or_error(self) -> layout.Control | str:
        """Return the content, or what is wrong with it."""
        try:
            return layout.decode_control(self.data)
        except LogFormatError as error:
            return str(error)


@dataclass(frozen=True, slots=True)
class LogFiles:
    """The files of one log, log files in order of their numbers.

    ``key_given``: a boot password or key was given, and without ``cipher`` it does not open them.
    """

    files: Mapping[int, LogBytes]
    controls: tuple[ControlBytes, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    cipher: LogCipher | None = None
    key_given: bool = False
    _plain: dict[int, bool] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def sorted_by_name(cls, sources: Iterable[ByteSource | RecentSource]) -> LogFiles:
        """Return the log files and control files among the opened files of a folder."""
        files, controls = {}, []
        for source in sources:
            number = file_number(source.name)
            if number is not None:
                files[number] = LogBytes(number, source)
            elif (name := source.name.lower()) in layout.CONTROL_NAMES:
                controls.append(ControlBytes(name, source.path, source.data))
        return cls(dict(sorted(files.items())), tuple(controls))

    @property
    def first(self) -> int:
        """The lowest file number, 0 if there is no log file."""
        return next(iter(self.files), 0)

    def raw(self, number: int, envelope: layout.Envelope) -> memoryview:
        """Return a record's body as it is in file ``number``."""
        return self.files[number].part(envelope.body, envelope.body + envelope.length)

    def clear(self, number: int, envelope: layout.Envelope) -> bytes | memoryview:
        """Return a record's body in clear; raises `SealedBodyError` if the key is missing."""
        raw = self.raw(number, envelope)
        if not self.encrypted or self.is_plain(number):
            return raw
        if self.cipher is None:
            raise SealedBodyError("the body is encrypted", offset=envelope.body)
        return self.cipher.decrypt(raw)

    def decode_or_error(
        self, number: int, envelope: layout.Envelope
    ) -> tuple[bytes, Body | None, str]:
        """Return a record's body in clear and decoded, and why it cannot be decoded.

        A body that is encrypted without a key is returned as it is, without an error.
        """
        clear = bytes(self.raw(number, envelope))
        try:
            clear = bytes(self.clear(number, envelope))
            return clear, decode_body(clear), ""
        except SealedBodyError:
            return clear, None, ""
        except LogFormatError as error:
            return clear, None, str(error)

    def is_plain(self, number: int) -> bool:
        """Return whether the file is from before the database was encrypted.

        Only the first two bytes of its bodies show that.
        """
        if number not in self._plain:
            self._plain[number] = looks_plain(self.files[number])
        return self._plain[number]

    @property
    def encrypted(self) -> bool:
        """True if the database's properties say so."""
        return self.properties.get(ENCRYPTED, "").lower() == "true"

    @property
    def sealed(self) -> bool:
        """True if bodies cannot be read because the key is missing, or is another one."""
        return self.encrypted and self.cipher is None

    @property
    def why_sealed(self) -> str:
        """Why they cannot be read; to go on after ``encrypted, and``."""
        return (
            "the boot password or key that was given does not open it"
            if self.key_given
            else "no boot password or key was given"
        )


# -- opening -------------------------------------------------------------------------------------


class OpenedLog:
    """The opened files of a log, as ``files``; close it to release them."""

    def __init__(self, source: LogSource, options: ReadOptions) -> None:
        self._finding = FindingBuilder(layout.SYSTEM_NAME, source.path, CODES)
        self.problems: list[Finding] = []
        self._sources = RecentSources()
        files = LogFiles.sorted_by_name(filter(None, map(self._open, source.files)))
        system = {} if options.log_only else system_properties(source)
        properties = {**system, **options.settings, **_properties(source)}
        # Without the database's properties only the bodies tell that it is encrypted.
        if ENCRYPTED not in properties and not all(map(files.is_plain, files.files)):
            properties[ENCRYPTED] = "true"
        self.files = replace(files, properties=properties)
        if self.files.encrypted:
            cipher = self._cipher(options, source.path)
            given = (options.boot_password, options.encryption_key) != (None, None)
            self.files = replace(self.files, cipher=cipher, key_given=given)

    def close(self) -> None:
        """Release the bytes."""
        self._sources.close()

    def _open(self, path: str) -> RecentSource | None:
        if not is_log_name(logical_name(path)):
            return None
        try:
            return self._sources.open(path)
        except LogUnreadableError as error:
            self.problems.append(self._finding.unreadable(error))
            return None

    def _cipher(self, options: ReadOptions, path: str) -> LogCipher | None:
        try:
            return _cipher(self.files, options)
        except LogFormatError as error:
            problem = LogUnreadableError(str(error), file=path, advice=error.advice)
            self.problems.append(self._finding.unreadable(problem, "wrong-key"))
            return None


def _cipher(log: LogFiles, options: ReadOptions) -> LogCipher | None:
    """Make the cipher; raises `LogFormatError` if the secret does not open the log."""
    properties = {**log.properties, **options.settings}
    if options.boot_password is not None:
        key = key_of_password(properties, options.boot_password)
    elif options.encryption_key is not None:
        key = options.encryption_key
    else:
        return None
    cipher = LogCipher(algorithm_of(properties, key), key)
    for file in log.files.values():
        # Encrypting a database switches the log file: earlier files stay in clear, and nothing but
        # their bodies says which these are.
        if not log.is_plain(file.number) and not _opens(cipher, log, file):
            raise LogFormatError("the key does not open the log", file=file.path)
    return cipher


def _opens(cipher: LogCipher, log: LogFiles, file: LogBytes) -> bool:
    place = layout.find_record(file.data, file.number, layout.HEADER_SIZE)
    envelope = None if place is None else layout.read_envelope(file.data, place)
    if envelope is None:
        return True
    return cipher.decrypt(log.raw(file.number, envelope)).startswith(_PLAIN)


def properties_in(data: bytes) -> dict[str, str]:
    """Return the properties in a file; none where a boot could not read them either."""
    try:
        return parse_properties(data)
    except ValueError:
        return {}


def log_on_device(properties: Mapping[str, str]) -> str:
    """Return the folder of the log that a database's properties name; empty for its own."""
    if LOG_DEVICE not in properties:
        return ""
    device = properties[LOG_DEVICE].removeprefix("file:")
    return slashed(f"{device.rstrip('/')}/{LOG_FOLDER}")


def database_of(source: LogSource) -> str:
    """Return the folder of the database that a log belongs to."""
    return source.database or folder_above(source.path)


def system_path(source: LogSource) -> str:
    """Return the place of the system's settings, if it is the folder of the database's folder."""
    return f"{folder_above(database_of(source))}/{SYSTEM_PROPERTIES}"


def system_properties(source: LogSource) -> dict[str, str]:
    """Return what the system's settings say of the log of a whole database; none of a log alone."""
    if layout.SEGMENT not in names_beside(database_of(source)):
        return {}
    try:
        with open_source(system_path(source)) as file:
            found = properties_in(bytes(file.data))
    except LogUnreadableError:
        return {}
    return {name: value for name, value in found.items() if name.startswith(_STORAGE)}


def _properties(source: LogSource) -> dict[str, str]:
    """Read the database's properties, empty if they are not there."""
    for folder in (source.path, database_of(source)):
        for packing in ("", *PACKINGS):
            try:
                with open_source(f"{folder}/{PROPERTIES}{packing}") as file:
                    return properties_in(bytes(file.data))
            except LogUnreadableError:
                continue
    return {}
