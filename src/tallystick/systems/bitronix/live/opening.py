"""Opening a live journal: create it, recover it after a crash or another writer, repair it.

In: the paths of both parts. Out: both files, open and locked, the one in use known, and every
decision and heuristic outcome that is open, so that records can be appended.

Defects of the original are repaired: a spoilt timestamp, decisions that a change of files has
dropped, a tail that was torn in a power cut. Damage to what was acknowledged is refused.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from dataclasses import dataclass

from tallystick.errors import CorruptLogError
from tallystick.records import Outcome
from tallystick.storage.files import SECTOR, FileSystem
from tallystick.storage.source import ByteSource
from tallystick.storage.zeros import is_zero
from tallystick.systems.bitronix.format.layout import (
    DEFAULT_NAMES,
    SYSTEM_NAME,
    UNCLEAN_LOG_STATE,
    WALL_CLOCK_MIN,
    sequence_number,
)
from tallystick.systems.bitronix.live.carry_over import CarriedRecords
from tallystick.systems.bitronix.live.files import UNSYNCED_MAX, JournalFile, create_file
from tallystick.systems.bitronix.read.files import DualFiles, Part
from tallystick.systems.bitronix.read.scan import RecordSpan, header_problem, stamp
from tallystick.systems.folders import require_own

NEW_SUFFIX = ".new"
LOCK_SUFFIX = ".lock"
"""Of the lock file beside part 1, which is held while a file is made."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Where the journal is and how it is opened.

    Attributes:
        fs: the file system.
        part1: path of part 1.
        part2: path of part 2.
        length: bytes of new files.
        skip_corrupted: open a damaged journal with the whole records that it has.
        clock: returns milliseconds since boot (for True) or since 1970 (for False).
        boot_clock: which of the two to write; None goes on as the journal does, and makes new ones
            since 1970.
    """

    fs: FileSystem
    part1: str
    part2: str
    length: int
    skip_corrupted: bool
    clock: Callable[[bool], int]
    boot_clock: bool | None = None

    def counts_since_boot(self, last_time: int) -> bool:
        """Return whether to write times since boot, given the last time in the journal."""
        return last_time < WALL_CLOCK_MIN if self.boot_clock is None else self.boot_clock

    @property
    def parts(self) -> tuple[str, str]:
        """The paths of part 1 and part 2."""
        return (self.part1, self.part2)

    @property
    def folders(self) -> list[str]:
        """The folders of the parts."""
        return sorted({posixpath.dirname(path) for path in self.parts})


@dataclass(slots=True)
class Opened:
    """Both files and what they hold; ``last`` is the newest time and sequence number."""

    active: JournalFile
    passive: JournalFile
    carried: CarriedRecords
    last: tuple[int, int]
    since_boot: bool


def open_files(settings: Settings) -> Opened:
    """Open, recover and repair both files.

    Raises:
        CorruptLogError: records that may have been acknowledged are damaged, or a file is missing.
        LogFormatError: a file is shorter than its header.
        LogLockedError: another process has the journal open.
        UnsupportedFormatError: a folder holds another log.
        OSError: the operating system refuses.
    """
    usual = tuple(map(posixpath.basename, settings.parts)) == DEFAULT_NAMES
    for folder in settings.folders:
        require_own(folder, settings.fs, SYSTEM_NAME, "btm[12].tlog" if usual else None)
    _make_missing(settings)
    files = _open_both(settings)
    try:
        # Not before they are locked: another owner may be about to use what is removed.
        _remove_new(settings)
        _remove_lock(settings)
        _require_equal_lengths(settings, files)
        pair = _as_read(files)
        return _recover(settings, files, pair)
    except BaseException:
        for file in files:
            file.close()
        raise


def later_time(now: int, last: int) -> int:
    """Return the clock's time, never before the last one of the same clock."""
    same_clock = (now < WALL_CLOCK_MIN) == (last < WALL_CLOCK_MIN)
    return max(now, last) if same_clock else now


# -- making ------------------------------------------------------------------------------------


