"""Write groups at the end of a log; seal segments, roll to the next one, recycle old ones.

In: encoded payloads. Out: groups in segment files, each written by one call at a place that held
nothing acknowledged before. The group writer makes one call at a time.

A group is written after the group before it is durable: so at most one group is in flight, and a
whole group after a damaged one proves that the damaged one had been acknowledged.
"""

from __future__ import annotations

import contextlib
import posixpath
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from tallystick.storage.crc import crc32
from tallystick.storage.files import File, FileSystem
from tallystick.storage.segments import Segments
from tallystick.systems.tally.format.columns import GroupPayload
from tallystick.systems.tally.format.headers import (
    Control,
    SegmentHeader,
    encode_control,
    encode_segment_header,
)
from tallystick.systems.tally.format.index import ENTRY_SIZE, encode_index
from tallystick.systems.tally.format.layout import (
    AES_GCM,
    CONTROL_NAME,
    COPY_OFFSET,
    DATA_OFFSET,
    HEADER_SIZE,
    INDEX,
    NAMING,
    NONCE_SIZE,
    GroupHeader,
    group_length,
    header_checksum,
    pack_group_header,
)
from tallystick.systems.tally.format.sealing import (
    COMPRESSIONS,
    TAG_SIZE,
    compress,
    encrypt,
    new_nonce,
)
from tallystick.systems.tally.live.settings import Settings
from tallystick.systems.tally.read.walk import Expected

_NO_NONCE: Final = bytes(NONCE_SIZE)
_JOIN_MAX: Final = 256 << 10
"""Groups up to this size are joined and written from one buffer; larger ones are not copied."""


