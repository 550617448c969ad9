"""How the original managers open a pair: which file they use, what stops them, what dangles.

In: the bytes of part 1 and part 2 (None for a missing file). Out: an `Opening` for a code
line, with ``skipCorruptedLogs`` on or off. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tallystick.systems.bitronix.engine.cursor_v2 import RandomAccessCursor
from tallystick.systems.bitronix.engine.cursor_v3 import PagedCursor
from tallystick.systems.bitronix.engine.events import Accepted, Event, JavaError, Refused, Stop
from tallystick.systems.bitronix.format.layout import FileHeader
from tallystick.systems.bitronix.format.record import TransactionLogRecord
from tallystick.systems.bitronix.read.files import Part
from tallystick.systems.bitronix.read.open_decisions import DanglingSet

CORRUPTED = "bitronix.tm.journal.CorruptedTransactionLogException"
DIFFERENT_LENGTHS = JavaError(
    "java.io.IOException",
    "transaction log files are not of the same length, assuming they're corrupt",
)
NEGATIVE_POSITION = JavaError("java.lang.IllegalArgumentException")

Parts = tuple[memoryview | None, memoryview | None]
Events = list[list[Event]]
"""What the cursor of one code line says about part 1 and part 2."""
Lines = dict[str, Callable[[memoryview], Iterator[Event]]]

CODE_LINES: Lines = {
    "2.1.4": lambda data: RandomAccessCursor(data).events(),
    "3.0.0-SNAPSHOT": lambda data: PagedCursor(data).events(),
}
"""The cursor of each code line, oldest first; the opening is the same in both.

The first is what findings and differences call *the manager*: nearly every installation runs it.
"""


@dataclass(frozen=True, slots=True)
class Opening:
    """The result of a start: ``error`` ends the opening, ``collect_error`` the collection."""

    skip_corrupted: bool
    hangs: bool = False
    error: JavaError | None = None
    active: int | None = None
    collect_error: JavaError | None = None
    dangling: tuple[TransactionLogRecord, ...] = ()

    @property
    def refusal(self) -> str:
        """Why the manager does not start; empty if it does."""
        error = self.error or self.collect_error
        if self.hangs:
            return "it does not come back"
        return "" if error is None else error.message or error.java_class

    @property
    def decisions(self) -> dict[bytes, tuple[str, ...]]:
        """The names of each decision that it finds open, by gtrid."""
        return {one.gtrid: one.unique_names for one in self.dangling}


def cursor_events(parts: Iterable[memoryview | None], line: str) -> Events:
    """Return the events of the cursor of that code line for each part; none for a missing file."""
    return [list(CODE_LINES[line](part)) if part is not None else [] for part in parts]


def events_of_lines(parts: Parts) -> tuple[Events, Events]:
    """Return `cursor_events` of the older and of the newer code line.

    Equal events are the same objects: the lists are long and nearly always agree.
    """
    older, newer = CODE_LINES
    events = cursor_events(parts, older)
    return events, [
        [] if part is None else list(_shared(CODE_LINES[newer](part), known))
        for part, known in zip(parts, events, strict=True)
    ]


def deciding_events(parts: Iterable[Part]) -> tuple[Events, Events]:
    """Return events of both code lines that come to the `Opening`s that all events come to.

    Both cursors accept plain records one after the other, up to the position in the header; of
    these only the records that are kept stand here.
    """
    older, newer = CODE_LINES
    events: Events = []
    newer_events: Events = []
    for part in parts:
        if part.plain is not None:
            kept: list[Event] = [Accepted(part.plain.end, one) for one in part.plain.kept]
            events.append([*kept, Stop(None, part.plain.end, part.plain.end)])
            newer_events.append(events[-1])
        else:
            data = (part.data,)
            events += cursor_events(data, older)
            newer_events += cursor_events(data, newer)
    return events, newer_events


def _shared(events: Iterable[Event], known: Iterable[Event]) -> Iterator[Event]:
    rest = iter(known)
    for event in events:
        other = next(rest, None)
        yield other if other is not None and other == event else event


def open_pair(parts: Parts, events: Events, *, skip_corrupted: bool) -> Opening:
    """Return the result of opening the pair and collecting its dangling records.

    ``events`` are those of `cursor_events`.
    """
    sizes = [None if part is None else len(part) for part in parts]
    if sizes[0] != sizes[1] and not skip_corrupted:
        return Opening(skip_corrupted, error=DIFFERENT_LENGTHS)
    headers = []
    for part in parts:
        header = None if part is None else FileHeader.decode(part)
        if header is None:  # a missing file is made empty, and an empty one read for ever
            return Opening(skip_corrupted, hangs=True)
        if header.position < 0:
            return Opening(skip_corrupted, error=NEGATIVE_POSITION)
        headers.append(header)
    active = 0 if headers[0].timestamp > headers[1].timestamp else 1
    return _collect(active, events[active], skip_corrupted)


def _collect(active: int, events: Iterable[Event], skip_corrupted: bool) -> Opening:
    open_records = DanglingSet()
    for event in events:
        if isinstance(event, Accepted):
            open_records.apply(event.record)
        elif isinstance(event, Refused) and not skip_corrupted:
            error = JavaError(CORRUPTED, event.message)
            return Opening(skip_corrupted, active=active, collect_error=error)
        elif isinstance(event, Stop) and event.hangs:
            return Opening(skip_corrupted, hangs=True)
        elif isinstance(event, Stop) and event.error is not None:
            return Opening(skip_corrupted, active=active, collect_error=event.error)
    return Opening(skip_corrupted, active=active, dangling=open_records.records())
