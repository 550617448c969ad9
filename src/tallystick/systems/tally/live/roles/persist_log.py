"""The native log as a persist log: persisting and persisted records.

In: the calls of `tallystick.roles.PersistLog`. Out: records submitted to the log, views of its
state, and files for a disposer.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial

from tallystick.arguments import integers, several
from tallystick.errors import LogWriteError
from tallystick.roles import Operation, PersistEntry, Role, Ticket
from tallystick.storage.group.owned_lock import OwnedLock, nested_call_error
from tallystick.storage.signals import uninterrupted
from tallystick.systems.tally.format.bodies import encode_names
from tallystick.systems.tally.format.columns import KEY_MAX, UnplacedRecord
from tallystick.systems.tally.format.entries import decode_entry, encode_entry, target_names
from tallystick.systems.tally.format.kinds import Code
from tallystick.systems.tally.format.layout import archive_name, segment_name, segment_number
from tallystick.systems.tally.live.items import RECORD_BYTES, UnplacedEntry, UnplacedMarks
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.roles.base import TallyRole
from tallystick.systems.tally.live.settings import Settings

MARKS_MAX = 256
"""Marks that are submitted as one."""


class TallyPersistLog(TallyRole[TallyLog]):
    """A persist log whose files go to a disposer.

    A log that was opened with ``Settings(recycle=True)`` recycles them by itself.
    """

    settings = Settings(recycle=False)
    role = Role.PERSIST_LOG

    def _load(self) -> None:
        with self.log.state() as state:
            self._next = state.next_key
        # Ties the numbers to the order of the log.
        self._number_lock = OwnedLock(partial(nested_call_error, self.log.path))

    @property
    def last_number(self) -> int:
        """The greatest number that any transaction ever got; 0 if none did."""
        return self._next - 1

    def persisting(
        self, targets: Sequence[str], operations: Iterable[Operation], reference: str = ""
    ) -> tuple[int, Ticket]:
        """Record a transaction; return its number, which grows in commit order, and its ticket.

        Raises:
            ValueError: an operation names none of ``targets``, or a text is too long.
        """
        names = target_names(targets)
        body = encode_entry(names, reference, operations)
        with uninterrupted, self._number_lock:
            number = self._next
            ticket = self.log.submit(UnplacedEntry(number, body, names))
            self._next = number + 1
        return number, ticket

    def persisted(self, number: int, targets: Collection[str]) -> None:
        """Record, without forcing, that these targets hold it."""
        self.persisted_all((number,), targets)

    def persisted_all(self, numbers: Sequence[int], targets: Collection[str]) -> None:
        """Record, without forcing, that these targets hold each of the transactions.

        A number that no transaction has is ignored: noted, it would keep smaller numbers from being
        given.
        """
        names = frozenset(target_names(several(targets, "targets")))
        body = encode_names(names)
        numbers = integers(numbers, "a number", 1, KEY_MAX - 1)
        if max(numbers, default=0) > self.last_number:
            numbers = [number for number in numbers if number <= self.last_number]
        most = max(1, min(MARKS_MAX, self.log.capacity // (len(body) + RECORD_BYTES)))
        for start in range(0, len(numbers), most):
            marks = UnplacedMarks(numbers[start : start + most], body, names)
            self.log.submit(marks, sync=False)

    def lowest_pending(self) -> int | None:
        """Return the smallest number that is pending in what is durable."""
        with self.log.state() as state:
            return min(state.pending, default=None)

    def discard(self, number: int) -> Ticket:
        """Record durably that an operator gives up what is still pending of an entry.

        Raises:
            KeyError: the number is not pending.
        """
        with self.log.state() as state:
            if number not in state.pending:
                raise KeyError(number)
        return self.log.submit(UnplacedRecord(Code.DISCARD, key=number))

    def pending(self) -> Iterator[tuple[PersistEntry, frozenset[str]]]:
        """Yield entries with the targets that do not hold them yet, by ascending number."""
        with self.log.state() as state:
            found = sorted(
                (number, one.time_us, one.body, frozenset(one.remaining))
                for number, one in state.pending.items()
            )
        return ((_entry(number, time, body), rest) for number, time, body, rest in found)

    def sync(self) -> Ticket:
        """Return a ticket for everything recorded so far, persisted marks included."""
        return self.log.barrier()

    def ask_first(self, agreed: Callable[[str], bool]) -> None:
        """Give up no file from now on unless ``agreed(path)`` is true."""
        self.log.ask_before_reclaiming(agreed)

    def disposable(self) -> Sequence[str]:
        """Return the files that a disposer may take now, oldest first."""
        self.log.reclaim()
        if self.log.settings.recycle:
            return []
        numbers = [
            number
            for name in self.log.fs.list(self.log.path)
            if (number := segment_number(name)) is not None and number < self.log.first_segment
        ]
        return [f"{self.log.path}/{segment_name(number)}" for number in sorted(numbers)]

    def archive_name(self, path: str) -> str:
        """Return the name of a segment file outside of the log, with the log's identity."""
        return archive_name(self.log.identity, posixpath.basename(path))

    def disposed(self, path: str) -> None:
        """Make durable that a disposer has taken this file.

        Raises:
            LogWriteError: the file is still in the log.
        """
        if self.log.fs.exists(path):
            raise LogWriteError("the file is still in the log", file=path)
        self.log.fs.sync_dir(self.log.path)

    def roll(self) -> None:
        """Go on in a new segment, so that the current one can become disposable."""
        self.log.roll()

    def carry_forward(self, most: int = 16) -> None:
        """Write open entries of the oldest segment again, so that it can be freed.

        Nothing is written if there are more than ``most``.
        """
        self.log.reclaim_soon(carry_after=0, carry_most=most)
        self.log.flush()


def _entry(number: int, time_us: int, body: bytes) -> PersistEntry:
    targets, reference, operations = decode_entry(body)
    return PersistEntry(number, targets, operations, reference, time_us)
