"""The end of a log, and the compiled core that writes there for a lone caller."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tallystick.core import CORE
from tallystick.errors import LogFullError, LogPoisonedError
from tallystick.storage.crc import crc32
from tallystick.storage.files import Bytes, File
from tallystick.storage.local import LocalFile, LocalFileSystem
from tallystick.systems.tally.format.columns import encode_plain
from tallystick.systems.tally.format.kinds import Code
from tallystick.systems.tally.format.layout import (
    DATA_OFFSET,
    HEADER_SIZE,
    decode_group_header,
    encode_group_header,
)
from tallystick.systems.tally.live.appender import ENTRY, LogEnd
from tallystick.systems.tally.live.items import CommittedRows, encode_committed, size_of_rows
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.roles.undo_redo_log import TallyUndoRedoLog
from tallystick.systems.tally.live.settings import Settings
from tests.need import need

SIZES = [
    0,
    1,
    7,
    8,
    9,
    119,
    120,
    247,
    248,
    249,
    256,
    1000,
    4095,
    8191,
    8192,
    8193,
    20_000,
    65_536,
    65_537,
]


@pytest.mark.parametrize("sector", [512, 4096])
def test_each_byte_of_a_lone_record_is_as_specified(tmp_path: Path, sector: int) -> None:
    settings = Settings(sector_size=sector, segment_size=1 << 20)
    before = None
    with TallyLog(str(tmp_path), settings=settings) as log:
        for number, size in enumerate(SIZES, start=1):
            appender, at = log._appender, log._appender.at
            offset, chain, durable = at.end, at.chain, at.durable_lsn
            body = os.urandom(size)
            assert log.append_durably(body) == number
            data = Path(appender._file.path).read_bytes()[offset : at.end]  # type: ignore[union-attr]
            header = decode_group_header(data, 0)
            assert header is not None
            payload = b"".join(encode_plain(Code.APPEND, [body]).buffers)
            middle = payload.ljust(len(data) - 2 * HEADER_SIZE, b"\0")
            assert len(data) % sector == 0
            assert data == encode_group_header(header) + middle + encode_group_header(header)
            assert (header.offset, header.first_lsn, header.count) == (offset, number, 1)
            assert (header.chain, header.durable_lsn) == (chain, durable)
            assert (header.payload_crc, header.raw) == (crc32(middle), len(payload))
            assert header.tag == log.identity[:8]
            assert before is None or header.time_us >= before
            assert (at.chain, at.time_us) == (header.checksum, header.time_us)
            assert ENTRY.unpack(at.index[-ENTRY.size :]) == (offset, number, header.time_us)
            assert (log.next_lsn, log.durable_lsn) == (number + 1, number)
            assert log._state.plain_lsns == {1: number}
            before = header.time_us
        counters = log.counters
        assert counters.groups == counters.records == counters.fsyncs == len(SIZES)
        assert sum(counters.histogram) == len(SIZES)
        assert counters.bytes >= sum(SIZES)
        assert counters.seconds > 0


ROWS: list[dict[tuple[int, int], bytes | None]] = [
    {},
    {(1, 7): b"row"},
    {(1, 7): b"row", (2, -9): None, (1, 1 << 62): b""},
    {(number, number): bytes(number) for number in range(1, 99)},
    {(1, 1): bytes(60_000)},
    {(1, 1): bytes(66_000), (1, 2): None},
]


@pytest.mark.parametrize("segment_size", [256 << 10, 1 << 20])
def test_each_byte_of_a_lone_transaction_is_as_specified(tmp_path: Path, segment_size: int) -> None:
    role = TallyUndoRedoLog(TallyLog(str(tmp_path), settings=Settings(segment_size=segment_size)))
    log = role.log
    appender, at = log._appender, log._appender.at
    for number, rows in enumerate(ROWS * 3, start=20):
        segment, offset, first = at.segment, at.end, at.next_lsn
        role.commit_rows(number, rows)
        if at.segment != segment:
            offset = DATA_OFFSET
        data = Path(appender._file.path).read_bytes()[offset : at.end]  # type: ignore[union-attr]
        header = decode_group_header(data, 0)
        assert header is not None
        item = CommittedRows(number, rows, size_of_rows(rows))
        payload, (count,) = encode_committed([item], at.segment)
        middle = b"".join(payload.buffers).ljust(len(data) - 2 * HEADER_SIZE, b"\0")
        assert data == encode_group_header(header) + middle + encode_group_header(header)
        assert (header.first_lsn, header.count, header.columns) == (first, count, payload.columns)
        assert log.durable_lsn == at.next_lsn - 1 == first + count - 1
        assert log._state.plain_lsns[at.segment] == log.durable_lsn - 1
        assert log._state.next_transaction == number + 1
    assert log.counters.records == 3 * len(ROWS)
    assert (at.segment > 1) == (segment_size < 1 << 20)
    written, state = log.next_lsn, vars(log._state)
    role.close()
    with TallyLog(str(tmp_path)) as again:
        assert (again.next_lsn, again._state.plain_lsns) == (written, state["plain_lsns"])
        assert again._state.next_transaction == state["next_transaction"]


def _count_lone(log: TallyLog) -> tuple[int, int]:
    """Return the records that the core has written by itself, and those that Python has."""
    by_python = log._writer.counted.records
    return log.counters.records - by_python, by_python


def test_the_core_writes_a_lone_transaction_unless_a_part_of_it_is_in_the_log(
    tmp_path: Path,
) -> None:
    need("core")
    role = TallyUndoRedoLog(TallyLog(str(tmp_path)))
    role.commit_rows(5, {(1, 1): b"one"})
    assert _count_lone(role.log) == (1, 0)
    role.log_row(6, 1, 2, b"two")
    role.flush().wait()
    before = _count_lone(role.log)
    role.commit_rows(6, {(1, 3): b"three"})
    assert _count_lone(role.log) == (before[0], before[1] + 1)
    role.close()


class _StoppedError(BaseException):
    """As `KeyboardInterrupt`, which a test must not raise by accident."""


@pytest.mark.parametrize("error", [_StoppedError, ValueError, None])
def test_a_transaction_that_is_not_encoded_for_the_core_harms_nothing(
    tmp_path: Path, error: type[BaseException] | None
) -> None:
    need("core")
    role = TallyUndoRedoLog(TallyLog(str(tmp_path)))
    at = role.log._appender.at

    def refuse(_item: object) -> None:
        if error:
            raise error

    with mock.patch.dict(at.encoders, {CommittedRows: refuse}):
        if error is _StoppedError:
            with pytest.raises(_StoppedError):
                role.commit_rows(5, {(1, 1): b"one"})
            assert at.next_lsn == 1
        else:
            role.commit_rows(5, {(1, 1): b"one"})
            assert at.next_lsn == 3
    assert not role.log._writer._queue.owned
    before = at.next_lsn
    role.commit_rows(6, {(1, 1): b"two"})
    assert at.next_lsn == before + 2
    role.close()


class _RecordedFile(LocalFile):
    """A real file that notes what is written through it."""

    __slots__ = ("content",)

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.content = bytearray(self.pread(self.size(), 0))

    def pwrite(self, data: Bytes, offset: int) -> None:
        super().pwrite(data, offset)
        if len(self.content) < offset + len(data):
            self.content.extend(bytes(offset + len(data) - len(self.content)))
        self.content[offset : offset + len(data)] = data


class _Recorder(LocalFileSystem):
    def __init__(self) -> None:
        super().__init__()
        self.files: list[_RecordedFile] = []

    def open(self, path: str, *, write: bool = True) -> File:
        return self._noted(_RecordedFile(path, os.O_RDWR if write else os.O_RDONLY))

    def create(self, path: str) -> File:
        return self._noted(_RecordedFile(path, os.O_RDWR | os.O_CREAT | os.O_EXCL))

    def _noted(self, file: _RecordedFile) -> File:
        self.files.append(file)
        return file


def test_nothing_bypasses_a_file_system_that_records(tmp_path: Path) -> None:
    recorder = _Recorder()
    # No thread beside this one writes what is not yet recorded.
    settings = Settings(segment_size=64 << 10, preallocate=False)
    with TallyLog(str(tmp_path), settings=settings, fs=recorder) as log:
        for number in range(200):
            log.append_durably(b"%d " % number * 40)
            log.append(b"one").wait()
        written = [file for file in recorder.files if file._fd >= 0]
        assert written
        for file in written:
            assert bytes(file.content) == file.pread(file.size(), 0)


def test_the_core_writes_to_a_plain_file_of_the_system_alone(tmp_path: Path) -> None:
    need("core")
    with TallyLog(str(tmp_path / "plain")) as log:
        assert type(log._appender.at) is not LogEnd
        assert log._appender.at.write_plain(b"body") == 1
        assert log._appender.at.write_plain(bytearray(b"no bytes")) is None
    recorder = _Recorder()
    with TallyLog(str(tmp_path / "recorded"), fs=recorder) as log:
        assert log._appender.at.write_plain(b"body") is None
    with TallyLog(str(tmp_path / "watched")) as log:
        for name in ("pwrite", "datasync"):
            real, calls = getattr(LocalFile, name), [0]

            def watched(*given: Any, real: Any = real, calls: list[int] = calls) -> None:
                calls[0] += 1
                real(*given)

            with mock.patch.object(LocalFile, name, watched):
                log.append_durably(b"body")
                assert calls == [1]
        log.append_durably(b"body")
        assert calls == [1]
    with TallyLog(str(tmp_path / "packed"), settings=Settings(compression="zlib")) as log:
        assert type(log._appender.at) is LogEnd


@contextlib.contextmanager
def _in_place_of(log: TallyLog, wrong: int) -> Iterator[None]:
    """Have the descriptor of a log's segment lead elsewhere meanwhile, and be known even so."""
    file, at = log._appender._file, log._appender.at
    assert isinstance(file, LocalFile)
    fd, mark, device, inode = file.fd, file.mark, at.device, at.inode
    kept = os.dup(fd)
    os.dup2(wrong, fd)
    with contextlib.suppress(OSError):  # a pipe has no position
        file.mark = os.lseek(fd, 0, os.SEEK_CUR)
    found = os.fstat(fd)
    at.device, at.inode = found.st_dev, found.st_ino
    yield
    os.dup2(kept, fd)
    file.mark, at.device, at.inode = mark, device, inode
    for one in (kept, wrong):
        os.close(one)


