"""Follow a log while it is written, in its own process or in another one.

In: a folder and the LSN to begin with. Out: records as they become durable. Only whole groups that
are proved to be durable are read: by the log itself (``durable``), or for another process by a
later group, the mark of an idle log, or the next segment.

A log that is open in this process keeps the files of the segment that is read and of all later
ones (``hold``), also if a checkpoint has given them up. Another process's log does not: what it
gave up before it was read ends the reading with an error that says which records these are.
"""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext

from tallystick.errors import CorruptLogError, LogUnreadableError
from tallystick.records import NumberedRecord
from tallystick.refusals import file_of
from tallystick.storage.crc import crc32
from tallystick.storage.files import File, FileSystem, absolute
from tallystick.storage.fork import Uncopied
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
from tallystick.systems.tally.read.files import SegmentFile, read_folder, readable_folder
from tallystick.systems.tally.read.records import records_of
from tallystick.systems.tally.read.walk import Expected


class Tail(Uncopied):
    """A position in a log that is being written. Not safe for several threads.

    Args:
        folder: the log.
        from_lsn: the first record wanted.
        fs: the file system.
        key: the secret of an encrypted log.
        durable: returns the durable LSN of a log that is open in this process.
        hold: keeps the files of a segment and of all later ones of such a log where they are.
    """

    def __init__(
        self,
        folder: str,
        *,
        from_lsn: int = 0,
        fs: FileSystem = LOCAL,
        key: bytes | None = None,
        durable: Callable[[], int] | None = None,
        hold: Callable[[int], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._folder = absolute(folder)
        self._from_lsn = from_lsn
        self._fs = fs
        self._key = key
        self._durable = durable
        self._hold = hold
        self._held = contextlib.ExitStack()
        self._file: File | None = None
        self._header: SegmentHeader | None = None
        self._due: Expected | None = None

    @property
    def segment(self) -> int:
        """Number of the segment that is read; 0 before the first read."""
        return self._header.number if self._header else 0

    def read(self) -> Iterator[NumberedRecord]:
        """Yield the records that became durable since the last call.

        Raises:
            CorruptLogError: a durable group is damaged.
            LogUnreadableError: a log without ``hold`` gave up records that were not read yet, or
                the disk does not give back what is durable.
        """
        try:
            yield from self._read()
        except OSError as error:
            path = file_of(error, self._folder)
            raise unreadable(path, error) from error

    def _read(self) -> Iterator[NumberedRecord]:
        if self._file is None and not self._begin():
            return
        while (group := self._next_group() or self._proved_group()) is not None:
            header, stored = group
            assert self._header is not None
            path = posixpath.join(self._folder, segment_name(self._header.number))
            for record in records_of(path, stored, header, self._key, salvaged=False):
                if record.sequence >= self._from_lsn:
                    self._from_lsn = record.sequence + 1  # also where the reader stops here
                    yield record
            self._due = Expected.after(header)

    def close(self) -> None:
        """Close the file that is read, and let the log recycle the segments."""
        self._close_file()
        self._held.close()

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None

    def _begin(self) -> bool:
        with self._hold(1):  # every one, until it is known which comes first
            return self._begin_held()

    def _begin_held(self) -> bool:
        start = self._start()
        if start is None:
            return False
        file, due, missing = start
        header = file.header
        assert header is not None
        if missing:
            raise LogUnreadableError(
                "the first segment of the log cannot be read",
                file=self._folder,
                found=f"segment {header.number}",
                advice="Look at the disk; try again",
            )
        due = due or Expected.first_of(header)
        self._enter(self._fs.open(file.path, write=False), header, due)
        return True

    def _start(self) -> tuple[SegmentFile, Expected | None, bool] | None:
        """Return the place to begin at, and whether a segment that is kept is not there for it."""
        catalog, access = readable_folder(self._fs, self._folder)
        found = seek(catalog, access, lsn=self._from_lsn)
        if found is None or found[0].header is None:
            return None
        first, header = catalog.control and catalog.control.first_segment, found[0].header
        missing = header.number > (first or header.number) and header.first_lsn > self._from_lsn
        return *found, missing

    def _enter(self, file: File, header: SegmentHeader, due: Expected) -> None:
        self._close_file()
        held = contextlib.ExitStack()
        held.enter_context(self._hold(header.number))
        # After the new hold is there: between the two the log could recycle what is read next.
        self._held.close()
        self._held = held
        self._file, self._header, self._due = file, header, due

    def _next_group(self) -> tuple[GroupHeader, bytes] | None:
        """Return the next durable group and its stored payload; None if there is none yet."""
        while True:
            group = self._group()
            if group is not None:
                return group
            if not self._next_segment():
                return None

    def _proved_group(self) -> tuple[GroupHeader, bytes] | None:
        """Look again for a group that is not there, but must be if it is durable by now.

        Raises:
            LogUnreadableError: it is durable, and the disk does not give it back.
        """
        file, due = self._file, self._due
        assert file is not None
        assert due is not None
        durable = self._durable() if self._durable is not None else self._marked()
        follower = self._follower()
        ended = follower is not None and follower.previous_end > due.offset
        if durable < due.lsn and not ended:
            return None
        # Looked for once more after durability was asked: what became durable in between is there
        # now.
        group = self._next_group()
        header = None if group else decode_group_header(file.pread(HEADER_SIZE, due.offset), 0)
        if group is None and (header is None or not self._follows(header, due)):
            self._require_kept(due)
            raise LogUnreadableError(
                "a group that is durable cannot be read",
                file=file.path,
                offset=due.offset,
                expected=f"record {due.lsn}",
                advice="Look at the disk, and at the log with `tallystick explain`",
            )
        return group

    def _group(self) -> tuple[GroupHeader, bytes] | None:
        file, due = self._file, self._due
        assert file is not None
        assert due is not None
        header = decode_group_header(file.pread(HEADER_SIZE, due.offset), 0)
        if header is None or not self._follows(header, due):
            self._require_same_segment(file)
            return None
        # Before its content is read: a group that is being written may be whole in part.
        if not self._is_durable(file, header):
            return None
        data = file.pread(header.length, header.offset)
        content = data[HEADER_SIZE:-HEADER_SIZE]
        # Durable, so it is no group that is being written.
        if crc32(content) != header.payload_crc:
            self._require_same_segment(file)  # in between another group may have taken its place
            raise CorruptLogError(
                "a durable group is damaged", file=file.path, offset=header.offset,
                advice="Look at the log with `tallystick explain`",
            )  # fmt: skip
        return header, content[: header.stored]

    def _follows(self, header: GroupHeader, due: Expected) -> bool:
        return (
            header.segment == self.segment
            and not header.flags & INDEX  # which may stand right after the last group
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
        """Return the durable LSN that the control block states."""
        file = self._fs.open(posixpath.join(self._folder, CONTROL_NAME), write=False)
        with contextlib.closing(file):
            head = file.pread(DATA_OFFSET, 0)
        copies = (decode_control(head), decode_control(head, COPY_OFFSET))
        whole = [one.durable_lsn for one in copies if one is not None]
        if not whole:
            raise LogUnreadableError("the control block cannot be read", file=file.path)
        return max(whole)

    def _require_same_segment(self, file: File) -> None:
        """Check that the file was not recycled while it was read."""
        assert self._header is not None
        now = decode_segment_header(file.pread(COPY_OFFSET, 0))
        if now is not None and now.number != self._header.number:
            assert self._due is not None
            self._require_kept(self._due)
            raise LogUnreadableError(
                "the segment was recycled before it was read to its end",
                file=file.path,
                expected=f"segment {self._header.number}",
                found=f"segment {now.number}",
            )

    def _require_kept(self, due: Expected) -> None:
        """Raise an error if the record that is due was given up by the log."""
        catalog, _ = read_folder(self._fs, self._folder)
        first = next((one.header for one in catalog.segments if one.header is not None), None)
        if first is not None and first.number > self.segment:
            raise LogUnreadableError(
                f"records {due.lsn} to {first.first_lsn - 1} were given up before they were read",
                file=self._folder,
                advice=f"Follow from record {first.first_lsn}; checkpoint less than is read",
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
        """Go on with the next segment if the current one is read to its end.

        Raises:
            CorruptLogError: the next segment was begun after another record than the last one here.
        """
        follower = self._follower()
        due = self._due
        if follower is None or due is None or follower.previous_end > due.offset:
            return False
        path = posixpath.join(self._folder, segment_name(follower.number))
        found = follower.previous_end, follower.first_lsn, follower.chain
        if found != (due.offset, due.lsn, due.chain):
            raise CorruptLogError(
                f"the segment was begun after another record {due.lsn - 1} than this log has: it "
                "is of another copy of the log, or the segment before it is",
                file=path,
                offset=0,
                advice="Look at the log with `tallystick explain`",
            )
        due = Expected.first_of(follower)
        self._enter(self._fs.open(path, write=False), follower, due)
        return True
