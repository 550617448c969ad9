"""How the original managers open a pair: the file they use, what stops them, what stays dangling.

In: the bytes of part 1 and part 2 (None for a missing file). Out: an `Opening` for a code
line, with ``skipCorruptedLogs`` on or off. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from tallystick.systems.bitronix.engine.cursor_v2 import RandomAccessCursor
from tallystick.systems.bitronix.engine.cursor_v3 import PagedCursor
from tallystick.systems.bitronix.engine.events import Accepted, Event, JavaError, Refused, Stop
from tallystick.systems.bitronix.format.layout import FileHeader
from tallystick.systems.bitronix.read.open_decisions import OpenDecisions
from tallystick.systems.bitronix.runs.pieces import Runs

CORRUPTED = "bitronix.tm.journal.CorruptedTransactionLogException"
DIFFERENT_LENGTHS = JavaError(
    "java.io.IOException",
    "transaction log files are not of the same length, assuming they're corrupt",
)
NEGATIVE_POSITION = JavaError("java.lang.IllegalArgumentException")

Parts = tuple[memoryview | None, memoryview | None]

CODE_LINES: dict[str, Callable[[memoryview], RandomAccessCursor | PagedCursor]] = {
    "2.1.4": RandomAccessCursor,
    "3.0.0-SNAPSHOT": PagedCursor,
}
"""The cursor of each code line, oldest first; the opening is the same in both.

The first is what findings and differences call *the manager*: nearly every installation runs it.
"""


@dataclass(frozen=True, slots=True)
class Opening:
    """The result of a start, with the decisions that it finds open.

    ``error`` ends the opening, ``collect_error`` the collection.
    """

    skip_corrupted: bool
    hangs: bool = False
    error: JavaError | None = None
    active: int | None = None
    collect_error: JavaError | None = None
    decisions: OpenDecisions = field(default_factory=OpenDecisions)

    @property
    def refusal(self) -> str:
        """Why the manager does not start; empty if it does."""
        error = self.error or self.collect_error
        if self.hangs:
            return "it does not come back"
        return "" if error is None else error.message or error.java_class


class Starts(NamedTuple):
    """The results of a start without ``skipCorruptedLogs`` and with it."""

    without: Opening
    skipping: Opening


def starts_of_lines(parts: Parts, plain: Sequence[OpenDecisions | None]) -> tuple[Starts, Starts]:
    """Return the starts of the older and of the newer code line.

    Args:
        parts: the bytes of both.
        plain: the decisions that each part alone leaves open, where all records up to the position
            in its header are plain: both cursors accept them one after the other.
    """
    older, newer = (open_pair(parts, partial(_start, parts, plain, line)) for line in CODE_LINES)
    return older, newer


def _start(parts: Parts, plain: Sequence[OpenDecisions | None], line: str, active: int) -> Starts:
    decisions, data = plain[active], parts[active]
    if decisions is not None:
        return _collected(active, decisions)
    assert data is not None  # a pair that is opened has both
    runs = Runs.where_they_pay(data, header_of(data).position)
    return collect(CODE_LINES[line](data).events(runs), active)


def open_pair(parts: Parts, collected: Callable[[int], Starts]) -> Starts:
    """Return the results of opening the pair and collecting its dangling records.

    Args:
        parts: the bytes of both.
        collected: returns what `collect` does for the part of that number, 0 or 1.
    """
    without, skipping = (_refused(parts, skip_corrupted=skip) for skip in (False, True))
    if skipping is None:
        one, two = (header_of(part) for part in parts)
        # Of equal timestamps the originals take part 2.
        starts = collected(0 if one.timestamp > two.timestamp else 1)
        return starts if without is None else Starts(without, starts.skipping)
    assert without is not None  # what stops a start that skips stops the other one, too
    return Starts(without, skipping)


def _refused(parts: Parts, *, skip_corrupted: bool) -> Opening | None:
    """Return how a start ends before it reads a record; None where it goes on."""
    sizes = [None if part is None else len(part) for part in parts]
    # Before any header is read, as in the originals.
    if sizes[0] != sizes[1] and not skip_corrupted:
        return Opening(skip_corrupted, error=DIFFERENT_LENGTHS)
    for part in parts:
        header = None if part is None else FileHeader.decode(part)
        if header is None:  # a missing file is made empty, and an empty one read for ever
            return Opening(skip_corrupted, hangs=True)
        if header.position < 0:
            return Opening(skip_corrupted, error=NEGATIVE_POSITION)
    return None


def header_of(part: memoryview | None) -> FileHeader:
    """Return the header of a part of a pair that is opened."""
    header = None if part is None else FileHeader.decode(part)
    assert header is not None  # a pair that is opened has both
    return header


def collect(events: Iterable[Event], active: int) -> Starts:
    """Return the starts that read these events of the part of that number, 0 or 1."""
    decisions = OpenDecisions()
    refused: Opening | None = None
    for event in events:
        if isinstance(event, Accepted):
            decisions.apply(event.record)
        elif isinstance(event, Refused):
            if refused is None:
                error = JavaError(CORRUPTED, event.message)
                refused = Opening(skip_corrupted=False, active=active, collect_error=error)
        elif not isinstance(event, Stop):
            event.decide(decisions)
        elif event.hangs:
            without, skipping = (Opening(skip, hangs=True) for skip in (False, True))
            return Starts(refused or without, skipping)
        elif event.error is not None:
            without, skipping = (
                Opening(skip, active=active, collect_error=event.error) for skip in (False, True)
            )
            return Starts(refused or without, skipping)
    return _collected(active, decisions, refused)


def _collected(active: int, decisions: OpenDecisions, refused: Opening | None = None) -> Starts:
    """Return the starts that find these decisions open, unless one without skipping refuses."""
    without, skipping = (
        Opening(skip, active=active, decisions=decisions) for skip in (False, True)
    )
    return Starts(refused or without, skipping)
