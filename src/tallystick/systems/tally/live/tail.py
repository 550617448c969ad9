"""Following a log while it is written, in its own process or in another one.

In: a folder and the LSN to begin with. Out: records as they become durable. Only whole groups
that something says are durable are handed out: the log itself (``durable``), or for another
process a later group, the mark of an idle log, or the next segment.
"""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Callable, Iterator

from tallystick.errors import CorruptLogError, LogUnreadableError
from tallystick.records import Record
from tallystick.storage.crc import crc32
from tallystick.storage.files import File, FileSystem
from tallystick.storage.local import LOCAL
from tallystick.storage.source import unreadable
from tallystick.systems.tally.columns.splits import seek
from tallystick.systems.tally.format.headers import (
    SegmentHeader,
    decode_control,
    decode_segment_header,
)
from tallystick.systems.tally.format.layout import (
    CONTROL_NAME,
    COPY_OFFSET,
    DATA_OFFSET,
    HEADER_SIZE,
    INDEX,
    GroupHeader,
    decode_group_header,
    segment_name,
)
from tallystick.systems.tally.live.opening import reach_of
from tallystick.systems.tally.read.files import Life, is_member, read_catalog
from tallystick.systems.tally.read.records import records_of
from tallystick.systems.tally.read.walk import Expected


class Tail:
    """A position in a log that moves on with it. Not safe for several threads."""

    def __init__(
        self,
        folder: str,
        *,
        from_lsn: int = 0,
        fs: FileSystem = LOCAL,
        key: bytes | None = None,
        durable: Callable[[], int] | None = None,
    ) -> None:
        self._folder = folder
        self._from_lsn = from_lsn
        self._fs = fs
        self._key = key
        self._durable = durable
        self._file: File | None = None
        self._header: SegmentHeader | None = None
        self._due: Expected | None = None

    @property
    def segment(self) -> int:
        """Number of the segment it stands in; 0 before the first read."""
        return self._header.number if self._header else 0

    def read(self) -> Iterator[Record]:
        """The records that became durable since the last call.

        Raises `CorruptLogError` for damage, and `LogUnreadableError` if the log gave up records
        that were not read yet.
        """
        if self._file is None and not self._begin():
            return
        while (group := self._next_group()) is not None:
            header, stored = group
            assert self._header is not None
            path = posixpath.join(self._folder, segment_name(self._header.number))
            for record in records_of(path, stored, header, self._key, behind=False):
                if (record.sequence or 0) >= self._from_lsn:
                    yield record
            self._due = Expected(header.end, header.last_lsn + 1, header.checksum)

    def close(self) -> None:
        """Close the file that it reads."""
        if self._file is not None:
            self._file.close()
        self._file = None

    def _begin(self) -> bool:
        names = [name for name in self._fs.list(self._folder) if is_member(name)]
        paths = [posixpath.join(self._folder, name) for name in names]
        reach = reach_of(self._fs)
        catalog = read_catalog(self._folder, paths, reach)
        start = seek(catalog, reach, lsn=self._from_lsn)
        if start is None or start[0].life is not Life.LIVE or start[0].header is None:
            return False
        file, due = start
        header = file.header
        assert header is not None
        first = Expected(DATA_OFFSET, header.first_lsn, header.checksum())
        self._enter(self._fs.open(file.path, write=False), header, due or first)
        return True

    def _enter(self, file: File, header: SegmentHeader, due: Expected) -> None:
        self.close()
        self._file, self._header, self._due = file, header, due

    def _next_group(self) -> tuple[GroupHeader, bytes] | None:
        """The next durable group and its stored bytes; None if there is none yet."""
        while True:
            group = self._group()
            if group is not None:
                return group
            if not self._next_segment():
                return None

    def _group(self) -> tuple[GroupHeader, bytes] | None:
        file, due = self._file, self._due
        assert file is not None
        assert due is not None
        header = decode_group_header(file.pread(HEADER_SIZE, due.offset), 0)
        if header is None or not self._follows(header, due):
            self._require_life(file)
            return None
        if not self._is_durable(file, header):
            return None
        data = file.pread(header.length, header.offset)
        inner = data[HEADER_SIZE:-HEADER_SIZE]
        if crc32(inner) != header.inner_crc:
            raise CorruptLogError(
                "a durable group is damaged", file=file.path, offset=header.offset,
                advice="Look at the log with `tallystick explain`",
            )  # fmt: skip
        return header, inner[: header.stored]

    def _follows(self, header: GroupHeader, due: Expected) -> bool:
        return (
            header.segment == self.segment
            and not header.flags & INDEX  # which may stand right behind the last group
            and header.offset == due.offset
            and (header.first_lsn, header.chain) == (due.lsn, due.chain)
        )

    def _is_durable(self, file: File, header: GroupHeader) -> bool:
        if self._durable is not None:
            return header.last_lsn <= self._durable()
        later = decode_group_header(file.pread(HEADER_SIZE, header.end), 0)
        if later is not None and later.segment == header.segment:
            return later.durable_lsn >= header.last_lsn
        follower = self._follower()
        if follower is not None and follower.previous_end >= header.end:
            return True
        return self._marked() >= header.last_lsn

    def _marked(self) -> int:
        """What the control block says is durable."""
        file = self._fs.open(posixpath.join(self._folder, CONTROL_NAME), write=False)
        with contextlib.closing(file):
            head = file.pread(DATA_OFFSET, 0)
        copies = (decode_control(head), decode_control(head, COPY_OFFSET))
        return max((one.durable_lsn for one in copies if one is not None), default=0)

    def _require_life(self, file: File) -> None:
        """The file may have been recycled while it was read."""
        assert self._header is not None
        now = decode_segment_header(file.pread(COPY_OFFSET, 0))
        if now is not None and now.number != self._header.number:
            raise LogUnreadableError(
                "the segment was recycled before it was read to its end",
                file=file.path,
                expected=f"segment {self._header.number}",
                found=f"segment {now.number}",
                advice="Hold the log's segments, or follow from a later record",
            )

    def _follower(self) -> SegmentHeader | None:
        path = posixpath.join(self._folder, segment_name(self.segment + 1))
        try:
            file = self._fs.open(path, write=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unreadable(path, error) from error
        with contextlib.closing(file):
            head = file.pread(DATA_OFFSET, 0)
        header = decode_segment_header(head) or decode_segment_header(head, COPY_OFFSET)
        return header if header is not None and header.previous == self.segment else None

    def _next_segment(self) -> bool:
        """Move on to the next segment if the current one is read to its end."""
        follower = self._follower()
        due = self._due
        if follower is None or due is None or follower.previous_end != due.offset:
            return False
        path = posixpath.join(self._folder, segment_name(follower.number))
        first = Expected(DATA_OFFSET, follower.first_lsn, follower.checksum())
        self._enter(self._fs.open(path, write=False), follower, first)
        return True
