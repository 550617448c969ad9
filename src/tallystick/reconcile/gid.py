"""XA ids as identifiers of prepared transactions of PostgreSQL.

In: an id. Out: its text as pgjdbc and psycopg spell it, and the id of a text. Other texts are no XA
ids: PostgreSQL accepts any identifier.

    1114926712_b3JkZXJzLTEtLU5zT1FsMzUtLTk=_b3JkZXJzLTEtLU5zT1FsMzUtLUE=
    format     gtrid in Base64              bqual in Base64
"""

from __future__ import annotations

import base64
import binascii
import re

from tallystick.errors import TransactionUsageError
from tallystick.records import Xid

GID_MAX = 199
"""Bytes of a prepared transaction's identifier, a limit of the server."""

GID = "{}_{}_{}"
"""Format id, gtrid and bqual, both in Base64."""

_FORMAT = re.compile(r"-?[0-9]{1,10}")


def format_gid(xid: Xid) -> str:
    """Return the text of an id on the server: format, gtrid and bqual in Base64, joined by ``_``.

    Raises:
        TransactionUsageError: it is longer than the server accepts.
    """
    gtrid, bqual = base64.b64encode(xid.gtrid), base64.b64encode(xid.bqual)
    gid = GID.format(xid.format_id, gtrid.decode(), bqual.decode())
    if len(gid) > GID_MAX:
        raise TransactionUsageError(
            f"the id {gid} is too long for PostgreSQL", expected=f"at most {GID_MAX} bytes"
        )
    return gid


def parse_gid(gid: str) -> Xid | None:
    """Return the id in a text of the server; None if it is no XA id."""
    head, _, rest = gid.partition("_")
    middle, separator, tail = rest.partition("_")
    if not (separator and _FORMAT.fullmatch(head)):
        return None
    try:
        gtrid, bqual = (base64.b64decode(part, validate=True) for part in (middle, tail))
    except (binascii.Error, ValueError):
        return None
    return Xid(int(head), gtrid, bqual)
