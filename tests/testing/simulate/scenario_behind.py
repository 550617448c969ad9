"""Write-behind: what was committed reaches the target once and in order, also after crashes."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from tallystick.errors import TallystickError
from tallystick.roles import Operation, OperationCode, PersistEntry
from tallystick.services.write_behind import WriteBehind, WriteBehindSettings
from tallystick.storage.files import FileSystem
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.roles import TallyPersistLog
from tallystick.systems.tally.live.settings import Settings
from tallystick.testing.simulate import Simulation

SETTINGS = WriteBehindSettings(
    retry_seconds=0.01, retry_seconds_max=0.1, attempts_max=3, busy_timeout=0.5, close_timeout=5.0
)


class Database:
    """A database elsewhere: it survives every crash of ours, and keeps the numbers it has seen.

    ``fails`` says how often it refuses.
    """

    def __init__(self, sim: Simulation, batch_max: int, fails: float) -> None:
        self.batch_max = batch_max
        self.references: list[str] = []
        self._numbers: set[int] = set()
        self._sim = sim
        self._fails = fails

    def open(self, log_id: str) -> None:
        """Do nothing: there is one log."""

    def apply(self, entries: Sequence[PersistEntry]) -> None:
        """Apply a batch in one transaction."""
        self._sim.pause()
        if self._sim.random.random() < self._fails:
            raise ConnectionError("the database is away")
        for entry in entries:
            if entry.number not in self._numbers:
                self._numbers.add(entry.number)
                self.references.append(entry.reference)
        self._sim.pause()  # it has committed; nobody knows yet

    def settled(self, below: int) -> None:
        """Do nothing: numbers are never forgotten."""

    def close(self) -> None:
        """Do nothing."""


def behind(sim: Simulation) -> None:
    """Two lives, then one without faults that empties the backlog."""
    random = sim.random
    database = Database(sim, random.choice((1, 100)), random.choice((0.0, 0.0, 0.3)))
    writers = random.randint(1, 3)
    submitted: list[list[str]] = [[] for _ in range(writers)]
    acknowledged: list[list[str]] = [[] for _ in range(writers)]

    def life(fs: FileSystem) -> None:
        def works(number: int) -> None:
            with contextlib.suppress(TallystickError):
                for _ in range(2):
                    reference = f"{number}:{len(submitted[number])}"
                    submitted[number].append(reference)
                    operation = Operation(OperationCode.UPDATE, "t", b"%d" % number, b"", None)
                    service.commit([operation], reference)
                    acknowledged[number].append(reference)

        with contextlib.suppress(TallystickError):
            service = _service(fs, database)
            workers = [
                sim.spawn(works, number, name=f"writer-{number}") for number in range(writers)
            ]
            for worker in workers:
                worker.join()
            service.close()

    for _ in range(random.randint(1, 2)):
        sim.until_crash(life)
    database._fails = 0.0
    with _service(sim.disk, database) as service:
        assert service.drain()
    for number in range(writers):
        applied = [one for one in database.references if one.startswith(f"{number}:")]
        assert len(set(applied)) == len(applied), f"applied twice: {applied}"
        lost = [one for one in acknowledged[number] if one not in applied]
        assert not lost, f"acknowledged but lost: {lost}"
        assert applied == sorted(applied, key=submitted[number].index), f"out of order: {applied}"


def _service(fs: FileSystem, database: Database) -> WriteBehind:
    settings = Settings(segment_size=16 << 10, recycle=False, preallocate=False, idle_mark_s=None)
    log = TallyPersistLog(TallyLog("/spool/log", settings=settings, fs=fs), fs=fs)
    targets: dict[str, Any] = {"database": database}
    return WriteBehind("/spool", targets, log=log, settings=SETTINGS, on_incomplete="replay", fs=fs)
