"""The engine's verdict in the words of its oracle: keys and value forms of the manifests.

In: the files and the engine's recovery. Out: a dictionary for `Verdict.engine`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tallystick.errors import LogFormatError
from tallystick.records import Outcome
from tallystick.systems.derby.engine.analysis import LogAnalysis
from tallystick.systems.derby.engine.forward_scan import ForwardScan, ScanFailureError
from tallystick.systems.derby.engine.result import Recovery
from tallystick.systems.derby.format.field_types import global_id_text
from tallystick.systems.derby.format.layout import (
    CHECKSUM_OPERATION,
    END_MARKER,
    FLAG_BETA,
    FLAG_DURABILITY_TEST,
    HEADER_SIZE,
    LENGTH,
    Control,
    Envelope,
    decode_header,
    instant_text,
    make_instant,
    read_envelope,
)
from tallystick.systems.derby.read.files import LogBytes, LogFiles
from tallystick.systems.derby.read.spans import ByteRange
from tallystick.systems.derby.read.transactions import LoggedTransaction, TransactionCollector

if TYPE_CHECKING:
    from tallystick.systems.derby.engine.forward_scan import Skip
    from tallystick.systems.derby.runs.chunk import Chunk, Runs

Json = dict[str, Any]


def report(
    log: LogFiles, recovery: Recovery, analysis: LogAnalysis, runs: Runs | None = None
) -> Json:
    """Return what the engine itself makes of the files; ``runs`` reads them faster."""
    census = _census(log, analysis, runs)
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


def _scans(log: LogFiles, recovery: Recovery, runs: Runs | None) -> list[Json]:
    """From the start of the first file, and from the undo mark if there is one."""
    starts = [make_instant(log.first, HEADER_SIZE)] if log.files and not log.sealed else []
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
        "from": instant_text(start),
        "records": scan.records,
        "last": instant_text(scan.last),
        "log_end": instant_text(scan.log_end),
        "fuzzy": scan.fuzzy,
    }
    return entry if failure is None else entry | {"error": failure}


def _transaction(one: LoggedTransaction) -> Json:
    entry: Json = {
        "xid": str(one.number),
        "first": instant_text(one.first),
        "begin_seen": one.begin_seen,
        "state": one.state,
        "records": one.records,
        "undone": one.undone,
        "last": instant_text(one.last),
    }
    return entry if one.xid is None else entry | {"gid": global_id_text(one.xid)}


@dataclass(slots=True)
class _Census:
    """All records by lengths alone, file by file: the oracle's list of the whole log."""

    transactions: TransactionCollector
    records: int = 0
    groups: int = 0
    largest: int = 0
    invalid: list[str] = field(default_factory=list)
    ends: list[Json] = field(default_factory=list)

    def add_chunk(self, chunk: Chunk) -> None:
        """Take in the next chunk."""
        from tallystick.systems.derby.runs.transactions import collect

        collect(self.transactions, chunk)
        self.records += chunk.size
        self.groups += chunk.checksums.size
        self.largest = max(self.largest, chunk.largest_group)

    def add_chain(self, log: LogFiles, chain: _Chain) -> None:
        """Take in the records that follow the chunks of a file."""
        for envelope in chain:
            self._add(log, chain.file, envelope)
        self.ends.append({"name": chain.file.name, "pos": chain.position, "stop": chain.stop})

    def _add(self, log: LogFiles, file: LogBytes, envelope: Envelope) -> None:
        _, body, error = log.decode_or_error(file.number, envelope)
        outcome = Outcome.CORRUPT if error else Outcome.VALID
        size = envelope.end - envelope.position
        one = ByteRange(
            file, envelope.position, size, outcome, "record", envelope=envelope, body=body
        )
        self.records += 1
        self.transactions.add(one)
        if body is not None and body.operation == CHECKSUM_OPERATION:
            self.groups += 1
            self.largest = max(self.largest, body.fields["dataLength"])
            if not file.checksum_holds(envelope, body):
                self.invalid.append(instant_text(one.place))


def _census(log: LogFiles, analysis: LogAnalysis, runs: Runs | None) -> _Census:
    """Return the census; what the analysis has found is it, if that met chunks only."""
    found = analysis.run_count
    chains = [
        _Chain(file, analysis.ends.get(number, HEADER_SIZE)) for number, file in log.files.items()
    ]
    if not found.one_by_one and all(chain.is_over for chain in chains):
        census = _Census(analysis.transactions, found.in_runs, analysis.groups, analysis.largest)
        for chain in chains:
            census.add_chain(log, chain)
        return census
    return _counted(log, runs, keep_all=False)


def _counted(log: LogFiles, runs: Runs | None, *, keep_all: bool) -> _Census:
    census = _Census(TransactionCollector(keep_all=keep_all))
    for file in log.files.values():
        end = HEADER_SIZE
        for chunk in runs.chunks(file, HEADER_SIZE) if runs is not None else ():
            census.add_chunk(chunk)
            end = chunk.end
        census.add_chain(log, _Chain(file, end))
    return _counted(log, runs, keep_all=True) if census.transactions.again else census


class _Chain:
    """The records of one file from an offset on, by lengths alone, damaged groups included.

    After iteration ``position`` is where it stopped and ``stop`` why: ``zero``, ``eof``,
    ``short`` (fewer bytes than a length), ``length``, ``instant`` or ``trailing``.
    """

    def __init__(self, file: LogBytes, position: int) -> None:
        self.file = file
        self.position = position
        self.stop = ""

    def __iter__(self) -> Iterator[Envelope]:
        while not self.stop:
            envelope = read_envelope(self.file.data, self.position)
            self.stop = self._stop_reason(envelope)
            if envelope is not None and not self.stop:
                yield envelope
                self.position = envelope.end

    @property
    def is_over(self) -> bool:
        """Whether it has no record."""
        return bool(self._stop_reason(read_envelope(self.file.data, self.position)))

    def _stop_reason(self, envelope: Envelope | None) -> str:
        if envelope is None:
            return self._end()
        if envelope.instant < make_instant(self.file.number, self.position):
            return "instant"
        return "trailing" if envelope.trailing < envelope.length else ""

    def _end(self) -> str:
        left = self.file.size - self.position
        if left <= 0:
            return "eof"
        if left < LENGTH.size:
            return "short"
        at = self.file.data[self.position : self.position + LENGTH.size]
        return "zero" if at == LENGTH.pack(END_MARKER) else "length"
