"""The page store: transactions of several sessions over the same few rows, with checkpoints."""

from __future__ import annotations

import contextlib
from pathlib import Path
from random import Random

from tallystick.errors import TallystickError
from tallystick.roles import UndoRedoLog
from tallystick.services.page_store import PageStore
from tallystick.storage.files import FileSystem
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.roles.undo_redo_log import TallyUndoRedoLog
from tallystick.systems.tally.live.settings import Settings
from tallystick.testing.simulate import Simulation

Rows = dict[int, bytes]
PAIR = 1000
"""Each transaction writes a key and this much above it: found together, or not at all."""


class Model:
    """The states that a recovery may find, by key: a row is only ever replaced by later ones."""

    def __init__(self) -> None:
        self.rows: Rows = {}
        self.possible: dict[int, set[bytes | None]] = {}

    def may(self, key: int, row: bytes | None) -> None:
        """Allow that a row becomes this, beside what it is."""
        self.possible.setdefault(key, {self.rows.get(key)}).add(row)

    def must(self, key: int, row: bytes | None) -> None:
        """State that a row is this."""
        self.rows.pop(key, None)
        if row is not None:
            self.rows[key] = row
        self.possible[key] = {row}

    def check(self, found: Rows) -> None:
        """Compare with what a recovery has found, and go on from there."""
        halves: list[Rows] = [{}, {}]
        for key, row in found.items():
            halves[key // PAIR][key % PAIR] = row
        assert halves[0] == halves[1], f"a transaction in part: {halves}"
        for key, allowed in self.possible.items():
            assert halves[0].get(key) in allowed, f"row {key}: {halves[0].get(key)!r} not {allowed}"
        assert set(halves[0]) <= set(self.possible), "rows that nobody has written"
        self.rows = halves[0]
        self.possible = {key: {row} for key, row in self.rows.items()}


def pages(sim: Simulation) -> None:
    """Two lives of a store, with faults and crashes in both."""
    random = sim.random
    model = Model()
    writers = random.randint(1, 3)
    size = random.choice((20, 1500))

    def life(fs: FileSystem) -> None:
        with contextlib.suppress(TallystickError), _store(fs) as store:
            store.create_table("t")
            works = [
                sim.spawn(_works, store, model, number, size, Random(random.getrandbits(20)))
                for number in range(writers)
            ]
            for one in works:
                one.join()

    for _ in range(random.randint(1, 2)):
        sim.until_crash(life)
        with _store(sim.disk) as store:
            assert not store.check()
            assert not store.in_doubt()
            model.check(_rows(store))


def _rows(store: PageStore) -> Rows:
    if "t" not in store.tables():
        return {}
    with store.begin(read_only=True) as session:
        return {key: bytes(row) for key, row in session.table("t").items()}


def _store(fs: FileSystem) -> PageStore:
    return PageStore("/store", open_log=_open_small, cache_bytes=0, lock_timeout=0.5, fs=fs)


def _open_small(folder: Path, fs: FileSystem) -> UndoRedoLog:
    settings = Settings(segment_size=16 << 10, preallocate=False, idle_mark_s=None)
    return TallyUndoRedoLog(TallyLog(str(folder), settings=settings, fs=fs))


def _works(store: PageStore, model: Model, number: int, size: int, random: Random) -> None:
    with contextlib.suppress(TallystickError):
        for turn in range(random.randint(1, 3)):
            key = random.randint(0, 1) * 10 + number  # keys of its own: the model knows their order
            row = None if random.random() < 0.2 else b"%d:%d" % (number, turn) + bytes(size)
            with store.begin() as session:
                table = session.table("t")
                for place in (0, PAIR):
                    if row is not None:
                        table[place + key] = row
                    elif place + key in table:
                        del table[place + key]
                shared = b"%d" % number
                table[500], table[PAIR + 500] = shared, shared
                model.may(key, row)
                model.possible.setdefault(500, {None}).add(shared)
                if random.random() < 0.2:
                    store.checkpoint()
            model.must(key, row)
