"""The buffered writer against call sequences recorded on the engine's own, old and new."""

from __future__ import annotations

import dataclasses
import errno
import json
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.errors import LogFullError, LogWriteError
from tallystick.systems.derby.format.crypto import LogCipher
from tallystick.systems.derby.format.layout import (
    CHECKSUM_OPERATION,
    END_MARKER,
    HEADER_SIZE,
    LOG_RECORD_FIXED_OVERHEAD_SIZE,
    encode_header,
    make_instant,
)
from tallystick.systems.derby.live.access_file import LogAccessFile, checksum_record_size
from tests.fixtures import fixture_dir
from tests.kit import same_json
from tests.systems.derby.logs import CASES, log_bytes, manifest, reading

VECTORS = json.loads((fixture_dir("derby") / "buffer-vectors.json").read_text())["vectors"]
TAILS = json.loads((fixture_dir("derby") / "writer-vectors/vectors.json").read_text())
NOT_A_WRITERS = {"empty-group", "short-checksum", "nested-checksum", "instant-too-large"}
"""Tails that no writer makes: their envelopes were made by hand."""


class RecordingFile:
    """Records the calls; fails as often as requested."""

    def __init__(self, position: int = 0) -> None:
        self.start = position
        self.calls: list[list[Any]] = []
        self.content = bytearray()
        self.failing_writes = self.failing_syncs = 0

    def pwrite(self, data: bytes | memoryview, offset: int) -> None:
        if self.failing_writes:
            self.failing_writes -= 1
            self.calls.append(["write-failed", len(data)])
            raise OSError(errno.EIO, "made to fail")
        self.calls.append(["write", len(data), f"{zlib.crc32(data):08x}"])
        place = offset - self.start
        self.content[place : place + len(data)] = data

    def datasync(self) -> None:
        if self.failing_syncs:
            self.failing_syncs -= 1
            self.calls.append(["sync-failed"])
            raise OSError(errno.EIO, "made to fail")
        self.calls.append(["sync"])

    def close(self) -> None:
        self.calls.append(["close"])


class Player:
    """Plays one vector."""

    def __init__(self, vector: dict[str, Any], in_parts: bool) -> None:
        self.number, self.end = vector["file_number"], vector["start_position"]
        self.file = RecordingFile(self.end)
        self.writer = LogAccessFile(
            self.file,
            self.end,
            buffer_size=vector["buffer_size"],
            checksums=tuple(vector["store_version"]) >= (10, 1),
            in_parts=in_parts,
            pause=lambda _: None,
        )
        self.appends = 0

    def play(self, op: str) -> dict[str, Any]:
        before = len(self.file.calls)
        result = self._result(op)
        return {
            "op": op,
            "result": result,
            "io": self.file.calls[before:],
            "position": self.writer.current.position,
            "bytes_free": self.writer.current.bytes_free,
            "free": len(self.writer.free),
            "dirty": len(self.writer.dirty),
        }

    def _result(self, op: str) -> Any:
        try:
            return self._run(op)
        except LogFullError:
            return "StandardException XSLA4"
        except OSError:
            return "IOException"

    def _run(self, op: str) -> Any:
        name, *numbers = op.split(":")
        if name == "a":
            return self._append(*map(int, numbers))
        if name == "fail":
            self.file.failing_writes = int(numbers[0])
        elif name == "sfail":
            self.file.failing_syncs = int(numbers[0])
        else:
            calls = {
                "flush": self.writer.flush_log_access_file,
                "switch": self.writer.switch_log_buffer,
                "dirty": self.writer.flush_dirty_buffers,
                "sync": self.writer.sync_log_access_file,
                "end": lambda: self.writer.write_end_marker(END_MARKER),
                "close": self.writer.close,
                "corrupt": self.writer.corrupt,
            }
            calls[name]()
        return None

    def _append(self, size: int, optional_size: int = 0) -> list[int]:
        index = self.appends
        self.appends += 1
        data = bytes((31 * index + 7 * k + 1) % 256 for k in range(size))
        optional = bytes((17 * index + 5 * k + 2) % 256 for k in range(optional_size))
        length = size + optional_size
        reserved = self.writer.reserve_space_for_checksum(length, self.number, self.end)
        self.end += reserved
        place = self.end
        self.writer.write_log_record(
            length, make_instant(self.number, place), data, 0, optional, 0, optional_size
        )
        self.end += length + 16
        return [reserved, place, self.end]


