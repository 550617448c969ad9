"""A program seen from outside: the system calls by which it changes files, as crash states.

In: a command, run under ``recorder.c`` (compiled on demand), which works below a folder and reports
items to the file `MARKS`. Out: its `Event`s, and a `RecordingFileSystem` that has seen the same
changes: what a crash could have left of a real run, whatever code made the calls.
"""

from __future__ import annotations

import functools
import json
import os
import posixpath
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tallystick.testing import MemoryFileSystem, RecordingFileSystem

MARKS = "marks"
"""File beside the folder ``disk``: a line ``s ITEM`` before an item is submitted, ``a ITEM`` after
it was acknowledged."""
DISK = "disk"
LOCK = "lock"
"""Files that hold a process id while they are locked: no recovery reads them."""
ROOT = Path(__file__).parents[2]
_HEAD = struct.Struct("=IIIIQQQ")


class Kind(IntEnum):
    """What a system call did; the names and numbers of ``recorder.c``."""

    WRITE = 1
    SYNC = 2
    TRUNCATE = 3
    ALLOCATE = 4
    CREATE = 5
    RENAME = 6
    REMOVE = 7
    MKDIR = 8
    OTHER = 9


class Event(NamedTuple):
    """A system call that succeeded. Paths begin with ``/`` for the folder that was recorded."""

    kind: Kind
    thread: int
    path: str
    second: str
    offset: int
    size: int
    data: bytes


Shape = tuple[str, str, int, int]
"""A call of `tallystick.testing.disk.Disk`, a path, an offset or size, and a length."""


@functools.cache
def recorder() -> Path:
    """Compile the recorder; skip the test where that or tracing is not possible."""
    if sys.platform != "linux" or (compiler := shutil.which("gcc") or shutil.which("cc")) is None:
        pytest.skip("no system calls are recorded: this needs Linux and a C compiler")
    program = Path(tempfile.mkdtemp(prefix="tallystick-recorder-")) / "recorder"
    source = Path(__file__).with_name("recorder.c")
    subprocess.run([compiler, "-O1", "-o", program, source], check=True)
    tried = subprocess.run([program, os.devnull, "/nowhere", "true"], capture_output=True)
    if tried.returncode == 125:
        pytest.skip(f"no system calls are recorded: {tried.stderr.decode().strip()}")
    return program


def recorded(
    command: Sequence[str], folder: Path, *, environment: Mapping[str, str] | None = None
) -> list[Event]:
    """Run a command that works below ``folder / DISK``; return what it did there, in order."""
    (folder / DISK).mkdir()
    frames = folder / "frames"
    subprocess.run(
        [recorder(), frames, folder, *command],
        check=True,
        cwd=ROOT,
        timeout=300,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **(environment or {})},
    )
    return [one for one in _parsed(frames.read_bytes(), str(folder)) if one.path != "/frames"]


def _parsed(data: bytes, folder: str) -> Iterator[Event]:
    place = 0
    while place < len(data):
        kind, thread, path, second, offset, size, length = _HEAD.unpack_from(data, place)
        parts = list[bytes]()
        place += _HEAD.size
        for part in (path, second, length):
            parts.append(data[place : place + part])
            place += part
        names = [os.fsdecode(part).removeprefix(folder) or "/" for part in parts[:2]]
        yield Event(Kind(kind), thread, names[0], names[1], offset, size, parts[2])


def replayed(events: Iterable[Event]) -> RecordingFileSystem:
    """Return a file system that has seen the same changes of the folder `DISK`, and the marks.

    Raises:
        AssertionError: a change that the model of the disk does not know.
    """
    fs = RecordingFileSystem()
    for one in events:
        if one.path == f"/{MARKS}":
            _take_marks(fs, one.data.decode())
        elif _counts(one):
            _apply(fs, one)
    return fs


def _take_marks(fs: RecordingFileSystem, lines: str) -> None:
    for line in lines.splitlines():
        kind, _, item = line.partition(" ")
        if kind != "c":
            (fs.submitted if kind == "s" else fs.acknowledged)(item)


