"""Salvage a damaged log: write what can be read to a new one.

In: the files of a log that recovery refuses. Out: a new log with every whole record, in order,
and a report of what was given up. The damaged log is not touched.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tallystick.arguments import secret_of
from tallystick.errors import TallystickError
from tallystick.records import Finding
from tallystick.storage.files import FileSystem
from tallystick.storage.local import LOCAL
from tallystick.systems.tally.format.bodies import decode_ending
from tallystick.systems.tally.format.columns import Row, UnplacedRecord
from tallystick.systems.tally.format.kinds import Code
from tallystick.systems.tally.format.sealing import KeyMissingError, KeyProvider, WrongKeyError
from tallystick.systems.tally.live.items import UnplacedEnding
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

    Records get new LSNs. A transaction with records missing is rolled back.

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
    """
    if fs.list(target):
        raise FileExistsError(f"{target} is not empty: salvage writes to a new folder")
    report = SalvageReport()
    secret = secret_of(key, "key")
    control = control_in(fs, source)
    claim = ANYONES if control is None else claim_of(control)
    with TallyLog(target, settings=settings, key=key, fs=fs, claim=claim) as log:
        for row, whole in _rows(source, secret, fs, report):
            log.submit(_again(row, whole=whole), sync=False)
            report.records += 1
    return report


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
