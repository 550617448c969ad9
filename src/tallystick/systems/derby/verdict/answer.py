"""What a boot does with the changes of a log, and why that can be said.

In: the analysis of all bytes and the engine's recovery. Out: the `Ground`s of the answer. A commit
is acknowledged after the group that holds it was written and synced. Groups are written in order
into files that were filled with zeros before, unless derby.storage.fileSyncTransactionLog is set:
so a crash leaves zeros from the end of a group on, or from a sector within the last group on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tallystick.records import AtStake
from tallystick.storage.files import SECTOR
from tallystick.storage.zeros import is_zero, last_nonzero_end
from tallystick.systems.answers import Ground
from tallystick.systems.derby.engine.analysis import LogAnalysis
from tallystick.systems.derby.engine.recovery import SWITCH_MAX, SWITCH_MIN, switch_interval
from tallystick.systems.derby.engine.result import Recovery
from tallystick.systems.derby.format.layout import (
    CHECKSUM_OPERATION,
    FILE_NUMBER_MAX,
    FLAG_DURABILITY_TEST,
    HEADER,
    HEADER_SIZE,
    LENGTH,
    LOG_FILE,
    Control,
    instant_text,
    read_envelope,
    split_instant,
)
from tallystick.systems.derby.read.changes import committed_operations
from tallystick.systems.derby.read.files import LogBytes, LogFiles
from tallystick.systems.derby.read.scan import LogScan
from tallystick.systems.derby.read.transactions import COMMITTED, PREPARED

if TYPE_CHECKING:
    from tallystick.systems.derby.runs.chunk import Runs

_ZEROS_MAX = 3
"""Zeros that a sector which was written may end in: those before the number in a length."""
_ENGINE = "the version of the engine that starts it; --set derby_version=VERSION tells it"
_FILE_SYNC = "derby.storage.fileSyncTransactionLog"


def grounds(
    scan: LogScan, analysis: LogAnalysis, recovery: Recovery, runs: Runs | None = None
) -> Iterator[Ground]:
    """Yield what holds of the log; ``runs`` reads plain records faster."""
    log = scan.log
    if recovery.boots is False:
        states = analysis.transactions.states
        ended = states[COMMITTED] + states[PREPARED]
        yield Ground("no-boot", f"The database does not boot: {recovery.reason}.", AtStake(ended))
    if log.sealed:
        decided_by = "the right boot password or external key" if log.key_given else ""
        yield Ground(
            "encrypted", f"The log is encrypted, and {log.why_sealed}.", decided_by=decided_by
        )
    if recovery.depends:
        yield Ground("boot-depends", f"{recovery.reason}.", decided_by=recovery.depends)
    if recovery.boots and recovery.newer_than_judged:
        yield Ground("boot-depends", f"{recovery.newer_than_judged}.", decided_by=_ENGINE)
    if text := _older_control(log, analysis, recovery):
        yield Ground("older-control", text)
    if recovery.may_boot:
        yield from _losses(scan, analysis, recovery, runs)
    if recovery.control and recovery.boots and not recovery.finds_checkpoint:
        yield Ground("no-checkpoint")
    if recovery.boots and recovery.log_end and _control_holds(log, recovery):
        ends = _end(log, recovery)
        yield from map(_unsynced, ends) if _never_synced(log) else ends


_SAFE_UNSYNCED = {
    "zeros-to-the-end",
    "unfinished-group",
    "file-begun",
    "file-grown",
    "not-preallocated",
}


def _unsynced(one: Ground) -> Ground:
    """Return the ground that an end is where nothing is synced, and no file preallocated."""
    return Ground("never-synced") if one.code in _SAFE_UNSYNCED else one


def _never_synced(log: LogFiles) -> bool:
    """Return whether an engine with derby.system.durability=test has had the database."""
    found = (control.content_or_error() for control in log.controls)
    return any(isinstance(one, Control) and one.flags & FLAG_DURABILITY_TEST for one in found)


def _losses(
    scan: LogScan, analysis: LogAnalysis, recovery: Recovery, runs: Runs | None
) -> Iterator[Ground]:
    if recovery.new_log:
        text = f"The engine begins a new log: {recovery.reason}. What was committed after the last "
        yield Ground("new-log", f"{text}checkpoint, if anything was, is lost.")
    elif recovery.past_end:
        yield Ground("checkpoint-past-end")
    if commits := analysis.lost_commits(whole_log=recovery.new_log):
        lost = {one.transaction for one in commits}
        places = {one.place for one in commits}
        if recovery.new_log or runs is None or max(scan.log.files) > FILE_NUMBER_MAX:
            every = committed_operations(scan.ranges())
            rows = sum(len(one.operations) for one in every if one.commit in places)
        else:
            from tallystick.systems.derby.runs.changes import rows_of_commits

            rows = rows_of_commits(scan, runs, places)
        # What a file that is gone held is lost with them, and not known.
        numbers = range(max(1, recovery.start >> 32), max(scan.log.files))
        counted = scan.log.files.keys() >= set(numbers)
        stake = AtStake(len(lost), rows or None) if counted else AtStake()
        yield Ground("commits-dropped", at_stake=stake)
    if recovery.lost_file:
        name = f"log{recovery.lost_file}.dat"
        text = f"{name} is missing, and it is known to have existed. What was committed in it, if "
        yield Ground("last-file-missing", f"{text}anything was, is lost.")


def _older_control(log: LogFiles, analysis: LogAnalysis, recovery: Recovery) -> str:
    """Return how the log or the mirror shows that the control file is older, if one does.

    A checkpoint is logged and synced, then written to log.ctrl, then to the mirror. So a crash
    leaves one checkpoint more in the log, or in log.ctrl, never more in the mirror.
    """
    used = recovery.checkpoint
    for one in log.controls:
        content = one.content_or_error()
        newer = isinstance(content, Control) and content.checkpoint > used
        if used and newer and one.name != recovery.control:
            return f"{recovery.control} is older than {one.name}, which is written after it."
    later = [one for one in analysis.checkpoints if one > used]
    if recovery.control and len(later) > 1:
        last = instant_text(later[-1])
        return f"{recovery.control} is older than the log, which has a checkpoint at {last}."
    return ""


def _control_holds(log: LogFiles, recovery: Recovery) -> bool:
    """Return whether recovery starts where the control file says, or no checkpoint was made yet."""
    if recovery.control:
        return recovery.finds_checkpoint
    return not log.controls or has_intact_control(log)


def has_intact_control(log: LogFiles) -> bool:
    """Return whether one control file at least is whole."""
    return any(isinstance(one.content_or_error(), Control) for one in log.controls)


def unacknowledged_from(log: LogFiles, recovery: Recovery) -> int | None:
    """Return the instant of a last group that was never written whole; None if there is none.

    A commit is acknowledged after its group was written and synced.
    """
    number, position = split_instant(recovery.stop)
    file = log.files.get(number)
    if file is None or not (number == max(log.files) or _was_switching(log, recovery)):
        return None
    return recovery.stop if _unfinished(log, file, position) else None


def _was_switching(log: LogFiles, recovery: Recovery) -> bool:
    """Return whether the file after the end is the last one and has nothing but its header.

    A switch makes it before it ends the file before, with the groups that wait and a mark, and
    says in its header where those groups will end.
    """
    following = log.files.get((recovery.stop >> 32) + 1)
    if following is None or following.number != max(log.files) or following.size < HEADER_SIZE:
        return False
    format_id, _, number, previous = HEADER.unpack_from(following.data)
    fits = format_id == LOG_FILE and number == following.number
    continues = previous >> 32 == recovery.stop >> 32 and previous >= recovery.stop
    return fits and continues and is_zero(following.data, HEADER_SIZE, following.size)


def _end(log: LogFiles, recovery: Recovery) -> Iterator[Ground]:
    number, position = split_instant(recovery.stop)
    file = log.files[number]
    switching = _was_switching(log, recovery)
    if number != max(log.files) and not switching:
        yield Ground("files-after-end", f"The log ends in {file.name}, and later files exist.")
    elif is_zero(file.data, position, file.size) and (switching or position == HEADER_SIZE):
        yield Ground("file-begun")
    elif position == file.size:
        synced = log.properties.get(_FILE_SYNC, "") == "true"
        grown = synced or file.size >= switch_interval(log, number)
        yield Ground("file-grown" if grown else "not-preallocated")
    elif not is_zero(file.data, position, file.size):
        yield Ground("unfinished-group" if _unfinished(log, file, position) else "odd-group")
    elif recovery.marked or position + LENGTH.size > file.size or not _is_preallocated(log, file):
        zeros = file.size - position
        text = f"{file.name} has {file.size:,} bytes and ends {zeros:,} after its last record."
        yield Ground("odd-size", text)
    else:
        text = (
            f"Every record is whole up to {instant_text(recovery.log_end)}, and the rest of the "
            "preallocated file was never written."
        )
        yield Ground("zeros-to-the-end", text)


def _is_preallocated(log: LogFiles, file: LogBytes) -> bool:
    """Return whether the file has a size that the engine gives a new one: its switch interval.

    That may have been set as a system property, which is in no file.
    """
    others = {other.size for other in log.files.values() if other is not file}
    return SWITCH_MIN <= file.size <= SWITCH_MAX or file.size in others


def _unfinished(log: LogFiles, file: LogBytes, position: int) -> bool:
    """Return whether the group here is zero from a sector inside it to the end of the file.

    A sector is written whole: zeros that begin inside of one are no crash.
    """
    envelope = read_envelope(file.data, position)
    if envelope is None:
        return False
    _, body, _ = log.decode_or_error(file.number, envelope)
    claimed = envelope.end
    if body is not None and body.operation == CHECKSUM_OPERATION:
        claimed += max(body.fields["dataLength"], 0)
    written = last_nonzero_end(file.data, position, file.size)
    zeros = -written % SECTOR
    return zeros <= _ZEROS_MAX and written + zeros < claimed
