"""Open a native log: create it, or recover it from its files.

In: a folder. Out: an `Appender` at the end of the log and the `LogState` of its records.
Recovery refuses (`CorruptLogError`) if acknowledged data is damaged or missing, and says exactly
what is lost and what follows it. Everything that it writes is written again if it is interrupted:
the copies of damaged headers, a new segment after a torn group, the control block.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from tallystick.errors import CorruptLogError, LogUnreadableError
from tallystick.printable import logger
from tallystick.records import Finding, Judgement
from tallystick.storage.files import File, FileSystem, HeldFolder, write_whole
from tallystick.storage.scheduling import time
from tallystick.storage.source import ByteSource, logical_name
from tallystick.storage.zeros import last_nonzero_end
from tallystick.systems.answers import judgement_of
from tallystick.systems.tally.codes import CODES, REASONS, fatal
from tallystick.systems.tally.format.headers import (
    Control,
    SegmentHeader,
    doubled,
    encode_control,
    encode_segment_header,
)
from tallystick.systems.tally.format.layout import (
    CONTROL_NAME,
    IDENTITY_SIZE,
    LSN_FIRST,
    SPARE_PREFIX,
    archived_as,
    segment_name,
)
from tallystick.systems.tally.format.sealing import KeyMissingError
from tallystick.systems.tally.live.appender import Appender
from tallystick.systems.tally.live.settings import Settings
from tallystick.systems.tally.read.claim import Claim
from tallystick.systems.tally.read.files import (
    Catalog,
    FileAccess,
    SegmentFile,
    is_own,
    readable_folder,
)
from tallystick.systems.tally.read.scan import Scan
from tallystick.systems.tally.read.state import LogState
from tallystick.systems.tally.runs.pieces import Runs
from tallystick.systems.tally.runs.state import apply_step
from tallystick.systems.tally.verdict.answer import grounds

_ADVICE: Final = (
    "Nothing was changed. Restore the damaged file from a copy; or look with `tallystick explain`, "
    "and write what can be read to a new log with `tallystick salvage LOG --to NEW --as journal`"
)
_ADVICE_ARCHIVED: Final = (
    "If these are archived segments of a log: tallystick.scan and `tallystick dump` read them, and "
    "`tallystick convert --force` makes a log of what they hold"
)
_COPIES: Final = (
    "Of {} headers one copy of two was damaged: check the disk. The control block and headers of "
    "segments were written anew; a group is not, as its sectors hold acknowledged records."
)

_log = logger("tallystick.recovery")


@dataclass(slots=True)
class Recovered:
    """An open log: its end, the state of its records, what recovery found, and what that proves."""

    appender: Appender
    state: LogState
    findings: tuple[Finding, ...]
    judgement: Judgement


@dataclass(slots=True)
class Known:
    """The state after every record below ``lsn``, and the segment where that record goes."""

    state: LogState
    segment: int
    lsn: int


@dataclass(frozen=True, slots=True)
class Term:
    """The time for which a process writes the log: all the time, or while it leads others.

    Attributes:
        epoch: its number, see `tallystick.storage.shared.epochs`; 0 for a log that is not shared.
        others: True if a former leader may still have files open to write.
        known: returns what a former leader knew of the log with this identity, if anything: then
            only what comes after is read.
    """

    epoch: int = 0
    others: bool = False
    known: Callable[[bytes | None], Known | None] | None = None


def open_log(
    fs: HeldFolder, folder: str, settings: Settings, key: bytes | None, term: Term, claim: Claim
) -> Recovered:
    """Create or recover the log in ``folder``, which the caller has locked.

    Raises:
        CorruptLogError: acknowledged data is damaged or missing, or it is another owner's log, or
            an unfinished backup.
        UnsupportedFormatError: the log is of a later version, of another role, or encrypted and
            without its key.
        LogUnreadableError: a file cannot be read; nothing was changed.
        OSError: a write failed.
    """
    catalog, access = readable_folder(fs, folder)
    if catalog.control_path is None:
        _refuse_archived(fs, folder)
    if catalog.unused:
        _create(fs, folder, settings, claim)
        catalog, access = readable_folder(fs, folder)
    if catalog.unfinished:
        raise CorruptLogError(
            "this backup was never finished",
            file=catalog.control_path,
            advice=CODES["unfinished-backup"].advice,
        )
    if catalog.control is not None:
        # Before anything is read or written: it may be the log of something else.
        claim.require(catalog.control, folder)
    access = _keeping(access)
    scan, state, index = _read_tail(catalog, access, key, term) or _read_all(catalog, access, key)
    if scan.broken:
        advice = _ADVICE if catalog.control_path is not None else f"{_ADVICE}. {_ADVICE_ARCHIVED}"
        raise _refusal(folder, scan.findings, advice)
    judgement = judgement_of(REASONS, CODES, grounds(scan, None), scan.findings)
    # Not before the log was found whole: of a log that is refused nothing is changed.
    _repair_heads(fs, catalog)
    judgement = _with_copies(judgement, scan.findings)
    appender = _resume(fs, folder, settings, key, scan, index, term, claim)
    return Recovered(appender, state, tuple(scan.findings), judgement)


# -- creation -----------------------------------------------------------------------------


def _refuse_archived(fs: FileSystem, folder: str) -> None:
    """Refuse a folder without a log in which archived segments are, packed or not."""
    names = fs.list(folder)
    archived = [one for one in names if archived_as(logical_name(one)) is not None]
    if archived and not any(map(is_own, names)):
        raise CorruptLogError(
            "the folder holds archived segments of a log, and no log",
            file=posixpath.join(folder, archived[0]),
            expected="a log, or an empty folder",
            advice=_ADVICE_ARCHIVED,
        )


def _create(fs: FileSystem, folder: str, settings: Settings, claim: Claim) -> None:
    """Write the first segment, then the control block, with which the log exists."""
    for name in fs.list(folder):
        if is_own(name):
            fs.remove(posixpath.join(folder, name))
    now = time.time_ns() // 1000
    control = Control(
        os.urandom(IDENTITY_SIZE),
        settings.segment_size,
        settings.sector_size,
        created_us=now,
        shard=settings.shard,
        shards=settings.shards,
    )
    header = SegmentHeader(
        control.identity,
        1,
        LSN_FIRST,
        control.segment_size,
        control.sector_size,
        now,
        shard=control.shard,
    )
    first = posixpath.join(folder, segment_name(1))
    write_whole(fs, first, [doubled(encode_segment_header(header))], size=control.segment_size)
    block = doubled(encode_control(claim.new(control)))
    write_whole(fs, posixpath.join(folder, CONTROL_NAME), [block])


# -- recovery -----------------------------------------------------------------------------


def _keeping(access: FileAccess) -> FileAccess:
    """Return access that keeps the file that was opened last, and knows where its zeros begin.

    The last segment is walked, and then asked several times how it ends. Each reading is of the
    disk, and of all that is preallocated. Whoever opens a log is the only one that writes to it.
    """
    kept = ByteSource("", memoryview(b""))

    def opened(path: str) -> ByteSource:
        nonlocal kept
        if path != kept.path:
            kept = ByteSource("", memoryview(b""))  # not two segments in memory at a time
            kept = access.open(path)
            kept.zeros_from = last_nonzero_end(kept.data, 0, kept.size)
        return ByteSource(path, memoryview(kept.data), zeros_from=kept.zeros_from)

    return replace(access, open=opened)


_Index = list[tuple[int, int, int]]


def _read_all(
    catalog: Catalog, access: FileAccess, key: bytes | None
) -> tuple[Scan, LogState, _Index]:
    """Read the whole log."""
    scan = Scan(catalog, access, read_run=Runs.at_opening())
    return scan, *_rebuild(scan, key)


def _read_tail(
    catalog: Catalog, access: FileAccess, key: bytes | None, term: Term
) -> tuple[Scan, LogState, _Index] | None:
    """Read the log from the segment on up to which its state is known; None if that cannot do."""
    control = catalog.control
    known = term.known(catalog.identity) if term.known is not None else None
    if known is None or control is None or catalog.missing:
        return None
    start = catalog.live_segment(known.segment)
    if start is None:
        return None
    scan = Scan(catalog, access, (start, None), Runs.at_opening())
    state, index = _rebuild(scan, key, known)
    if scan.broken or scan.next_lsn < known.lsn:
        return None  # the whole log tells what is lost
    state.forget_before(control.first_segment)
    state.advance_checkpoint(control.checkpoint_lsn)
    state.next_transaction = max(state.next_transaction, control.next_transaction)
    state.next_key = max(state.next_key, control.next_key)
    return scan, state, index


def _rebuild(scan: Scan, key: bytes | None, known: Known | None = None) -> tuple[LogState, _Index]:
    """Return the state after all records, and the index of the groups in the last segment."""
    state = known.state if known is not None else LogState.before(scan.catalog.control)
    since = known.lsn if known is not None else 0
    index: _Index = []
    last: SegmentFile | None = None
    clear = 0
    for step in scan.steps():
        if step.file is not last:
            index, last = [], step.file
        if scan.broken or not step.place.case.whole:
            continue
        index += step.place.index_entries()
        clear += step.place.count_in_clear
        try:
            apply_step(state, step, key, since)
        except KeyMissingError as error:
            error.advice = "Open the log with its key"
            raise
    if key is not None and clear:
        advice = CODES["clear-text"].advice
        _log.warning("%s: %d records are in clear text. %s", scan.catalog.folder, clear, advice)
    return state, index


def _with_copies(judgement: Judgement, findings: Iterable[Finding]) -> Judgement:
    """Return the judgement with what is said of damaged copies; it is logged as a warning, too."""
    copies = [one for one in findings if CODES[one.code].whole]
    for one in copies:
        _log.warning("%s: %s", one.file, one.message)
    said = f" {_COPIES.format(len(copies))}" if copies else ""
    return replace(judgement, text=judgement.text + said)


def _refusal(folder: str, findings: list[Finding], advice: str) -> CorruptLogError:
    """Return the error that says what is lost and what follows it."""
    bad = fatal(findings)
    first = bad[0]
    text = "acknowledged data is damaged or missing: " + "; ".join(one.message for one in bad[:10])
    return CorruptLogError(
        text,
        file=first.file or folder,
        offset=first.offset,
        expected="every record up to the end of the log",
        found=f"{len(bad)} damaged or missing pieces",
        advice=advice,
    )


def _repair_heads(fs: FileSystem, catalog: Catalog) -> None:
    """Write damaged copies of headers anew; their sectors hold nothing else.

    Of the control block, too: later both copies are written in turn, the first one first. A failure
    there must not meet a second copy that is damaged already.
    """
    if catalog.control is not None and catalog.control_damage is not None:
        with contextlib.closing(fs.open(posixpath.join(catalog.folder, CONTROL_NAME))) as file:
            file.pwrite(encode_control(catalog.control), catalog.control_damage)
            file.datasync()
    for one in catalog.segments:
        if one.damaged_copy is not None and one.header is not None:
            with contextlib.closing(fs.open(one.path)) as file:
                file.pwrite(encode_segment_header(one.header), one.damaged_copy)
                file.datasync()


def _resume(
    fs: HeldFolder, folder: str, settings: Settings, key: bytes | None, scan: Scan,
    index: list[tuple[int, int, int]], term: Term, claim: Claim,
) -> Appender:  # fmt: skip
    control = scan.catalog.control
    if control is None or scan.end is None:
        raise LogUnreadableError("the log has no segment", file=folder, advice="Restore its files")
    last, due = scan.end
    assert last.header is not None
    # What was read may be in memory only, if the process that wrote it has ended before its sync.
    file = _durable(fs, last)
    if term.others:
        _remove_spares(fs, folder)
    control = claim.noted_in(control, folder)
    appender = Appender(fs, folder, control, settings, key, term.epoch)
    appender.resume(file, last.header, due, index, scan.time_us)
    # What was read is durable now, and the control block says so: the next recovery will not
    # take damage to it for a torn write.
    appender.write_control(last_segment=last.header.number, durable_lsn=appender.at.durable_lsn)
    if settings.recycle:
        appender.retire_freed()
    # A torn group is not written over: the log goes on in a new segment, whose header says where
    # this one ended.
    if not scan.clean or scan.sealed or term.others:
        appender.roll()
    return appender


def _remove_spares(fs: FileSystem, folder: str) -> None:
    """Remove the spares, which a former leader may be about to use."""
    while spares := [name for name in fs.list(folder) if name.startswith(SPARE_PREFIX)]:
        for name in spares:
            with contextlib.suppress(FileNotFoundError):
                fs.remove(posixpath.join(folder, name))


def _durable(fs: FileSystem, last: SegmentFile) -> File:
    """Open the last segment, and make durable what was read from it."""
    file = fs.open(last.path)
    file.datasync()
    return file
