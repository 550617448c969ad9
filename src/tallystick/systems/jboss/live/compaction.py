"""Compaction: live records of the data files copied to fewer files; section 4.3 of the format.

In: a `Ring` whose current file was just begun, with nothing being written. Out: new books.

1. The live records, in order, go to ``PREFIX-N.EXT.cmp``: ids from that of the first old file
   on, compact count one more; records copied twice or more do not share files with younger ones.
   A committed transaction keeps its adds and updates and gets a new commit; an open one keeps all.
2. The new files are synced, then the control file: from here on a crash ends in the new files.
3. Old files are deleted, new ones renamed, the control file is deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tallystick.errors import UnsupportedFormatError
from tallystick.systems.jboss.format.compaction_control import COMPACTED, Control, encode_control
from tallystick.systems.jboss.format.layout import (
    CONTROL_FILE,
    WITH_BODY,
    Item,
    Name,
    encode,
    encode_header,
)
from tallystick.systems.jboss.live.files import Ring, RingFile
from tallystick.systems.jboss.live.folder_repair import carry_out
from tallystick.systems.jboss.live.opening import read_placed
from tallystick.systems.jboss.live.reclaim import Books, OpenTransaction
from tallystick.systems.jboss.read.replay import Applied, Ended, Open, Placed, Replay

SPLIT_COUNT = 2
"""Records copied so often are kept apart from younger ones."""
COMPACT_COUNT_MAX = 127


@dataclass(slots=True)
class _Output:
    """A file that is being filled."""

    file: RingFile
    content: bytearray


class _Copy:
    """Places live records into new files."""

    def __init__(self, ring: Ring, live: set[tuple[int, int]], first_id: int) -> None:
        self._ring = ring
        self._live = live
        self._next_id = first_id
        self._old_only = False
        self.books = Books()
        self.outputs: list[_Output] = []

    def take(self, effects: Iterable[Applied], ended: Ended | None) -> None:
        """Copy what a record made count, as far as it is live; a commit behind its elements."""
        live = [effect for effect in effects if _place(effect.placed) in self._live]
        for effect in live:
            self._put(self._older(effect.placed.item))
        if ended is not None and live:
            self._put(ended.end.item)

    def take_open(self, one: Open) -> None:
        """Copy all of a transaction that has not ended."""
        for placed in sorted((*one.records, *one.deletes), key=_place):
            self._put(self._older(placed.item))
        if one.prepared is not None:
            self._put(one.prepared.item)

    def _older(self, item: Item) -> Item:
        count = min((item.compact_count or 0) + 1, COMPACT_COUNT_MAX)
        if count >= SPLIT_COUNT:
            self._old_only = True
        elif self._old_only and item.name in WITH_BODY:
            self._old_only = False
            self._begin_file()
        return replace(item, compact_count=count)

    def _put(self, item: Item) -> None:
        settings = self._ring.settings
        record = self._encoded(item)
        if not self.outputs or self._room() < settings.rounded(len(record)):
            self._begin_file()
            record = self._encoded(item)
        output = self.outputs[-1]
        output.content += record
        self.books.take(
            output.file.account, item.name, item.transaction, item.record_id or 0, len(record)
        )

    def _room(self) -> int:
        return self._ring.settings.file_size - len(self.outputs[-1].content)

    def _encoded(self, item: Item) -> bytes:
        file_id, stamp = 0, 0
        if self.outputs:
            file_id, stamp = self.outputs[-1].file.file_id, self.outputs[-1].file.stamp
        one = self.books.open.get(item.transaction or 0, OpenTransaction())
        placed = replace(item, file_id=stamp, count=one.count(file_id))
        return encode(self._ring.settings.shape, placed)

    def _begin_file(self) -> None:
        settings = self._ring.settings
        name = settings.name(self._ring.next_id())
        file = RingFile(name, self._next_id, settings.data_at)
        self._next_id += 1
        header = encode_header(settings.shape, file.file_id, settings.user_version)
        content = bytearray(header + bytes(settings.data_at - len(header)))
        self.outputs.append(_Output(file, content))


def compact(ring: Ring, books: Books) -> Books:
    """Compact the data files of ``ring``; everything appended is durable and stays.

    Raises `UnsupportedFormatError` in g1a. Does nothing if it would not save a file.
    """
    if ring.settings.shape.pairs:
        raise UnsupportedFormatError(
            "journals of 2008 are not compacted",
            file=ring.folder,
            advice="Their loaders do not know the control file; convert the journal first",
        )
    ring.move(books)
    old = list(ring.data)
    if not old:
        return books
    copy = _Copy(ring, _live_places(ring), old[0].file_id)
    replay = _replay(ring)
    for placed in read_placed(ring):
        copy.take(*replay.feed(placed))
    for one in replay.open.values():
        copy.take_open(one)
    if len(copy.outputs) >= len(old):
        return books
    _write(ring, copy.outputs)
    _switch(ring, old, copy.outputs)
    ring.data = [output.file for output in copy.outputs]
    return copy.books


def _replay(ring: Ring) -> Replay:
    files = (*ring.data, ring.current)
    return Replay(ring.settings.shape, [file.stamp for file in files])


def _live_places(ring: Ring) -> set[tuple[int, int]]:
    """Where the records of live ids stand."""
    replay = _replay(ring)
    live: dict[int, list[tuple[int, int]]] = {}
    for placed in read_placed(ring):
        for effect in replay.feed(placed)[0]:
            item = effect.placed.item
            if item.name in (Name.DELETE, Name.DELETE_TX):
                live.pop(item.record_id or 0, None)
            else:
                live.setdefault(item.record_id or 0, []).append(_place(effect.placed))
    return {place for places in live.values() for place in places}


def _place(placed: Placed) -> tuple[int, int]:
    return placed.order, placed.item.offset


def _write(ring: Ring, outputs: list[_Output]) -> None:
    """The new files and the control file's names, durable."""
    for output in outputs:
        size = ring.settings.file_size
        output.file.position = ring.settings.rounded(len(output.content))
        _write_new(ring, output.file.name + COMPACTED, bytes(output.content), size)
    ring.fs.sync_dir(ring.folder)


def _write_new(ring: Ring, name: str, content: bytes, size: int) -> None:
    handle = ring.fs.create(ring.path(name))
    try:
        handle.pwrite(content, 0)
        handle.allocate(size)
        handle.datasync()
    finally:
        handle.close()


def _switch(ring: Ring, old: list[RingFile], outputs: list[_Output]) -> None:
    """Put the new files in the place of the old ones, by way of the control file."""
    new = tuple(output.file.name + COMPACTED for output in outputs)
    control = Control(tuple(file.name for file in old), new)
    content = encode_control(ring.settings.shape, control)
    _write_new(ring, CONTROL_FILE, content, len(content))
    ring.fs.sync_dir(ring.folder)
    carry_out(ring.fs, ring.folder, control)
    ring.delete(CONTROL_FILE)
