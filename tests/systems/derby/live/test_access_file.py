"""The buffered writer against call sequences recorded on the engine's own, old and new."""

from __future__ import annotations

import errno
import json
import zlib
from typing import Any

import pytest

from tallystick.errors import LogFullError
from tallystick.systems.derby.format.crypto import LogCipher
from tallystick.systems.derby.format.layout import (
    CHECKSUM_OPERATION,
    HEADER_SIZE,
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
                "end": self.writer.write_end_marker,
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
        self.writer.write_log_record(make_instant(self.number, place), data, optional)
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
        writer.write_log_record(make_instant(number, end), body)
        end += len(body) + 16
    writer.flush_log_access_file()
    return bytes(file.content)


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
            writer.write_log_record(make_instant(number, end), body)
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
    writer.write_log_record(make_instant(1, HEADER_SIZE + 48), sealed)
    writer.flush_log_access_file()
    clear = cipher.decrypt(bytes(file.content[12:44]))
    assert clear.startswith(bytes.fromhex("0081 4900 0000 01c5 01"))
    assert int.from_bytes(clear[13:21]) == zlib.crc32(file.content[48:])
