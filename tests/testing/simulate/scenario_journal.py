"""The journal on the native log: plain records, live records, transactions, checkpoints, tasks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from random import Random

from tallystick.errors import TallystickError
from tallystick.services.journal import AsyncJournal, Journal
from tallystick.storage.files import FileSystem
from tallystick.systems.tally.live.settings import Settings
from tallystick.testing.simulate import Simulation

FOLDER = "/log"
Live = dict[int, tuple[bytes, ...]]
"""Bodies of live records by id: those of one writer, whose ids no other one uses."""


class Writer:
    """What one writer has handed in, and which states of its records a recovery may find."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.ids = (10 * number, 10 * number + 1)
        self.plain: list[bytes] = []
        self.durable = 0
        self.lsns: dict[bytes, int] = {}
        self.live: Live = {}
        self.possible: list[Live] = [{}]

    def appends(self, size: int) -> bytes:
        """Make the next plain record."""
        body = b"%d:%d:" % (self.number, len(self.plain)) + bytes(size)
        self.plain.append(body)
        return body

    @contextlib.contextmanager
    def changes(self, changed: Live) -> Iterator[None]:
        """Allow the old and the new state while a change is under way, then the new one."""
        self.possible = [self.live, changed]
        yield
        self.live = changed
        self.possible = [changed]

    def check(self, plain: dict[bytes, int], live: Live, released: int) -> None:
        """Compare with what a recovery has found, and go on from there."""
        mine = [body for body in plain if body.startswith(b"%d:" % self.number)]
        self.lsns |= {body: plain[body] for body in mine}
        kept = [body for body in self.plain[: self.durable] if self.lsns[body] >= released]
        assert mine == self.plain[len(self.plain) - len(mine) :] or _is_run(mine, self.plain)
        assert set(kept) <= set(mine), f"acknowledged but lost: {set(kept) - set(mine)}"
        found = {one: bodies for one, bodies in live.items() if one in self.ids}
        assert found in self.possible, f"{found} is none of {self.possible}"
        self.live, self.possible = found, [found]
        if mine:
            self.plain = self.plain[: self.plain.index(mine[-1]) + 1]
        else:
            self.plain = self.plain[: self.durable]
        self.durable = len(self.plain)


def _is_run(some: list[bytes], every: list[bytes]) -> bool:
    """Return True if ``some`` is what stands in ``every`` from one place to another."""
    return any(every[place : place + len(some)] == some for place in range(len(every) + 1))


def _settings(random: Random) -> Settings:
    return Settings(
        segment_size=16 << 10,
        preallocate=random.random() < 0.5,
        idle_mark_s=random.choice((None, 0.5)),
        group_bytes=random.choice((512, 1 << 20)),
    )


def journal(sim: Simulation) -> None:
    """Two lives of a journal with writers of all kinds, and a last look without faults."""
    random = sim.random
    settings = _settings(random)
    writers = [Writer(number) for number in range(random.randint(1, 3))]
    size = random.choice((5, 500, 3000))
    released = [0]

    def life(fs: FileSystem) -> None:
        with contextlib.suppress(TallystickError):
            one = Journal(FOLDER, fs=fs, settings=settings)
            with contextlib.suppress(TallystickError):
                _write(sim, one, writers, size, released)
            one.close()

    for _ in range(random.randint(1, 2)):
        sim.until_crash(life)
        _check(sim, writers, settings, released)


def _check(sim: Simulation, writers: list[Writer], settings: Settings, released: list[int]) -> None:
    with Journal(FOLDER, fs=sim.disk, settings=settings) as one:
        plain = {
            bytes(record.body or b""): record.sequence or 0
            for record in one.replay()
            if is_plain(bytes(record.body or b""))
        }
        live: Live = {}
        for found in one.live_records():
            live[found.record_id] = (*live.get(found.record_id, ()), bytes(found.body))
    for writer in writers:
        writer.check(plain, live, released[0])


def is_plain(body: bytes) -> bool:
    """Return True if it is the body of a plain record of a writer."""
    return body[1:2] == b":"


def _write(
    sim: Simulation, one: Journal, writers: list[Writer], size: int, released: list[int]
) -> None:
    seed = sim.random.getrandbits(20)

    def works(writer: Writer) -> None:
        random = Random(10 * len(writer.plain) + writer.number + 100 * seed)
        with contextlib.suppress(TallystickError):
            for _ in range(random.randint(1, 4)):
                random.choice(KINDS)(one, writer, size)

    def gives_up() -> None:
        lsns = [lsn for writer in writers for lsn in writer.lsns.values()]
        with contextlib.suppress(TallystickError):
            released[0] = max(released[0], *lsns, 0)
            one.checkpoint(released[0])

    workers = [sim.spawn(works, writer, name=f"writer-{writer.number}") for writer in writers]
    if sim.random.random() < 0.3:
        workers.append(sim.spawn(gives_up))
    for worker in workers:
        worker.join()


def _append(one: Journal, writer: Writer, size: int) -> None:
    body = writer.appends(size)
    writer.lsns[body] = one.append(body)
    writer.durable = len(writer.plain)


def _append_two(one: Journal, writer: Writer, size: int) -> None:
    bodies = [writer.appends(size), writer.appends(size)]
    tickets = [one.submit(body) for body in bodies]
    for body, ticket in reversed(list(zip(bodies, tickets, strict=True))):
        writer.lsns[body] = ticket.wait()
    writer.durable = len(writer.plain)


def _change(one: Journal, writer: Writer, size: int) -> None:
    key = writer.ids[0]
    body = b"live" + bytes(size)
    old = writer.live.get(key)
    if old is None:
        with writer.changes({**writer.live, key: (body,)}):
            one.add(key, body)
    elif len(old) < 2:
        with writer.changes({**writer.live, key: (*old, body)}):
            one.update(key, body)
    else:
        with writer.changes({other: held for other, held in writer.live.items() if other != key}):
            one.delete(key)


def _change_both(one: Journal, writer: Writer, size: int) -> None:
    changed = dict(writer.live)
    transaction = one.transaction()
    for key in writer.ids:
        body = b"both" + bytes(size)
        if key in changed:
            transaction.delete(key)
            del changed[key]
        else:
            transaction.add(key, body)
            changed[key] = (body,)
    with writer.changes(changed):
        transaction.commit()


KINDS: tuple[Callable[[Journal, Writer, int], None], ...] = (
    _append, _append, _append_two, _change, _change_both,
)  # fmt: skip


def journal_tasks(sim: Simulation) -> None:
    """A journal for tasks: several tasks append, one of them is cancelled at some time."""
    settings = _settings(sim.random)
    writers = [Writer(number) for number in range(sim.random.randint(1, 3))]

    async def appends(one: AsyncJournal, writer: Writer) -> None:
        with contextlib.suppress(TallystickError):
            for _ in range(3):
                body = writer.appends(100)
                writer.lsns[body] = await one.append(body)
                writer.durable = len(writer.plain)

    async def run(fs: FileSystem) -> None:
        with contextlib.suppress(TallystickError):
            one = await AsyncJournal.open(FOLDER, fs=fs, settings=settings)
            tasks = [asyncio.ensure_future(appends(one, writer)) for writer in writers]
            if sim.random.random() < 0.3:
                await asyncio.sleep(0)
                tasks[0].cancel()
            await asyncio.wait(tasks)
            await one.close()

    for _ in range(2):
        sim.until_crash(lambda fs: asyncio.run(run(fs)))
        _check(sim, writers, settings, [0])
