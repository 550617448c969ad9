"""Make a mutant that breaks a property small: ``python -m tests.fuzz.minimise SYSTEM FILE``.

In: a bundle that a run kept. Out: the file, as small as it gets while the property breaks at the
same place: files left out, ends and blocks cut, blocks set to zero.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.fuzz import bundle
from tests.fuzz.bundle import Bundle
from tests.fuzz.properties import BrokenPropertyError, Checker, broken

SIZES = (16384, 4096, 1024, 512, 64, 16, 4, 1)
"""Bytes that are cut or set to zero at once."""


def minimised(system: str, files: Bundle) -> Bundle:
    """Return a smaller mutant that breaks the same property at the same place."""
    key, turn = next(iter(broken(system, files).items()))
    with tempfile.TemporaryDirectory() as folder:
        checker = Checker(system, Path(folder))

        def still(candidate: Bundle) -> bool:
            try:
                checker.check(candidate, turn)
            except BrokenPropertyError as error:
                return error.key == key
            return False

        for size in SIZES:
            for name, at in _places(files, size):
                for candidate in _smaller(files, name, at, size):
                    if candidate != files and still(candidate):
                        files = candidate
                        break
    return files


def _places(files: Bundle, size: int) -> Iterator[tuple[str, int]]:
    """Yield blocks, from the ends of the files: what is before them stays where it is."""
    for name in sorted(files):
        length = len(files[name].rstrip(b"\0")) if size < 64 else len(files[name])
        yield from ((name, at) for at in range((max(length, 1) - 1) // size * size, -1, -size))


def _smaller(files: Bundle, name: str, at: int, size: int) -> Iterator[Bundle]:
    """Yield what is tried with one block: the file gone, cut, the block gone, the block zero."""
    content = files.get(name)
    if content is None or at >= len(content):
        return
    if not at:
        yield {other: files[other] for other in files if other != name}
    yield files | {name: content[:at]}
    if size >= 64:
        yield files | {name: content[:at] + content[at + size :]}
    zeros = bytes(len(content[at : at + size]))
    yield files | {name: content[:at] + zeros + content[at + size :]}


if __name__ == "__main__":
    path = Path(sys.argv[2])
    kept = bundle.decode(path.read_bytes())
    assert kept is not None, "not a bundle"
    path.write_bytes(bundle.encode(minimised(sys.argv[1], kept)))
