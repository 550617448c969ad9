"""Record a run, then crash it at every moment.

In: a run of the user's code over a `RecordingFileSystem`, with marks of the items it submitted and
of those that were acknowledged. Out: a `CrashState` for every legal state of the disk at every
moment of the run.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field

from tallystick.testing.disk import Disk
from tallystick.testing.memory import MemoryFileSystem
from tallystick.testing.states import DiskState, Key, disk_states, is_exhaustive

LIMIT = 200
"""Default limit of states per moment."""


@dataclass(frozen=True, slots=True)
class CrashState:
    """The disk after a crash that came after the first ``point`` calls of a run.

    ``submitted`` and ``acknowledged`` are the items marked until then, in order. ``number`` counts
    the states of the point. Within one run, equal ``key`` means equal files.
    """

    point: int
    number: int
    submitted: tuple[Hashable, ...]
    acknowledged: tuple[Hashable, ...]
    key: Key = field(repr=False)
    _contents: dict[str, bytearray] = field(repr=False)
    _state: DiskState = field(repr=False)

    def __str__(self) -> str:
        return self.describe()

    def fs(self) -> MemoryFileSystem:
        """Make a new file system with these files, for a recovery to work on."""
        return MemoryFileSystem(self._contents)

    def recording(self) -> RecordingFileSystem:
        """Make a new recording file system with these files, to crash the recovery too."""
        return RecordingFileSystem(self._contents)

    def describe(self) -> str:
        """Return the point, the number and what is on the disk, as text."""
        return f"crash at call {self.point}, state {self.number}: {self._state.describe()}"


class RecordingFileSystem(MemoryFileSystem):
    """A `MemoryFileSystem` that records every change, in order.

    Args:
        contents: Files that are there, durable, from the start, by path.
    """

    def __init__(self, contents: Mapping[str, bytes | bytearray] | None = None) -> None:
        self._calls: list[tuple[str, tuple[object, ...]]] = []
        self._initial = {path: bytes(content) for path, content in (contents or {}).items()}
        super().__init__(contents)

    def apply(self, call: str, *arguments: object) -> None:
        """Change the disk by one call, and record the call."""
        with self._mutex:
            super().apply(call, *arguments)
            self._calls.append((call, arguments))

    def submitted(self, item: Hashable) -> None:
        """Mark an item before it is handed to the log.

        Args:
            item: Anything hashable that the recovery returns for it.
        """
        self._mark("submitted", item)

    def acknowledged(self, item: Hashable) -> None:
        """Mark an item that was reported durable: it must survive every later crash.

        Args:
            item: As for `submitted`.
        """
        self._mark("acknowledged", item)

    @property
    def points(self) -> int:
        """Return the number of calls that have changed the disk so far."""
        return sum(call not in _MARKS for call, _ in self._calls)

    def never(self) -> tuple[str, ...]:
        """Return what the run has not done to files, whose defects no crash state can show."""
        names, done = set[object](self._initial), set[str]()
        for call, arguments in list(self._calls):
            if call == "create":
                names.add(arguments[0])
            elif call == "remove":
                names.discard(arguments[0])
                done.add(_REMOVED)
            elif call == "rename":
                source, target = arguments
                done.add(_REPLACED if target in names else _RENAMED)
                names.discard(source)
                names.add(target)
        return tuple(one for one in (_REMOVED, _RENAMED, _REPLACED) if one not in done)

    def crash_states(self, *, limit: int = LIMIT, seed: int = 0) -> Iterator[CrashState]:
        """Yield every legal state before each call and after the last one.

        A state with the same files and acknowledgements as one before is not repeated.

        Args:
            limit: Most states per moment, roughly; where there are more, a sample is taken.
            seed: Of that sample.
        """
        marks: dict[str, list[Hashable]] = {name: [] for name in _MARKS}
        seen: set[tuple[Key, int]] = set()
        for point, disk in self._replay(marks):
            acknowledged = len(marks["acknowledged"])
            states = disk_states(disk, limit, random.Random(f"{seed}/{point}"))
            for number, state in enumerate(states):
                if (state.key, acknowledged) not in seen:
                    seen.add((state.key, acknowledged))
                    yield CrashState(
                        point,
                        number,
                        tuple(marks["submitted"]),
                        tuple(marks["acknowledged"]),
                        state.key,
                        state.contents(disk),
                        state,
                    )

    def sampled_points(self, *, limit: int = LIMIT) -> int:
        """Return the number of moments that have more than ``limit`` states.

        Of these `crash_states` takes a sample.
        """
        marks: dict[str, list[Hashable]] = {name: [] for name in _MARKS}
        return sum(not is_exhaustive(disk, limit) for _, disk in self._replay(marks))

    def _mark(self, name: str, item: Hashable) -> None:
        with self._mutex:
            self._calls.append((name, (item,)))

    def _replay(self, marks: dict[str, list[Hashable]]) -> Iterator[tuple[int, Disk]]:
        disk = MemoryFileSystem(self._initial).disk
        point = 0
        for call, arguments in list(self._calls):
            if call in _MARKS:
                marks[call] += arguments
                continue
            yield point, disk
            getattr(disk, call)(*arguments)
            point += 1
        yield point, disk


_MARKS = ("submitted", "acknowledged")
_REMOVED, _RENAMED = "a file removed", "a file renamed (used again)"
_REPLACED = "a file replaced by a rename"
