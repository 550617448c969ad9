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
import time
from dataclasses import dataclass
from typing import Final

from tallystick.errors import CorruptLogError, LogUnreadableError
from tallystick.records import Finding, Severity
from tallystick.storage.files import File, FileSystem, write_whole
from tallystick.systems.tally.columns.deferred_runs import DeferredRunReader
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
    segment_name,
)
from tallystick.systems.tally.format.sealing import KEY_SIZES, KeyMissingError, KeyProvider
from tallystick.systems.tally.live.appender import Appender
from tallystick.systems.tally.live.settings import Settings
from tallystick.systems.tally.read.files import (
    Catalog,
    FileAccess,
    SegmentFile,
    is_member,
    read_folder,
)
from tallystick.systems.tally.read.scan import Scan
from tallystick.systems.tally.read.state import LogState, apply_step, state_of

_ADVICE: Final = (
    "Nothing was changed. Restore the damaged file from a copy; or look with `tallystick explain`, "
    "and write what can be read to a new log with tallystick.systems.tally.live.salvage"
)


@dataclass(slots=True)
class Recovered:
    """An open log: its end, the state of its records, and what recovery found."""

    appender: Appender
    state: LogState
    findings: tuple[Finding, ...]


def load_key(provider: KeyProvider | None) -> bytes | None:
    """Return the key from its provider.

    Raises:
        ValueError: it has a wrong length.
    """
    key = provider() if provider is not None else None
    if key is not None and len(key) not in KEY_SIZES:
        raise ValueError(f"a key has one of {KEY_SIZES} bytes, not {len(key)}")
    return key


def open_log(fs: FileSystem, folder: str, settings: Settings, key: bytes | None) -> Recovered:
    """Create or recover the log in ``folder``, which the caller has locked.

    Raises:
        CorruptLogError: acknowledged data is damaged or missing.
        UnsupportedFormatError: the log is of a later version, or encrypted and without its key.
        LogUnreadableError: a file cannot be read.
        OSError: a write failed.
    """
    catalog, access = read_folder(fs, folder)
    if catalog.control is None and _never_used(catalog, access):
        _create(fs, folder, settings)
        catalog, access = read_folder(fs, folder)
    scan = Scan(catalog, access, run_reader=DeferredRunReader())
    state, index = _rebuild(scan, key)
    if scan.broken:
        raise _refusal(folder, scan.findings)
    _repair_heads(fs, catalog)
    return _resume(fs, folder, settings, key, scan, state, index)


# -- creation -----------------------------------------------------------------------------


def _never_used(catalog: Catalog, access: FileAccess) -> bool:
    """Return True if no file holds a group: an empty folder, or an interrupted creation."""
    if catalog.control_path is not None:
        return False
    if any(one.header is None or one.header.number != 1 for one in catalog.segments):
        return False
    return not any(step.place.header is not None for step in Scan(catalog, access).steps())


def _create(fs: FileSystem, folder: str, settings: Settings) -> None:
    """Write the first segment, then the control block, with which the log exists."""
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
    write_whole(fs, posixpath.join(folder, CONTROL_NAME), [doubled(encode_control(control))])


# -- recovery -----------------------------------------------------------------------------


def _rebuild(scan: Scan, key: bytes | None) -> tuple[LogState, list[tuple[int, int, int]]]:
    """Return the state after all records, and the index of the groups in the last segment."""
    state = state_of(scan.catalog.control)
    index: list[tuple[int, int, int]] = []
    last: SegmentFile | None = None
    for step in scan.steps():
        if step.file is not last:
            index, last = [], step.file
        if scan.broken or not step.place.case.whole:
            continue
        index += step.place.index_entries()
        try:
            apply_step(state, step, key)
        except KeyMissingError as error:
            error.advice = "Open the log with its key"
            raise
    return state, index


def _refusal(folder: str, findings: list[Finding]) -> CorruptLogError:
    """Return the error that says what is lost and what follows it."""
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
    """Write damaged copies of segment headers anew; their sectors hold nothing else."""
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
    """Open the last segment, and make durable what was read from it."""
    file = fs.open(last.path)
    file.datasync()
    return file