class Appender:
    """The end of an open log, where groups are written.

    Attributes:
        control: the control block as it is on disk.
        segment: number of the segment that is written to.
        end: offset of the next group in it.
        next_lsn: LSN of the next record.
        durable_lsn: every record up to here is durable.
        time_us: time of the last group, in microseconds.
        chain: checksum of the last group's header.
        index: offset, first LSN and time of each group of the segment.
        marked: True if the control block states that all of the log is durable.
    """

    def __init__(
        self,
        fs: FileSystem,
        folder: str,
        control: Control,
        settings: Settings,
        key: bytes | None,
    ) -> None:
        self._settings = settings
        self._key = key
        self._packing = COMPRESSIONS[settings.compression]
        self._file: File | None = None
        self._control_file = fs.open(posixpath.join(folder, CONTROL_NAME))
        self._dirty = False
        self._segments = Segments(
            fs,
            folder,
            NAMING,
            size=control.segment_size,
            spares_max=settings.spares,
            background=settings.preallocate,
        )
        self.control = control
        self.segment = 0
        self.end = 0
        self.next_lsn = 1
        self.durable_lsn = 0
        self.time_us = 0
        self.chain = 0
        self.index: list[tuple[int, int, int]] = []
        self.marked = True

    @property
    def stores_plain(self) -> bool:
        """True if payloads are stored as they are: neither compressed nor encrypted."""
        return not self._packing and self._key is None

    # -- groups -------------------------------------------------------------------------

    def resume(
        self, file: File, header: SegmentHeader, due: Expected,
        index: Iterable[tuple[int, int, int]], time_us: int,
    ) -> None:  # fmt: skip
        """Go on in a segment that has the groups of ``index``, all of them durable."""
        self._file = file
        self.segment = header.number
        self.end, self.next_lsn, self.chain = due.offset, due.lsn, due.chain
        self.durable_lsn = due.lsn - 1
        self.index = list(index)
        self.time_us = time_us

    def ensure_space(self, size: int) -> None:
        """Roll if a group with a payload of ``size`` bytes does not fit in the segment."""
        length = group_length(size + TAG_SIZE, self.control.sector_size)
        if self.end + length + self._index_length(1) > self.control.segment_size:
            self.roll()

    def reserve_ahead(self, size: int) -> None:
        """Make the next segment in the background if ``size`` bytes more need it."""
        if self.end + size > self.control.segment_size:
            self._segments.prepare()

    def now(self) -> int:
        """Return the time of the next group, in microseconds: never less than the last one's."""
        self.time_us = max(self.time_us, time.time_ns() // 1000)
        return self.time_us

    def write_group(self, payload: GroupPayload, count: int) -> int:
        """Write a group of ``count`` records; return its first LSN. Call `ensure_space` before."""
        if self._dirty:
            self.sync()
        file = self._file
        assert file is not None
        first = self.next_lsn
        flags, nonce, stored, buffers, crc = (
            0, _NO_NONCE, payload.size, payload.buffers, payload.crc,
        )  # fmt: skip
        if self._packing or self._key is not None:
            flags, nonce, sealed = self._sealed(b"".join(buffers), payload, count)
            buffers, stored, crc = (sealed,), len(sealed), None
        length = group_length(stored, self.control.sector_size)
        padding = bytes(length - stored - 2 * HEADER_SIZE)
        buffers = (*buffers, padding)
        if length <= _JOIN_MAX:
            buffers = (b"".join(buffers),)
        rest, crc = (buffers, 0) if crc is None else ((padding,), crc)
        for buffer in rest:
            crc = crc32(buffer, crc)
        header = pack_group_header(
            flags, length, self.segment, self.end, first, count, payload.columns, stored,
            payload.size, self.time_us, self.durable_lsn, crc, self.chain, nonce,
            self.control.shard, self.control.tag,
        )  # fmt: skip
        if len(buffers) == 1:
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

    def _sealed(self, data: bytes, payload: GroupPayload, count: int) -> tuple[int, bytes, bytes]:
        """Return flags, nonce, and the payload compressed and encrypted as the settings say."""
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
            self.next_lsn, count, payload.columns, stored, payload.size, self.time_us,
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

    def roll(self) -> None:
        """Go on in a new segment, and seal the one before.

        Raises:
            LogFullError: there is no space for one; nothing has changed.
        """
        self.sync()
        previous = self._file
        header = SegmentHeader(
            self.control.identity, self.segment + 1, self.next_lsn, self.control.segment_size,
            self.control.sector_size, self.now(), self.segment, self.end, self.next_lsn - 1,
            self.chain, self.control.shard,
        )  # fmt: skip
        file = self._segments.roll(header.number, lambda new: _begin(new, header))
        if previous is not None and self.index:
            self._seal(previous)
        self.write_control(last_segment=header.number, durable_lsn=self.durable_lsn)
        due = Expected(DATA_OFFSET, header.first_lsn, header.checksum())
        self.resume(file, header, due, (), self.time_us)
        if previous is not None:
            previous.close()

    def _seal(self, file: File) -> None:
        """Write the index so that it ends where the file ends."""
        payload = encode_index(self.index)
        length = self._index_length(0)
        offset = self.control.segment_size - length
        padded = payload.ljust(length - 2 * HEADER_SIZE, b"\0")
        header = pack_group_header(
            INDEX, length, self.segment, offset, self.next_lsn, 0, 0, len(payload), len(payload),
            self.time_us, self.durable_lsn, crc32(padded), self.chain, _NO_NONCE,
            self.control.shard, self.control.tag,
        )  # fmt: skip
        file.pwrite(header + padded + header, offset)
        file.datasync()

    def free_before(
        self, number: int, *, checkpoint_lsn: int, next_transaction: int, next_key: int
    ) -> list[int]:
        """Give up segments below ``number``, oldest first; return their numbers.

        The control block drops them durably before any of their files is recycled.
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
        if self._settings.recycle:
            self._segments.retire_below(number)
        return list(range(first, number))

    def retire_freed(self) -> None:
        """Recycle segments that the control block gave up before the last crash."""
        self._segments.retire_below(self.control.first_segment)

    @contextlib.contextmanager
    def hold(self, number: int) -> Iterator[None]:
        """Keep the files of this segment and of all later ones where they are."""
        with self._segments.hold(number):
            yield

    # -- control block ------------------------------------------------------------------

    def write_control(
        self, *, durable_lsn: int, first_segment: int = 0, last_segment: int = 0,
        checkpoint_lsn: int = 0, next_transaction: int = 0, next_key: int = 0,
    ) -> None:  # fmt: skip
        """Write both copies, one after the other, so that one is whole at any time.

        No number in it decreases.
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
        self.marked = control.durable_lsn >= self.next_lsn - 1

    def mark(self) -> None:
        """State in the control block that everything written is durable."""
        self.sync()
        if not self.marked:
            self.write_control(durable_lsn=self.durable_lsn)

    def close(self) -> None:
        """Close the files; nothing is written."""
        self._segments.close()
        for file in (self._file, self._control_file):
            if file is not None:
                file.close()


def _begin(file: File, header: SegmentHeader) -> None:
    block = encode_segment_header(header)
    file.pwrite(block, 0)
    file.pwrite(block, COPY_OFFSET)
