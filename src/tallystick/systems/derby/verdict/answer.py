"""What a boot does with the changes of a log, and why that can be said.

In: the analysis of all bytes and the engine's recovery. Out: the `Ground`s of the answer. A commit
is acknowledged after the group that holds it was written and synced. Groups are written in order
into files that were filled with zeros before, unless derby.storage.fileSyncTransactionLog is set:
so a crash leaves zeros from the end of a group on, or from a sector within the last group on.
"""

from __future__ import annotations

from collections.abc import Iterator

from tallystick.records import AtStake
from tallystick.storage.zeros import is_zero, last_nonzero_end
from tallystick.systems.answers import Ground
from tallystick.systems.derby.engine.recovery import PREALLOCATED, SWITCH_INTERVAL, Recovery
from tallystick.systems.derby.format.layout import (
    CHECKSUM_OPERATION,
    Control,
    instant_text,
    read_envelope,
    split_instant,
)
from tallystick.systems.derby.read.analysis import LogAnalysis
from tallystick.systems.derby.read.changes import committed
from tallystick.systems.derby.read.files import LogBytes, LogFiles
from tallystick.systems.derby.read.scan import LogScan
from tallystick.systems.derby.read.transactions import COMMITTED, PREPARED

SECTOR = 512
"""Bytes that a disk writes whole or not at all."""
_FILE_SYNC = "derby.storage.fileSyncTransactionLog"


def grounds(scan: LogScan, analysis: LogAnalysis, recovery: Recovery) -> Iterator[Ground]:
    """Yield what holds of the log."""
    log = scan.log
    if recovery.boots is False:
        ended = sum(one.state in (COMMITTED, PREPARED) for one in analysis.transactions)
        yield Ground("no-boot", f"The database does not boot: {recovery.reason}.", AtStake(ended))
    if log.sealed:
        yield Ground("encrypted")
    if recovery.depends:
        yield Ground("boot-depends", f"{recovery.reason}.", decided_by=recovery.depends)
    if recovery.may_boot:
        yield from _losses(scan, analysis, recovery)
    if recovery.boots and recovery.log_end and _control_holds(log, recovery):
        yield from _end(log, recovery)


def _losses(scan: LogScan, analysis: LogAnalysis, recovery: Recovery) -> Iterator[Ground]:
    if recovery.new_log:
        yield Ground("new-log", f"The engine begins a new log: {recovery.reason}.")
    elif recovery.past_end:
        yield Ground("checkpoint-past-end")
    if commits := analysis.lost_commits:
        lost = {one.body.transaction for one in commits if one.body is not None}
        places = {one.place for one in commits}
        changes = committed(scan.ranges(), "")
        rows = sum(one.commit_sequence in places for one in changes)
        yield Ground("commits-dropped", at_stake=AtStake(len(lost), rows or None))
    if recovery.lost_file:
        name = f"log{recovery.lost_file}.dat"
        yield Ground("last-file-missing", f"{name} is missing, and it is known to have existed.")


def _control_holds(log: LogFiles, recovery: Recovery) -> bool:
    """Return whether recovery starts where the control file says, or no checkpoint was made yet."""
    found = [one.content_or_error() for one in log.controls]
    return bool(recovery.control) or all(isinstance(one, Control) for one in found)


def _end(log: LogFiles, recovery: Recovery) -> Iterator[Ground]:
    number, position = split_instant(recovery.stop)
    file = log.files[number]
    if number != max(log.files):
        yield Ground("files-after-end", f"The log ends in {file.name}, and later files exist.")
    elif position == file.size:
        grown = file.size >= PREALLOCATED or log.properties.get(_FILE_SYNC, "") == "true"
        yield Ground("file-grown" if grown else "not-preallocated")
    elif not is_zero(file.data, position, file.size):
        yield Ground("unfinished-group" if _unfinished(log, file, position) else "odd-group")
    elif not _is_preallocated(log, file):
        yield Ground("odd-size", f"{file.name} has {file.size:,} bytes.")
    else:
        yield Ground("zeros-to-the-end", f"The log ends at {instant_text(recovery.log_end)}.")


def _is_preallocated(log: LogFiles, file: LogBytes) -> bool:
    """Return whether the file has a size that the engine gives a new one."""
    interval = log.properties.get(SWITCH_INTERVAL, "")
    others = {other.size for other in log.files.values() if other is not file}
    return file.size == PREALLOCATED or str(file.size) == interval or file.size in others


def _unfinished(log: LogFiles, file: LogBytes, position: int) -> bool:
    """Return whether the group here is zero from a sector inside it to the end of the file."""
    envelope = read_envelope(file.data, position)
    if envelope is None:
        return False
    _, body, _ = log.decode_or_error(file.number, envelope)
    claimed = envelope.end
    if body is not None and body.operation == CHECKSUM_OPERATION:
        claimed += max(body.fields["dataLength"], 0)
    written = last_nonzero_end(file.data, position, file.size)
    return -(-written // SECTOR) * SECTOR < claimed
