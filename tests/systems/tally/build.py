"""Small native logs for tests, in memory."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import pytest

from tallystick.records import Record, State, Xid
from tallystick.storage.files import FileSystem
from tallystick.systems.protocol import LogSource, ReadOptions
from tallystick.systems.tally.format.bodies import encode_names, encode_note, encode_row
from tallystick.systems.tally.format.columns import UnplacedRecord
from tallystick.systems.tally.format.kinds import Code
from tallystick.systems.tally.live.items import UnplacedEnding
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.settings import Settings
from tallystick.systems.tally.read.files import access_through
from tallystick.systems.tally.reader import TallyReading
from tallystick.testing import MemoryFileSystem

FOLDER = "/log"


def say(capsys: pytest.CaptureFixture[str], text: str) -> None:
    """Print a count past pytest's capture."""
    with capsys.disabled():
        sys.stdout.write(f"\n{text}\n")


TINY = Settings(segment_size=16 << 10, preallocate=False, idle_mark_s=None)
XID = Xid(77, b"node\x00\x01", b"branch")


def reading(fs: FileSystem, key: bytes | None = None, folder: str = FOLDER) -> TallyReading:
    """A reading of the log in ``folder``."""
    paths = tuple(f"{folder}/{name}" for name in fs.list(folder))
    return TallyReading(
        LogSource("tally", folder, paths), ReadOptions(encryption_key=key), access_through(fs)
    )


def bodies(records: Iterable[Record]) -> list[bytes]:
    """The bodies of plain records."""
    return [one.body or b"" for one in records if one.type == "append"]


def tiny_log(fs: FileSystem) -> TallyLog:
    """An open log of 16 KiB segments."""
    return TallyLog(FOLDER, settings=TINY, fs=fs)


def every_item() -> list[UnplacedRecord | UnplacedEnding]:
    """At least one record of every code that callers submit."""
    return [
        UnplacedRecord(Code.APPEND, b"plain"),
        UnplacedRecord(Code.ADD, b"one", None, 1, 5),
        UnplacedRecord(Code.UPDATE, b"two", None, 1),
        UnplacedRecord(Code.ADD, b"", None, 2),
        UnplacedRecord(Code.DELETE, b"", None, 2),
        UnplacedRecord(Code.BEGIN, b"", 7),
        UnplacedRecord(Code.ADD, b"in", 7, 3, -3),
        UnplacedRecord(Code.APPEND, b"plain in", 7),
        UnplacedEnding(Code.COMMIT, 7),
        UnplacedRecord(Code.ADD, b"doubt", 8, 4),
        UnplacedEnding(Code.PREPARE, 8, XID, b"extra"),
        UnplacedRecord(Code.ADD, b"back", 9, 5),
        UnplacedRecord(Code.ROLLBACK, b"", 9),
        UnplacedRecord(Code.UNDO, b"image", None, 11),
        UnplacedRecord(Code.UNDO_EMPTY, b"", None, 12),
        UnplacedRecord(Code.REDO_ADD, encode_row(3, b"row"), 10, 100),
        UnplacedRecord(Code.REDO_REMOVE, encode_row(3), 10, 101),
        UnplacedRecord(Code.TRUNCATE, encode_row(-1), 10),
        UnplacedEnding(Code.COMMIT, 10),
        UnplacedRecord(Code.CHECKPOINT),
        UnplacedRecord(Code.NOTE, encode_note(State.PREPARED, ["a"]), gtrid=b"g1"),
        UnplacedRecord(Code.DECISION, encode_names(["a", "b"]), gtrid=b"g1"),
        UnplacedRecord(Code.FINISH, encode_names(["a"], b"committed"), gtrid=b"g1"),
        UnplacedRecord(Code.HEURISTIC, encode_names(["c"], b"heuristic"), gtrid=b"g2"),
        UnplacedRecord(Code.SETTLE, gtrid=b"g2"),
        UnplacedRecord(Code.PERSISTED, encode_names(["t"]), key=9),
        UnplacedRecord(Code.DISCARD, key=9),
    ]


def every_kind() -> MemoryFileSystem:
    """A closed log with every kind of record, one group each and all in one group."""
    fs = MemoryFileSystem()
    log = tiny_log(fs)
    for item in every_item():
        log.submit(item).wait()
    for item in every_item()[:5]:
        log.submit(item)
    log.close()
    return fs


def segments_of_plain(count: int = 30, size: int = 900) -> MemoryFileSystem:
    """A closed log of plain records that fills more than two segments."""
    fs = MemoryFileSystem()
    log = tiny_log(fs)
    for number in range(count):
        log.append(b"%06d" % number + bytes([number % 251]) * size).wait()
    log.close()
    return fs
