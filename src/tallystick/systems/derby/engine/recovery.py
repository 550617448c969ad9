"""What a boot of the engine would do with the log: start, redo, undo, in doubt, or no boot.

In: `LogFiles`. Out: a `Recovery`. Nothing is changed. "Does not boot" is said only where the log
alone proves it. Page versions on disk are unknown: a page may be newer than its last logged change,
because an index on a populated table is built without log records. So a gap between the versions of
two changes is noted as a `PageGap`, and the container's file decides.

    control file                    recovery starts
    log.ctrl missing                file 1, offset 24; the mirror is not read
    log.ctrl valid                  its checkpoint
    log.ctrl invalid, mirror valid  the mirror's checkpoint
    both invalid, or instant 0      file 1, offset 24
    no version; format id not 128;  no boot
    beta; also with a checksum of 0
    newer than the engine           no boot; which engine starts it is not in the log, so this is
                                    judged only by the version that a setting names

Source: docs/formats/derby.md, sections "Control files" and "Recovery".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain, groupby
from operator import attrgetter
from pathlib import PurePath
from typing import TYPE_CHECKING, TypeAlias

from tallystick.storage.crc import crc32
from tallystick.systems.derby.engine.forward_scan import (
    ForwardScan,
    ScanFailureError,
    Scanned,
    check_header,
    scanned_range,
)
from tallystick.systems.derby.engine.page_versions import PageVersions, RedonePages
from tallystick.systems.derby.engine.result import OpenTransaction, Recovery
from tallystick.systems.derby.format import layout, operations
from tallystick.systems.derby.format.field_types import Container, Page
from tallystick.systems.derby.format.operations import CHECKED_FLAGS, flags_of
from tallystick.systems.derby.format.record_body import Body, decode_transaction, has_operation
from tallystick.systems.derby.read.files import ControlBytes, LogFiles, log_on_device
from tallystick.systems.derby.read.scan import EngineReach

if TYPE_CHECKING:
    from tallystick.systems.derby.engine.redo_of_runs import RedoOfRuns
    from tallystick.systems.derby.runs.chunk import Runs

    RedoOf: TypeAlias = Callable[[Recovery, PageVersions], RedoOfRuns]

JUDGED_VERSION = (10, 16)
"""The newest engine whose recovery was compared with ours."""
VERSION_SETTING = "derby_version"
PREALLOCATED = 1 << 20
SWITCH_INTERVAL = "derby.storage.logSwitchInterval"
SWITCH_MIN, SWITCH_MAX = 100_000, 1 << 27
"""Its bounds, in bytes; with others the engine takes 1 MiB."""
_BOOTED = "a second copy of the database, booted"
_STARTS_IN = "the folder in which the engine starts"
_DIGITS = 10
"""A switch interval has fewer."""
_BOOT_BEFORE = 1000 + (32 << 10)
"""Bytes before the end of the preallocation from which on a group may reach beyond it, and the
checkpoint of the boot that cut it off may stand."""
_TAIL_UNREAD = {operations.CHECKPOINT, operations.ENCRYPT_CONTAINER}
"""Operations that are never redone: what follows them is not read."""


class _NoBootError(Exception):
    """The engine refuses before it scans; ``depends`` is what may have it go on, if anything."""

    def __init__(self, reason: str, depends: str = "") -> None:
        super().__init__(reason)
        self.depends = depends


def recover(
    log: LogFiles,
    settings: Mapping[str, str] | None = None,
    runs: Runs | None = None,
    redo: RedoOf | None = None,
) -> Recovery:
    """Return what a boot would do; ``settings`` may have `VERSION_SETTING`.

    ``redo`` makes what redoes plain records, of ``runs`` if there is none.
    """
    redo = redo or (partial(_redo_of, runs) if runs is not None else None)
    return _recovery(log, settings or {}, lambda result: _redo(log, result, redo))


def recovery_begins(log: LogFiles, settings: Mapping[str, str]) -> Recovery:
    """Return what a boot would do before it redoes the first record."""
    return _recovery(log, settings, lambda _: None)


def _recovery(
    log: LogFiles, settings: Mapping[str, str], redo: Callable[[Recovery], None]
) -> Recovery:
    result = Recovery()
    try:
        _choose_start(log, result, settings)
        if log.sealed:
            result.boots, result.reason = None, "the log is encrypted and the key is not known"
        elif not result.new_log:
            redo(result)
            _check_undo(log, result)
            _check_gaps(result)
    except ScanFailureError as failure:
        result.boots, result.reason, result.place = False, failure.text, failure.place
        if not failure.sure:
            result.boots, result.depends, result.followed = None, _BOOTED, False
    except _NoBootError as failure:
        result.boots, result.reason = False, str(failure)
        if failure.depends:
            result.boots, result.depends, result.followed = None, failure.depends, False
    return result


def _choose_start(log: LogFiles, result: Recovery, settings: Mapping[str, str]) -> None:
    control = _valid_control(log.controls, result, settings)
    result.checkpoint = control.checkpoint if control else 0
    boot_file = result.checkpoint >> 32 if result.checkpoint else 1
    result.start = layout.make_instant(boot_file, layout.HEADER_SIZE)
    file = log.files.get(boot_file)
    if file is None:
        if device := log_on_device(log.properties):
            reason = f"XSLAB: log file {boot_file} does not exist"
            if PurePath(device).is_absolute():
                raise _NoBootError(reason)
            raise _NoBootError(f"{reason} in {device}, from here", _STARTS_IN)
        result.new_log = True
        result.reason = f"log file {boot_file} does not exist; a new, empty log is created"
        return
    check_header(file, layout.make_instant(boot_file, 0))
    _find_checkpoint(log, result)


def _valid_control(
    controls: tuple[ControlBytes, ...], result: Recovery, settings: Mapping[str, str]
) -> layout.Control | None:
    by_name = {control.name: control for control in controls}
    if layout.CONTROL_NAMES[0] not in by_name:
        return None
    for name in layout.CONTROL_NAMES:
        if name in by_name and (found := _control(by_name[name].data)) is not None:
            _check_control(found, settings)
            if (found.major, found.minor) > JUDGED_VERSION and VERSION_SETTING not in settings:
                result.newer_than_judged = f"Engines older than {found.version} refuse the log"
            if found.checkpoint:
                result.control = name
                return found
    return None


def _control(data: memoryview) -> layout.Control | None:
    """Return the content, None if the engine calls it invalid; raise if it does not boot.

    A stored 0 means that there is no checksum: the engine reads the file then, and calls the
    checkpoint alone invalid.
    """
    if len(data) < layout.CONTROL_SIZE_MIN:
        return None
    stored = 0
    if len(data) > layout.CONTROL_SIZE_MIN:
        stored = layout.CONTROL_CRC.unpack(data[-layout.CONTROL_CRC.size :])[0]
        if stored not in (0, crc32(data[: -layout.CONTROL_CRC.size])):
            return None
    if int.from_bytes(data[:4]) != layout.LOG_FILE:
        raise _NoBootError("XSLAC: the control file has another format id")
    if len(data) < layout.CONTROL_READ + layout.CONTROL_CRC.size:
        raise _NoBootError("the control file ends before the version")
    head = bytes(data[: layout.CONTROL.size]).ljust(layout.CONTROL.size, b"\0")
    found = layout.Control(*layout.CONTROL.unpack(head)[2:7])
    return found if stored else replace(found, checkpoint=0)


def _check_control(control: layout.Control, settings: Mapping[str, str]) -> None:
    wanted = settings.get(VERSION_SETTING, "").split(".")
    if len(wanted) > 1 and (control.major, control.minor) > (int(wanted[0]), int(wanted[1])):
        raise _NoBootError(f"XSLAN: written by version {control.version}")
    if control.flags & layout.FLAG_BETA:
        raise _NoBootError("XSLAP: written by a beta version")


def _find_checkpoint(log: LogFiles, result: Recovery) -> None:
    """Read the record without a checksum test: its checksum record is before the checkpoint."""
    if not result.checkpoint or log.sealed:
        return
    scanned = next(iter(ForwardScan(log, result.checkpoint)), None)
    if scanned is None or not scanned.decoded(has_operation):
        return
    body = scanned.operation()
    if body.operation == operations.CHECKPOINT:
        result.redo_mark = body.fields["redoLWM"]
        result.undo_mark = result.start = body.fields["undoLWM"]
        result.checkpointing = body.transaction


def _redo(log: LogFiles, result: Recovery, redo: RedoOf | None) -> None:
    versions = PageVersions(result.gaps)
    plain = redo(result, versions) if redo is not None else None
    scan = ForwardScan(log, result.start, plain.take if plain is not None else None)
    try:
        for scanned in scan:
            if plain is not None:
                plain.release()
            _redo_record(scanned, result, versions)
    finally:
        if plain is not None:
            # Also where the scan fails: the table of open transactions belongs to the answer.
            plain.settle()
    result.by_container = partial(_by_container, versions, plain)
    result.containers, result.built = versions.changed, versions.built
    result.container_versions = versions.container_versions
    result.encrypted = frozenset(chain.from_iterable(versions.encrypted.values()))
    _note_end(log, result, scan)


def _by_container(versions: PageVersions, plain: RedoOfRuns | None) -> Iterator[RedonePages]:
    """Yield the pages that were redone, by segment and container."""
    by_place = attrgetter("page.segment", "page.container", "page.number")
    pages = sorted(versions.pages(), key=by_place)
    for of, group in groupby(pages, key=attrgetter("page.of")):
        yield RedonePages(of, [*group])
    if plain is not None:
        yield from plain.by_container()


def _redo_of(runs: Runs, result: Recovery, versions: PageVersions) -> RedoOfRuns:
    from tallystick.systems.derby.engine.redo_of_runs import RedoOfRuns

    return RedoOfRuns(runs, result, versions)


def _note_end(log: LogFiles, result: Recovery, scan: ForwardScan) -> None:
    result.log_end, result.fuzzy = scan.log_end, scan.fuzzy
    result.stop, result.covered, result.end_reason = scan.stop, scan.covered, scan.reason
    result.trailing_wrong = scan.trailing_wrong
    result.marked = _ends_as_marked(log, scan.stop)
    result.lost_file = _lost_file(log, result)
    if scan.heap:
        result.boots, result.place, result.followed = None, scan.heap, False
        result.reason = "the checksum record asks for more memory than a heap may have"
        result.depends = "the size of the engine's heap"
    if not scan.log_end:
        result.new_log = True
        result.reason = "there is no readable record; a new, empty log is created"
    result.past_end = result.checkpoint > 0 and result.checkpoint >= result.log_end


def _ends_as_marked(log: LogFiles, stop: int) -> bool:
    """Return whether four zeros, and nothing else, are after the scan in a file of no usual size.

    A marker at the very end of a file was appended; zeros within a preallocated file, or up to its
    end, prove nothing.
    """
    number, position = layout.split_instant(stop)
    file = log.files[number]
    sizes = {str(PREALLOCATED), log.properties.get(SWITCH_INTERVAL)}
    sizes |= {str(other.size) for other in log.files.values() if other is not file}
    return (
        file.data[position:] == layout.LENGTH.pack(layout.END_MARKER)
        and str(file.size) not in sizes
    )


def _lost_file(log: LogFiles, result: Recovery) -> int:
    """Return the number of the file that must follow the one in which the scan stopped, or 0.

    The header of the next file is durable before the end marker is written. The four zeros are
    no marker where a boot has overwritten a torn group with them, up to the end of the file, and
    the log ends by chance before the last four. A file that reaches beyond its preallocation is
    the only one that ends so, and such a boot leaves a checkpoint there, or up to 1000 bytes before
    the group that was torn.
    """
    number = result.stop >> 32
    interval = switch_interval(log, number)
    booted = result.checkpoint >= layout.make_instant(number, max(interval - _BOOT_BEFORE, 0))
    grown = log.files[number].size > interval
    lost = result.marked and grown and not booted and number + 1 not in log.files
    return number + 1 if lost else 0


def switch_interval(log: LogFiles, number: int) -> int:
    """Return the position after which a file is switched, as far as a setting or files tell.

    Without a setting within its bounds, a new file was given at most what those before it have
    reached.
    """
    told = log.properties.get(SWITCH_INTERVAL, "")
    if told.isdecimal() and len(told) < _DIGITS and SWITCH_MIN <= int(told) <= SWITCH_MAX:
        return int(told)
    before = (file.size for other, file in log.files.items() if other < number)
    return min(before, default=PREALLOCATED)


def _redo_record(scanned: Scanned, result: Recovery, versions: PageVersions) -> None:
    early = bool(result.redo_mark) and scanned.envelope.instant < result.redo_mark
    ends = layout.Group.LAST | layout.Group.PREPARE
    if early and not scanned.group & (ends | layout.Group.FIRST):
        versions.note_early(scanned)
        return
    number = scanned.decoded(decode_transaction)
    known = number in result.table
    if not known and early and scanned.group & ends:
        return
    body = scanned.operation()
    if number is None:
        raise ScanFailureError(scanned.place, "the record names no transaction")
    if known and scanned.group & layout.Group.FIRST:
        raise ScanFailureError(scanned.place, f"XSLAO: transaction {number} begins twice")
    if not known:
        if not scanned.group & layout.Group.FIRST:
            raise ScanFailureError(
                scanned.place, f"XSLAO: transaction {number} has no begin record"
            )
        _check_flags(scanned, body)
        result.table[number] = _begun(number, scanned.place, body)
        result.highest = max(result.highest, number)
    else:
        _check_flags(scanned, body)
    result.redone += not early
    if body.tail_error and body.operation not in _TAIL_UNREAD:
        _leave_open(scanned, body, result)
    versions.note(scanned.place, body)
    _add_record(result.table, number, scanned)


def _check_flags(scanned: Scanned, body: Body) -> None:
    """Leave a record open of which flags and operation differ: the engine uses now one, now other.

    It begins a transaction by a flag and casts the operation, prepares by the status of an end and
    ends by a flag.
    """
    flags = flags_of(body.operation, body.fields.get("transactionStatus", 0))
    if scanned.group & CHECKED_FLAGS != flags:
        text = f"the flags of the record do not fit its operation, {body.name}"
        raise ScanFailureError(scanned.place, text, sure=False)


def _leave_open(scanned: Scanned, body: Body, result: Recovery) -> None:
    """Leave it open whether a wrong tail stops the boot: a change that is on disk is not redone.

    The engine holds the length in a tail against its buffer, not against the record.
    """
    container: Page | Container | None = body.fields.get("pageId", body.fields.get("containerId"))
    result.boots, result.place = None, scanned.place
    result.reason = f"the data after the operation are wrong: {body.tail_error}"
    result.depends = container.file if container else _BOOTED


def _begun(number: int, place: int, body: Body) -> OpenTransaction:
    internal = body.fields.get("transactionStatus") == operations.STATUS_INTERNAL
    return OpenTransaction(number, place, place, internal, body.xid)


def _add_record(table: dict[int, OpenTransaction], number: int, scanned: Scanned) -> None:
    one = table[number]
    one.last = scanned.place
    one.records += 1
    one.prepared = one.prepared or bool(scanned.group & layout.Group.PREPARE)
    if scanned.group & layout.Group.LAST:
        del table[number]


def _check_gaps(result: Recovery) -> None:
    """Leave it open whether XSDB4 is raised: it is if the page on disk is older than the change."""
    unexplained = [gap for gap in result.gaps if not gap.built]
    if unexplained and not result.depends:
        first = unexplained[0]
        result.boots, result.place = None, first.place
        result.reason = f"XSDB4 if the page is older on disk: {first}"
        result.depends = first.file
        result.gaps_decide = True


def _check_undo(log: LogFiles, result: Recovery) -> None:
    """Stop at a wrong trailing length: undo and the locks of prepared ones read backward by it.

    The last record that they read is the one that ends where the oldest transaction begins. Where
    the bytes that they take for a record seem older than that, the engine ends its reading, and
    boots without the rest: then it is left open.
    """
    oldest = min((one.first for one in result.table.values()), default=None)
    wrong = [end for end in result.trailing_wrong if oldest is not None and end >= oldest]
    if oldest is not None and wrong:
        text = "the trailing length is too large, and undo reads backward by it"
        # Undo reads backward from the end of the log.
        end = max(wrong)  # it is read first
        raise ScanFailureError(end, text, sure=not _seems_older(log, end, oldest))


def _seems_older(log: LogFiles, end: int, oldest: int) -> bool:
    """Return whether what the trailing length before ``end`` leads to has an older instant."""
    number, position = layout.split_instant(end)
    data = log.files[number].data
    (length,) = layout.LENGTH.unpack_from(data, position - layout.LENGTH.size)
    place = position - layout.LOG_RECORD_FIXED_OVERHEAD_SIZE - length + layout.LENGTH.size
    if place < 0:
        return False
    (instant,) = layout.INSTANT.unpack_from(data, place)
    return bool(instant < oldest)


# -- for the scan of all bytes -------------------------------------------------------------------


def reach_of(log: LogFiles, recovery: Recovery, runs: Runs | None = None) -> EngineReach:
    """Return how far the engine's scans get, that of ``recovery`` and one from the first file."""
    recovered = whole = (0, 0)
    skip = runs.run if runs is not None else None
    if recovery.stop:
        recovered = recovery.start, recovery.stop
    elif recovery.start >> 32 in log.files:
        recovered = scanned_range(log, recovery.start, skip)
    if log.files:
        first = layout.make_instant(log.first, layout.HEADER_SIZE)
        whole = recovered if recovered[0] == first else scanned_range(log, first, skip)
    return EngineReach(recovered, whole, recovery.undo_mark)


def reach_from(log: LogFiles, start: int, runs: Runs | None = None) -> EngineReach:
    """Return how far a scan of the engine gets from a record on, as the reach of a log."""
    skip = runs.run if runs is not None else None
    return EngineReach((0, 0), scanned_range(log, start, skip), 0)