@pytest.mark.parametrize("in_parts", [False, True], ids=["10.14", "10.1"])
@pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
def test_calls_bytes_and_lists_are_those_of_the_engines_writer(
    vector: dict[str, Any], in_parts: bool
) -> None:
    trace = vector["trace_10_14"]
    if in_parts and vector["trace_10_1"] != "same":
        trace = vector["trace_10_1"]
    player = Player(vector, in_parts)
    same_json([player.play(op) for op in vector["ops"]], trace)
    content = bytes(player.file.content)
    assert len(content) == vector["total_bytes"]
    assert f"{zlib.crc32(content):08x}" == vector["crc32"]
    if "bytes_hex" in vector:
        assert content.hex() == vector["bytes_hex"]


@pytest.mark.parametrize("tail", TAILS, ids=[tail["name"] for tail in TAILS])
def test_tails_from_record_bodies(tail: dict[str, Any]) -> None:
    if tail["name"] in NOT_A_WRITERS:
        assert written(tail).hex() != tail["bytes_hex"]
    else:
        assert written(tail).hex() == tail["bytes_hex"]


def written(tail: dict[str, Any]) -> bytes:
    bodies = [bytes.fromhex(body) for body in tail["record_bodies_hex"]]
    return rebuilt(bodies, tail["append_at"], checksums=tail["checksum_record"])


def rebuilt(
    bodies: list[bytes], position: int, *, number: int = 1, checksums: bool = True
) -> bytes:
    """One group of these bodies, as the writer writes it at ``position``."""
    file = RecordingFile(position)
    writer = LogAccessFile(file, position, checksums=checksums)
    end = position
    for body in bodies:
        end += writer.reserve_space_for_checksum(len(body), number, end)
        writer.write_log_record(len(body), make_instant(number, end), body)
        end += len(body) + 16
    writer.flush_log_access_file()
    return bytes(file.content)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", [case for case in CASES if "encrypted" not in case])
def test_fixture_files_are_rebuilt_byte_for_byte_from_bodies_and_flush_points(case: str) -> None:
    groups: dict[str, list[list[bytes]]] = {}
    for record in reading(case).records():
        of_file = groups.setdefault(record.file, [])
        if record.attributes["fid"] == CHECKSUM_OPERATION:
            of_file.append([])
        else:
            assert record.body is not None
            of_file[-1].append(record.body)
    for header, content in zip(manifest(case)["file_headers"], groups.values(), strict=True):
        original = log_bytes(case, header["name"])
        previous = int.from_bytes(original[16:24])
        ours = encode_header(header["number"], previous) + body_of_file(header["number"], content)
        assert ours.ljust(len(original), b"\0") == original


def body_of_file(number: int, groups: list[list[bytes]]) -> bytes:
    file = RecordingFile(HEADER_SIZE)
    writer = LogAccessFile(file, HEADER_SIZE)
    end = HEADER_SIZE
    for group in groups:
        for body in group:
            end += writer.reserve_space_for_checksum(len(body), number, end)
            writer.write_log_record(len(body), make_instant(number, end), body)
            end += len(body) + 16
        writer.flush_log_access_file()
    return bytes(file.content)


def test_encrypted_checksum_record_fills_cipher_blocks() -> None:
    assert checksum_record_size(None) == 37
    assert checksum_record_size(LogCipher("DES/CBC/NoPadding", bytes(8))) == 40
    cipher = LogCipher("AES/CBC/NoPadding", bytes(16))
    assert checksum_record_size(cipher) == 48
    file = RecordingFile(HEADER_SIZE)
    writer = LogAccessFile(file, HEADER_SIZE, cipher=cipher)
    sealed = cipher.encrypt(bytes(32))
    assert writer.reserve_space_for_checksum(len(sealed), 1, HEADER_SIZE) == 48
    writer.write_log_record(len(sealed), make_instant(1, HEADER_SIZE + 48), sealed)
    writer.flush_log_access_file()
    clear = cipher.decrypt(bytes(file.content[12:44]))
    assert clear.startswith(bytes.fromhex("0081 4900 0000 01c5 01"))
    assert int.from_bytes(clear[13:21]) == zlib.crc32(file.content[48:])


