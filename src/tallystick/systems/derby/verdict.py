"""Both judgements of a log: the engine's, in the words of its oracle, and what the bytes prove.

In: the walk, recovery and the histories. Out: the dictionaries of a `Verdict`. Keys and value forms
of the engine's part are those of the fixtures' manifests.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tallystick.errors import LogFormatError
from tallystick.records import Difference, Finding, Outcome, Severity
from tallystick.systems.derby.files import LogFiles
from tallystick.systems.derby.history import Histories, History
from tallystick.systems.derby.layout import (
    CHECKSUM_OPERATION,
    FLAG_BETA,
    FLAG_DURABILITY_TEST,
    HEADER_SIZE,
    Control,
    Group,
    decode_header,
    instant_text,
    make_instant,
)
from tallystick.systems.derby.operations import spelled
from tallystick.systems.derby.recovery import OpenTransaction, Recovery, control_or_error
from tallystick.systems.derby.scan import ForwardScan, ScanFailureError
from tallystick.systems.derby.walk import Chain, Piece, Walk

TRANSACTIONS_SHOWN = 80
"""The oracle lists the latest ones only; the summary counts all."""

Json = dict[str, Any]


def engine(log: LogFiles, recovery: Recovery) -> Json:
    """What the engine itself makes of the files."""
    chains = _Chains(log)
    return {
        "control": _controls(log),
        "file_headers": _headers(log),
        "file_ends": chains.ends,
        "real_scan": _scans(log, recovery),
        "record_count": chains.records,
        "checksum_groups": {
            "n": chains.groups,
            "invalid": chains.invalid,
            "largest": chains.largest,
        },
        "transactions_summary": dict(Counter(one.state for one in chains.histories.all)),
        "transactions": [one.oracle() for one in chains.histories.all[-TRANSACTIONS_SHOWN:]],
        "boots": recovery.boots,
    }


def _controls(log: LogFiles) -> list[Json]:
    return [
        {"name": control.name} | _control(control_or_error(control.data))
        for control in log.controls
    ]


def _control(found: Control | str) -> Json:
    if isinstance(found, str):
        return {"error": found}
    return {
        "checkpoint": instant_text(found.checkpoint),
        "major": found.major,
        "minor": found.minor,
        "beta": bool(found.flags & FLAG_BETA),
        "durability_test": bool(found.flags & FLAG_DURABILITY_TEST),
    }


def _headers(log: LogFiles) -> list[Json]:
    entries = []
    for file in log.files.values():
        entry: Json = {"name": file.name, "size": file.size}
        try:
            header = decode_header(file.data)
        except LogFormatError as error:
            entry["error"] = str(error)
        else:
            entry |= {
                "format_id": header.format_id,
                "obsolete": header.obsolete,
                "number": header.number,
                "prev": instant_text(header.previous),
            }
        entries.append(entry)
    return entries


def _scans(log: LogFiles, recovery: Recovery) -> list[Json]:
    """From the start of the first file, and from the undo mark where there is one."""
    starts = [make_instant(log.first, HEADER_SIZE)] if log.files and not log.sealed else []
    starts += [recovery.undo_mark] if recovery.undo_mark else []
    return [_scan(log, start) for start in starts]


def _scan(log: LogFiles, start: int) -> Json:
    scan = ForwardScan(log, start)
    failure = None
    try:
        for scanned in scan:
            scanned.body()
    except ScanFailureError as error:
        failure = str(error)
    entry: Json = {
        "from": instant_text(start),
        "records": scan.records,
        "last": instant_text(scan.last),
        "log_end": instant_text(scan.log_end),
        "fuzzy": scan.fuzzy,
    }
    return entry if failure is None else entry | {"error": failure}


class _Chains:
    """All records by lengths alone, file by file: the oracle's list of the whole log."""

    def __init__(self, log: LogFiles) -> None:
        self._log = log
        self.ends: list[Json] = []
        self.records = self.groups = self.largest = 0
        self.invalid: list[str] = []
        self.histories = Histories()
        for number in log.files:
            self._follow(number)

    def _follow(self, number: int) -> None:
        file = self._log.files[number]
        chain = Chain(file)
        walked = Walk.bare(self._log, number, chain)
        for piece in walked:
            self.records += 1
            self._count(piece)
            self.histories.add(piece)
        self.ends.append({"name": file.name, "pos": chain.position, "stop": chain.stop})

    def _count(self, piece: Piece) -> None:
        if piece.body is None or piece.body.operation != CHECKSUM_OPERATION:
            return
        self.groups += 1
        self.largest = max(self.largest, piece.body.fields["dataLength"])
        if not piece.checksum_valid:
            self.invalid.append(instant_text(piece.place))


