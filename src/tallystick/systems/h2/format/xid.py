"""XA ids in the names of prepared transactions.

In: a transaction name. Out: the `Xid` that the JDBC driver wrote into it, with the **bqual
before the gtrid**, in upper or lower case hex; None for a name that a person chose.
"""

from __future__ import annotations

import re

from tallystick.records import Xid

_FORM = re.compile(r"XID_(-?\d{1,10})_([0-9A-Fa-f]{0,128})_([0-9A-Fa-f]{0,128})")


def parse_name(name: str) -> Xid | None:
    """Return the Xid of ``XID_<format id>_<bqual hex>_<gtrid hex>``."""
    match = _FORM.fullmatch(name)
    if match is None or len(match[2]) % 2 or len(match[3]) % 2:
        return None
    format_id = int(match[1])
    if not -(1 << 31) <= format_id < 1 << 31:
        return None
    return Xid(format_id, gtrid=bytes.fromhex(match[3]), bqual=bytes.fromhex(match[2]))
