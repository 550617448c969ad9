"""One request at a time from a member to the leader, and its answer, in shared memory.

In: bytes, from one thread of the member at a time. Out: the same bytes in the leader, whole or not
at all; an answer.

    word 0  length of the request; `_SPILLED` if it is in a file beside the epoch's
    word 1  its checksum
    word 2  number of the request that word 3 and the answer are for
    word 3  length of the answer
    word 4  its checksum
    64      answer
    8192    request

A request is published by one store, of its number into the epoch's table of requests. What is
before it in the program is before it in memory on x86; elsewhere the checksum, which covers the
number, says that all of it has arrived. Of an encrypted log the request is sealed. The leader
*stages* an answer before it writes to the log, and gives it by one store, of the number into the
table of answers. What was staged by a leader that ends before that tells the member what to look
for in the log.
"""

from __future__ import annotations

import contextlib
import os
import struct
from typing import Final, Protocol
from zlib import crc32

from tallystick.errors import LogWriteError
from tallystick.storage.opening import needing_space
from tallystick.storage.shared import kernel
from tallystick.storage.shared.epochs import ANSWERS, BOX_BYTES, REQUESTS, Epoch

ANSWER: Final = 64
REQUEST: Final = 8192
ANSWER_MAX: Final = REQUEST - ANSWER
"""Bytes of an answer at most."""
REQUEST_MAX: Final = BOX_BYTES - REQUEST
"""Bytes of a request in the mailbox itself; a longer one goes through a file."""

_LENGTH, _CRC, _STAGED, _ANSWER_LENGTH, _ANSWER_CRC = range(5)
_SPILLED: Final = 1 << 63
_NUMBER: Final = struct.Struct("<Q")
_CONTEXT: Final = struct.Struct("<QIQ")
"""Epoch, member, number of a request."""
_BELL_BITS: Final = 24


def _checksum(data: bytes, number: int) -> int:
    return crc32(_NUMBER.pack(number), crc32(data))


class Sealing(Protocol):
    """Seals the requests of an encrypted log: they stand in files."""

    def seal(self, data: bytes, context: bytes) -> bytes:
        """Return the bytes sealed; they are opened in the same context only."""
        ...

    def open(self, data: bytes, context: bytes) -> bytes | None:
        """Return what was sealed; None if the bytes, or the context, are others."""
        ...


