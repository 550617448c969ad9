"""Group commit alone: threads and tasks over one file without a format."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from tallystick.errors import TallystickError
from tallystick.storage.files import File, FileSystem
from tallystick.storage.group.writer import GroupWriter
from tallystick.testing.simulate import Simulation
from tests.testing.simulate.scenario_items import Items

ITEM = 8
"""Bytes of an item: the writer's name, its number, padding."""


class PlainFile:
    """A file of items of the same size; what was cut off at its end is not read.

    ``over`` is True once a call has failed, or the log was closed: nothing may be called after it.
    """

    def __init__(self, fs: FileSystem) -> None:
        fs.mkdir("/log")
        self.file: File = fs.create("/log/items")
        fs.sync_dir("/log")
        self.end = 0
        self.over = False
        self.called_when_over: list[str] = []

    def write(self, items: list[bytes]) -> range:
        """Append the items."""
        first = self.end
        with self._call("write"):
            self.file.pwrite(b"".join(items), first * ITEM)
        self.end += len(items)
        return range(first, self.end)

    def sync(self) -> None:
        """Make them durable."""
        with self._call("sync"):
            self.file.datasync()

    @contextlib.contextmanager
    def _call(self, name: str) -> Iterator[None]:
        if self.over:
            self.called_when_over.append(name)
        try:
            yield
        except OSError:
            self.over = True
            raise


def read_items(fs: FileSystem) -> list[bytes]:
    """Return the whole items of the file."""
    if not fs.exists("/log/items"):
        return []
    content = fs.open("/log/items", write=False).pread(1 << 20, 0)
    items = [content[place : place + ITEM] for place in range(0, len(content), ITEM)]
    return [item for item in items if item.endswith(b".")]


def item_of(writer: int, number: int) -> bytes:
    """Return an item, to be told from every other one and from one that was cut."""
    return b"%c%06d." % (b"a"[0] + writer, number)


def group(sim: Simulation) -> None:
    """Threads that commit, that wait, and that hand in several before; tasks; a crash."""
    items, files = Items(), list[PlainFile]()
    threads, tasks = sim.random.randint(1, 3), sim.random.randint(0, 2)
    each = sim.random.randint(1, 3)
    group_bytes = sim.random.choice((ITEM, 3 * ITEM, 1024))

    def life(fs: FileSystem) -> None:
        with contextlib.suppress(OSError):
            plain = PlainFile(fs)
            files.append(plain)
            writer = GroupWriter(
                plain.write, plain.sync, group_bytes=group_bytes, pending_bytes=4 * ITEM
            )
            _work(sim, plain, writer, items, threads, tasks, each)

    sim.until_crash(life)
    assert not any(plain.called_when_over for plain in files), "called after a failure or a close"
    items.check(read_items(sim.disk))


def _work(
    sim: Simulation,
    plain: PlainFile,
    writer: GroupWriter[bytes],
    items: Items,
    threads: int,
    tasks: int,
    each: int,
) -> None:
    def commits(number: int) -> None:
        with contextlib.suppress(TallystickError):
            for one in range(each):
                item = item_of(number, one)
                items.submitted.append(item)
                if number % 2:
                    writer.commit(item, ITEM)
                else:
                    writer.submit(item, ITEM).wait()
                items.acknowledged.append(item)

    def hands_in(number: int) -> None:
        with contextlib.suppress(TallystickError):
            sent = [item_of(number, one) for one in range(each + 1)]
            items.submitted += sent
            for item in sent[:-1]:
                writer.submit(item, ITEM)
            writer.commit(sent[-1], ITEM)
            items.acknowledged += sent  # durable in the order in which they were handed in

    async def awaits(number: int) -> None:
        with contextlib.suppress(TallystickError):
            for one in range(each):
                item = item_of(number, one)
                items.submitted.append(item)
                await writer.submit(item, ITEM)
                items.acknowledged.append(item)

    async def all_tasks() -> None:
        await asyncio.gather(*(awaits(threads + number) for number in range(tasks)))

    bodies = (commits, commits, hands_in)
    workers = [
        sim.spawn(bodies[number], number, name=f"thread-{number}") for number in range(threads)
    ]
    if tasks:
        workers.append(sim.spawn(lambda: asyncio.run(all_tasks()), name="tasks"))
    early = sim.random.random() < 0.2
    with contextlib.suppress(TallystickError):
        if early:
            writer.close()
    plain.over = plain.over or early
    for worker in workers:
        worker.join()
    with contextlib.suppress(TallystickError):
        writer.close()
