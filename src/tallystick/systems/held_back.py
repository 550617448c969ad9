"""Which transaction keeps a log from giving up its old files, and how much a restart redoes.

In: where the oldest open transaction begins, and the files that it holds; the bytes of the log from
where redo begins. Out: plain values, in ``Verdict.strict["held_back"]`` and ``["redo"]``, and words
for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

REDONE_PER_S = 5_000_000
"""Bytes of log that Derby 10.14 and H2 1.4.200 redid in a second, inserts of 300 bytes, on two busy
cores: an idle machine is faster, a slow disk or many indexes slower."""
LOADED_PER_S = 60_000_000
"""Bytes of journal that Artemis 2.40 and HornetQ 2.4.7 loaded in a second, messages of 300 bytes of
which half were deleted, on the same cores: 95 and 65 million. What the broker does with the
messages afterwards is not in it."""


def held_back(
    transaction: str, file: str, offset: int | None, sizes: Sequence[int], since: str = ""
) -> dict[str, Any]:
    """Return what one transaction holds back.

    Args:
        transaction: what its system calls it.
        file: the name of the file in which it begins.
        offset: that of its first record there, in bytes; None where it is not known.
        sizes: bytes that it holds in each file.
        since: the time of its first record; empty where the log has no times of day.
    """
    found = {
        "transaction": transaction,
        "file": file,
        "offset": offset,
        "files": len(sizes),
        "bytes": sum(sizes),
    }
    return found | ({"since": since} if since else {})


def held_back_text(value: Mapping[str, Any]) -> str:
    """Return the values of `held_back` in words."""
    at = "" if value["offset"] is None else f" at {value['offset']:,}"
    files = f"{value['files']:,} file{'s' if value['files'] > 1 else ''}"
    since = f" on {value['since']}" if "since" in value else ""
    begun = f"{value['transaction']}, begun in {value['file']}{at}{since}"
    return f"{files}, {value['bytes']:,} bytes, by {begun}"


def redo_text(size: int, per_s: int = REDONE_PER_S) -> str:
    """Return how much is redone in words, and how long that is; nothing below a second."""
    if size < per_s:
        return ""
    rate = f"at {per_s / 1e6:.0f} MB a second, as measured on a busy machine"
    return f"{size:,} bytes of log; {rate}, about {size / per_s:,.0f} s"
