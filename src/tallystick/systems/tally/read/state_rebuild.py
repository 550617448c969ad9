"""The state of a log from its groups: one by one, or by leaps once there are so many that compiled
code pays.

In: steps of a scan. Out: a `LogState`, and an index of groups. Both ways verify every group alike;
leaps need NumPy and numba, whose loading takes as long as walking tens of thousands of groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from tallystick.errors import CorruptLogError, UnsupportedFormatError
from tallystick.systems.tally.format.columns import Draft
from tallystick.systems.tally.format.headers import Control
from tallystick.systems.tally.read.open_work import Row
from tallystick.systems.tally.read.records import fold_group
from tallystick.systems.tally.read.scan import Step
from tallystick.systems.tally.read.state import LogState
from tallystick.systems.tally.read.walk import Expected, Leap, Place, SegmentView

if TYPE_CHECKING:
    from tallystick.systems.tally.read.group_runs import Run

WALKED_FIRST: Final = 50_000
"""Groups that are walked before the first leap: a quarter of a second of them."""


class LateLeaper:
    """A `Leap` for the fold, which loads what it needs when the log proves to be long."""

    def __init__(self, walked_first: int = WALKED_FIRST) -> None:
        self._left = walked_first
        self._leap: Leap | None = None

    def __call__(self, view: SegmentView, due: Expected, to: int | None) -> Place | None:
        if self._leap is not None:
            return self._leap(view, due, to)
        self._left -= 1
        if self._left == 0:
            self._leap = _compiled()
        return None


def _compiled() -> Leap | None:
    if find_spec("numba") is None:
        return None  # in plain Python leaps are slower than steps
    try:
        from tallystick.systems.tally.read.group_runs import ALL_CODES, Leaper
    except (ImportError, RuntimeError):
        return None  # numba refuses where it finds no folder for what it compiles
    return Leaper(known=ALL_CODES)


def state_of(control: Control | None) -> LogState:
    """The state to begin with."""
    if control is None:
        return LogState()
    state = LogState(control.first_segment, control.checkpoint_lsn)
    state.next_transaction, state.next_key = control.next_transaction, control.next_key
    return state


def fold_step(state: LogState, step: Step, key: bytes | None) -> None:
    """Fold in the whole groups of a step.

    Raises `CorruptLogError` and `UnsupportedFormatError` with the place of the group.
    """
    run, header = step.place.run, step.place.header
    assert header is not None
    place = header.offset
    try:
        if run is None:
            fold_group(state, step.view.inner(header), header, key)
        elif run.plain:
            state.plain(header.segment, header.last_lsn)
        else:
            for group, row in _rows(run, header.segment):
                place = group
                state.apply(row)
    except (CorruptLogError, UnsupportedFormatError) as error:
        error.file, error.offset = step.file.path, place
        raise


def _rows(run: Run, segment: int) -> Iterator[tuple[int, Row]]:
    """The rows of a leap with the offsets of their groups."""
    data = memoryview(run.data)
    rows = zip(run.codes.tolist(), run.numbers.T.tolist(), run.present().T.tolist(), strict=True)
    for code, (offset, length, lsn, time, transaction, key, group), (inside, keyed) in rows:
        body = bytes(data[offset : offset + length])
        draft = Draft(code, body, transaction if inside else None, key if keyed else None)
        yield group, Row(lsn, segment, time, draft)


def index_entries(place: Place) -> list[tuple[int, int, int]]:
    """Offset, first LSN and time of each whole group of a place."""
    if place.run is not None:
        return place.run.groups()
    header = place.header
    assert header is not None
    return [(header.offset, header.first_lsn, header.time_us)]
