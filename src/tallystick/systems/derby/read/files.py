"""The files of one log in memory: numbered log files, control files, database properties.

In: opened bytes. Out: `LogFiles`, which the scans, the walk and recovery all look at, and the
clear bytes of a record body where the key is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tallystick.errors import LogFormatError
from tallystick.systems.derby.format.compressed_numbers import format_id
from tallystick.systems.derby.format.crypto import LogCipher
from tallystick.systems.derby.format.layout import (
    HEADER_SIZE,
    LOG_RECORD,
    Envelope,
    find_record,
    read_envelope,
)
from tallystick.systems.derby.format.record_body import Body, decode_body

_PLAIN = format_id(LOG_RECORD)


_PROBED = 3


class SealedBodyError(LogFormatError):
    """A record body is encrypted and there is no key for it."""


@dataclass(frozen=True, slots=True)
class LogBytes:
    """One numbered log file; ``name`` is without packing suffix."""

    number: int
    path: str
    name: str
    data: memoryview

    @property
    def size(self) -> int:
        return len(self.data)


def looks_plain(file: LogBytes) -> bool:
    """True unless most of the file's first whole records begin with no record's format id.

    One ciphertext in 65,536 begins with it by chance.
    """
    votes: list[bool] = []
    place = find_record(file.data, file.number, HEADER_SIZE)
    while place is not None and len(votes) < _PROBED:
        envelope = read_envelope(file.data, place)
        assert envelope is not None
        votes.append(file.data[envelope.body : envelope.body + len(_PLAIN)] == _PLAIN)
        place = find_record(file.data, file.number, envelope.end)
    return sum(votes) * 2 >= len(votes)


@dataclass(frozen=True, slots=True)
class ControlBytes:
    """One control file."""

    name: str
    path: str
    data: memoryview


@dataclass(frozen=True, slots=True)
class LogFiles:
    """Everything a judgement of the log stands on. ``files`` is ordered by number."""

    files: Mapping[int, LogBytes]
    controls: tuple[ControlBytes, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    cipher: LogCipher | None = None
    _plain: dict[int, bool] = field(default_factory=dict, repr=False, compare=False)

    @property
    def first(self) -> int:
        """The lowest file number, 0 if there is no log file."""
        return next(iter(self.files), 0)

    def raw(self, number: int, envelope: Envelope) -> memoryview:
        """The body as it stands in the file."""
        return self.files[number].data[envelope.body : envelope.body + envelope.length]

    def clear(self, number: int, envelope: Envelope) -> bytes | memoryview:
        """The body in clear. Raises `SealedBodyError` if it is encrypted and the key is missing."""
        raw = self.raw(number, envelope)
        if not self.encrypted or self.is_plain(number):
            return raw
        if self.cipher is None:
            raise SealedBodyError("the body is encrypted", offset=envelope.body)
        return self.cipher.decrypt(raw)

    def is_plain(self, number: int) -> bool:
        """True for a file from before the database was encrypted: nothing in it says so but the
        first two bytes of its bodies."""
        if number not in self._plain:
            self._plain[number] = looks_plain(self.files[number])
        return self._plain[number]

    def body(self, number: int, envelope: Envelope) -> Body:
        """The decoded body. Raises `LogFormatError`."""
        return decode_body(self.clear(number, envelope))

    @property
    def encrypted(self) -> bool:
        """True if the database's properties say so."""
        return self.properties.get("dataEncryption", "").lower() == "true"

    @property
    def sealed(self) -> bool:
        """True if bodies cannot be read for want of a key."""
        return self.encrypted and self.cipher is None
