"""Write groups at the end of a log; seal segments, roll to the next one, recycle old ones.

In: encoded payloads. Out: groups in segment files, each written by one call at a place that held
nothing acknowledged before. The group writer makes one call at a time.

A group is written after the group before it is durable: so at most one group is in flight, and a
whole group after a damaged one proves that the damaged one had been acknowledged.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from tallystick.core import CORE
from tallystick.errors import LogFullError
from tallystick.refusals import SPACE_ERRORS
from tallystick.storage.crc import crc32
from tallystick.storage.files import File, HeldFolder
from tallystick.storage.fork import Uncopied
from tallystick.storage.local import LocalFile
from tallystick.storage.opening import full_error, needing_space
from tallystick.storage.scheduling import simulated, time
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
from tallystick.systems.tally.live.items import too_large
from tallystick.systems.tally.live.settings import Settings, capacity
from tallystick.systems.tally.read.walk import Expected

_NO_NONCE: Final = bytes(NONCE_SIZE)
_PWRITE: Final = LocalFile.pwrite
_DATASYNC: Final = LocalFile.datasync
"""The compiled core writes in place of these two alone: not of a subclass, nor of other functions
that took their place."""
ENTRY: Final = struct.Struct("=qqq")
"""Offset, first LSN and time of a group, as `LogEnd.index` holds them."""
_PLAIN_ROOM: Final = 4 * HEADER_SIZE + TAG_SIZE + 2 * DATA_OFFSET + ENTRY_SIZE
"""More than a group and the index of its segment take besides the body and the entries before."""
_COMPILED_MAX: Final = 64 << 10
"""Largest payload that the compiled core writes, in bytes: it holds the interpreter lock while it
copies."""
EPOCH_SHIFT: Final = 24
"""Bits of a generation of the control block below the epoch of a shared log: see
`tallystick.storage.shared.epochs`."""
_JOIN_MAX: Final = 256 << 10
"""Groups up to this size are joined and written from one buffer; larger ones are not copied."""


class LogEnd:
    """The end of a log; one thread at a time changes it.

    Attributes:
        segment: number of the segment that is written to.
        end: offset of the next group in it.
        next_lsn: LSN of the next record.
        durable_lsn: every record up to here is durable.
        time_us: time of the last group, in microseconds.
        chain: checksum of the last group's header.
        index: an `ENTRY` for each group of the segment.
        dirty: True if the last group is not synced.
        marked: True if the control block states that all of the log is durable.
        fd: descriptor of the segment; -1 if the compiled core must not write there.
        device, inode: of the segment's file: what has the descriptor's number may be another one.
        plain_lsns: by segment, the greatest LSN of a plain record; the compiled core adds to it.
        encoders: by type of an item other than a plain body, the function with which the compiled
            core encodes one that is a group by itself. It is called with the item, returns the
            arguments of `write`, or None where Python has to write it, and may not write itself.
    """

    __slots__ = (
        "chain", "device", "dirty", "durable_lsn", "encoders", "end", "fd", "index", "inode",
        "marked", "next_lsn", "plain_lsns", "segment", "time_us",
    )  # fmt: skip

    def __init__(self) -> None:
        self.segment = self.end = self.durable_lsn = self.time_us = self.chain = 0
        self.next_lsn = 1
        self.index = bytearray()
        self.dirty = False
        self.marked = True
        self.fd = -1
        self.device = self.inode = 0
        self.plain_lsns: dict[int, int] = {}
        self.encoders: dict[type, Callable[[Any], tuple[int, int, bytes, bytes] | None]] = {}

    def write_plain(self, body: object) -> int | None:  # noqa: ARG002 - of the compiled core
        """Write and sync a group of one plain record, and return its LSN.

        None, having done nothing, where Python has to write it: always, without the core.
        """
        return None

    def write(self, count: int, columns: int, first: bytes, rest: bytes) -> bool:  # noqa: ARG002
        """Write and sync a group with the payload ``first + rest``; False as `write_plain`."""
        return False


def new_log_end(header: bytes, sector_size: int, space: int, *, compiled: bool) -> LogEnd:
    """Return the end of an empty log.

    Args:
        header: a header of a group, of which the core takes what all groups have in common.
        sector_size: bytes of a sector.
        space: what the end, a body and the index before it may add up to, in bytes: the core
            writes no body above that, and the segment is rolled.
        compiled: whether the core can write this log.
    """
    if not compiled or simulated():
        return LogEnd()
    core: Any = CORE
    end: LogEnd = core.LogEnd(header, sector_size, space, crc32, LocalFile, _PWRITE, _DATASYNC)
    return end


class Appender(Uncopied):
    """The end of an open log, where groups are written.

    Attributes:
        control: the control block as it is on disk.
        at: where the next group goes.
    """

    def __init__(
        self,
        fs: HeldFolder,
        folder: str,
        control: Control,
        settings: Settings,
        key: bytes | None,
        epoch: int = 0,
    ) -> None:
        self._folder = folder
        self._epoch = epoch
        self._settings = settings
        self._key = key
        self._packing = COMPRESSIONS[settings.compression]
        self._file: File | None = None
        self._next: tuple[File, SegmentHeader] | None = None
        """The segment to go on in, if there was no space for what follows its making."""
        self._control_places = (0, COPY_OFFSET)
        self._control_file = fs.open(posixpath.join(folder, CONTROL_NAME))
        self._segments = Segments(
            fs,
            folder,
            NAMING,
            size=control.segment_size,
            spares_max=settings.spares,
            background=settings.preallocate,
            first_spare=(epoch << EPOCH_SHIFT) + 1,
        )
        self.control = control
        self._header = pack_group_header(
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, _NO_NONCE, control.shard, control.tag
        )
        self.at = new_log_end(
            self._header,
            control.sector_size,
            control.segment_size - _PLAIN_ROOM,
            compiled=CORE is not None and not self._packing and key is None,
        )

    # -- groups -------------------------------------------------------------------------

    def resume(
        self, file: File, header: SegmentHeader, due: Expected,
        index: Iterable[tuple[int, int, int]], time_us: int,
    ) -> None:  # fmt: skip
        """Go on in a segment that has the groups of ``index``, all of them durable."""
        self._file = file
        at = self.at
        at.segment, at.time_us = header.number, time_us
        at.end, at.next_lsn, at.chain = due.offset, due.lsn, due.chain
        at.durable_lsn = due.lsn - 1
        at.fd = file.fd if type(file) is LocalFile else -1
        if at.fd >= 0:
            found = os.fstat(at.fd)
            at.device, at.inode = found.st_dev, found.st_ino
            if found.st_nlink == 0:  # this file system counts none
                at.fd = -1  # by them the core sees that a file was deleted
        at.index[:] = b"".join([ENTRY.pack(*entry) for entry in index])

    def ensure_space(self, size: int) -> None:
        """Roll if a group with a payload of ``size`` bytes does not fit in the segment.

        Raises:
            RecordTooLargeError: it fits in none: it ends a transaction of very many segments.
        """
        segment_size, sector = self.control.segment_size, self.control.sector_size
        length = group_length(size + TAG_SIZE, sector)
        end = self.at.end + length + self._index_length(1)
        if end > segment_size or self._next is not None:
            if DATA_OFFSET + length + group_length(ENTRY_SIZE, sector) > segment_size:
                raise too_large(self._folder, capacity(segment_size, sector), size)
            self.roll()

    def reserve_ahead(self, size: int) -> None:
        """Make the next segment in the background if ``size`` bytes more need it."""
        if self.at.end + size > self.control.segment_size:
            self._segments.prepare()

    def now(self) -> int:
        """Return the time of the next group, in microseconds: never less than the last one's."""
        self.at.time_us = now = max(self.at.time_us, time.time_ns() // 1000)
        return now

    def write_group(self, payload: GroupPayload, count: int) -> int:
        """Write a group of ``count`` records; return its first LSN. Call `ensure_space` before.

        Raises:
            LogFullError: there is no space for it; nothing has changed.
        """
        at, file = self.at, self._file
        # No other group may be in flight, or a whole one after it would prove nothing.
        if at.dirty:
            self.sync()
        assert file is not None
        first = at.next_lsn
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
            flags, length, at.segment, at.end, first, count, payload.columns, stored,
            payload.size, at.time_us, at.durable_lsn, crc, at.chain, nonce,
            self.control.shard, self.control.tag,
        )  # fmt: skip
        try:
            if len(buffers) == 1:
                file.pwrite(b"".join((header, buffers[0], header)), at.end)
            else:
                file.pwritev([header, *buffers, header], at.end)
        except OSError as error:  # what was written of it is overwritten by the next group
            if error.errno not in SPACE_ERRORS:
                raise
            raise full_error(file.path, f"a group of {length} bytes", error) from error
        at.dirty = True
        at.index.extend(ENTRY.pack(at.end, first, at.time_us))
        # Only now: after a write that failed the end is where it was.
        at.chain = header_checksum(header)
        at.end += length
        at.next_lsn += count
        at.marked = False
        return first

    def write_durably(self, payload: GroupPayload, count: int) -> int:
        """Write and sync a group as `write_group` and `sync` do, by the compiled core if it can."""
        at, buffers = self.at, payload.buffers
        first = at.next_lsn
        if payload.size > _COMPILED_MAX or not at.write(
            count, payload.columns, bytes(buffers[0]), b"".join(buffers[1:])
        ):
            self.write_group(payload, count)
            self.sync()
        return first

    def _sealed(self, data: bytes, payload: GroupPayload, count: int) -> tuple[int, bytes, bytes]:
        """Return flags, nonce, and the payload compressed and encrypted as the settings say."""
        at, flags, nonce = self.at, 0, _NO_NONCE
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
            flags, group_length(stored, self.control.sector_size), at.segment, at.end,
            at.next_lsn, count, payload.columns, stored, payload.size, at.time_us,
            at.durable_lsn, 0, at.chain, self.control.tag, nonce, self.control.shard,
        )  # fmt: skip
        return flags, nonce, encrypt(data, header, self._key)

    def sync(self) -> None:
        """Make every group written so far durable."""
        at = self.at
        if self._file is not None and at.dirty:
            self._file.datasync()
            at.durable_lsn = at.next_lsn - 1
            at.dirty = False

    # -- segments -----------------------------------------------------------------------

    def _index_length(self, more: int) -> int:
        size = len(self.at.index) + ENTRY_SIZE * more
        return group_length(size, self.control.sector_size)

    def roll(self) -> None:
        """Go on in a new segment, and seal the one before.

        Raises:
            LogFullError: there is no space for one; it is tried again before the next group.
        """
        self.sync()
        at, previous = self.at, self._file
        # Before the index is written: without space for it the log stays as it was, and once it is
        # made it is kept for the next try.
        file, header = self._next or self._begin_next()
        if previous is not None and at.index:
            self._seal(previous)
        self.write_control(last_segment=header.number, durable_lsn=at.durable_lsn)
        due = Expected.first_of(header)
        self.resume(file, header, due, (), at.time_us)
        self._next = None
        if previous is not None:
            previous.close()

    def _begin_next(self) -> tuple[File, SegmentHeader]:
        """Make the next segment; its header says that no group follows in the one before."""
        at = self.at
        header = SegmentHeader(
            self.control.identity, at.segment + 1, at.next_lsn, self.control.segment_size,
            self.control.sector_size, self.now(), at.segment, at.end, at.next_lsn - 1,
            at.chain, self.control.shard,
        )  # fmt: skip
        file = self._segments.roll(header.number, lambda new: _begin(new, header))
        self._next = file, header
        # The compiled core must not go on in the segment that is left.
        at.fd = -1
        return self._next

    def _seal(self, file: File) -> None:
        """Write the index so that it ends where the file ends."""
        at = self.at
        payload = encode_index(list(ENTRY.iter_unpack(at.index)))
        length = self._index_length(0)
        offset = self.control.segment_size - length
        padded = payload.ljust(length - 2 * HEADER_SIZE, b"\0")
        header = pack_group_header(
            INDEX, length, at.segment, offset, at.next_lsn, 0, 0, len(payload), len(payload),
            at.time_us, at.durable_lsn, crc32(padded), at.chain, _NO_NONCE,
            self.control.shard, self.control.tag,
        )  # fmt: skip
        with needing_space(file.path, "the index of a segment"):
            file.pwrite(header + padded + header, offset)
        file.datasync()

    def free_before(
        self, number: int, *, checkpoint_lsn: int, next_transaction: int, next_key: int
    ) -> list[int]:
        """Give up segments below ``number``, oldest first; return their numbers.

        The control block drops them durably before any of their files is recycled.
        """
        first = self.control.first_segment
        number = min(number, self.at.segment)
        if number > first or checkpoint_lsn > self.control.checkpoint_lsn:
            self.write_control(
                first_segment=number,
                checkpoint_lsn=checkpoint_lsn,
                durable_lsn=self.at.durable_lsn,
                next_transaction=next_transaction,
                next_key=next_key,
            )
        if self._settings.recycle:
            # After the control block, for what it still names must be there.
            self._segments.retire_below(number)
        return list(range(first, number))

    def retire_freed(self, keep_from: int | None = None) -> None:
        """Recycle segments that the control block gave up, below ``keep_from``."""
        first = self.control.first_segment
        self._segments.retire_below(first if keep_from is None else min(first, keep_from))

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

        No number in it decreases. Once there is a first copy, it counts: where there is no space
        for the other one, that is written first the next time.

        Raises:
            LogFullError: there is no space for it.
        """
        old = self.control
        control = replace(
            old,
            generation=max(old.generation, self._epoch << EPOCH_SHIFT) + 1,
            durable_lsn=max(durable_lsn, old.durable_lsn),
            first_segment=max(first_segment, old.first_segment),
            last_segment=max(last_segment, old.last_segment),
            checkpoint_lsn=max(checkpoint_lsn, old.checkpoint_lsn),
            next_transaction=max(next_transaction, old.next_transaction),
            next_key=max(next_key, old.next_key),
        )
        block = encode_control(control)
        first, _ = places = self._control_places
        for place in places:
            try:
                with needing_space(self._control_file.path, "the control block"):
                    self._control_file.pwrite(block, place)
            except LogFullError:
                # The copy that may be damaged now is the first one to be written again.
                self._control_places = (place, COPY_OFFSET - place)
                if place == first:
                    raise
                break
            self._control_file.datasync()
        self.control = control
        self.at.marked = control.durable_lsn >= self.at.next_lsn - 1

    def mark(self) -> None:
        """State in the control block that everything written is durable."""
        self.sync()
        if not self.at.marked:
            self.write_control(durable_lsn=self.at.durable_lsn)

    def close(self) -> None:
        """Close the files; nothing is written."""
        self.at.fd = -1
        self._segments.close()
        for file in (self._file, self._next and self._next[0], self._control_file):
            if file is not None:
                file.close()


def _begin(file: File, header: SegmentHeader) -> None:
    block = encode_segment_header(header)
    file.pwrite(block, 0)
    file.pwrite(block, COPY_OFFSET)
