"""The engine's verdict in the words of its oracle: keys and value forms of the manifests.

In: the files and the engine's recovery. Out: a dictionary for `Verdict.engine`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tallystick.errors import LogFormatError
from tallystick.records import Outcome
from tallystick.systems.derby.engine.forward_scan import ForwardScan, ScanFailureError
from tallystick.systems.derby.engine.result import Recovery
from tallystick.systems.derby.format import layout
from tallystick.systems.derby.format.field_types import global_id_text
from tallystick.systems.derby.read.files import LogBytes, LogFiles
from tallystick.systems.derby.read.spans import ByteRange
from tallystick.systems.derby.read.transactions import LoggedTransaction, TransactionCollector

if TYPE_CHECKING:
    from tallystick.systems.derby.engine.forward_scan import Skip
    from tallystick.systems.derby.runs.chunk import Chunk, Runs

Json = dict[str, Any]


def report(log: LogFiles, recovery: Recovery, runs: Runs | None = None) -> Json:
    """Return what the engine itself makes of the files; ``runs`` reads them faster."""
    census = _Census(log, runs)
    if census.transactions.again:
        census = _Census(log, runs, keep_all=True)
    return {
        "control": _controls(log),
        "file_headers": _headers(log),
        "file_ends": census.ends,
        "real_scan": _scans(log, recovery, runs),
        "record_count": census.records,
        "checksum_groups": {
            "n": census.groups,
            "invalid": census.invalid,
            "largest": census.largest,
        },
        "transactions_summary": dict(census.transactions.states),
        "transactions": [_transaction(one) for one in census.transactions.latest],
        "boots": recovery.boots,
    }


def _controls(log: LogFiles) -> list[Json]:
    return [
        {"name": control.name} | _control(control.content_or_error()) for control in log.controls
    ]


def _control(found: layout.Control | str) -> Json:
    if isinstance(found, str):
        return {"error": found}
    return {
        "checkpoint": layout.instant_text(found.checkpoint),
        "major": found.major,
        "minor": found.minor,
        "beta": bool(found.flags & layout.FLAG_BETA),
        "durability_test": bool(found.flags & layout.FLAG_DURABILITY_TEST),
    }


def _headers(log: LogFiles) -> list[Json]:
    entries = []
    for file in log.files.values():
        entry: Json = {"name": file.name, "size": file.size}
        try:
            header = layout.decode_header(file.data)
        except LogFormatError as error:
            entry["error"] = str(error)
        else:
            entry |= {
                "format_id": header.format_id,
                "obsolete": header.obsolete,
                "number": header.number,
                "prev": layout.instant_text(header.previous),
            }
        entries.append(entry)
    return entries


def _scans(log: LogFiles, recovery: Recovery, runs: Runs | None) -> list[Json]:
    """From the start of the first file, and from the undo mark if there is one."""
    starts = (
        [layout.make_instant(log.first, layout.HEADER_SIZE)] if log.files and not log.sealed else []
    )
    starts += [recovery.undo_mark] if recovery.undo_mark else []
    skip = runs.run if runs is not None else None
    return [_scan(log, start, skip) for start in starts]


def _scan(log: LogFiles, start: int, skip: Skip | None) -> Json:
    scan = ForwardScan(log, start, skip)
    failure = None
    try:
        for scanned in scan:
            scanned.operation()
    except ScanFailureError as error:
        failure = str(error)
    entry: Json = {
        "from": layout.instant_text(start),
        "records": scan.records,
        "last": layout.instant_text(scan.last),
        "log_end": layout.instant_text(scan.log_end),
        "fuzzy": scan.fuzzy,
    }
    return entry if failure is None else entry | {"error": failure}


def _transaction(one: LoggedTransaction) -> Json:
    entry: Json = {
        "xid": str(one.number),
        "first": layout.instant_text(one.first),
        "begin_seen": one.begin_seen,
        "state": one.state,
        "records": one.records,
        "undone": one.undone,
        "last": layout.instant_text(one.last),
    }
    return entry if one.xid is None else entry | {"gid": global_id_text(one.xid)}


class _Census:
    """All records by lengths alone, file by file: the oracle's list of the whole log."""

    def __init__(self, log: LogFiles, runs: Runs | None, *, keep_all: bool = False) -> None:
        self._log = log
        self.ends: list[Json] = []
        self.records = self.groups = self.largest = 0
        self.invalid: list[str] = []
        self.transactions = TransactionCollector(keep_all=keep_all)
        for file in log.files.values():
            chain = _Chain(file)
            while not chain.stop:
                for chunk in runs.chunks(file, chain.position) if runs is not None else ():
                    self._add_chunk(chunk)
                    chain.position = chunk.end
                if (envelope := chain.step()) is not None:
                    self._add(file, envelope)
            self.ends.append({"name": file.name, "pos": chain.position, "stop": chain.stop})

    def _add_chunk(self, chunk: Chunk) -> None:
        from tallystick.systems.derby.runs.transactions import collect

        collect(self.transactions, chunk)
        self.records += chunk.size
        self.groups += chunk.checksums.size
        self.largest = max(self.largest, chunk.largest_group)

    def _add(self, file: LogBytes, envelope: layout.Envelope) -> None:
        _, body, error = self._log.decode_or_error(file.number, envelope)
        outcome = Outcome.CORRUPT if error else Outcome.VALID
        size = envelope.end - envelope.position
        one = ByteRange(
            file, envelope.position, size, outcome, "record", envelope=envelope, body=body
        )
        self.records += 1
        self.transactions.add(one)
        if body is not None and body.operation == layout.CHECKSUM_OPERATION:
            self.groups += 1
            self.largest = max(self.largest, body.fields["dataLength"])
            if not file.checksum_holds(envelope, body):
                self.invalid.append(layout.instant_text(one.place))


class _Chain:
    """The records of one file, by lengths alone, damaged groups included.

    At its end ``position`` is where it stopped and ``stop`` why: ``zero``, ``eof``,
    ``short`` (fewer bytes than a length), ``length``, ``instant`` or ``trailing``.
    """

    def __init__(self, file: LogBytes) -> None:
        self._file = file
        self.position = layout.HEADER_SIZE
        self.stop = ""

    def step(self) -> layout.Envelope | None:
        """Return the record at the position, and move after it; None at the end."""
        envelope = layout.read_envelope(self._file.data, self.position)
        self.stop = self._stop_reason(envelope)
        if envelope is None or self.stop:
            return None
        self.position = envelope.end
        return envelope

    def _stop_reason(self, envelope: layout.Envelope | None) -> str:
        if envelope is None:
            return self._end()
        if envelope.instant < layout.make_instant(self._file.number, self.position):
            return "instant"
        return "trailing" if envelope.trailing < envelope.length else ""

    def _end(self) -> str:
        left = self._file.size - self.position
        if left <= 0:
            return "eof"
        if left < layout.LENGTH.size:
            return "short"
        at = self._file.data[self.position : self.position + layout.LENGTH.size]
        return "zero" if at == layout.LENGTH.pack(layout.END_MARKER) else "length"
