"""Journals and damaged copies of them, by seed, for comparing two ways of reading.

In: a seed. Out: a `Bundle`: a fixture, a log that the fuzzer found, or a journal of random work by
our own writer: several files, reuse, compaction, branches and transactions over files; most are
then damaged.
"""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Literal

from tallystick.records import Xid
from tallystick.systems.jboss.format.bodies import HEURISTIC_TYPE, pack_xid
from tallystick.systems.jboss.live.log import CircularJournal, JournalSettings
from tallystick.testing import MemoryFileSystem
from tests.fixtures import cases, fixture_dir
from tests.fuzz.bundle import Bundle, of_memory
from tests.fuzz.mutate import Mutator
from tests.fuzz.seeds import corpus

FOLDER = "/log"
_FILL = 512
"""Bytes of the fill at the end of a fixture's file that stay."""
_GENERATIONS: tuple[Literal["g1d", "g2", "g3"], ...] = ("g3", "g3", "g2", "g1d")


def journal(seed: int) -> Bundle:
    """Return a journal of random work."""
    rng = random.Random(seed)
    fs = MemoryFileSystem()
    generation = rng.choice(_GENERATIONS)
    settings = JournalSettings(
        generation=generation,
        checksum="hash" if generation == "g3" and rng.random() < 0.3 else "size",
        file_size=rng.choice((1024, 2048, 4096)),
        alignment=rng.choice((1, 1, 512)),
    )
    log = CircularJournal(FOLDER, settings, fs=fs)
    work = _Work(log, rng)
    for _ in range(rng.choice((5, 40, 200))):
        work.step()
    log.close()
    return of_memory(fs, FOLDER)


class _Work:
    """Does random operations on a journal, each of them possible."""

    def __init__(self, log: CircularJournal, rng: random.Random) -> None:
        self._log, self._rng = log, rng
        self._next = 1
        self._live: list[int] = []
        self._open: dict[int, list[int]] = {}
        self._prepared: list[int] = []

    def step(self) -> None:
        """Do one."""
        rng = self._rng
        what = rng.random()
        if what < 0.3:
            number = self._number()
            self._live.append(number)
            user_type = HEURISTIC_TYPE if rng.random() < 0.1 else rng.randrange(-3, 50)
            self._log.append_add_record(number, user_type, self._body(user_type))
        elif what < 0.5 and self._live:
            self._log.append_delete_record(self._taken(self._live))
        elif what < 0.6 and self._live:
            self._log.append_update_record(rng.choice(self._live), 2, rng.randbytes(20))
        elif what < 0.8:
            self._element()
        elif what < 0.95 and self._open:
            self._end()
        elif what > 0.97:
            rng.choice((self._log.check_and_reclaim_files, self._log.compact, self._log.flush))()

    def _number(self) -> int:
        self._next += self._rng.choice((1, 1, 1, 5))
        return self._next

    def _taken(self, numbers: list[int]) -> int:
        return numbers.pop(self._rng.randrange(len(numbers)))

    def _body(self, user_type: int) -> bytes:
        if user_type == HEURISTIC_TYPE and self._rng.random() < 0.8:
            return pack_xid(self._xid()) + b"\1"
        return self._rng.randbytes(self._rng.randrange(60))

    def _xid(self) -> Xid:
        return Xid(7, self._rng.randbytes(5), self._rng.randbytes(3))

    def _element(self) -> None:
        rng = self._rng
        there = [one for one in self._open if one not in self._prepared]
        transaction = rng.choice(there) if there and rng.random() < 0.8 else self._number()
        added = self._open.setdefault(transaction, [])
        if rng.random() < 0.2 and self._live:
            self._log.append_delete_record_transactional(transaction, self._taken(self._live))
        elif rng.random() < 0.2 and self._live:
            number = rng.choice(self._live)
            self._log.append_update_record_transactional(transaction, number, 4, b"changed")
        else:
            added.append(self._number())
            self._log.append_add_record_transactional(
                transaction, added[-1], 3, rng.randbytes(rng.randrange(90))
            )

    def _end(self) -> None:
        rng = self._rng
        transaction = rng.choice(list(self._open))
        if rng.random() < 0.3 and transaction not in self._prepared:
            self._prepared.append(transaction)
            extra = pack_xid(self._xid()) if rng.random() < 0.9 else b"other"
            self._log.append_prepare_record(transaction, extra)
            return
        added = self._open.pop(transaction)
        if rng.random() < 0.8:
            self._log.append_commit_record(transaction)
            self._live += added
        else:
            self._log.append_rollback_record(transaction)


@cache
def fixtures() -> tuple[Bundle, ...]:
    """Return the journals of the original code, unpacked, with little of their last fill."""
    root = fixture_dir("jboss")
    found = []
    for case in cases("jboss"):
        files = {path.name: path for path in sorted((root / case).glob("*-data-*"))}
        if files and "default-size" not in case:
            found.append(_trimmed({name: path.read_bytes() for name, path in files.items()}))
    return tuple(found)


def _trimmed(packed: Bundle) -> Bundle:
    files = {name.removesuffix(".gz"): gzip.decompress(data) for name, data in packed.items()}
    kept = max(len(data.rstrip(data[-1:])) for data in files.values()) + 1
    return {name: data[: -(-kept // _FILL) * _FILL] for name, data in files.items()}


def mutants(seed: int, count: int) -> Iterator[Bundle]:
    """Yield fixtures, logs of the fuzzer, and random journals, three of four of them damaged."""
    rng = random.Random(seed)
    pool = (*fixtures(), *corpus("jboss"), *(journal(rng.getrandbits(32)) for _ in range(20)))
    mutator = Mutator("jboss", pool, lambda data, size: _changed(data, size, rng))
    for _ in range(count):
        files = journal(rng.getrandbits(32)) if rng.random() < 0.4 else rng.choice(pool)
        how = rng.random()
        if how < 0.1:
            yield mutator.splice(files, rng.choice(pool), rng.getrandbits(32))
        elif how < 0.25:
            yield files
        elif how < 0.4:
            yield _swapped(files, rng)
        else:
            yield mutator.mutant(files, rng.getrandbits(32))


def _changed(data: bytes, size: int, rng: random.Random) -> bytes:
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        if made:
            made[rng.randrange(len(made))] = rng.choice((0, 1, 255, rng.randrange(256)))
    return bytes(made[:size])


def _swapped(files: Bundle, rng: random.Random) -> Bundle:
    """Return a journal of whole records of which one number or type was changed."""
    made = {name: bytearray(data) for name, data in files.items()}
    data = made[rng.choice(sorted(made))]
    at = rng.randrange(len(data)) if data else 0
    places = [place for place in range(at, len(data)) if 10 <= data[place] <= 19][:1]
    for place in places:
        where = place + rng.choice((0, 4, 5, 13, 14, 21, 22))
        if where < len(data):
            data[where] = rng.choice((10, 11, 12, 13, 14, 15, 16, 17, 18, 19, rng.randrange(256)))
    return {name: bytes(content) for name, content in made.items()}


def write(files: Bundle, folder: Path) -> None:
    """Write the files of a bundle to a folder, which is made."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