def _make_missing(settings: Settings) -> None:
    """Make the files that are missing, as the only one who does."""
    fs = settings.fs
    if all(map(fs.exists, settings.parts)):
        return
    _refuse_missing(settings)
    for folder in settings.folders:
        fs.mkdir(folder)
    lock = fs.lock(settings.part1 + LOCK_SUFFIX)
    try:
        # Again: another owner may have made them meanwhile, and have decisions in them.
        if not any(map(fs.exists, settings.parts)):
            _make_both(settings)
        elif not all(map(fs.exists, settings.parts)):
            _make_other(settings)
    finally:
        lock.release()


def _refuse_missing(settings: Settings) -> None:
    """Refuse one file without the other, unless a crash left that under another name."""
    fs = settings.fs
    missing, kept = sorted(settings.parts, key=fs.exists)
    if not fs.exists(kept) or settings.skip_corrupted:
        return
    # The name last: the other one is changed to it.
    if not fs.exists(missing + NEW_SUFFIX) and not fs.exists(missing):
        raise CorruptLogError(
            "one of the two files is missing",
            file=missing,
            advice=f"It may hold decisions that {kept} does not; put it back, or open with "
            "skip_corrupted=True to go on without them",
        )


def _make_other(settings: Settings) -> None:
    fs = settings.fs
    missing, kept = sorted(settings.parts, key=fs.exists)
    if not fs.exists(missing + NEW_SUFFIX):
        create_file(fs, missing + NEW_SUFFIX, 0, fs.size(kept), b"")
    fs.rename(missing + NEW_SUFFIX, missing)
    fs.sync_dir(posixpath.dirname(missing))


def _make_both(settings: Settings) -> None:
    """Create both files under other names, complete, before either gets its own name.

    Part 1 gets the later timestamp.
    """
    fs = settings.fs
    _remove_new(settings)
    now = max(settings.clock(settings.boot_clock is True), settings.length + 1)
    for path, timestamp in ((settings.part2, now), (settings.part1, now + 1)):
        create_file(fs, path + NEW_SUFFIX, timestamp, settings.length, b"")
    for folder in settings.folders:
        fs.sync_dir(folder)
    for path in (settings.part2, settings.part1):
        fs.rename(path + NEW_SUFFIX, path)
        fs.sync_dir(posixpath.dirname(path))


def _remove_new(settings: Settings) -> None:
    for path in settings.parts:
        if settings.fs.exists(path + NEW_SUFFIX):
            settings.fs.remove(path + NEW_SUFFIX)


def _remove_lock(settings: Settings) -> None:
    """Remove the lock file, both files being there: whoever has it yet makes none any more."""
    lock = settings.part1 + LOCK_SUFFIX
    if settings.fs.exists(lock):
        settings.fs.remove(lock)


# -- recovering -----------------------------------------------------------------------------------


def _open_both(settings: Settings) -> tuple[JournalFile, JournalFile]:
    one = JournalFile(settings.fs, settings.part1)
    try:
        return one, JournalFile(settings.fs, settings.part2)
    except BaseException:
        one.close()
        raise


def _require_equal_lengths(settings: Settings, files: tuple[JournalFile, JournalFile]) -> None:
    lengths = [file.length for file in files]
    if lengths[0] != lengths[1] and not settings.skip_corrupted:
        raise CorruptLogError(
            "the two files differ in length",
            file=files[lengths.index(min(lengths))].path,
            expected=f"{max(lengths)} bytes",
            found=f"{min(lengths)} bytes",
            advice="One was cut, or they do not belong together; put the right one back, or open "
            "with skip_corrupted=True",
        )


def _as_read(files: tuple[JournalFile, JournalFile]) -> DualFiles:
    sources = [ByteSource(file.path, memoryview(file.read())) for file in files]
    one, two = (Part(number, source.path, source.data) for number, source in enumerate(sources, 1))
    return DualFiles((one, two))


def _recover(settings: Settings, files: tuple[JournalFile, JournalFile], pair: DualFiles) -> Opened:
    earlier_part, part = pair.order()
    earlier, later = files[earlier_part.number - 1], files[part.number - 1]
    whole = _is_whole(settings, part, pair)
    carried = CarriedRecords()
    for *_, record in pair.records():
        carried.apply(record)
    last = _last_stamp(pair)
    opened = Opened(later, earlier, carried, last, settings.counts_since_boot(last[0]))
    in_order = _original_agrees(later, earlier, settings.part2)
    if not (whole and in_order and earlier.length == later.length and _is_complete(part, carried)):
        _extend_position(later, part, pair)
        _rebuild(settings, opened)
    opened.active.set_state(UNCLEAN_LOG_STATE)
    opened.active.datasync()
    return opened


