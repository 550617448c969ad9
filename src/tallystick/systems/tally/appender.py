"""The end of a log: writes groups, seals segments, rolls to the next, recycles old ones.

In: encoded inner bytes. Out: groups in segment files, each written by one call at a place that
nothing acknowledged ever had. One caller at a time (the group writer sees to that).

A group is only written once the group before it is durable: so at most one group is in flight,
and a whole group behind a damaged one proves that the damaged one had been acknowledged.
"""

from __future__ import annotations

import contextlib
import posixpath
import threading
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from tallystick.storage.crc import crc32
from tallystick.storage.files import Bytes, File, FileSystem
from tallystick.systems.tally.columns import Inner
from tallystick.systems.tally.layout import (
    AES_GCM,
    CONTROL_NAME,
    COPY_OFFSET,
    DATA_OFFSET,
    HEADER_SIZE,
    INDEX,
    SPARE_PREFIX,
    SUFFIX,
    Control,
    GroupHeader,
    SegmentHeader,
    encode_control,
    encode_segment_header,
    group_length,
    header_checksum,
    pack_group_header,
    segment_name,
)
from tallystick.systems.tally.sealing import (
    COMPRESSIONS,
    TAG_SIZE,
    compress,
    encrypt,
    new_nonce,
)
from tallystick.systems.tally.settings import Settings
from tallystick.systems.tally.splits import ENTRY_SIZE, encode_index
from tallystick.systems.tally.walk import Expected

_NO_NONCE: Final = bytes(12)
_JOIN_MAX: Final = 256 << 10
"""Groups up to this size are joined and written from one buffer; larger ones are not copied."""
_BULK: Final = 1 << 20
"""A segment that begins with a group of this size is not filled with zeros beforehand: large
groups pay for the metadata of their blocks once, small ones would pay it with every sync."""


