"""What a seed decides in one run: who goes on, which call fails, when the machine stops.

In: a seed, or the decisions of an earlier run. Out: answers to the questions of the scheduler and
of the disk, and a record of every answer that is not the default.

The default of every question is that nothing happens: the participant goes on, the call succeeds,
the clock runs evenly. So a run is told by its other answers alone, and to leave out one of them
leaves the rest of the run as it was, as far as that is possible: each answer belongs to the
n-th question of its kind to one participant.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

_T = TypeVar("_T")
Answers = dict[str, str]
"""Answers that are not the default, by question: ``{"writer-2.s14": "writer-1"}``."""

SWITCH: Final = "s"
"""Question at a scheduling point: who runs next; the answer is a participant."""
FAULT: Final = "f"
"""Question of a file call: how it fails."""
TIME: Final = "t"
"""Question of a look at the wall clock: by how many seconds it has been set."""
ORDER: Final = "o"
"""Question of an event loop: which of its tasks runs next."""
CRASH: Final = "crash"
"""Question of a life of the machine: after how many steps it stops."""
KILL: Final = "kill"
"""Question of a process: after how many steps it is killed."""
STOP: Final = "stop"
"""Question of a process: after how many steps it is stopped, and for how many milliseconds."""
DISK: Final = "disk"
"""Question at the end of a life: what is on the disk."""
OUT: Final = "out"
"""Question when a participant starts: is it left out; asked by shrinking only."""

_SWITCH_RATES: Final = (0.02, 0.1, 0.3, 0.6)
_PRIORITY_RATE: Final = 0.4
"""Share of the seeds that go by priorities: the participant of the highest one runs, and at a few
steps the one that runs gets the lowest. So one can be kept waiting at one place while all others
come to their end, which is what most races need (Burckhardt et al., "A Randomized Scheduler with
Probabilistic Guarantees of Finding Bugs", ASPLOS 2010)."""
_CHANGES_MAX: Final = 3
_FAULT_RATES: Final = (0.0, 0.0, 0.01, 0.05)
_TIMED_RATE: Final = 0.1
"""How often a switch goes to a participant whose wait has not timed out yet: time passes."""
_CLOCK_RATE: Final = 0.02
_CLOCK_JUMPS: Final = ("-3600", "-1", "-0.002", "0.002", "1", "3600", "315360000")
_CRASH_RATE: Final = 0.75
_HORIZONS: Final = (8, 32, 64, 128, 256, 512)
"""Steps within which a life is stopped."""
_PROCESS_RATE: Final = 0.35
_PROCESS_HORIZONS: Final = (64, 256, 512, 1024, 2048)
"""Steps within which a process is killed or stopped: it opens what it shares first."""
_STOPS_MS: Final = (100, 600, 7000)
"""Shorter than what `tallystick.storage.shared.epochs` takes for a stop, longer, and longer than
any silence."""


class Decisions:
    """Answers by a seed, or given ones.

    Args:
        seed: decides everything that is not given.
        given: if not None, these answers and no other: what is missing is the default.
        faults: False leaves the disk and the clock unharmed, and no wait times out early.
        crashes: False never stops the machine.

    Attributes:
        made: the answers so far that are not the default, in the order of the questions.
    """

    def __init__(
        self,
        seed: int,
        given: Mapping[str, str] | None = None,
        *,
        faults: bool = True,
        crashes: bool = True,
    ) -> None:
        self.given = given
        self.made: Answers = {}
        self._random = random.Random(seed)
        self._draw = self._random.random
        self._switch_rate = self._random.choice(_SWITCH_RATES)
        self._priorities: dict[str, float] | None = None
        if given is None and self._draw() < _PRIORITY_RATE:
            self._priorities = {}
            self._switch_rate = 0.1  # of tasks within a loop
            steps = self._pick(_HORIZONS)
            changes = 1 + int(self._draw() * _CHANGES_MAX)
            self._changes = {1 + int(self._draw() * steps) for _ in range(changes)}
            self._points = 0
        self._fault_rate = self._random.choice(_FAULT_RATES) if faults else 0.0
        self._clock_rate = _CLOCK_RATE if faults and self._fault_rate else 0.0
        self._timed_rate = _TIMED_RATE if faults else 0.0
        self._crash_rate = _CRASH_RATE if crashes else 0.0
        self._kill_rate = _PROCESS_RATE if crashes else 0.0
        self._stop_rate = _PROCESS_RATE if faults else 0.0

    def wants_switch(self, me: str, step: int) -> bool:
        """Return False if ``me`` goes on at its step of this number, as at most steps."""
        if self.given is not None:
            return f"{me}.{SWITCH}{step}" in self.given
        if self._priorities is not None:
            self._points += 1
            return self._points in self._changes
        return self._draw() < self._switch_rate

    def switch(
        self, question: str, me: str, ready: Sequence[str], timed: Sequence[str]
    ) -> str | None:
        """Return the name of the participant that runs next.

        Args:
            question: the question's key.
            me: name of the participant that runs.
            ready: names of the others that can run.
            timed: names of those that wait for a time.

        Returns:
            One of the names; None for the default.
        """
        if self.given is not None:
            wanted = self.given.get(question)
            return self._note(question, wanted) if wanted in ready or wanted in timed else None
        if timed and self._draw() < self._timed_rate:
            ready = timed
        if not ready:
            return None
        if self._priorities is None:
            return self._note(question, self._pick(ready))
        self._priorities[me] = -self._points
        return self._note(question, max(ready, key=self._priority))

    def resume(self, question: str, default: str, others: Sequence[str]) -> str:
        """Return the name of the participant that runs after one has gone to sleep or ended."""
        if self.given is not None:
            chosen = self.given.get(question, default)
            chosen = chosen if chosen in others else default
        elif self._priorities is not None:
            chosen = max([default, *others], key=self._priority)
        elif self._draw() < self._switch_rate:
            chosen = self._pick(others)
        else:
            return default
        if chosen != default:
            self._note(question, chosen)
        return chosen

    def _priority(self, name: str) -> float:
        assert self._priorities is not None, "asked in runs by priorities only"
        if name not in self._priorities:
            self._priorities[name] = self._draw()
        return self._priorities[name]

    def fault(self, question: str, kinds: Sequence[str]) -> str | None:
        """Return one of the ways in which a file call can fail; None if it succeeds."""
        return self._rare(question, self._fault_rate, kinds)

    def clock_jump(self, question: str) -> float:
        """Return by how many seconds the wall clock is set forward."""
        return float(self._rare(question, self._clock_rate, _CLOCK_JUMPS) or 0)

    def order(self, question: str, count: int) -> int:
        """Return which of ``count`` tasks runs next, 0 being the first that became ready."""
        if self.given is not None:
            place = int(self.given.get(question, 0))
        else:
            place = int(self._draw() * count) if self._draw() < self._switch_rate else 0
        if not 0 < place < count:
            return 0
        self._note(question, str(place))
        return place

    def crash_at(self, life: str, spread: int = 1) -> int:
        """Return after how many steps the machine stops; 0 if it does not.

        A life of ``spread`` times as many steps as most is stopped as much later.
        """
        question = f"{life}.{CRASH}"
        if self.given is not None:
            step = int(self.given.get(question, 0))
        elif self._draw() < self._crash_rate:
            step = 1 + int(self._draw() * spread * self._pick(_HORIZONS))
        else:
            step = 0
        if step:
            self._note(question, str(step))
        return step

    def kill_at(self, process: str) -> int:
        """Return after how many steps a process is killed; 0 if it is not."""
        question = f"{process}.{KILL}"
        if self.given is not None:
            answer = self.given.get(question)
        else:
            answer = str(self._process_step()) if self._draw() < self._kill_rate else None
        return int(self._note(question, answer) or 0)

    def stop_at(self, process: str) -> tuple[int, int]:
        """Return after how many steps a process is stopped, 0 if it is not, and for how many ms."""
        question = f"{process}.{STOP}"
        answer = None
        if self.given is not None:
            answer = self.given.get(question)
        elif self._draw() < self._stop_rate:
            answer = f"{self._process_step()}:{self._pick(_STOPS_MS)}"
        step, _, milliseconds = (self._note(question, answer) or "0:0").partition(":")
        return int(step), int(milliseconds)

    def _process_step(self) -> int:
        return 1 + int(self._draw() * self._pick(_PROCESS_HORIZONS))

    def disk(self, life: str) -> int | None:
        """Return the seed of what a power cut leaves on the disk; None if all is left."""
        question = f"{life}.{DISK}"
        if self.given is not None:
            wanted = self.given.get(question)
        else:
            wanted = str(self._random.getrandbits(20)) if self._draw() < self._crash_rate else None
        if wanted is None:
            return None
        self._note(question, wanted)
        return int(wanted)

    def left_out(self, participant: str) -> bool:
        """Return True if the participant is not to run."""
        question = f"{participant}.{OUT}"
        if self.given is None or question not in self.given:
            return False
        self._note(question, self.given[question])
        return True

    def _pick(self, things: Sequence[_T]) -> _T:
        return things[int(self._draw() * len(things))]

    def _rare(self, question: str, rate: float, kinds: Sequence[str]) -> str | None:
        if self.given is not None:
            wanted = self.given.get(question)
            return self._note(question, wanted) if wanted in kinds else None
        if not rate or self._draw() >= rate:
            return None
        return self._note(question, self._pick(kinds))

    def _note(self, question: str, answer: str | None) -> str | None:
        if answer is not None:
            self.made[question] = answer
        return answer


def to_text(answers: Mapping[str, str]) -> str:
    """Return answers as one line, which `from_text` reads."""
    return " ".join(f"{question}={answer}" for question, answer in answers.items())


def from_text(text: str) -> Answers:
    """Read the line that `to_text` has written.

    Raises:
        ValueError: a word of it has no ``=``.
    """
    answers = {}
    for word in text.split():
        question, equals, answer = word.partition("=")
        if not equals:
            raise ValueError(f"{word!r} is no decision: QUESTION=ANSWER is expected")
        answers[question] = answer
    return answers
