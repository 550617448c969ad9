"""A member that hands over: to whoever leads, or by leading itself.

In: requests, from any thread. Out: their answers, from one leader or from several, one after the
other; what a leader that ended has written is not handed over again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final, NamedTuple

from tallystick.errors import LogClosedError, LogPoisonedError, TallystickError, copy_error
from tallystick.storage.fork import Uncopied, forked_error, register_in_child
from tallystick.storage.opening import needing_space
from tallystick.storage.scheduling import threading, time
from tallystick.storage.shared import epochs, kernel
from tallystick.storage.shared.epochs import Epoch, Phase
from tallystick.storage.shared.mailbox import Mailbox, Sealing
from tallystick.storage.shared.members import Membership

_LOOK_S: Final = 0.05
"""Time between two looks whether the leader lives."""
UNANSWERED_S: Final = 10.0
"""A request is given up after so long, if the leader has looked at all requests meanwhile,"""
_TURNS: Final = 3
"""so often; where its disk hangs, or it recovers the log, members wait as a single process does."""


class Cut(NamedTuple):
    """A request whose epoch ended before it was answered.

    ``staged`` is the answer that its leader was about to give, None if it had not begun to write;
    of its records, those with an LSN below ``end`` are in the log, and no others.
    """

    staged: bytes | None
    end: int


class Client(Uncopied):
    """Requests of one member.

    Args:
        membership: The member.
        lead: Leads an epoch that was claimed, until the member is closed: recovers the log, and
            makes the epoch ready. Raises if it cannot.
        first_epoch: Returns the number of the first epoch, above all that the log has seen.
        sealing: Seals what is handed over.
    """

    def __init__(
        self,
        membership: Membership,
        lead: Callable[[Epoch], None],
        first_epoch: Callable[[], int],
        sealing: Sealing | None = None,
    ) -> None:
        self._sealing = sealing
        self._membership = membership
        self._lead = lead
        self._first_epoch = first_epoch
        self._lock = threading.Lock()
        self._epoch: Epoch | None = None
        self._stopped: TallystickError | None = None
        self._left = False
        """The folder is let go: its descriptor may be that of another one."""
        register_in_child(self)

    def ask(self, request: bytes) -> bytes | Cut:
        """Hand over a request; return its answer, or what became of it.

        Raises:
            LogPoisonedError: A write or sync of the leader has failed.
            LogClosedError: The log was closed, or belongs to the parent of this process.
            LogFullError: Nobody leads, and there is no room for it here; nothing was handed over.
            TallystickError: This process leads now, and could not recover the log.
        """
        with self._lock:
            epoch = self._attached()
            box = Mailbox(epoch, self._membership.number, self._sealing)
            number = box.publish(request)
            seen: tuple[float, int] | None = None
            while (answer := box.answer(number)) is None:
                if epoch.is_current():
                    box.wait(number, _LOOK_S)
                if box.answer(number) is None:
                    if not epoch.is_current() or epoch.is_over():
                        self._refuse_failed(epoch)
                        later = self._find_leader()
                        if later is not epoch:
                            return self._cut(later, epoch, box, number)
                    seen = seen or (time.monotonic(), epoch.turns)
                    self._refuse_unanswered(epoch, *seen)
            return answer

    def _refuse_unanswered(self, epoch: Epoch, since: float, turns: int) -> None:
        """Give up a request that a leader passes over: its memory was changed by something else."""
        time.sleep(0)  # an answer that is damaged is there at once, each time
        if epoch.turns - turns >= _TURNS and time.monotonic() - since > UNANSWERED_S:
            raise self._stop(
                LogPoisonedError(
                    "the process that leads this shared log goes on and does not answer: a request "
                    "or its answer was damaged in shared memory; what was handed over is durable "
                    "or not",
                    file=self._membership.folder,
                    advice="Close the log and open it again, and look for the last records",
                )
            )

    def _cut(self, later: Epoch, epoch: Epoch, box: Mailbox, number: int) -> bytes | Cut:
        """Find out what became of a request after its epoch has ended."""
        answer = box.answer(number)
        if answer is not None:
            return answer  # E3
        end = later.end_of(epoch.number)
        if end is None:
            raise self._stop(
                LogPoisonedError(
                    "this process was away while others led the log; what it had handed over is "
                    "durable or not",
                    file=self._membership.folder,
                    advice="Close the log and open it again, and look for the last records",
                )
            )
        return Cut(box.staged(number), end)

    def current(self) -> Epoch:
        """Return the epoch of the leader, which is this process if there was none."""
        with self._lock:
            return self._attached()

    def seen(self) -> Epoch | None:
        """Return the newest epoch, without leading; None if it was never ready.

        Then only the next leader knows what others wrote in epochs between that one and ours. Of a
        member that has stopped, the last epoch that it knew.
        """
        epoch = self._epoch
        if epoch is not None and epoch.is_current():
            return epoch
        with self._lock:
            found = None if self._left else self._newest()
            if found is not None and found.was_ready:
                return found
            return self._epoch if self._stopped is not None else None

    # -- attaching, with the lock held -----------------------------------------------------------

    def _attached(self) -> Epoch:
        self._refuse_stopped()
        if self._epoch is not None:
            if self._epoch.is_current():
                return self._epoch
            self._refuse_failed(self._epoch)
        # Nothing was handed over yet: without room to lead, it is refused, and tried again later.
        with needing_space(self._membership.folder, "leading the shared log"):
            return self._find_leader()

    def _find_leader(self) -> Epoch:
        """Return the epoch of a leader that lives; this process may have to lead."""
        while True:
            self._refuse_stopped()
            newest = self._newest()
            if newest is not None and newest.is_current() and not newest.is_over():
                self._epoch = newest
                return newest
            if newest is None or newest.is_over():
                self._refuse_ending()
                self._try_to_lead(self._first_epoch() if newest is None else newest.number + 1)
            else:
                address = newest.address(Epoch.phase_word)
                kernel.wait(address, newest.phase & 0xFFFFFFFF, _LOOK_S)
            if newest is not None and newest is not self._epoch:
                newest.close()

    def _newest(self) -> Epoch | None:
        folder = self._membership.place
        there = epochs.numbers(folder)
        if not there:
            return None
        if self._epoch is not None and self._epoch.number == there[-1]:
            return self._epoch
        return epochs.open_epoch(folder, there[-1])

    def _try_to_lead(self, number: int) -> None:
        epoch = epochs.claim(self._membership.place, number)
        if epoch is not None:
            try:
                self._lead(epoch)
            except BaseException as error:
                epoch.enter(Phase.FAILED)
                epoch.close()
                # Another one was faster, and may have changed what was read.
                if not (epoch.deposed and isinstance(error, TallystickError | OSError)):
                    raise

    def _refuse_failed(self, epoch: Epoch) -> None:
        if epoch.phase == Phase.FAILED and not epoch.deposed:
            raise self._stop(
                LogPoisonedError(
                    "a write or sync of the process that leads this shared log has failed; "
                    "nothing after it is acknowledged",
                    file=self._membership.folder,
                    advice="Close the log and open it again: recovery reads what is on the disk",
                )
            )

    # -- the end ----------------------------------------------------------------------------------

    def _refuse_ending(self) -> None:
        """Raise `LogPoisonedError` where no thread of this process runs that could lead."""
        if sys.is_finalizing():
            raise self._stop(
                LogPoisonedError(
                    "the interpreter ends, and the threads that led this shared log have ended; "
                    "what was handed over is durable or not",
                    file=self._membership.folder,
                    advice="Close the log before the program ends: a generator or an object that "
                    "is left to the interpreter's end is closed too late",
                )
            )

    def _refuse_stopped(self) -> None:
        if self._stopped is not None:
            raise copy_error(self._stopped)

    def _stop(self, cause: TallystickError) -> TallystickError:
        self._stopped = self._stopped or cause
        return self._stopped

    def close(self) -> None:
        """Refuse every later request."""
        self._stop(LogClosedError("the log is closed", file=self._membership.folder))
        self._left = True

    def forked(self) -> None:
        """Refuse every request of a forked child."""
        self._lock = threading.Lock()
        self._stopped = forked_error(self._membership.folder)
        self._left = True
