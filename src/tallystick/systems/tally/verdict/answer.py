"""What opening a native log does, and why that can be said.

In: the scan of the log. Out: the `Ground`s of the answer. A group is acknowledged after its sync;
the control block of a closed or idle log says up to where everything is durable.
"""

from __future__ import annotations

from collections.abc import Iterator

from tallystick.records import AtStake, Severity
from tallystick.systems.answers import Ground
from tallystick.systems.tally.read.scan import Scan


def grounds(scan: Scan, ended: int) -> Iterator[Ground]:
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
    known = control.durable_lsn == scan.next_lsn - 1 and scan.clean
    yield Ground("durable-mark" if known else "last-group-whole")