class Mailbox:
    """The mailbox of one member in one epoch.

    Args:
        epoch: The epoch.
        member: The member.
        sealing: Seals what is handed over; None for a log that is not encrypted.
    """

    __slots__ = ("_base", "_epoch", "_member", "_offset", "_sealing")

    def __init__(self, epoch: Epoch, member: int, sealing: Sealing | None = None) -> None:
        self._epoch = epoch
        self._member = member
        self._sealing = sealing
        self._offset = epoch.box(member)
        self._base = self._offset // 8

    # -- the member ---------------------------------------------------------------------------

    def publish(self, data: bytes) -> int:
        """Hand over a request; return its number. The one before it was answered, or is void."""
        epoch, words, base = self._epoch, self._epoch.words, self._base
        number = max(words[REQUESTS + self._member], words[ANSWERS + self._member]) + 1
        if self._sealing is not None:
            data = self._sealing.seal(data, self._context(number))
        length = len(data)
        if length <= REQUEST_MAX:
            start = self._offset + REQUEST
            epoch.bytes[start : start + length] = data
            words[base + _LENGTH] = length
        else:
            self._spill(data)
            words[base + _LENGTH] = length | _SPILLED
        words[base + _CRC] = _checksum(data, number)
        words[REQUESTS + self._member] = number
        # Never a value that it had before: the leader would sleep on.
        epoch.bell = (self._member << _BELL_BITS) | (number & ((1 << _BELL_BITS) - 1))
        kernel.wake(epoch.address(Epoch.bell_word))
        return number

    def _context(self, number: int) -> bytes:
        """Return epoch, member and number, which tell a request from all others."""
        return _CONTEXT.pack(self._epoch.number, self._member, number)

    def _spill(self, data: bytes) -> None:
        # Not by the mapping: without room that would end the process.
        path = self._spill_path
        try:
            with needing_space(kernel.real_path(path), "a batch that is handed over"):
                file = kernel.open_file(path, os.O_RDWR | os.O_CREAT)
                with contextlib.closing(file):
                    file.pwrite(data, 0)
        except OSError as error:
            raise LogWriteError(
                f"a batch cannot be handed over: {error}", file=kernel.real_path(path)
            ) from error

    @property
    def _spill_path(self) -> str:
        return f"{self._epoch.path}.{self._member}"

    def answer(self, number: int) -> bytes | None:
        """Return the answer that was given to a request; None before that."""
        if self._epoch.words[ANSWERS + self._member] != number:
            return None
        return self.staged(number)

    def staged(self, number: int) -> bytes | None:
        """Return the answer that was staged for a request; None without one."""
        words, base = self._epoch.words, self._base
        if words[base + _STAGED] != number:
            return None
        start = self._offset + ANSWER
        data = bytes(
            self._epoch.bytes[start : start + min(words[base + _ANSWER_LENGTH], ANSWER_MAX)]
        )
        return data if words[base + _ANSWER_CRC] == _checksum(data, number) else None

    def wait(self, number: int, seconds: float) -> None:
        """Sleep until the request may have been answered."""
        seen = self._epoch.words[ANSWERS + self._member]
        if seen != number:
            kernel.wait(self._epoch.address(ANSWERS + self._member), seen & 0xFFFFFFFF, seconds)

    # -- the leader ---------------------------------------------------------------------------

    @property
    def number(self) -> int:
        """The number of the last request."""
        return self._epoch.words[REQUESTS + self._member]

    def request(self) -> tuple[int, bytes] | None:
        """Return number and bytes of the request; None if it has not arrived whole."""
        words, base = self._epoch.words, self._base
        number, length = words[REQUESTS + self._member], words[base + _LENGTH]
        if length & _SPILLED:
            data = self._read_spilled(length & ~_SPILLED)
        else:
            start = self._offset + REQUEST
            data = bytes(self._epoch.bytes[start : start + min(length, REQUEST_MAX)])
        if words[base + _CRC] != _checksum(data, number):
            return None
        if self._sealing is not None:
            opened = self._sealing.open(data, self._context(number))
            return None if opened is None else (number, opened)
        return number, data

    def _read_spilled(self, length: int) -> bytes:
        try:
            return kernel.read_file(self._spill_path)[:length]
        except OSError:
            return b""

    def stage(self, number: int, data: bytes) -> None:
        """Put an answer there, without giving it."""
        words, base = self._epoch.words, self._base
        assert len(data) <= ANSWER_MAX, "answers are short"
        start = self._offset + ANSWER
        words[base + _STAGED] = 0
        self._epoch.bytes[start : start + len(data)] = data
        words[base + _ANSWER_LENGTH] = len(data)
        words[base + _ANSWER_CRC] = _checksum(data, number)
        words[base + _STAGED] = number

    def give(self, number: int) -> None:
        """Give the answer that is staged."""
        epoch = self._epoch
        epoch.words[ANSWERS + self._member] = number
        kernel.wake(epoch.address(ANSWERS + self._member))


def waiting(epoch: Epoch) -> list[int]:
    """Return the members whose last request was not answered."""
    requests = epoch.words[REQUESTS:ANSWERS]
    answers = epoch.words[ANSWERS : ANSWERS + (ANSWERS - REQUESTS)]
    if requests.tobytes() == answers.tobytes():
        return []
    pairs = zip(requests.tolist(), answers.tolist(), strict=True)
    return [member for member, (request, answer) in enumerate(pairs) if request != answer]
