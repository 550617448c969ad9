"""An online backup: a log as of one moment, copied to a new folder.

In: a `Moment` of a log whose segments are kept meanwhile. Out: a folder that opens as a log of its
own, durable and read back from the disk. The control block is written last: until then a mark
stands in its place, and what is there is refused as an unfinished backup.
"""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from tallystick.errors import CorruptLogError
from tallystick.storage.files import FileSystem, write_whole
from tallystick.storage.opening import claim_target, require_apart, require_empty, writing_backup
from tallystick.storage.source import unreadable
from tallystick.systems.tally.format.headers import (
    UNFINISHED_BACKUP,
    Control,
    doubled,
    encode_control,
)
from tallystick.systems.tally.format.layout import CONTROL_NAME, LOCK_NAME, segment_name
from tallystick.systems.tally.read.files import access_through, read_catalog
from tallystick.systems.tally.read.scan import Scan
from tallystick.systems.tally.runs.pieces import Runs

Progress = Callable[[int, int], object]
"""Called with the bytes copied so far and the bytes in all."""

_PIECE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Moment:
    """Where a log ended at one moment, everything before that being durable.

    Attributes:
        control: its control block.
        segment: number of its last segment.
        end: offset of the first byte after the last group in it.
        next_lsn: LSN of the first record after it.
    """

    control: Control
    segment: int
    end: int
    next_lsn: int

    def pieces(self) -> list[tuple[str, int]]:
        """Return the name of each segment, and how many of its first bytes belong to the log."""
        numbers = range(self.control.first_segment, self.segment + 1)
        whole = [(segment_name(number), self.control.segment_size) for number in numbers]
        return [*whole[:-1], (whole[-1][0], self.end)]


def copy_log(
    fs: FileSystem, folder: str, target: str, moment: Moment, progress: Progress | None = None
) -> None:
    """Copy the log in ``folder`` as of ``moment`` to ``target``, durably, and read it back.

    Args:
        fs: the file system of both.
        folder: the log, whose segments are kept meanwhile.
        target: a folder that is absent or empty.
        moment: what is copied.
        progress: called after each piece.

    Raises:
        LogWriteError: the target is not empty, is inside the log, or cannot be written.
        LogLockedError: another backup to this target runs.
        LogUnreadableError: a segment of the log cannot be read.
        CorruptLogError: the copy does not hold the whole log: a segment of the log is damaged, or
            the disk of the target.
    """
    target = target or posixpath.curdir
    require_apart(target, folder)
    control = replace(
        moment.control,
        generation=moment.control.generation + 1,
        last_segment=moment.segment,
        durable_lsn=moment.next_lsn - 1,
    )
    block = doubled(encode_control(control))
    control_path = posixpath.join(target, CONTROL_NAME)
    with _claimed(fs, target):
        write_whole(fs, control_path, [UNFINISHED_BACKUP])
        told = _Told(sum(size for _, size in moment.pieces()), progress)
        for name, size in moment.pieces():
            content = _content(fs, posixpath.join(folder, name), size, told)
            write_whole(fs, posixpath.join(target, name), content, size=control.segment_size)
        _require_whole(fs, target, control_path, block, moment)
        write_whole(fs, control_path, [block])


class _Told:
    """Counts what was copied, and tells it."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._done, self._total, self._progress = 0, total, progress

    def more(self, size: int) -> None:
        self._done += size
        if self._progress is not None:
            self._progress(self._done, self._total)


@contextlib.contextmanager
def _claimed(fs: FileSystem, target: str) -> Iterator[None]:
    """Own the folder ``target``, which is made if missing and must be empty."""
    claim_target(fs, target, LOCK_NAME)
    with writing_backup(target):
        lock = fs.lock(posixpath.join(target, LOCK_NAME))
        try:
            require_empty(fs, target, LOCK_NAME)  # another backup may have had the lock in between
            yield
        finally:
            lock.release()


def _content(fs: FileSystem, path: str, size: int, told: _Told) -> Iterator[bytes]:
    """Yield the first ``size`` bytes of a segment."""
    try:
        with contextlib.closing(fs.open(path, write=False)) as file:
            for offset in range(0, size, _PIECE):
                piece = file.pread(min(_PIECE, size - offset), offset)
                yield piece
                told.more(len(piece))
    except OSError as error:
        raise unreadable(path, error) from error


def _require_whole(
    fs: FileSystem, target: str, control_path: str, block: bytes, moment: Moment
) -> None:
    """Read the copy back, with the control block that it will have, up to its last group."""
    copied = access_through(fs)

    def head(path: str, size: int) -> bytes:
        return block[:size] if path == control_path else copied.head(path, size)

    access = replace(copied, head=head)
    paths = [control_path, *(posixpath.join(target, name) for name, _ in moment.pieces())]
    scan = Scan(read_catalog(target, paths, access), access, read_run=Runs.at_opening())
    for _ in scan.steps():
        pass
    if scan.broken or scan.next_lsn != moment.next_lsn:
        found = "; ".join(one.message for one in scan.findings) or f"up to {scan.next_lsn - 1}"
        raise CorruptLogError(
            "the copy does not hold the whole log",
            file=target,
            expected=f"every record up to {moment.next_lsn - 1}",
            found=found,
            advice="Scrub the log itself: if that finds the same, the log is damaged, and if not, "
            "the disk of the target. The copy is refused by every opening",
        )