@dataclass(slots=True)
class Account:
    """One pass over all pieces: what counts, what the engine believes, what lies behind.

    ``mark`` is the instant up to which the data pages hold everything: nothing before it is lost.
    """

    mark: int = 0
    records: Counter[str] = field(default_factory=Counter)
    histories: Histories = field(default_factory=Histories)
    damaged: list[Piece] = field(default_factory=list)
    """First piece of each run of damage."""
    lost_bytes: int = 0
    lost_records: int = 0
    lost_ends: list[Piece] = field(default_factory=list)
    """End records that a boot drops: of intact groups behind damage, and of damaged groups."""
    odd: list[Piece] = field(default_factory=list)
    """Records that the engine accepts although their envelope is damaged."""

    def take(self, walk: Walk) -> Account:
        """Go through the log once."""
        before = Outcome.VALID
        for piece in walk.pieces():
            self._take(piece)
            bad = piece.outcome in (Outcome.CORRUPT, Outcome.TORN)
            if bad and piece.outcome is not before:
                self.damaged.append(piece)
            before = piece.outcome
        return self

    def _take(self, piece: Piece) -> None:
        dropped = piece.salvaged or piece.outcome in (Outcome.CORRUPT, Outcome.TORN)
        lost = dropped and piece.place >= self.mark
        self.lost_bytes += piece.length if lost else 0
        if piece.envelope is None:
            return
        self.records["salvaged" if piece.salvaged else piece.outcome.value] += 1
        if dropped:
            self.histories.add_lost(piece)
            if lost:
                self._take_lost(piece)
        elif piece.outcome is Outcome.VALID:
            self.histories.add(piece)
            own = piece.envelope.instant == piece.place
            if not own or piece.envelope.trailing != piece.envelope.length:
                self.odd.append(piece)

    def _take_lost(self, piece: Piece) -> None:
        self.lost_records += 1
        if piece.body is not None and piece.body.group & (Group.LAST | Group.PREPARE):
            self.lost_ends.append(piece)

    def lost_commits(self) -> list[Piece]:
        """The commits among the end records that a boot drops."""
        return [one for one in self.lost_ends if one.body and one.body.group & Group.COMMIT]


def strict(account: Account, recovery: Recovery, findings: list[Finding]) -> Json:
    """What can be known from the bytes."""
    histories = account.histories.all
    return {
        "records": dict(account.records),
        "transactions": dict(Counter(_strict_state(one) for one in histories)),
        "in_doubt": [spelled(one.xid) for one in histories if one.state == "prepared"],
        "lost": {
            "bytes": account.lost_bytes,
            "records": account.lost_records,
            "ends": [_end_text(piece) for piece in account.lost_ends],
        },
        "findings": dict(Counter(one.code for one in findings)),
        "recovery": _recovery(recovery),
    }


def _strict_state(one: History) -> str:
    if one.internal and one.state == "active":
        return "active_internal"
    return one.state


def _end_text(piece: Piece) -> str:
    assert piece.body is not None
    number, kind = piece.body.transaction, piece.body.kind.value
    return f"{kind} of transaction {number} at {instant_text(piece.place)}"


