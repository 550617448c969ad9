"""Derby's own LogAccessFile and ours, fed the same calls: the same bytes after each of them."""

from __future__ import annotations

import random

import pytest

from tallystick.errors import LogWriteError
from tallystick.systems.derby.format.layout import LOG_RECORD_FIXED_OVERHEAD_SIZE, make_instant
from tallystick.systems.derby.live.access_file import LogAccessFile
from tests.interop.derby.real import writer_calls

pytestmark = pytest.mark.interop

FILES = 60
CALLS = 60


class Written:
    """Keeps each file write."""

    def __init__(self) -> None:
        self.writes: list[str] = []

    def pwrite(self, data: bytes | memoryview, offset: int) -> None:  # noqa: ARG002
        self.writes.append(data.hex())

    def datasync(self) -> None: ...

    def close(self) -> None: ...


class Twin:
    """Makes random calls on our writer, and notes each as a line for the original."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        size, minor = chance.choice([60, 100, 300, 8192]), chance.choice([0, 1, 14])
        self.file = Written()
        self.writer = LogAccessFile(self.file, 24, buffer_size=size, checksums=minor > 0)
        self.end = 24
        self.lines = [f"new {size} {minor}"]
        self.answers: list[str] = [self.answer("null")]

    def answer(self, result: object) -> str:
        writes, self.file.writes = self.file.writes, []
        return f"{result} {','.join(writes)} {self.writer.current.bytes_free}"

    def call(self, line: str, result: object = "null") -> None:
        self.lines.append(line)
        self.answers.append(self.answer(result))

    def step(self) -> None:
        kind = self.chance.choice(["record"] * 4 + ["small", "full", "switch", "dirty", "flush"])
        if kind == "record":
            self.record()
        elif kind == "small":
            self.small_calls()
        elif kind == "full":
            self.full()
        else:
            flushes = {
                "switch": self.writer.switch_log_buffer,
                "dirty": self.writer.flush_dirty_buffers,
                "flush": self.writer.flush_log_access_file,
            }
            flushes[kind]()
            self.call(kind)

    def reserve(self, length: int) -> int:
        reserved = self.writer.reserve_space_for_checksum(length, 3, self.end)
        self.call(f"reserve {length} 3 {self.end}", reserved)
        self.end += reserved
        return make_instant(3, self.end)

    def array(self, largest: int) -> tuple[bytes, int, int]:
        data = self.chance.randbytes(self.chance.randint(1, largest))
        offset = self.chance.randrange(len(data))
        return data, offset, self.chance.randint(1, len(data) - offset)

    def record(self) -> None:
        data, offset, size = self.array(200)
        optional, optional_offset, optional_size = self.array(200)
        if self.chance.random() < 0.5:
            optional, optional_offset, optional_size = b"", 0, 0
        length = size + optional_size
        instant = self.reserve(length)
        extra = (optional, optional_offset, optional_size)
        self.writer.write_log_record(length, instant, data, offset, *extra)
        given = f"{data.hex()} {offset} {optional.hex() or '-'} {optional_offset} {optional_size}"
        self.call(f"record {length} {instant} {given}")
        self.end += length + LOG_RECORD_FIXED_OVERHEAD_SIZE

    def small_calls(self) -> None:
        data, offset, size = self.array(20)
        self.reserve(size + 6)
        if self.writer.current.bytes_free < size + 22:
            return
        number = self.chance.randint(-(1 << 31), (1 << 31) - 1)
        self.writer.write_int(number)
        self.call(f"int {number}")
        number = self.chance.randint(-(1 << 63), (1 << 63) - 1)
        self.writer.write_long(number)
        self.call(f"long {number}")
        number = self.chance.randint(-1000, 1000)
        self.writer.write(number)
        self.call(f"byte {number}")
        self.writer.write(data, offset, size)
        self.call(f"bytes {data.hex()} {offset} {size}")
        self.end += size + 4 + 8 + 1

    def full(self) -> None:
        """Both refuse bytes that the buffer cannot hold, or that are outside the array."""
        self.reserve(1)
        free = self.writer.current.bytes_free
        data = self.chance.randbytes(3)
        for given, offset, size in ((bytes(free + 1), 0, free + 1), (data, 2, 2), (data, -1, 1)):
            with pytest.raises(LogWriteError):
                self.writer.write(given, offset, size)
            self.call(f"bytes {given.hex()} {offset} {size}", "ArrayIndexOutOfBoundsException")
        self.writer.write(7)
        self.call("byte 7")
        self.end += 1

    def finish(self) -> None:
        marker = self.chance.choice([0, 0, 5, -1])
        self.writer.write_end_marker(marker)
        self.call(f"end {marker}")


def test_derbys_own_class_writes_the_same_bytes() -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    lines, answers = list[str](), list[str]()
    for _ in range(FILES):
        twin = Twin(chance)
        for _ in range(CALLS):
            twin.step()
        twin.finish()
        lines += twin.lines
        answers += twin.answers
    found = writer_calls(lines)
    assert len(found) == len(answers)
    for line, ours, theirs in zip(lines, answers, found, strict=True):
        assert ours == theirs, f"seed {seed}: {line}"
