"""Both judgements of a log: the engine's, in the words of its oracle, and what the bytes prove.

In: the walk, recovery and the histories. Out: the dictionaries of a `Verdict`. Keys and value forms
of the engine's part are those of the fixtures' manifests.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from tallystick.errors import LogFormatError
from tallystick.records import Finding
from tallystick.systems.derby.engine.formatting import spelled
from tallystick.systems.derby.engine.forward_scan import ForwardScan, ScanFailureError
from tallystick.systems.derby.engine.recovery import OpenTransaction, Recovery, control_or_error
from tallystick.systems.derby.format.layout import (
    CHECKSUM_OPERATION,
    FLAG_BETA,
    FLAG_DURABILITY_TEST,
    HEADER_SIZE,
    Control,
    decode_header,
    instant_text,
    make_instant,
)
from tallystick.systems.derby.read.analysis import Account
from tallystick.systems.derby.read.byte_ranges import Chain, Piece
from tallystick.systems.derby.read.files import LogFiles
from tallystick.systems.derby.read.scan import Walk
from tallystick.systems.derby.read.transactions import Histories, History

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
