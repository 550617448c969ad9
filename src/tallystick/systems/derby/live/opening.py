"""Opening a live log: the engine's recovery, and a refusal where it would lose something.

In: the files as they stand. Out: an `Opened` log, its tail clean. Rules of ours, within the
format, where the engine's own lose data (docs/systems/derby.md):

* whole groups behind a damaged one are a reason to refuse, not to overwrite them with zeros
* what lies behind the end is overwritten with zeros after a clean end too
* a missing log file is a reason to refuse, not to start a new log
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tallystick.records import Outcome
from tallystick.systems.derby.engine.forward_scan import ForwardScan, check_header
from tallystick.systems.derby.engine.recovery import (
    OpenTransaction,
    Recovery,
    control_or_error,
    recover,
)
from tallystick.systems.derby.format.crypto import LogCipher
from tallystick.systems.derby.format.layout import HEADER_SIZE, Control, make_instant, split_instant
from tallystick.systems.derby.live.files import LogFolder, corrupt
from tallystick.systems.derby.read.files import LogFiles
from tallystick.systems.derby.read.scan import Walk


@dataclass(slots=True)
class Opened:
    """Where writing goes on, and what recovery found.

    ``end`` is an instant, 0 for a log that has no file yet. ``table`` holds what is open:
    prepared transactions, and those to be undone by whoever owns the pages.
    """

    end: int = 0
    control: Control = field(default_factory=lambda: Control(0))
    table: dict[int, OpenTransaction] = field(default_factory=dict)
    next_transaction: int = 1


def open_log(folder: LogFolder, cipher: LogCipher | None, *, ordered: bool) -> Opened:
    """Recover. Raises `CorruptLogError`. ``ordered``: each group was durable before the next."""
    log = folder.read(cipher)
    if not log.files:
        return Opened(control=_control(log))
    recovery = recover(log)
    end = _end(log, recovery, folder)
    if ordered:
        _refuse_loss(log, recovery, folder)
    number, position = split_instant(end)
    folder.remove_behind(number)
    folder.zero_from(number, position)
    return Opened(end, _control(log), recovery.table, _highest(log, recovery) + 1)


def _end(log: LogFiles, recovery: Recovery, folder: LogFolder) -> int:
    if recovery.boots is not True:
        raise corrupt(folder.path, recovery.reason)
    if recovery.log_end:
        return recovery.log_end
    first = log.files[log.first]
    if recovery.checkpoint or first.number != 1 or first.size < HEADER_SIZE:
        raise corrupt(folder.path, recovery.reason)
    check_header(first, make_instant(1, 0))
    return make_instant(1, HEADER_SIZE)


def _refuse_loss(log: LogFiles, recovery: Recovery, folder: LogFolder) -> None:
    if recovery.past_end:
        raise corrupt(folder.path, "the checkpoint lies behind the end of the log")
    for piece in Walk(log, recovery).pieces(recovery.log_end >> 32):
        if piece.outcome is Outcome.CORRUPT and piece.place >= recovery.log_end:
            raise corrupt(piece.file.path, f"{piece.what} at {piece.offset}: {piece.reason}")


def _control(log: LogFiles) -> Control:
    for control in log.controls:
        if isinstance(found := control_or_error(control.data), Control):
            return found
    return Control(0)


def _highest(log: LogFiles, recovery: Recovery) -> int:
    """The largest transaction number in the log: recovery knows it from its start on."""
    highest = recovery.highest
    for scanned in ForwardScan(log, make_instant(log.first, HEADER_SIZE)):
        if scanned.place >= recovery.start:
            break
        highest = max(highest, scanned.body().transaction or 0)
    return highest
