"""Opening a native log: create it, or recover it from its files.

In: a folder. Out: an `Appender` at the end of the log and the `LogState` of its records.
Recovery refuses (`CorruptLogError`) if acknowledged data is damaged or missing, and says exactly
what is lost and what lies behind it. It writes only what repeats itself when it is interrupted:
the copies of damaged headers, a new segment behind a torn group, the control block.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import time
from dataclasses import dataclass
from typing import Final

from tallystick.errors import CorruptLogError, LogUnreadableError
from tallystick.records import Finding, Severity
from tallystick.storage.files import File, FileSystem, read_source, write_whole
from tallystick.storage.source import ByteSource, unreadable
from tallystick.systems.tally.format.headers import (
    Control,
    SegmentHeader,
    doubled,
    encode_control,
    encode_segment_header,
)
from tallystick.systems.tally.format.layout import CONTROL_NAME, IDENTITY_SIZE, segment_name
from tallystick.systems.tally.format.sealing import KEY_SIZES, KeyMissingError, KeyProvider
from tallystick.systems.tally.live.appender import Appender
from tallystick.systems.tally.live.settings import Settings
from tallystick.systems.tally.read.files import Catalog, Reach, SegmentFile, is_member, read_catalog
from tallystick.systems.tally.read.scan import Scan
from tallystick.systems.tally.read.state import LogState
from tallystick.systems.tally.read.state_rebuild import (
    LateLeaper,
    fold_step,
    index_entries,
    state_of,
)

_ADVICE: Final = (
    "Nothing was changed. Restore the damaged file from a copy; or look with `tallystick explain`, "
    "and write what can be read to a new log with tallystick.systems.tally.live.salvage"
)


@dataclass(slots=True)
class Recovered:
    """An open log: its writing end, the state of its records, and what was found on the way."""

    appender: Appender
    state: LogState
    findings: tuple[Finding, ...]


def reach_of(fs: FileSystem) -> Reach:
    """Reading through a file system of the storage seam."""

    def part(path: str, offset: int, size: int) -> bytes:
        try:
            file = fs.open(path, write=False)
        except OSError as error:
            raise unreadable(path, error) from error
        with contextlib.closing(file):
            try:
                return file.pread(size, offset)
            except OSError as error:
                raise unreadable(path, error) from error

    def head(path: str, size: int) -> bytes:
        return part(path, 0, size)

    def whole(path: str) -> ByteSource:
        try:
            return read_source(fs, path)
        except OSError as error:
            raise unreadable(path, error) from error

    return Reach(head, part, whole)


def load_key(provider: KeyProvider | None) -> bytes | None:
    """The key from its provider. Raises `ValueError` for a wrong length."""
    key = provider() if provider is not None else None
    if key is not None and len(key) not in KEY_SIZES:
        raise ValueError(f"a key has one of {KEY_SIZES} bytes, not {len(key)}")
    return key


def open_log(fs: FileSystem, folder: str, settings: Settings, key: bytes | None) -> Recovered:
    """Create or recover the log in ``folder``, which the caller has locked.

    Raises `CorruptLogError`, `UnsupportedFormatError` and `LogUnreadableError`; ``OSError`` from
    a write goes through.
    """
    catalog = _catalog(fs, folder)
    if catalog.control is None and _never_used(fs, catalog):
        _create(fs, folder, settings)
        catalog = _catalog(fs, folder)
    scan = Scan(catalog, reach_of(fs), leap=LateLeaper())
    state, index = _fold(scan, key)
    if scan.broken:
        raise _refusal(folder, scan.findings)
    _repair_heads(fs, catalog)
    return _resume(fs, folder, settings, key, scan, state, index)


def _catalog(fs: FileSystem, folder: str) -> Catalog:
    paths = [posixpath.join(folder, name) for name in fs.list(folder) if is_member(name)]
    return read_catalog(folder, paths, reach_of(fs))


# -- creation -----------------------------------------------------------------------------


def _never_used(fs: FileSystem, catalog: Catalog) -> bool:
    """True if no file holds a group: an empty folder, or a creation that was interrupted."""
    if catalog.control_path is not None:
        return False
    if any(one.header is None or one.header.number != 1 for one in catalog.segments):
        return False
    return not any(step.place.header is not None for step in Scan(catalog, reach_of(fs)).steps())


def _create(fs: FileSystem, folder: str, settings: Settings) -> None:
    """The first segment, then the control block: a log exists once it has its control block."""
    for name in fs.list(folder):
        if is_member(name):
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
        control.identity, 1, 1, control.segment_size, control.sector_size, now, shard=control.shard
    )
    first = posixpath.join(folder, segment_name(1))
    write_whole(fs, first, [doubled(encode_segment_header(header))], size=control.segment_size)
    write_whole(fs, posixpath.join(folder, CONTROL_NAME), [doubled(encode_control(control))])


# -- recovery -----------------------------------------------------------------------------


def _fold(scan: Scan, key: bytes | None) -> tuple[LogState, list[tuple[int, int, int]]]:
    """The state of all records, and the index of the groups in the last segment."""
    state = state_of(scan.catalog.control)
    index: list[tuple[int, int, int]] = []
    last: SegmentFile | None = None
    for step in scan.steps():
        if step.file is not last:
            index, last = [], step.file
        if scan.broken or not step.place.case.whole:
            continue
        index += index_entries(step.place)
        try:
            fold_step(state, step, key)
        except KeyMissingError as error:
            error.advice = "Open the log with its key"
            raise
    return state, index


def _refusal(folder: str, findings: list[Finding]) -> CorruptLogError:
    """The error that says what is lost and what lies behind it."""
    bad = [one for one in findings if one.severity in (Severity.DAMAGE, Severity.LOSS)]
    first = bad[0]
    text = "acknowledged data is damaged or missing: " + "; ".join(one.message for one in bad[:10])
    return CorruptLogError(
        text,
        file=first.file or folder,
        offset=first.offset,
        expected="every record up to the end of the log",
        found=f"{len(bad)} damaged or missing pieces",
        advice=_ADVICE,
    )


def _repair_heads(fs: FileSystem, catalog: Catalog) -> None:
    """Write damaged copies of segment headers anew. Their sectors hold nothing else."""
    for one in catalog.segments:
        if one.damaged_copy is not None and one.header is not None:
            with contextlib.closing(fs.open(one.path)) as file:
                file.pwrite(encode_segment_header(one.header), one.damaged_copy)
                file.datasync()


def _resume(
    fs: FileSystem, folder: str, settings: Settings, key: bytes | None, scan: Scan,
    state: LogState, index: list[tuple[int, int, int]],
) -> Recovered:  # fmt: skip
    control = scan.catalog.control
    if control is None or scan.end is None:
        raise LogUnreadableError("the log has no segment", file=folder, advice="Restore its files")
    last, due = scan.end
    assert last.header is not None
    file = _durable(fs, last)
    appender = Appender(fs, folder, control, settings, key)
    appender.resume(file, last.header, due, index, scan.time_us)
    # What was read is durable now, and the control block says so: the next recovery will not
    # take damage to it for a torn write.
    appender.write_control(last_segment=last.header.number, durable_lsn=appender.durable_lsn)
    if settings.recycle:
        appender.retire_freed()
    if not scan.clean or scan.sealed:
        appender.roll()
    return Recovered(appender, state, tuple(scan.findings))


def _durable(fs: FileSystem, last: SegmentFile) -> File:
    """The last segment, opened, with all that was read from it on the disk."""
    file = fs.open(last.path)
    file.datasync()
    return file
