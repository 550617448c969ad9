"""Salvage a damaged log: write what can be read to a new one.

In: the files of a log that recovery refuses. Out: a new log with every whole record, in order,
and a report of what was given up. The damaged log is not touched.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tallystick.arguments import secret_of
from tallystick.errors import TallystickError
from tallystick.records import Finding
from tallystick.storage.files import FileSystem
from tallystick.storage.group.ticket import GroupTicket
from tallystick.storage.local import LOCAL
from tallystick.systems.tally.format.bodies import decode_ending
from tallystick.systems.tally.format.columns import Row, UnplacedRecord
from tallystick.systems.tally.format.kinds import Code
from tallystick.systems.tally.format.layout import LSN_FIRST
from tallystick.systems.tally.format.sealing import KeyMissingError, KeyProvider, WrongKeyError
from tallystick.systems.tally.live.items import Item, UnplacedEnding
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.settings import Settings
from tallystick.systems.tally.read.claim import ANYONES, claim_of
from tallystick.systems.tally.read.files import control_in, read_folder
from tallystick.systems.tally.read.records import rows_of
from tallystick.systems.tally.read.scan import Scan
from tallystick.systems.tally.read.state import LogState

_ENDINGS = (Code.PREPARE, Code.COMMIT)


@dataclass(slots=True)
class SalvageReport:
    """What was salvaged of a damaged log.

    Attributes:
        records: number of records that were written.
        lost: number of records that are known to be missing.
        rolled_back: numbers of transactions that ended with records missing.
        findings: the damage.
    """

    records: int = 0
    lost: int = 0
    rolled_back: list[int] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def salvage(
    source: str,
    target: str,
    *,
    settings: Settings | None = None,
    key: KeyProvider | None = None,
    fs: FileSystem = LOCAL,
) -> SalvageReport:
    """Write every whole record of the log at ``source`` to a new log at ``target``.

    Records get new LSNs. A transaction with records missing is rolled back. What a checkpoint has
    given up stays so, and numbers of transactions and entries that were given are not given again.

    Args:
        source: folder of the damaged log; not changed.
        target: folder of the new log.
        settings: how the new log is written.
        key: provides the secret of both logs.
        fs: the file system.

    Raises:
        FileExistsError: ``target`` holds files.
        KeyMissingError: a group is encrypted, and no key was given.
        WrongKeyError: a whole group cannot be decrypted with this key.
        LogWriteError: the disk of the new log is full; it lacks records.
    """
    if fs.list(target):
        raise FileExistsError(f"{target} is not empty: salvage writes to a new folder")
    report = SalvageReport()
    secret = secret_of(key, "key")
    control = control_in(fs, source)
    claim = ANYONES if control is None else claim_of(control)
    with TallyLog(target, settings=settings, key=key, fs=fs, claim=claim) as log:
        given_up = 0 if control is None else control.checkpoint_lsn
        checkpoint = _write(log, _rows(source, secret, fs, report), given_up)
        report.records = log.next_lsn - LSN_FIRST
        if given_up:
            log.reclaim(checkpoint, keep_from=0)
    return report


def _write(log: TallyLog, rows: Iterable[tuple[Row, bool]], given_up: int) -> int:
    """Write records durably; return the LSN of the first that was not below ``given_up``.

    Raises:
        LogWriteError: one was refused.
    """
    kept: GroupTicket[Item] | None = None
    waiting: deque[GroupTicket[Item]] = deque()
    for row, whole in rows:
        waiting.append(log.submit(_again(row, whole=whole)))
        if kept is None and row.lsn >= given_up:
            kept = waiting[-1]
        while waiting and waiting[0].done():
            waiting.popleft().wait()
    for ticket in waiting:
        ticket.wait()
    return log.next_lsn if kept is None else kept.wait()


def _rows(
    source: str, key: bytes | None, fs: FileSystem, report: SalvageReport
) -> Iterator[tuple[Row, bool]]:
    """Yield every whole record, and False for the end of a transaction with records missing."""
    catalog, access = read_folder(fs, source)
    state = LogState.before(catalog.control)
    scan = Scan(catalog, access)
    for step in scan.steps():
        report.lost += step.place.lost
        header = step.place.header
        if header is None or not step.place.case.whole:
            continue
        try:
            rows = list(rows_of(step.view.payload(header), header, key))
        except (KeyMissingError, WrongKeyError):
            raise  # a new log without these would look whole
        except TallystickError:
            report.lost += header.count
            continue
        for row in rows:
            number = row.record.transaction or 0
            state.apply(row)
            whole = row.lsn not in state.incomplete
            if not whole:
                report.rolled_back.append(number)
            yield row, whole
    report.findings = scan.findings


def _again(row: Row, *, whole: bool) -> UnplacedRecord | UnplacedEnding:
    """Return the record as it is written again: its pairs are counted anew."""
    record = row.record
    if record.code not in _ENDINGS:
        return record
    number = record.transaction or 0
    if not whole:
        return UnplacedRecord(Code.ROLLBACK, b"", number)
    ending = decode_ending(record.body, record.gtrid)
    return UnplacedEnding(record.code, number, ending.xid, ending.extra)