# -- the members, one by one --------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Cut:
    """An array, and the part of it that is to be written."""

    array: bytes
    offset: int
    length: int

    @property
    def part(self) -> bytes:
        return self.array[self.offset : self.offset + self.length]


@st.composite
def cuts(draw: st.DrawFn, smallest: int) -> Cut:
    array = draw(st.binary(min_size=smallest, max_size=300))
    offset = draw(st.integers(0, len(array) - smallest))
    return Cut(array, offset, draw(st.integers(smallest, len(array) - offset)))


@given(
    records=st.lists(st.tuples(cuts(1), cuts(0), st.booleans()), max_size=12),
    buffer_size=st.integers(40, 400),
    checksums=st.booleans(),
    in_parts=st.booleans(),
)
def test_record_looks_as_if_written_by_the_small_calls(
    records: list[tuple[Cut, Cut, bool]], buffer_size: int, checksums: bool, in_parts: bool
) -> None:
    file, small = RecordingFile(), RecordingFile()
    one = LogAccessFile(file, 0, buffer_size=buffer_size, checksums=checksums, in_parts=in_parts)
    many = LogAccessFile(small, 0, buffer_size=buffer_size, checksums=checksums, in_parts=in_parts)
    end = 0
    for data, optional, flushed in records:
        length = data.length + optional.length
        reserved = one.reserve_space_for_checksum(length, 1, end)
        assert many.reserve_space_for_checksum(length, 1, end) == reserved
        end += reserved
        instant = make_instant(1, end)
        one.write_log_record(
            length,
            instant,
            data.array,
            data.offset,
            optional.array,
            optional.offset,
            optional.length,
        )
        if length + LOG_RECORD_FIXED_OVERHEAD_SIZE <= many.current.bytes_free:
            by_small_calls(many, instant, data, optional)
        else:
            many.flush_log_access_file()
            large = LogAccessFile(small, many.position, buffer_size=1000, checksums=checksums)
            assert large.reserve_space_for_checksum(length, 1, end - reserved) == reserved
            by_small_calls(large, instant, data, optional)
            large.flush_log_access_file()
            many.position = large.position
        end += length + LOG_RECORD_FIXED_OVERHEAD_SIZE
        if flushed:
            one.flush_log_access_file()
            many.flush_log_access_file()
    one.write_end_marker(END_MARKER)
    many.write_end_marker(END_MARKER)
    assert bytes(file.content) == bytes(small.content)
    assert len(file.content) == end + 4


def by_small_calls(writer: LogAccessFile, instant: int, data: Cut, optional: Cut) -> None:
    writer.write_int(data.length + optional.length)
    writer.write_long(instant)
    writer.write(data.array, data.offset, data.length)
    for byte in optional.part:
        writer.write(byte)
    writer.write_int(data.length + optional.length)


def test_counters_are_the_writes_that_succeeded_and_their_bytes() -> None:
    file = RecordingFile()
    writer = LogAccessFile(file, 0, buffer_size=100, checksums=False, in_parts=True)
    assert (writer.mon_num_writes_to_log, writer.mon_num_bytes_to_log) == (0, 0)
    writer.write_log_record(4, 1, b"data")
    assert writer.mon_num_writes_to_log == 0
    file.failing_writes = 3
    writer.flush_log_access_file()
    assert (writer.mon_num_writes_to_log, writer.mon_num_bytes_to_log) == (1, 20)
    writer.write_log_record(150, 2, bytes(120), 0, bytes(30), 0, 30)
    assert (writer.mon_num_writes_to_log, writer.mon_num_bytes_to_log) == (5, 186)
    writer.write_end_marker(END_MARKER)
    assert (writer.mon_num_writes_to_log, writer.mon_num_bytes_to_log) == (6, 190)


