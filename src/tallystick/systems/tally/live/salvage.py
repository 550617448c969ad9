"""Salvage: what can be read of a damaged log, written to a new one. Always an explicit call.

In: the files of a log that recovery refuses. Out: a new log with every whole record, in order,
and a report of what was given up. The damaged log is not touched.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, field

from tallystick.errors import TallystickError
from tallystick.records import Finding
from tallystick.storage.files import FileSystem
from tallystick.storage.local import LOCAL
from tallystick.systems.tally.format.bodies import decode_ending
from tallystick.systems.tally.format.columns import Draft
from tallystick.systems.tally.format.kinds import Code
from tallystick.systems.tally.format.sealing import KeyProvider
from tallystick.systems.tally.live.append_items import EndingDraft
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.opening import load_key, reach_of
from tallystick.systems.tally.live.settings import Settings
from tallystick.systems.tally.read.files import is_member, read_catalog
from tallystick.systems.tally.read.open_work import Row
from tallystick.systems.tally.read.records import rows_of
from tallystick.systems.tally.read.scan import Scan
from tallystick.systems.tally.read.state_rebuild import state_of


@dataclass(slots=True)
class Salvage:
    """What became of a damaged log. ``lost`` counts records that are known to be missing;
    ``rolled_back`` are the numbers of transactions that ended with elements missing."""

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
) -> Salvage:
    """Write every whole record of the log at ``source`` to a new log at ``target``.

    Records get new LSNs. A transaction with elements missing is rolled back. Raises
    `FileExistsError` if ``target`` holds anything.
    """
    if fs.list(target):
        raise FileExistsError(f"{target} is not empty: salvage writes to a new folder")
    report = Salvage()
    secret = load_key(key)
    with TallyLog(target, settings=settings, key=key, fs=fs) as log:
        for row in _rows(source, secret, fs, report):
            log.submit(_again(row, report), sync=False)
            report.records += 1
    return report


def _rows(source: str, key: bytes | None, fs: FileSystem, report: Salvage) -> Iterator[Row]:
    reach = reach_of(fs)
    paths = [posixpath.join(source, name) for name in fs.list(source) if is_member(name)]
    catalog = read_catalog(source, paths, reach)
    state = state_of(catalog.control)
    scan = Scan(catalog, reach)
    for step in scan.steps():
        report.lost += step.place.lost
        header = step.place.header
        if header is None or not step.place.case.whole:
            continue
        try:
            rows = list(rows_of(step.view.inner(header), header, key))
        except TallystickError:
            report.lost += header.count
            continue
        for row in rows:
            state.apply(row)
            number = row.draft.transaction
            if number in state.incomplete and row.draft.code in (Code.PREPARE, Code.COMMIT):
                report.rolled_back.append(number or 0)
            yield row
    report.findings = scan.findings


def _again(row: Row, report: Salvage) -> Draft | EndingDraft:
    """The record as it is written again: its pairs are counted anew."""
    draft = row.draft
    if draft.code not in (Code.PREPARE, Code.COMMIT):
        return draft
    number = draft.transaction or 0
    if number in report.rolled_back:
        return Draft(Code.ROLLBACK, b"", number)
    ending = decode_ending(draft.body, draft.gtrid)
    return EndingDraft(draft.code, number, ending.xid, ending.extra)