def _last_stamp(pair: DualFiles) -> tuple[int, int]:
    """Return time and number to go on from; without records the time is that of the header."""
    earlier, later = pair.order()
    last = later.last or earlier.last
    if last is not None:
        return stamp(last)
    return (max(part.header.timestamp for part in pair.parts if part.header is not None), 0)


def _original_agrees(later: JournalFile, earlier: JournalFile, part2: str) -> bool:
    """Return whether the originals, too, would take the later file."""
    if later.path == part2:
        return later.timestamp >= earlier.timestamp
    return later.timestamp > earlier.timestamp


def _is_whole(settings: Settings, part: Part, pair: DualFiles) -> bool:
    """Return whether records can be appended to the file in use as it is.

    Raises:
        CorruptLogError: it holds damage that no power cut leaves.
    """
    whole = True
    for span in part.spans(pair.newest):
        if span.offset == 0 and span.outcome is Outcome.CORRUPT and part.header is not None:
            _refuse(settings, part, span, header_problem(part.header, part.size))
            whole = False
        elif span.is_damage:
            if not _can_be_torn(part, span):
                _refuse(settings, part, span, span.reason)
            whole = False
        elif not span.counted and span.what != "zeros":
            whole = False
    return whole


def _can_be_torn(part: Part, span: RecordSpan) -> bool:
    """Return whether the span is what a power cut leaves of an unsynced write.

    That is near the end, with a sector of it as it was before, which is zeros in a file that was
    wiped before it was used.
    """
    if span.outcome is Outcome.TORN:
        return True
    assert part.data is not None  # it has spans
    if part.header is None or span.end < part.header.position - UNSYNCED_MAX:
        return False
    begin = span.offset
    while begin < span.end:
        end = min(span.end, (begin // SECTOR + 1) * SECTOR)
        if is_zero(part.data, begin, end):
            return True
        begin = end
    return False


def _refuse(settings: Settings, part: Part, span: RecordSpan, reason: str) -> None:
    if not settings.skip_corrupted:
        raise CorruptLogError(
            reason,
            file=part.path,
            offset=span.offset,
            advice="Look at it with 'tallystick explain'; open with skip_corrupted=True to go on "
            "with all whole records",
        )


def _is_complete(part: Part, carried: CarriedRecords) -> bool:
    """Return whether this part alone holds the same open records as both."""
    alone = CarriedRecords()
    for span in part.counted_spans():
        if span.record is not None:
            alone.apply(span.record)
    return alone.same_as(carried)


# -- repairing -----------------------------------------------------------------------------


def _extend_position(file: JournalFile, part: Part, pair: DualFiles) -> None:
    """Make the position count whole records that a crash has left after it.

    They are then recovered again if the next step is cut short.
    """
    ends = [
        span.end for span in part.spans(pair.newest) if span.whole is not None and not span.counted
    ]
    if ends:
        file.set_position(ends[-1])
        file.datasync()


def _rebuild(settings: Settings, opened: Opened) -> None:
    """Replace the earlier file by a new one that holds all that is open, and use that."""
    path, length = opened.passive.path, max(opened.active.length, opened.passive.length)
    # Greater than the other timestamp, so that the originals take this file, and than any offset in
    # a file, so that it is not taken for one (`Part.swap_defect`).
    newest = max(opened.active.timestamp, opened.passive.timestamp, length)
    now = settings.clock(opened.since_boot)
    time, sequence = later_time(now, opened.last[0]), opened.last[1] + 1
    records = b"".join(opened.carried.copies(time, sequence_number(sequence)))
    create_file(settings.fs, path + NEW_SUFFIX, max(now, newest + 1), length, records)
    # Until here the file in use and the earlier one hold all that is open; from here on the new one
    # does. So a crash at any step leaves a journal that can be opened.
    settings.fs.rename(path + NEW_SUFFIX, path)
    settings.fs.sync_dir(posixpath.dirname(path))
    opened.passive.close()
    opened.passive, opened.active = opened.active, JournalFile(settings.fs, path)
    opened.last = (time, sequence)
    try:
        opened.passive.empty(length)
    except BaseException:
        opened.active.close()
        raise