def _counts(one: Event) -> bool:
    """Return False for lock files, and what is not below `DISK`."""
    return f"{one.path}/".startswith(f"/{DISK}/") and posixpath.basename(one.path) != LOCK


def _apply(fs: RecordingFileSystem, one: Event) -> None:
    path, second = (name.removeprefix(f"/{DISK}") or "/" for name in (one.path, one.second))
    names = fs.disk.names
    assert one.kind is not Kind.OTHER, f"a change that the model does not know: {one}"
    if one.kind is Kind.MKDIR or path.endswith(" (deleted)"):
        return
    if one.kind is Kind.CREATE:
        fs.apply("create", path)
    elif one.kind is Kind.SYNC and path not in names:
        fs.apply("sync_dir", path)
    elif one.kind is Kind.RENAME:
        fs.apply("rename", path, second)
    elif one.kind is Kind.REMOVE:
        fs.apply("remove", path)
    else:
        _apply_to_file(fs, one, fs.disk.inode(path).number)


def _apply_to_file(fs: RecordingFileSystem, one: Event, number: int) -> None:
    size = len(fs.disk.inodes[number].data)
    if one.kind is Kind.WRITE:
        fs.apply("write", number, one.data, one.offset)
    elif one.kind is Kind.SYNC:
        fs.apply("sync", number)
    elif one.kind is Kind.TRUNCATE:
        fs.apply("truncate", number, one.size)
    elif one.offset + one.size > size:
        fs.apply("truncate", number, one.offset + one.size)


def shapes(fs: RecordingFileSystem) -> list[Shape]:
    """Return the calls that a file system has seen, without what is in the bytes."""
    disk, found = MemoryFileSystem().disk, list[Shape]()
    for call, arguments in fs._calls:
        if call in ("submitted", "acknowledged"):
            found.append((call, str(arguments[0]), 0, 0))
            continue
        found.append(_shape(disk.names, call, arguments))
        getattr(disk, call)(*arguments)
    return found


def _shape(names: Mapping[str, int], call: str, arguments: tuple[Any, ...]) -> Shape:
    if call in ("write", "truncate", "sync"):
        path = next(path for path, number in names.items() if number == arguments[0])
        if call == "write":
            return call, path, arguments[2], len(arguments[1])
        return call, path, arguments[1] if call == "truncate" else 0, 0
    return call, " -> ".join(arguments), 0, 0


def seam_calls(events: Iterable[Event]) -> list[Shape]:
    """Return the calls of the file seam that the program itself has reported."""
    marks = b"".join(one.data for one in events if one.path == f"/{MARKS}").decode()
    calls = [line[2:] for line in marks.splitlines() if line.startswith("c ")]
    return [(call, path or "/", at, size) for call, path, at, size in map(json.loads, calls)]


def by_file(found: Iterable[Shape]) -> dict[str, list[Shape]]:
    """Return the calls of each file in order; which file comes first is up to the threads."""
    calls: dict[str, list[Shape]] = {}
    for one in found:
        calls.setdefault(one[1], []).append(one)
    return calls


def without_more_syncs(found: Iterable[Shape], known: Sequence[Shape]) -> list[Shape]:
    """Leave out syncs of folders that the model does not know: they follow the making of folders.

    The model's crashes then leave no less behind than those of the kernel.
    """
    left: list[Shape] = []
    for one in found:
        expected = known[len(left)] if len(left) < len(known) else None
        if one == expected or one[0] != "sync_dir":
            left.append(one)
    return left


def without_new_folders(found: Iterable[Shape], folders: Iterable[str]) -> list[Shape]:
    """Leave out the syncs that follow the making of a folder: folders are no files of the model."""
    left = list(found)
    for folder in folders:
        left.remove(("sync_dir", posixpath.dirname(folder) or "/", 0, 0))
    return left
