"""Compact a journal: copy its live records to fewer files.

In: a `Ring` to which nothing is being written. Out: the counts of the new files.

1. The live records, in order, go to ``PREFIX-N.EXT.cmp``: ids from that of the first old file
   on, compact count one more; records copied twice or more do not share files with younger ones.
   A committed transaction keeps its adds and updates and gets a new commit; an open one keeps all.
2. The new files are synced, then the control file: after a crash from here on, a load uses the
   new files.
3. Old files are deleted, new ones renamed, the control file is deleted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, replace

from tallystick.errors import LogFullError, UnsupportedFormatError
from tallystick.storage.opening import needing_space
from tallystick.systems.jboss.format.compaction_control import Control, encode_control
from tallystick.systems.jboss.format.file_names import COMPACTED
from tallystick.systems.jboss.format.layout import (
    CONTROL_FILE,
    WITH_BODY,
    Item,
    encode,
    encode_header,
)
from tallystick.systems.jboss.live.files import Ring, RingFile
from tallystick.systems.jboss.live.opening import carry_out, live_contents, new_replay, read_placed
from tallystick.systems.jboss.read.reclaim_counts import ReclaimCounts, TransactionCounts
from tallystick.systems.jboss.read.replay import Effect, EndedTransaction, OpenTransaction

SPLIT_COUNT = 2
"""Records that were copied this often are kept apart from younger ones."""
COMPACT_COUNT_MAX = 127
"""The count is an i1."""


@dataclass(slots=True)
class _Output:
    """A file that is being filled."""

    file: RingFile
    content: bytearray


class _Copier:
    """Copies live records into new files."""

    def __init__(self, ring: Ring, live: set[tuple[int, int]], first_id: int) -> None:
        self._ring = ring
        self._live = live
        self._next_id = first_id
        self._old_only = False
        self.counts = ReclaimCounts()
        self.outputs: list[_Output] = []

    def copy(self, effects: Iterable[Effect], ended: EndedTransaction | None) -> None:
        """Copy the live records among the effects of one record, and the commit after them."""
        live = [effect for effect in effects if effect.placed.place in self._live]
        for effect in live:
            self._put(self._older(effect.placed.item))
        if ended is not None and live:
            self._put(ended.end.item)

    def copy_open(self, one: OpenTransaction) -> None:
        """Copy all records of a transaction that has not ended."""
        for placed in sorted((*one.records, *one.deletes), key=lambda each: each.place):
            self._put(self._older(placed.item))
        if one.prepared is not None:
            self._put(one.prepared.item)

    def _older(self, item: Item) -> Item:
        count = min((item.compact_count or 0) + 1, COMPACT_COUNT_MAX)
        if count >= SPLIT_COUNT:
            self._old_only = True
        elif self._old_only and item.type in WITH_BODY:
            self._old_only = False
            self._begin_file()
        return replace(item, compact_count=count)

    def _put(self, item: Item) -> None:
        settings = self._ring.settings
        record = self._encoded(item)
        # Whole blocks, as they are written: what is left of the last one is padding.
        if not self.outputs or self._remaining() < settings.rounded(len(record)):
            self._begin_file()
            # Anew, because the file id and the count of a commit are those of the file that it
            # stands in.
            record = self._encoded(item)
        output = self.outputs[-1]
        output.content += record
        self.counts.add(
            output.file.counts, item.type, item.transaction, item.record_id or 0, len(record)
        )

    def _remaining(self) -> int:
        return self._ring.settings.file_size - len(self.outputs[-1].content)

    def _encoded(self, item: Item) -> bytes:
        file_id, stamp = 0, 0
        if self.outputs:
            file_id, stamp = self.outputs[-1].file.file_id, self.outputs[-1].file.stamp
        one = self.counts.open.get(item.transaction or 0, TransactionCounts())
        placed = replace(item, file_id=stamp, count=one.run.within(file_id))
        return encode(self._ring.settings.shape, placed)

    def _begin_file(self) -> None:
        settings = self._ring.settings
        name = settings.name(self._ring.next_id())
        file = RingFile(name, self._next_id, settings.data_at)
        self._next_id += 1
        header = encode_header(settings.shape, file.file_id, settings.user_version)
        content = bytearray(header + bytes(settings.data_at - len(header)))
        self.outputs.append(_Output(file, content))


def compact(ring: Ring, counts: ReclaimCounts) -> ReclaimCounts:
    """Compact the data files of ``ring``; nothing that was appended is lost.

    Args:
        ring: the files; its current file becomes a data file first.
        counts: the counts of the old files.

    Returns:
        The counts of the new files; ``counts`` if compacting would not save a file.

    Raises:
        UnsupportedFormatError: the generation is one of 2008.
        LogFullError: there is no space for the copies; the old files are as they were.
    """
    if ring.settings.shape.pairs:
        raise UnsupportedFormatError(
            "journals of 2008 are not compacted",
            file=ring.folder,
            advice="Their loaders do not know the control file; convert the journal first",
        )
    ring.advance()
    old = list(ring.data)
    if not old:
        return counts
    live, _ = live_contents(ring)
    places = {placed.place for records in live.values() for placed in records}
    copier = _Copier(ring, places, old[0].file_id)
    replay = new_replay(ring)
    for placed in read_placed(ring):
        copier.copy(*replay.feed(placed))
    for one in replay.open.values():
        copier.copy_open(one)
    # Nothing was written so far: the copies are in memory.
    if len(copier.outputs) >= len(old):
        return counts
    _write(ring, copier.outputs)
    _switch(ring, old, copier.outputs)
    ring.data = [output.file for output in copier.outputs]
    return copier.counts


def _write(ring: Ring, outputs: list[_Output]) -> None:
    """Write the new files durably, under their temporary names."""
    size = ring.settings.file_size
    try:
        # Also where a sync tells of it: nothing relies on these files before they are all there.
        with needing_space(ring.folder, "the copies of a compaction"):
            for output in outputs:
                output.file.position = ring.settings.rounded(len(output.content))
                _write_new(ring, output.file.name + COMPACTED, bytes(output.content), size)
    except LogFullError:
        for output in outputs:
            with contextlib.suppress(OSError):
                ring.fs.remove(ring.path(output.file.name + COMPACTED))
        raise
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
    """Replace the old files by the new ones, by way of the control file."""
    new = tuple(output.file.name + COMPACTED for output in outputs)
    control = Control(tuple(file.name for file in old), new)
    content = encode_control(ring.settings.shape, control)
    # From here on a load carries the compaction out, so the new files are durable by now.
    _write_new(ring, CONTROL_FILE, content, len(content))
    ring.fs.sync_dir(ring.folder)
    carry_out(ring.fs, ring.folder, control)
    ring.delete(CONTROL_FILE)