def _pipe() -> int:
    """Return a descriptor that takes no offsets: every write at one fails."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


def test_a_segment_without_room_refuses_and_the_log_goes_on_when_there_is(tmp_path: Path) -> None:
    with TallyLog(str(tmp_path)) as log:
        assert log.append_durably(b"one") == 1
        with _in_place_of(log, os.open("/dev/full", os.O_RDWR)):
            for _ in range(2):
                with pytest.raises(LogFullError):
                    log.append_durably(b"refused")
        assert log.append_durably(b"two") == 2
    with TallyLog(str(tmp_path)) as again:
        assert again.next_lsn == 3


def test_a_write_or_sync_that_fails_poisons_the_log(tmp_path: Path) -> None:
    log = TallyLog(str(tmp_path))
    assert log.append_durably(b"one") == 1
    with _in_place_of(log, os.open(os.devnull, os.O_RDONLY)):
        for _ in range(2):
            with pytest.raises(LogPoisonedError) as caught:
                log.append_durably(b"two")
            assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(LogPoisonedError):
        log.append_durably(b"three")
    with pytest.raises(LogPoisonedError):
        log.close()
    with TallyLog(str(tmp_path)) as again:
        assert again.next_lsn == 2


def test_what_the_core_failed_to_write_fails_again_and_leaves_the_end_where_it_was(
    tmp_path: Path,
) -> None:
    need("core")
    log = TallyLog(str(tmp_path))
    log.append_durably(b"one")
    at = log._appender.at
    before = at.end, at.next_lsn, at.chain, bytes(at.index)
    with _in_place_of(log, os.open("/dev/full", os.O_RDWR)):  # there Python says so
        assert at.write_plain(b"two") is None
        assert not at.write(1, 1 << 16, b"columns", b"rest")
    assert before == (at.end, at.next_lsn, at.chain, bytes(at.index))
    with _in_place_of(log, _pipe()), pytest.raises(OSError, match="seek"):
        at.write_plain(b"two")
    with pytest.raises(OSError, match="seek"):
        at.write_plain(b"two")
    with pytest.raises(OSError, match="seek"):
        at.write(1, 1 << 16, b"columns", b"rest")
    assert before == (at.end, at.next_lsn, at.chain, bytes(at.index))
    with pytest.raises(LogPoisonedError):
        log.append_durably(b"three")
    log.abandon()


WRITES_NOTHING = """
#define _GNU_SOURCE
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
ssize_t pwrite(int file, const void *data, size_t size, off_t at) {
    return memmem(data, size, "nothing", 7) ? 0 : syscall(SYS_pwrite64, file, data, size, at);
}
ssize_t pwrite64(int file, const void *data, size_t size, off_t at) {
    return pwrite(file, data, size, at);
}
"""
WRITES = """
import sys
from tallystick.errors import LogPoisonedError
from tallystick.systems.tally.live.log import TallyLog
log = TallyLog(sys.argv[1])
log.append_durably(b"one")
try:
    log.append_durably(b"nothing")
