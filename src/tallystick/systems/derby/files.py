"""The files of one log in memory: numbered log files, control files, database properties.

In: opened bytes. Out: `LogFiles`, which the scans, the walk and recovery all look at, and the
clear bytes of a record body where the key is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tallystick.errors import LogFormatError
from tallystick.systems.derby.body import Body, decode_body
from tallystick.systems.derby.crypto import LogCipher
from tallystick.systems.derby.layout import LOG_RECORD, Envelope, format_id

_PLAIN = format_id(LOG_RECORD)


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

    @property
    def first(self) -> int:
        """The lowest file number, 0 if there is no log file."""
        return next(iter(self.files), 0)

    def raw(self, number: int, envelope: Envelope) -> memoryview:
        """The body as it stands in the file."""
        return self.files[number].data[envelope.body : envelope.body + envelope.length]

    def clear(self, number: int, envelope: Envelope) -> bytes | memoryview:
        """The body in clear. Raises `SealedBodyError` if it is encrypted and the key is missing.

        Files from before the database was encrypted hold plain bodies, and nothing but their
        first two bytes says so.
        """
        raw = self.raw(number, envelope)
        if raw[:2] == _PLAIN or (self.cipher is None and not self.encrypted):
            return raw
        if self.cipher is None:
            raise SealedBodyError("the body is encrypted", offset=envelope.body)
        return self.cipher.decrypt(raw)

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
