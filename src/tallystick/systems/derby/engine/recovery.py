"""What a boot of the engine would do with the log: start, redo, undo, in doubt, or no boot.

In: `LogFiles`. Out: a `Recovery`. Nothing is changed. Page versions on disk are unknown, so a gap
is found only where the log itself shows which version a page must have.

    control file                    recovery starts
    log.ctrl missing                file 1, offset 24; the mirror is not read
    log.ctrl valid                  its checkpoint
    log.ctrl invalid, mirror valid  the mirror's checkpoint
    both invalid, or instant 0      file 1, offset 24
    16 bytes; format id not 128;    no boot
    beta; newer version

Source: docs/formats/derby.md, sections "Control files" and "Recovery".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tallystick.records import Xid
from tallystick.storage.crc import crc32
from tallystick.systems.derby.engine.forward_scan import (
    ForwardScan,
    ScanFailureError,
    Scanned,
    check_header,
    scanned_range,
)
from tallystick.systems.derby.format import operations
from tallystick.systems.derby.format.field_types import Page
from tallystick.systems.derby.format.layout import (
    CONTROL,
    CONTROL_CRC,
    CONTROL_NAMES,
    CONTROL_SIZE_MIN,
    FLAG_BETA,
    HEADER_SIZE,
    LOG_FILE,
    Control,
    Group,
    make_instant,
)
from tallystick.systems.derby.format.record_body import Body
from tallystick.systems.derby.read.files import ControlBytes, LogFiles
from tallystick.systems.derby.read.scan import EngineReach

ENGINE_VERSION = (10, 14)
VERSION_SETTING = "derby_version"
_COUNTED = {operations.PURGE: "num_rows", operations.COPY_ROWS: "num_rows"}


@dataclass(slots=True)
class OpenTransaction:
    """A transaction in the table while recovery redoes the log."""

    number: int
    first: int
    last: int
    internal: bool
    xid: Xid | None
    prepared: bool = False
    records: int = 0


@dataclass(slots=True)
class Recovery:
    """What a boot of the engine would do. Places are instants, 0 for none.

    Attributes:
        boots: None if the log is encrypted and the key is missing.
        reason: why it does not boot, or what it warns of.
        control: name of the control file that it uses.
        start: where redo begins.
        log_end, stop, fuzzy, end_reason: as `ForwardScan` found them from there.
        new_log: it creates an empty log: every change that is not in the data pages yet is gone.
        past_end: the checkpoint is after the end that redo reached, so undo would work against
            newer pages.
        redone: number of records redone.
        highest: largest number of a transaction that begins in what was scanned.
        table: transactions that are open at the end of the log, by number.
        trailing_wrong: instants of records whose trailing length is too large.
    """

    boots: bool | None = True
    reason: str = ""
    place: int | None = None
    control: str | None = None
    checkpoint: int = 0
    redo_mark: int = 0
    undo_mark: int = 0
    start: int = 0
    log_end: int = 0
    stop: int = 0
    fuzzy: bool = False
    end_reason: str = ""
    new_log: bool = False
    past_end: bool = False
    redone: int = 0
    highest: int = 0
    table: dict[int, OpenTransaction] = field(default_factory=dict)
    trailing_wrong: list[int] = field(default_factory=list)

    @property
    def undo(self) -> list[OpenTransaction]:
        """Transactions that it rolls back: internal ones first, then the most recent."""
        losers = [one for one in self.table.values() if not one.prepared]
        return sorted(losers, key=lambda one: (not one.internal, -one.first))

    @property
    def in_doubt(self) -> list[OpenTransaction]:
        """Transactions that stay prepared."""
        return [one for one in self.table.values() if one.prepared]


class _NoBootError(Exception):
    """The engine refuses before it scans."""


def recover(log: LogFiles, settings: Mapping[str, str] | None = None) -> Recovery:
    """Return what a boot would do; ``settings`` may have `VERSION_SETTING`."""
    result = Recovery()
    try:
        _choose_start(log, result, settings or {})
        if log.sealed:
            result.boots, result.reason = None, "the log is encrypted and the key is not known"
        elif not result.new_log:
            _redo(log, result)
            _check_undo(result)
    except ScanFailureError as failure:
        result.boots, result.reason, result.place = False, failure.text, failure.place
    except _NoBootError as failure:
        result.boots, result.reason = False, str(failure)
    return result


def _choose_start(log: LogFiles, result: Recovery, settings: Mapping[str, str]) -> None:
    control = _valid_control(log.controls, result, settings)
    result.checkpoint = control.checkpoint if control else 0
    boot_file = result.checkpoint >> 32 if result.checkpoint else 1
    result.start = make_instant(boot_file, HEADER_SIZE)
    file = log.files.get(boot_file)
    if file is None:
        if "logDevice" in log.properties:
            raise _NoBootError(f"XSLAB: log file {boot_file} does not exist")
        result.new_log = True
        result.reason = f"log file {boot_file} does not exist; a new, empty log is created"
        return
    check_header(file, make_instant(boot_file, 0))
    _find_checkpoint(log, result)


def _valid_control(
    controls: tuple[ControlBytes, ...], result: Recovery, settings: Mapping[str, str]
) -> Control | None:
    by_name = {control.name: control for control in controls}
    if CONTROL_NAMES[0] not in by_name:
        return None
    for name in CONTROL_NAMES:
        if name in by_name and (found := _control(by_name[name].data)) is not None:
            _check_control(by_name[name].data, found, settings)
            if found.checkpoint > 0:
                result.control = name
                return found
    return None


def _control(data: memoryview) -> Control | None:
    """Return the content, None if the engine calls it invalid; raise if it does not boot."""
    if len(data) < CONTROL_SIZE_MIN:
        return None
    if len(data) == CONTROL_SIZE_MIN:
        raise _NoBootError("the control file ends before the version")
    stored = CONTROL_CRC.unpack(data[-CONTROL_CRC.size :])[0]
    if stored == 0 or stored != crc32(data[: -CONTROL_CRC.size]):
        return None
    if len(data) < CONTROL.size:
        raise _NoBootError("the control file ends before the version")
    return Control(*CONTROL.unpack_from(data)[2:7])


def _check_control(data: memoryview, control: Control, settings: Mapping[str, str]) -> None:
    wanted = settings.get(VERSION_SETTING, "").split(".")
    engine = (int(wanted[0]), int(wanted[1])) if len(wanted) > 1 else ENGINE_VERSION
    if int.from_bytes(data[:4]) != LOG_FILE:
        raise _NoBootError("XSLAC: the control file has another format id")
    if (control.major, control.minor) > engine:
        raise _NoBootError(f"XSLAN: written by version {control.major}.{control.minor}")
    if control.flags & FLAG_BETA:
        raise _NoBootError("XSLAP: written by a beta version")


def _find_checkpoint(log: LogFiles, result: Recovery) -> None:
    """Read the record without a checksum test: its checksum record is before the checkpoint."""
    if not result.checkpoint or log.sealed:
        return
    scanned = next(iter(ForwardScan(log, result.checkpoint)), None)
    if scanned is None:
        return
    body = scanned.body()
    if body.operation == operations.CHECKPOINT:
        result.redo_mark = body.fields["redoLWM"]
        result.undo_mark = result.start = body.fields["undoLWM"]


def _redo(log: LogFiles, result: Recovery) -> None:
    scan = ForwardScan(log, result.start)
    versions: dict[Page, int] = {}
    for scanned in scan:
        _redo_record(scanned, result, versions)
    result.log_end, result.fuzzy = scan.log_end, scan.fuzzy
    result.stop, result.end_reason = scan.stop, scan.reason
    result.trailing_wrong = scan.trailing_wrong
    if not scan.log_end:
        result.new_log = True
        result.reason = "there is no readable record; a new, empty log is created"
    result.past_end = result.checkpoint > result.log_end


def _redo_record(scanned: Scanned, result: Recovery, versions: dict[Page, int]) -> None:
    early = bool(result.redo_mark) and scanned.envelope.instant < result.redo_mark
    ends = Group.LAST | Group.PREPARE
    if early and not scanned.group & (ends | Group.FIRST):
        return
    body = scanned.body()
    number = body.transaction
    if number is None:
        raise ScanFailureError(scanned.place, "the record names no transaction")
    known = number in result.table
    if not known and early and scanned.group & ends:
        return
    if known and scanned.group & Group.FIRST:
        raise ScanFailureError(scanned.place, f"XSLAO: transaction {number} begins twice")
    if not known:
        if not scanned.group & Group.FIRST:
            raise ScanFailureError(
                scanned.place, f"XSLAO: transaction {number} has no begin record"
            )
        result.table[number] = _begun(number, scanned.place, body)
        result.highest = max(result.highest, number)
    result.redone += not early
    _check_version(scanned.place, body, versions)
    _add_record(result.table, number, scanned)


def _begun(number: int, place: int, body: Body) -> OpenTransaction:
    internal = body.fields.get("transactionStatus") == operations.STATUS_INTERNAL
    return OpenTransaction(number, place, place, internal, body.xid)


def _add_record(table: dict[int, OpenTransaction], number: int, scanned: Scanned) -> None:
    one = table[number]
    one.last = scanned.place
    one.records += 1
    one.prepared = one.prepared or bool(scanned.group & Group.PREPARE)
    if scanned.group & Group.LAST:
        del table[number]


def _check_version(place: int, body: Body, versions: dict[Page, int]) -> None:
    """Raise XSDB4 if the change is for a newer page than the log can have made."""
    page = body.fields.get("pageId")
    if page is None:
        return
    version = body.fields["pageVersion"]
    if version > versions.get(page, version):
        raise ScanFailureError(
            place, f"XSDB4: {page} is at version {versions[page]}, the log has version {version}"
        )
    step = body.fields[_COUNTED[body.operation]] if body.operation in _COUNTED else 1
    versions[page] = version + step


def _check_undo(result: Recovery) -> None:
    """Refuse a wrong trailing length: undo and the locks of prepared ones read backward by it."""
    if not result.table:
        return
    oldest = min(one.first for one in result.table.values())
    for place in result.trailing_wrong:
        if place >= oldest:
            raise ScanFailureError(place, "the trailing length is too large, undo cannot pass it")


# -- for the scan of all bytes -------------------------------------------------------------------


def reach_of(log: LogFiles, recovery: Recovery) -> EngineReach:
    """Return how far the engine's scans get, that of ``recovery`` and one from the first file."""
    recovered = whole = (0, 0)
    if recovery.stop:
        recovered = recovery.start, recovery.stop
    elif recovery.start >> 32 in log.files:
        recovered = scanned_range(log, recovery.start)
    if log.files:
        first = make_instant(log.first, HEADER_SIZE)
        whole = recovered if recovered[0] == first else scanned_range(log, first)
    return EngineReach(recovered, whole, recovery.undo_mark)
