"""Records of a live journal with their bytes, encoded once under the journal's lock.

In: what the caller logs. Out: the record for `CarriedRecords` and the bytes for the file. The
resources of transactions are few and repeat, so the bytes of their names are cached.
"""

from __future__ import annotations

import struct
from collections.abc import Collection

from tallystick.arguments import several, texts
from tallystick.storage.crc import crc32
from tallystick.systems.bitronix.format.layout import (
    CRC_HEAD,
    END_RECORD,
    LENGTH_FIXED,
    NAMES_MAX,
    RECORD_HEADER_LENGTH,
)
from tallystick.systems.bitronix.format.record import (
    TransactionLogRecord,
    encode_names,
    refuse_unreadable,
)

Entry = tuple[TransactionLogRecord, bytes]
"""A record and its bytes on disk."""
KNOWN_MAX = 1024
"""Number of sets of names that are cached."""
KNOWN_BYTES_MAX = 4096
"""Largest size of cached names, in bytes."""

_CRC_AND_SIZE = struct.Struct(">Ib")
_NAMES_MIN = 8
"""Bytes of an empty list of names: its count and the end marker."""


class RecordEncoder:
    """Encodes the records of one journal. Not safe for several threads."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], tuple[tuple[str, ...], bytes]] = {}

    def encode(
        self, status: int, gtrid: bytes, unique_names: Collection[str], time: int, sequence: int
    ) -> Entry:
        """Return what `TransactionLogRecord.create` makes, and its bytes.

        Raises:
            RecordTooLargeError: as `TransactionLogRecord.create`.
        """
        names, tail = self._names(several(unique_names, "names"))
        refuse_unreadable(gtrid, ())
        rest = gtrid + tail
        length = LENGTH_FIXED - _NAMES_MIN + len(rest)
        head = CRC_HEAD.pack(status, length, RECORD_HEADER_LENGTH, time, sequence)
        crc = crc32(rest, crc32(head))
        record = TransactionLogRecord(
            status, length, RECORD_HEADER_LENGTH, time, sequence, crc, gtrid, names
        )
        return record, head + _CRC_AND_SIZE.pack(crc, len(gtrid)) + rest

    def _names(self, given: tuple[str, ...]) -> tuple[tuple[str, ...], bytes]:
        known = self._known.get(given)
        if known is not None:
            return known
        names = tuple(sorted(set(texts(given, "names", NAMES_MAX))))
        refuse_unreadable(b"", names)
        made = (names, encode_names(names, END_RECORD))
        if len(self._known) >= KNOWN_MAX:
            # All at once: names that are in use are there again after one record each.
            self._known.clear()
        if len(made[1]) <= KNOWN_BYTES_MAX:
            self._known[given] = made
        return made
