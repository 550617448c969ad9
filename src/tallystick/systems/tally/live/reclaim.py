"""Free the oldest segments that nothing needs and whose readers agree.

In: the state of a log and the answers of its readers. Out: segments given up in the control block,
then recycled or left to a disposer. A segment that was given up is no part of the log any more,
even while its file exists: so readers are asked before it is given up, not before its file goes.
Open work is carried forward, i.e. written again at the end of the log, so that old segments become
free.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from tallystick.errors import LogWriteError
from tallystick.storage.scheduling import threading
from tallystick.systems.tally.format.bodies import encode_decision, encode_names
from tallystick.systems.tally.format.columns import UnplacedRecord
from tallystick.systems.tally.format.kinds import Code
from tallystick.systems.tally.live.appender import Appender
from tallystick.systems.tally.live.items import Bundle
from tallystick.systems.tally.read.state import LogState


class Reclaimer:
    """Frees segments of one log; ``lock`` guards ``state``."""

    def __init__(self, appender: Appender, state: LogState, lock: threading.Lock) -> None:
        self._appender = appender
        self._state = state
        self._lock = lock
        self._may_go: Callable[[int], bool] | None = None
        self._agreed = 0
        self._pins: list[int] = []

    @contextlib.contextmanager
    def pinned(self) -> Iterator[None]:
        """Give up no segment that the log has now, or later gets, while the context is open."""
        # If segments are being given up right now, the pin is lower than need be.
        first = self._appender.control.first_segment
        self._pins.append(first)
        try:
            yield
        finally:
            self._pins.remove(first)

    def ask_first(self, may_go: Callable[[int], bool]) -> None:
        """Free no segment from now on unless ``may_go(number)`` is true.

        It is called oldest segment first, up to the first refusal, in the thread that reclaims, and
        once for each segment that it agrees to. If it raises, nothing is freed.
        """
        self._may_go = may_go
        self._agreed = 0

    def agreed(self) -> int | None:
        """Return the first segment that readers need; None if there is no reader to ask.

        Call it outside of the writer: the answer may take long, or fail.
        """
        if self._may_go is None:
            return None
        number = max(self._appender.control.first_segment, self._agreed)
        while number < self._appender.at.segment and self._may_go(number):
            number += 1
        self._agreed = number
        return number

    def free(self, checkpoint_lsn: int, *keep_from: int | None) -> list[int]:
        """Free segments below every ``keep_from`` that are not needed; return their numbers.

        Plain records below ``checkpoint_lsn`` are given up before. Call it in the writer only.
        """
        with self._lock:
            state, appender = self._state, self._appender
            before = state.checkpoint_lsn
            # What is not durable yet cannot be given up.
            state.advance_checkpoint(min(checkpoint_lsn, appender.at.durable_lsn + 1))
            needed = state.needed_from()
            keep = appender.at.segment if needed is None else needed
            keep = min([keep, *self._pins, *(one for one in keep_from if one is not None)])
            try:
                freed = appender.free_before(
                    state.freeable_before(keep),
                    checkpoint_lsn=state.checkpoint_lsn,
                    next_transaction=state.next_transaction,
                    next_key=state.next_key,
                )
            except LogWriteError:  # refused: the caller may go on from the one before
                state.checkpoint_lsn = before
                raise
            # By what the control block says now, which may be less than was asked for.
            state.forget_before(appender.control.first_segment)
            return freed


# -- carrying open work forward -----------------------------------------------------------


def open_work(state: LogState, before: int) -> list[Bundle]:
    """Return the records of open work in segments below ``before``, to be written again.

    One bundle for each open decision, unsettled heuristic outcome and pending entry.
    """
    return [Bundle(tuple(records)) for records in _open_work(state, before)]


def _open_work(state: LogState, before: int) -> Iterator[list[UnplacedRecord]]:
    for gtrid in {**state.decisions, **state.heuristics}:
        decision, outcome = state.decisions.get(gtrid), state.heuristics.get(gtrid)
        records = []
        if outcome is not None and outcome[0] < before:
            records.append(heuristic_record(gtrid, outcome[1]))
        # After an outcome, which closes a decision that stands before it.
        if decision is not None and (records or decision.segment < before):
            body = encode_decision(decision.resources, decision.time_us)
            records.append(UnplacedRecord(Code.DECISION, body, gtrid=gtrid))
        if records:
            yield records
    for number, entry in state.pending.items():
        if entry.segment < before:
            records = [UnplacedRecord(Code.PERSISTING, entry.body, key=number)]
            done = set(entry.targets) - entry.remaining
            if done:
                records.append(UnplacedRecord(Code.PERSISTED, encode_names(done), key=number))
            yield records


def heuristic_record(gtrid: bytes, names: frozenset[str]) -> UnplacedRecord:
    """Return the record of a heuristic outcome at these resources."""
    return UnplacedRecord(Code.HEURISTIC, encode_names(names, b"heuristic"), gtrid=gtrid)
