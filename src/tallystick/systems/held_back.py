"""Which transaction keeps a log from giving up its old files.

In: where the oldest open transaction begins, and the files that it holds. Out: plain values, in
``Verdict.strict["held_back"]``, and words for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def held_back(
    transaction: str, file: str, offset: int | None, sizes: Sequence[int]
) -> dict[str, Any]:
    """Return what one transaction holds back.

    Args:
        transaction: what its system calls it.
        file: the name of the file in which it begins.
        offset: that of its first record there, in bytes; None where it is not known.
        sizes: bytes that it holds in each file.
    """
    return {
        "transaction": transaction,
        "file": file,
        "offset": offset,
        "files": len(sizes),
        "bytes": sum(sizes),
    }


def held_back_text(value: Mapping[str, Any]) -> str:
    """Return the values of `held_back` in words."""
    at = "" if value["offset"] is None else f" at {value['offset']:,}"
    files = f"{value['files']:,} file{'s' if value['files'] > 1 else ''}"
    begun = f"{value['transaction']}, begun in {value['file']}{at}"
    return f"{files}, {value['bytes']:,} bytes, by {begun}"
