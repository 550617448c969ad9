"""What a cursor of the original reports call by call: records, refusals, and the end.

In: offsets and messages of `cursor_v2` and `cursor_v3`. Out: events, the exceptions that carry Java
errors out of the reading of one record, and the messages that both code lines share.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from tallystick.systems.bitronix.format.layout import signed32
from tallystick.systems.bitronix.format.record import TransactionLogRecord

if TYPE_CHECKING:
    from tallystick.systems.bitronix.runs.chunk import Chunk

EOF = "java.io.EOFException"
NEGATIVE_SIZE = "java.lang.NegativeArraySizeException"
NO_TERMINATOR = " (no record terminator found)"


@dataclass(frozen=True, slots=True)
class JavaError:
    """An exception by its class and its message (None where Java has null)."""

    java_class: str
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Accepted:
    """A record, as the cursor's caller gets it."""

    offset: int
    record: TransactionLogRecord


@dataclass(frozen=True, slots=True)
class Refused:
    """A ``CorruptedTransactionLogException``; reading resumes at ``next_offset``.

    ``place`` and ``detail`` make its message. ``times`` counts equal refusals in a row, ``stride``
    bytes apart and different only in their offsets; this is the first of them.
    """

    offset: int
    place: int
    detail: str
    next_offset: int
    times: int = 1

    @property
    def message(self) -> str:
        """The message of the original."""
        return f"corrupted log found at position {self.place}{self.detail}"

    @property
    def stride(self) -> int:
        """Bytes from one of the equal refusals to the next."""
        return self.next_offset - self.offset

    def single(self, number: int) -> Refused:
        """Return one of them, counted from 0."""
        by = number * self.stride
        return replace(
            self,
            offset=self.offset + by,
            place=self.place + by,
            next_offset=self.next_offset + by,
            times=1,
        )


@dataclass(frozen=True, slots=True)
class Stop:
    """The end: of the counted range (no error), or by an error that is not skipped.

    The offsets are None where the cursor could not even be made; ``hangs`` is true where the
    original would loop.
    """

    error: JavaError | None
    offset: int | None
    end_offset: int | None
    hangs: bool = False


Event: TypeAlias = "Accepted | Refused | Stop | Chunk"
"""What a cursor gives next; a chunk stands for its records, each accepted after the other."""


def singles(events: Iterable[Event]) -> Iterator[Event]:
    """Yield the events with each refusal that stands for several as that many refusals."""
    for event in events:
        if isinstance(event, Refused) and event.times > 1:
            yield from (event.single(number) for number in range(event.times))
        else:
            yield event


def crc_mismatch(recorded: int, calculated: int) -> str:
    """Return the end of the message for a wrong CRC."""
    return f"(invalid CRC, recorded: {signed32(recorded)}, calculated: {signed32(calculated)})"


class UncheckedError(Exception):
    """Carries a Java exception out of the reading of one record."""

    def __init__(self, error: JavaError) -> None:
        super().__init__(error.java_class)
        self.error = error


class CorruptedError(Exception):
    """Carries the end of a message out of the reading of one record."""


def names_too_long(number: int, count: int, size: int, used: int, length: int) -> str:
    """Return the end of the message for name ``number`` (from 1) that reaches beyond L."""
    return (
        f" (unique names too long, {number} out of {count}, length: {size}, "
        f"currentReadCount: {used}, recordLength: {length})"
    )
