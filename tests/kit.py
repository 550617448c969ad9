"""What tests of several packages share.

* `untouched`: nothing below a folder changes while a test reads it
* `same_json`: compare with an oracle and show the first difference by its path
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def untouched(root: Path) -> Iterator[None]:
    """Assert that names, bytes, modes and time stamps below ``root`` stay as they are."""
    before = _picture(root)
    yield
    assert _picture(root) == before


def _picture(root: Path) -> dict[str, tuple[int, int, int, str]]:
    picture = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        # read_bytes above may set the access time, so that one is compared in a test of its own
        picture[str(path)] = (status.st_mode, status.st_mtime_ns, status.st_ctime_ns, content)
    return picture


def first_difference(ours: Any, oracle: Any, path: str = "$") -> str | None:
    """Return the first path at which two JSON values differ, as text; None if they are equal."""
    if isinstance(ours, dict) and isinstance(oracle, dict):
        if ours.keys() != oracle.keys():
            return f"{path}: keys {sorted(ours)} instead of {sorted(oracle)}"
        pairs = [(f"{path}.{key}", ours[key], oracle[key]) for key in oracle]
    elif isinstance(ours, list) and isinstance(oracle, list):
        pairs = [
            (f"{path}[{index}]", *pair)
            for index, pair in enumerate(zip(ours, oracle, strict=False))
        ]
    else:
        equal = ours == oracle and type(ours) is type(oracle)
        return None if equal else f"{path}: {ours!r} instead of {oracle!r}"
    for where, one, other in pairs:
        if (difference := first_difference(one, other, where)) is not None:
            return difference
    if len(ours) != len(oracle):
        return f"{path}: {len(ours)} items instead of {len(oracle)}"
    return None


def same_json(ours: Any, oracle: Any) -> None:
    """Assert equality, naming the first difference by its path."""
    difference = first_difference(ours, oracle)
    assert difference is None, difference