class Appender:
    """The writing end of an open log. ``next_lsn`` is the LSN of the next record."""

    def __init__(
        self,
        fs: FileSystem,
        folder: str,
        control: Control,
        settings: Settings,
        key: bytes | None,
    ) -> None:
        self._fs = fs
        self._folder = folder
        self._settings = settings
        self._key = key
        self._packing = COMPRESSIONS[settings.compression]
        self._file: File | None = None
        self._control_file = fs.open(posixpath.join(folder, CONTROL_NAME))
        self._dirty = False
        self._spare_thread: threading.Thread | None = None
        self._spares = [name for name in fs.list(folder) if name.startswith(SPARE_PREFIX)]
        self._spare_number = len(self._spares)
        self.control = control
        self.segment = 0
        self.end = 0
        self.next_lsn = 1
        self.durable_lsn = 0
        self.time_us = 0
        self.chain = 0
        self.index: list[tuple[int, int, int]] = []
        self.marked = True
        """True if nothing was written since the last mark."""

    # -- groups -------------------------------------------------------------------------

    def resume(
        self, file: File, header: SegmentHeader, due: Expected,
        index: Iterable[tuple[int, int, int]], time_us: int,
    ) -> None:  # fmt: skip
        """Go on in a segment that has these groups; all of it is durable."""
        self._file = file
        self.segment = header.number
        self.end, self.next_lsn, self.chain = due.offset, due.lsn, due.chain
        self.durable_lsn = due.lsn - 1
        self.index = list(index)
        self.time_us = time_us

    def room(self, size: int) -> None:
        """Make sure that a group of ``size`` inner bytes fits in the current segment."""
        length = group_length(size + TAG_SIZE, self.control.sector_size)
        if self.end + length + self._index_length(1) > self.control.segment_size:
            self.roll(bulk=length >= _BULK)

    def now(self) -> int:
        """The time of the next group: never before that of the last one."""
        self.time_us = max(self.time_us, time.time_ns() // 1000)
        return self.time_us

    def put(self, inner: Inner, count: int) -> int:
        """Write a group; returns its first LSN. Call `room` before."""
        if self._dirty:
            self.sync()
        file = self._file
        assert file is not None
        first = self.next_lsn
        flags, nonce, stored = 0, _NO_NONCE, inner.size
        buffers: tuple[Bytes, ...] = tuple(inner.buffers)
        if self._packing or self._key is not None:
            flags, nonce, sealed = self._sealed(b"".join(buffers), inner, count)
            buffers, stored = (sealed,), len(sealed)
        length = group_length(stored, self.control.sector_size)
        padding = bytes(length - stored - 2 * HEADER_SIZE)
        small = length <= _JOIN_MAX
        buffers = (b"".join((*buffers, padding)),) if small else (*buffers, padding)
        crc = 0
        for buffer in buffers:
            crc = crc32(buffer, crc)
        header = pack_group_header(
            flags, length, self.segment, self.end, first, count, inner.columns, stored,
            inner.size, self.time_us, self.durable_lsn, crc, self.chain, nonce,
            self.control.shard, self.control.tag,
        )  # fmt: skip
        if small:
            file.pwrite(b"".join((header, buffers[0], header)), self.end)
        else:
            file.pwritev([header, *buffers, header], self.end)
        self._dirty = True
        self.index.append((self.end, first, self.time_us))
        self.chain = header_checksum(header)
        self.end += length
        self.next_lsn += count
        self.marked = False
        return first

    def _sealed(self, data: bytes, inner: Inner, count: int) -> tuple[int, bytes, bytes]:
        """Flags, nonce, and the inner bytes compressed and encrypted as the settings say."""
        flags, nonce = 0, _NO_NONCE
        if self._packing and len(data) >= self._settings.compress_min:
            packed = compress(data, self._packing)
            if len(packed) < len(data):
                data, flags = packed, self._packing
        if self._key is None:
            return flags, nonce, data
        flags |= AES_GCM
        nonce = new_nonce()
        stored = len(data) + TAG_SIZE
        header = GroupHeader(
            flags, group_length(stored, self.control.sector_size), self.segment, self.end,
            self.next_lsn, count, inner.columns, stored, inner.size, self.time_us,
            self.durable_lsn, 0, self.chain, self.control.tag, nonce, self.control.shard,
        )  # fmt: skip
        return flags, nonce, encrypt(data, header, self._key)

    def sync(self) -> None:
        """Make every group written so far durable."""
        if self._file is not None and self._dirty:
            self._file.datasync()
            self.durable_lsn = self.next_lsn - 1
            self._dirty = False

    # -- segments -----------------------------------------------------------------------

    def _index_length(self, more: int) -> int:
        return group_length(ENTRY_SIZE * (len(self.index) + more), self.control.sector_size)

    def roll(self, *, bulk: bool = False) -> None:
        """Seal the current segment and go on in a new one."""
        self.sync()
        previous = self._file
        if previous is not None and self.index:
            self._seal(previous)
        header = SegmentHeader(
            self.control.identity, self.segment + 1, self.next_lsn, self.control.segment_size,
            self.control.sector_size, self.now(), self.segment, self.end, self.next_lsn - 1,
            self.chain, self.control.shard,
        )  # fmt: skip
        file = self._new_segment(header, bulk=bulk)
        self.write_control(last_segment=header.number, durable_lsn=self.durable_lsn)
        self.resume(file, header, _first_place(header), (), self.time_us)
        if previous is not None:
            previous.close()
        if self._settings.preallocate and not bulk:
            self._prepare_spare()

    def _seal(self, file: File) -> None:
        """Write the index so that it ends where the file ends."""
        inner = encode_index(self.index)
        length = self._index_length(0)
        offset = self.control.segment_size - length
        padded = inner.ljust(length - 2 * HEADER_SIZE, b"\0")
        header = pack_group_header(
            INDEX, length, self.segment, offset, self.next_lsn, 0, 0, len(inner), len(inner),
            self.time_us, self.durable_lsn, crc32(padded), self.chain, _NO_NONCE,
            self.control.shard, self.control.tag,
        )  # fmt: skip
        file.pwrite(header + padded + header, offset)
        file.datasync()

    def _new_segment(self, header: SegmentHeader, *, bulk: bool) -> File:
        """A file with this header under its own name: durable, name and all."""
        path = self._spare()
        file = self._fs.open(path)
        if bulk:
            file.truncate(max(file.size(), header.size))
        else:
            file.allocate(header.size)
        block = encode_segment_header(header)
        file.pwrite(block, 0)
        file.pwrite(block, COPY_OFFSET)
        file.datasync()
        file.close()
        name = posixpath.join(self._folder, segment_name(header.number))
        self._fs.rename(path, name)
        self._fs.sync_dir(self._folder)
        return self._fs.open(name)

    def _spare(self) -> str:
        """The path of a spare file, made if there is none."""
        if self._spare_thread is not None:
            self._spare_thread.join()
            self._spare_thread = None
        while self._spares:
            path = posixpath.join(self._folder, self._spares.pop(0))
            if self._fs.exists(path):
                return path
        path = self._spare_path()
        self._fs.create(path).close()
        return path

    def _spare_path(self) -> str:
        while True:
            self._spare_number += 1
            path = posixpath.join(self._folder, f"{SPARE_PREFIX}{self._spare_number:016d}{SUFFIX}")
            if not self._fs.exists(path):
                return path

    def _prepare_spare(self) -> None:
        """Have a spare ready before it is needed; a failure shows when it is."""
        if self._spares:
            return
        path = self._spare_path()

        def make() -> None:
            with contextlib.suppress(OSError):
                file = self._fs.create(path)
                try:
                    file.allocate(self.control.segment_size)
                    file.datasync()
                finally:
                    file.close()
            self._spares.append(posixpath.basename(path))

        self._spare_thread = threading.Thread(target=make, name="tally-spare", daemon=True)
        self._spare_thread.start()

    def free_before(
        self, number: int, *, checkpoint_lsn: int, next_transaction: int, next_key: int
    ) -> list[int]:
        """Give up segments below ``number``, oldest first; returns their numbers.

        The control block forgets them durably before any of them is touched.
        """
        first = self.control.first_segment
        number = min(number, self.segment)
        if number > first or checkpoint_lsn > self.control.checkpoint_lsn:
            self.write_control(
                first_segment=number,
                checkpoint_lsn=checkpoint_lsn,
                durable_lsn=self.durable_lsn,
                next_transaction=next_transaction,
                next_key=next_key,
            )
        freed = list(range(first, number))
        if not self._settings.recycle:
            return freed
        for old in freed:
            self._free(posixpath.join(self._folder, segment_name(old)))
        if freed:
            self._fs.sync_dir(self._folder)
        return freed

    def _free(self, path: str) -> None:
        if not self._fs.exists(path):
            return
        if len(self._spares) < self._settings.spares:
            spare = self._spare_path()
            self._fs.rename(path, spare)
            self._spares.append(posixpath.basename(spare))
        else:
            self._fs.remove(path)

    # -- control block ------------------------------------------------------------------

    def write_control(
        self, *, durable_lsn: int, first_segment: int = 0, last_segment: int = 0,
        checkpoint_lsn: int = 0, next_transaction: int = 0, next_key: int = 0,
    ) -> None:  # fmt: skip
        """Write both copies, one after the other, so that one is whole at any time.

        No number of it ever goes down.
        """
        old = self.control
        control = replace(
            old,
            generation=old.generation + 1,
            durable_lsn=max(durable_lsn, old.durable_lsn),
            first_segment=max(first_segment, old.first_segment),
            last_segment=max(last_segment, old.last_segment),
            checkpoint_lsn=max(checkpoint_lsn, old.checkpoint_lsn),
            next_transaction=max(next_transaction, old.next_transaction),
            next_key=max(next_key, old.next_key),
        )
        block = encode_control(control)
        for place in (0, COPY_OFFSET):
            self._control_file.pwrite(block, place)
            self._control_file.datasync()
        self.control = control

    def close(self) -> None:
        """Close the files; nothing is written."""
        if self._spare_thread is not None:
            self._spare_thread.join()
        for file in (self._file, self._control_file):
            if file is not None:
                file.close()


def _first_place(header: SegmentHeader) -> Expected:
    return Expected(DATA_OFFSET, header.first_lsn, header.checksum())
