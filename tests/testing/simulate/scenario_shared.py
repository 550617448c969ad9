"""One log and several processes: killed, stopped, left alone, on a machine that stops.

In: a simulation. Out: an `AssertionError` if what was acknowledged or seen is lost, something is
there twice or under another LSN, records of a member are not in order, or a member does not see
what was acknowledged to another one before.
"""

from __future__ import annotations

import contextlib
from random import Random

from tallystick.errors import TallystickError
from tallystick.services.journal import Journal
from tallystick.storage import scheduling
from tallystick.storage.files import FileSystem
from tallystick.systems.tally.live.settings import Settings
from tallystick.testing.simulate import Simulation
from tests.testing.simulate.scenario_journal import FOLDER, KINDS, Live, Writer, is_plain

PAUSES_S = (0.0, 0.0, 0.1, 1.0)
"""Time between two steps of a member: the leader keeps house meanwhile."""

SPREAD = 8
"""A life has some thousand steps."""


class Members:
    """What the processes of all lives have handed in, and what they have read."""

    def __init__(self, sim: Simulation) -> None:
        random = sim.random
        self.settings = Settings(
            segment_size=16 << 10,
            preallocate=random.random() < 0.3,
            idle_mark_s=random.choice((None, 0.5)),
            group_bytes=random.choice((512, 1 << 20)),
        )
        self.size = random.choice((5, 500, 3000))
        self.writers = [Writer(number) for number in range(random.randint(2, 3))]
        self.seen: dict[bytes, int] = {}

    def works(self, fs: FileSystem, writer: Writer, seed: int) -> None:
        """Be one process: open the log, write and read for a while, close it."""
        random = Random(seed)
        with (
            contextlib.suppress(TallystickError),
            Journal(FOLDER, fs=fs, settings=self.settings, shared=True) as one,
        ):
            for _ in range(random.randint(1, 4)):
                random.choice(KINDS)(one, writer, self.size)
                scheduling.time.sleep(random.choice(PAUSES_S))
                if random.random() < 0.2:
                    self.looks(one)

    def looks(self, one: Journal) -> None:
        """Read the log in a member: everything acknowledged before is there."""
        before = [body for writer in self.writers for body in writer.plain[: writer.durable]]
        found = _plain(one)
        lost = set(before) - set(found)
        assert not lost, f"acknowledged, and not seen by another process: {lost}"
        self.seen |= found

    def check(self, sim: Simulation) -> None:
        """Compare with what a process finds that has the log alone."""
        with Journal(FOLDER, fs=sim.disk, settings=self.settings) as one:
            plain = _plain(one)
            live: Live = {}
            for found in one.live_records():
                live[found.record_id] = (*live.get(found.record_id, ()), bytes(found.body))
        assert self.seen.items() <= plain.items(), "a member has read what is not there"
        for writer in self.writers:
            kept = writer.plain[: writer.durable]
            wrong = [body for body in kept if plain.get(body) != writer.lsns[body]]
            assert not wrong, f"acknowledged, but lost or under another LSN: {wrong}"
            writer.check(plain, live, 0)


def _plain(one: Journal) -> dict[bytes, int]:
    """Return all plain records of members with their LSNs; none may be there twice."""
    bodies = [(bytes(record.body or b""), record.sequence or 0) for record in one.replay()]
    bodies = [(body, lsn) for body, lsn in bodies if is_plain(body)]
    found = dict(bodies)
    assert len(found) == len(bodies), f"there twice: {bodies}"
    return found


def shared(sim: Simulation) -> None:
    """Some lives of a machine with members that write, and a look at the log after each."""
    members = Members(sim)

    def life(fs: FileSystem) -> None:
        processes = [
            sim.process(members.works, fs, writer, sim.random.getrandbits(20), name="member")
            for writer in members.writers
        ]
        for one in processes:
            one.join()

    for _ in range(sim.random.randint(1, 2)):
        sim.until_crash(life, spread=SPREAD)
        members.check(sim)
