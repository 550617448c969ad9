"""What opening a native log does, and why that can be said.

In: the scan of the log. Out: the `Ground`s of the answer. A group is acknowledged after its sync;
the control block of a closed or idle log says up to where everything is durable.
"""

from __future__ import annotations

from collections.abc import Iterator

from tallystick.records import AtStake, Severity
from tallystick.storage.zeros import is_zero
from tallystick.systems.answers import Ground
from tallystick.systems.tally.format.layout import HEADER_SIZE, SECTOR_SIZE
from tallystick.systems.tally.read.scan import Scan


def grounds(scan: Scan, ended: int | None) -> Iterator[Ground]:
    """Yield what holds of the log; ``ended`` is the number of transactions with an outcome."""
    if scan.broken:
        severe = (Severity.DAMAGE, Severity.LOSS)
        first = next((one.message for one in scan.findings if one.severity in severe), "")
        text = f"Opening it is refused: {first}." if first else ""
        yield Ground("refused", text, AtStake(ended))
    if any(one.code == "encrypted" for one in scan.findings):
        yield Ground("encrypted")
    control = scan.catalog.control
    if control is None or scan.end is None:
        return
    if not scan.clean:
        yield Ground("last-group-cut" if _is_cut(scan) else "odd-group")
    elif control.durable_lsn == scan.next_lsn - 1:
        yield Ground("durable-mark")
    else:
        yield Ground("last-group-whole")


def _is_cut(scan: Scan) -> bool:
    """Return whether a sector of the torn group, or its end, may never have been written.

    It is zero, as a failed write leaves the second header, or the segment has been recycled and an
    earlier life may show in it.
    """
    torn = [one for one in scan.findings if one.code == "torn-tail"][-1]
    assert torn.file is not None
    assert torn.offset is not None
    begin, end = torn.offset, torn.offset + torn.bytes_at_risk
    with scan.access.open(torn.file) as source:
        sectors = range(begin, min(end, source.size), SECTOR_SIZE)
        empty = any(is_zero(source.data, one, one + SECTOR_SIZE) for one in sectors)
        empty = empty or is_zero(source.data, end - HEADER_SIZE, end)
        return empty or not is_zero(source.data, end, source.size)