def test_nothing_is_written_in_the_place_of_what_could_not_be() -> None:
    file = RecordingFile()
    writer = LogAccessFile(file, 0, buffer_size=50, checksums=False, write_attempts=2, final=True)
    writer.write_log_record(2, 1, b"ab")
    file.failing_writes = 2
    with pytest.raises(OSError, match="made to fail"):
        writer.flush_log_access_file()
    writer.write_log_record(2, 2, b"cd")
    for write in (writer.flush_log_access_file, lambda: writer.write_end_marker(END_MARKER)):
        with pytest.raises(OSError, match="made to fail"):
            write()
    assert file.content == b""


def test_large_record_without_reservation_stays_after_what_was_buffered() -> None:
    file = RecordingFile()
    writer = LogAccessFile(file, 0, buffer_size=50, checksums=False)
    writer.write_log_record(2, 1, b"ab")
    writer.write_log_record(60, 2, b"c" * 60)
    assert file.content[12:14] == b"ab"
    assert file.content[30:90] == b"c" * 60


@pytest.mark.parametrize("marker", [0, 7, -1])
def test_end_marker_has_the_value_given(marker: int) -> None:
    file = RecordingFile()
    LogAccessFile(file, 0).write_end_marker(marker)
    assert file.content == marker.to_bytes(4, signed=True)


CONTRADICTIONS: dict[str, Callable[[LogAccessFile], None]] = {
    "offset-after-data": lambda w: w.write_log_record(5, 1, b"12345", 1),
    "offset-negative": lambda w: w.write_log_record(3, 1, b"12345", -1),
    "data-too-short": lambda w: w.write_log_record(6, 1, b"12345"),
    "length-zero": lambda w: w.write_log_record(0, 1, b""),
    "optional-larger-than-length": lambda w: w.write_log_record(2, 1, b"12", 0, b"345", 0, 3),
    "optional-offset-outside": lambda w: w.write_log_record(4, 1, b"12", 0, b"345", 2, 2),
    "optional-length-negative": lambda w: w.write_log_record(1, 1, b"12", 0, b"345", 0, -1),
    "bytes-outside": lambda w: w.write(b"12", 1, 2),
    "bytes-length-negative": lambda w: w.write(b"12", 1, -1),
    "int-too-large": lambda w: w.write_int(1 << 31),
    "long-too-large": lambda w: w.write_long(1 << 63),
    "larger-than-the-buffer": lambda w: w.write(bytes(100)),
    "marker-too-large": lambda w: w.write_end_marker(1 << 31),
    "longer-than-reserved": lambda w: w.write_log_record(70, 1, bytes(70)),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_contradiction_is_refused_and_nothing_is_written(case: str) -> None:
    file = RecordingFile()
    writer = LogAccessFile(file, 0, buffer_size=110)
    writer.write_log_record(1, writer.reserve_space_for_checksum(1, 1, 0), b"a")
    position = writer.current.position
    with pytest.raises(LogWriteError):
        CONTRADICTIONS[case](writer)
    assert file.calls == []
    assert writer.current.position == position
    writer.flush_log_access_file()
    assert file.content[37 + 12 : 37 + 13] == b"a"
    assert len(file.content) == 37 + 17


@pytest.mark.parametrize("size", [1, 100], ids=["buffered", "direct"])
def test_group_without_a_reserved_place_is_refused(size: int) -> None:
    file = RecordingFile()
    writer = LogAccessFile(file, 0, buffer_size=110)
    writer.reserve_space_for_checksum(size, 1, 0)
    writer.write_log_record(size, 37, bytes(size))
    writer.flush_log_access_file()
    before = bytes(file.content)
    with pytest.raises(LogWriteError, match="reserve_space_for_checksum"):
        writer.write_log_record(size, len(before), bytes(size))
    with pytest.raises(LogWriteError, match="reserve_space_for_checksum"):
        writer.write(b"a")
    writer.flush_log_access_file()
    assert file.content == before