def _recovery(recovery: Recovery) -> Json:
    return {
        "boots": recovery.boots,
        "reason": recovery.reason,
        "control": recovery.control,
        "checkpoint": instant_text(recovery.checkpoint),
        "redo_mark": instant_text(recovery.redo_mark),
        "undo_mark": instant_text(recovery.undo_mark),
        "start": instant_text(recovery.start),
        "log_end": instant_text(recovery.log_end),
        "fuzzy": recovery.fuzzy,
        "redo": recovery.redone,
        "undo": [_open(one) for one in recovery.undo],
        "in_doubt": [_open(one) for one in recovery.in_doubt],
        "new_log": recovery.new_log,
    }


def _open(one: OpenTransaction) -> Json:
    return {
        "transaction": one.number,
        "first": instant_text(one.first),
        "last": instant_text(one.last),
        "records": one.records,
        "internal": one.internal,
        "gid": spelled(one.xid),
    }


def differences(account: Account, recovery: Recovery) -> tuple[Difference, ...]:
    """Where the engine and the bytes part, for a tired operator."""
    found = []
    if account.lost_records:
        found.append(_dropped(account, recovery))
    elif account.damaged and recovery.boots:
        found.append(_unneeded(account.damaged[0], recovery))
    if recovery.boots is False:
        found.append(_no_boot(account, recovery))
    if recovery.new_log and recovery.boots:
        found.append(_new_log(recovery))
    if recovery.past_end and recovery.boots and not recovery.new_log:
        found.append(_past_end(recovery))
    return tuple(found)


def _dropped(account: Account, recovery: Recovery) -> Difference:
    commits = len(account.lost_commits())
    end = recovery.log_end
    acknowledged = any(piece.outcome is Outcome.CORRUPT for piece in account.damaged)
    first = account.damaged[0] if account.damaged else None
    return Difference(
        "records behind the end of the log",
        f"takes {instant_text(end)} for the end of the log: {recovery.end_reason or 'end reached'}",
        f"{account.lost_records} whole records lie behind it, among them {commits} commits",
        f"A restart drops {commits} committed transactions without an error"
        + (" and overwrites them with zeros" if recovery.fuzzy else "")
        + ". Copy the log folder before anything starts the database.",
        Severity.LOSS if acknowledged or commits else Severity.WARNING,
        first.file.path if first else None,
        first.offset if first else None,
    )


def _unneeded(piece: Piece, recovery: Recovery) -> Difference:
    return Difference(
        "damage that recovery does not meet",
        f"starts at {instant_text(recovery.start)} and does not look there",
        f"{piece.what} at {instant_text(piece.place)}: {piece.reason}",
        "A restart is not hurt by it. Something damaged the file, though; an archive or a backup "
        "that holds it could not be rolled forward.",
        Severity.DAMAGE,
        piece.file.path,
        piece.offset,
    )


def _no_boot(account: Account, recovery: Recovery) -> Difference:
    return Difference(
        "boot",
        f"does not boot: {recovery.reason}",
        f"{account.records['valid']} records are intact",
        "The database does not start. Keep the log folder as it is; deleting it loses every change "
        "that is not in the data files yet.",
        Severity.LOSS,
    )


def _new_log(recovery: Recovery) -> Difference:
    return Difference(
        "the log",
        recovery.reason,
        "the changes since the last checkpoint stand nowhere else",
        "The database starts, with one line of warning, and every change that is not in the data "
        "files is gone.",
        Severity.LOSS,
    )


def _past_end(recovery: Recovery) -> Difference:
    return Difference(
        "undo against newer pages",
        f"redoes up to {instant_text(recovery.log_end)} and undoes what is open there",
        f"the checkpoint at {instant_text(recovery.checkpoint)} says that the pages are newer",
        "Undo would work on pages that already hold later changes; whole tables can vanish.",
        Severity.LOSS,
    )
