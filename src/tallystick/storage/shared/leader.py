"""The leader: takes the requests of all members, has them written as one group, answers them.

In: an epoch that was claimed, and a `Service`, which knows the log. Out: a thread that answers, and
one in which the heart beats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from tallystick.errors import LogClosedError
from tallystick.printable import logger
from tallystick.storage.fork import Uncopied
from tallystick.storage.opening import is_running, start_thread
from tallystick.storage.scheduling import threading, time
from tallystick.storage.shared import kernel
from tallystick.storage.shared.epochs import BEAT_S, Epoch, Phase
from tallystick.storage.shared.mailbox import Mailbox, Sealing, waiting

CALL: Final = b"C"
"""The first byte of a request that writes no record; all others are batches."""
DAMAGED: Final = CALL + b"damaged"
"""What the leader carries out in place of a request that it cannot read."""
_ARRIVAL_S: Final = 1.0
"""A request that has not arrived whole after so long is damaged."""

_TURN_S: Final = 0.1
"""Longest sleep of the leader."""
_HOUSEKEEPING_S: Final = 0.5
_WAIT_MAX_S: Final = 0.002
"""Longest wait for members that were answered last and have not handed over again."""

_log = logger("tallystick.storage")

Batch = tuple[int, bytes]
"""A member, and what it has handed over."""


class Service(Protocol):
    """What the leader needs of the log."""

    def write(self, batches: Sequence[Batch], stage: Callable[[Sequence[bytes]], None]) -> None:
        """Write the records of all batches and make them durable.

        ``stage`` is called with an answer for each of them before the first one is written; and
        again if the log has refused them.
        """
        ...

    def call(self, member: int, request: bytes) -> bytes:
        """Carry out a call that writes no record of the application; return the answer.

        `DAMAGED` is answered by an error, as what there is no call for.
        """
        ...

    def publish(self) -> None:
        """Store in the epoch where the log stands."""
        ...

    def keep_house(self) -> None:
        """Do what is due from time to time."""
        ...

    def close(self) -> None:
        """Close the log, with everything in it durable."""
        ...

    def abandon(self) -> None:
        """Close the files of the log; nothing is written."""
        ...


class Heart(Uncopied):
    """A thread in which the heart of an epoch beats, also while its leader recovers the log."""

    def __init__(self, epoch: Epoch) -> None:
        self._epoch = epoch
        self._stop = threading.Event()
        name = f"heart of {epoch.path}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        start_thread(self._thread)

    def _run(self) -> None:
        while not self._stop.wait(BEAT_S):
            self._epoch.beat()

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()


class Leader(Uncopied):
    """Leads an epoch from its `start` to its end."""

    def __init__(
        self, epoch: Epoch, service: Service, heart: Heart, sealing: Sealing | None = None
    ) -> None:
        self._sealing = sealing
        self._answered: dict[int, int] = {}
        self._unread: dict[int, tuple[int, float]] = {}
        self._epoch = epoch
        self._heart = heart
        self._service = service
        self._stop = threading.Event()
        self._last: set[int] = set()
        self._flush_s = 0.0
        self._housekept = time.monotonic()
        name = f"leader of {epoch.path}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Be ready: members may hand over."""
        self._epoch.enter(Phase.READY)
        start_thread(self._thread)

    @property
    def leads(self) -> bool:
        """True while this process leads, as far as it knows."""
        return self._epoch.is_current() and is_running(self._thread)

    @property
    def is_here(self) -> bool:
        """True in the thread that leads, which would wait for itself."""
        return threading.current_thread() is self._thread

    def close(self) -> None:
        """Answer what was handed over, close the log, and leave the lead to another process."""
        self._stop.set()
        kernel.wake(self._epoch.address(Epoch.bell_word))
        self._thread.join()

    def _run(self) -> None:
        epoch = self._epoch
        phase = Phase.FAILED
        try:
            while not self._stop.is_set():
                self._turn()
                epoch.turns += 1
            self._turn()
            self._service.close()
            phase = Phase.CLOSED
        except BaseException as error:
            if not epoch.deposed:
                _log.critical("the leader of a shared log has failed: %s", error)
            self._abandon()
        finally:  # whatever has failed: while the heart beats nobody takes over
            self._heart.stop()
            epoch.enter(phase)
            epoch.close()

    def _abandon(self) -> None:
        try:
            self._service.abandon()
        except Exception as error:
            _log.warning("a log that was led by this process was not closed: %s", error)

    def check(self, change: str) -> None:
        """Raise `LogClosedError` if another process leads; ``change`` is what would follow."""
        if self._epoch.deposed:
            raise deposed_error(self._epoch, change)

    # -- one turn -----------------------------------------------------------------------------

    def _turn(self) -> None:
        """Answer what was handed over; sleep if nothing was."""
        epoch = self._epoch
        self.check("turn")
        bell = epoch.bell
        members = waiting(epoch)
        if members and self._last:
            members = self._wait_for_last(members)
        answered = bool(members) and self._answer(members)
        if time.monotonic() - self._housekept > _HOUSEKEEPING_S:
            self._service.keep_house()
            self._service.publish()
            self._housekept = time.monotonic()
        if not answered and not self._stop.is_set():
            kernel.wait(epoch.address(Epoch.bell_word), bell & 0xFFFFFFFF, _TURN_S)

    def _wait_for_last(self, members: list[int]) -> list[int]:
        """Wait a moment for those that were answered last: most of them come again."""
        until = time.perf_counter() + min(self._flush_s, _WAIT_MAX_S)
        epoch = self._epoch
        while not self._last.issubset(members):
            rest = until - time.perf_counter()
            if rest <= 0:
                break
            bell = epoch.bell
            members = waiting(epoch)
            if not self._last.issubset(members):
                kernel.wait(epoch.address(Epoch.bell_word), bell & 0xFFFFFFFF, rest)
                members = waiting(epoch)
        return members

    def _answer(self, members: list[int]) -> bool:
        """Answer the requests of these members that have arrived; False if none has."""
        batches: list[Batch] = []
        boxes: list[tuple[Mailbox, int]] = []
        calls: list[tuple[Mailbox, int, Batch]] = []
        for member in members:
            box = Mailbox(self._epoch, member, self._sealing)
            if box.number == self._answered.get(member):
                box.give(box.number)  # the word that says so was damaged: nothing is written twice
                continue
            found = box.request()
            if found is None:
                if self._is_damaged(member, box.number):
                    calls.append((box, box.number, (member, DAMAGED)))
                continue
            number, data = found
            if data[:1] == CALL:
                calls.append((box, number, (member, data)))
            else:
                batches.append((member, data))
                boxes.append((box, number))
        if batches:
            self._write(batches, boxes)
        # After the batches: a call is answered with all that was handed over before it.
        for box, number, (member, data) in calls:
            box.stage(number, self._service.call(member, data))
            self._give(box, member, number)
        return bool(batches or calls)

    def _give(self, box: Mailbox, member: int, number: int) -> None:
        self._answered[member] = number
        box.give(number)

    def _is_damaged(self, member: int, number: int) -> bool:
        """Return True if this request could not be read for so long that it never will be."""
        known, since = self._unread.get(member, (0, 0.0))
        if known != number:
            self._unread[member] = number, time.monotonic()
            return False
        return time.monotonic() - since > _ARRIVAL_S

    def _write(self, batches: list[Batch], boxes: list[tuple[Mailbox, int]]) -> None:
        def stage(answers: Sequence[bytes]) -> None:
            for (box, number), answer in zip(boxes, answers, strict=True):
                box.stage(number, answer)

        started = time.perf_counter()
        self._service.write(batches, stage)
        self.check("answer")
        self._service.publish()
        for (box, number), (member, _) in zip(boxes, batches, strict=True):
            self._give(box, member, number)
        self._epoch.syncs += 1
        self._flush_s = time.perf_counter() - started
        self._last = {member for member, _ in batches}


def deposed_error(epoch: Epoch, change: str) -> LogClosedError:
    """Return the error for a leader that was replaced."""
    return LogClosedError(
        f"another process leads this shared log: no {change}",
        file=kernel.real_path(epoch.path),
        advice="Nothing has to be done; this process goes on as a follower",
    )
