"""Open a live log: the engine's recovery, and a refusal where it would lose records.

In: the files of the folder. Out: an `Opened` log with a clean tail. Where the engine's own rules
lose data these are stricter, within the format (docs/systems/derby.md):

* whole groups after a damaged one: refuse, do not overwrite them with zeros
* bytes after a clean end: overwrite them with zeros too
* a missing log file: refuse, do not begin a new log
* a torn group at the start of a file: overwrite its checksum record, too; its CRC would cover what
  is written next, and the next recovery would stop there
* a torn group beyond the preallocation: cut it; of zeros, four left at the end are an end marker
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from tallystick.errors import UnsupportedFormatError
from tallystick.records import Outcome
from tallystick.systems.derby.engine.forward_scan import (
    ForwardScan,
    ScanFailureError,
    check_header,
)
from tallystick.systems.derby.engine.recovery import SWITCH_INTERVAL, reach_of, recover
from tallystick.systems.derby.engine.result import OpenTransaction, Recovery
from tallystick.systems.derby.format.crypto import LogCipher
from tallystick.systems.derby.format.layout import (
    FLAG_BETA,
    HEADER_SIZE,
    Control,
    Group,
    instant_text,
    make_instant,
    split_instant,
)
from tallystick.systems.derby.format.record_body import decode_transaction
from tallystick.systems.derby.live.files import LogFolder, corrupt
from tallystick.systems.derby.read.files import LogFiles
from tallystick.systems.derby.read.scan import LogScan

WRITTEN_VERSION = (10, 16)
"""The newest version whose engine was seen to boot from what is written here."""


@dataclass(slots=True)
class Opened:
    """Where writing continues, and what recovery found.

    Attributes:
        end: an instant, 0 for a log that has no file yet.
        control: content of the control files.
        table: open transactions: prepared ones, and those that the owner of the pages must undo.
        next_transaction: the first free number.
    """

    end: int = 0
    control: Control = field(default_factory=lambda: Control(0))
    table: dict[int, OpenTransaction] = field(default_factory=dict)
    next_transaction: int = 1


@contextmanager
def failures_as_corrupt(path: str) -> Iterator[None]:
    """Turn a failure of the engine's scan into the error of a log that is open."""
    try:
        yield
    except ScanFailureError as error:
        raise corrupt(path, str(error)) from error


def open_log(
    folder: LogFolder, cipher: LogCipher | None, *, interval: int, ordered: bool
) -> Opened:
    """Recover the log; raises `CorruptLogError` or `UnsupportedFormatError`.

    ``interval`` is the size of a preallocated file; ``ordered`` says that each group was durable
    before the next was written.
    """
    log = folder.read(cipher, interval)
    control = _control(log)
    _refuse_version(control, folder)
    if not log.files:
        if log.controls:
            raise corrupt(folder.path, "there are control files, but no log file")
        return Opened(control=control)
    with failures_as_corrupt(folder.path):
        recovery = recover(log)
        end = _end(log, recovery, folder)
        if ordered:
            _refuse_loss(log, recovery, folder)
        _complete(recovery.table, log, recovery)
        next_transaction = _highest(log, recovery) + 1
    number, position = split_instant(end)
    folder.remove_after(number)
    folder.clear_from(number, position, int(log.properties[SWITCH_INTERVAL]))
    return Opened(end, control, recovery.table, next_transaction)


def _refuse_version(control: Control, folder: LogFolder) -> None:
    if (control.major, control.minor) > WRITTEN_VERSION or control.flags & FLAG_BETA:
        beta = " beta" if control.flags & FLAG_BETA else ""
        raise UnsupportedFormatError(
            "the log is of a Derby version that is not written",
            file=folder.path,
            expected="at most " + ".".join(map(str, WRITTEN_VERSION)),
            found=control.version + beta,
        )


def _end(log: LogFiles, recovery: Recovery, folder: LogFolder) -> int:
    if not recovery.may_boot or not recovery.followed:
        raise corrupt(folder.path, recovery.reason)
    if recovery.log_end:
        # Where a file's first group is torn, the engine's end is after its checksum record.
        return min(recovery.log_end, recovery.stop)
    first = log.files[log.first]
    if recovery.checkpoint or first.number != 1 or first.size < HEADER_SIZE:
        raise corrupt(folder.path, recovery.reason)
    check_header(first, make_instant(1, 0))
    return make_instant(1, HEADER_SIZE)


def _refuse_loss(log: LogFiles, recovery: Recovery, folder: LogFolder) -> None:
    if recovery.past_end:
        raise corrupt(folder.path, "the checkpoint lies after the end of the log")
    if recovery.lost_file:
        raise corrupt(folder.path, f"log{recovery.lost_file}.dat is missing")
    if recovery.stop < recovery.covered:
        raise corrupt(
            folder.path,
            f"a whole group reaches to {instant_text(recovery.covered)}, but its record at "
            f"{instant_text(recovery.stop)} cannot be read",
        )
    for one in LogScan(log, reach_of(log, recovery)).ranges(recovery.log_end >> 32):
        if one.outcome is Outcome.CORRUPT and one.place >= recovery.log_end:
            raise corrupt(one.file.path, f"{one.what} at {one.offset}: {one.reason}")


def _control(log: LogFiles) -> Control:
    for control in log.controls:
        if isinstance(found := control.content_or_error(), Control):
            return found
    return Control(0)


def _complete(table: Mapping[int, OpenTransaction], log: LogFiles, recovery: Recovery) -> None:
    """Count what open transactions had logged before the last checkpoint: redo passes over it."""
    for scanned in ForwardScan(log, recovery.start) if table else ():
        if scanned.envelope.instant >= recovery.redo_mark:
            return
        one = table.get(scanned.decoded(decode_transaction) or 0)
        if one is not None and not scanned.group & (Group.FIRST | Group.PREPARE):
            one.last = max(one.last, scanned.place)
            one.records += 1


def _highest(log: LogFiles, recovery: Recovery) -> int:
    """Largest transaction number in the log; recovery knows it from its own start on."""
    highest = recovery.highest
    for scanned in ForwardScan(log, make_instant(log.first, HEADER_SIZE)):
        if scanned.place >= recovery.start:
            break
        highest = max(highest, scanned.body().transaction or 0)
    return highest