except LogPoisonedError as error:
    print(type(error.__cause__).__name__)
log.abandon()
"""


@pytest.mark.long
def test_a_write_that_writes_nothing_is_not_repeated_for_ever(tmp_path: Path) -> None:
    if (compiler := shutil.which("gcc") or shutil.which("cc")) is None:
        pytest.skip("a C compiler is needed")
    library = tmp_path / "nothing.so"
    compiling = [compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    subprocess.run(compiling, input=WRITES_NOTHING.encode(), check=True)
    loaded = os.environ.get("LD_PRELOAD", "")  # a sanitizer, which has to be the first
    ended = subprocess.run(
        [sys.executable, "-c", WRITES, str(tmp_path / "log")],
        env=os.environ | {"LD_PRELOAD": f"{loaded} {library}"}, stdout=subprocess.PIPE, timeout=60,
        check=True,
    )  # fmt: skip
    assert ended.stdout == b"OSError\n"


def test_the_core_is_in_use_where_it_is_installed(tmp_path: Path) -> None:
    with TallyLog(str(tmp_path)) as log:
        assert (type(log._appender.at) is not LogEnd) == (CORE is not None)


def test_an_index_that_shrinks_during_a_write_is_not_written_beyond(tmp_path: Path) -> None:
    need("core")
    core: Any = CORE

    def shrink(data: bytes) -> int:
        end.index.clear()
        return crc32(data)

    with (tmp_path / "segment").open("w+b") as file:
        end = core.LogEnd(
            bytes(128), 512, 1 << 20, shrink, LocalFile, LocalFile.pwrite, LocalFile.datasync
        )
        file.truncate(8192)
        found = os.fstat(file.fileno())
        end.fd, end.end, end.device, end.inode = file.fileno(), 8192, found.st_dev, found.st_ino
        empty = ctypes.pythonapi.PyByteArray_AsString
        empty.argtypes, empty.restype = [ctypes.py_object], ctypes.c_void_p
        before = ctypes.string_at(empty(bytearray()), ENTRY.size)
        assert end.write(1, 1, b"first", b"rest")
        assert ctypes.string_at(empty(bytearray()), ENTRY.size) == before
