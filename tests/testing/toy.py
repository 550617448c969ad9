"""A small log to test the kit with, and the ways in which such logs are usually wrong."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator, Sequence

from tallystick.storage.crc import crc32
from tallystick.storage.files import File, FileSystem, read_file
from tallystick.storage.group.ticket import GroupTicket
from tallystick.storage.group.writer import GroupWriter

HEADER = struct.Struct("<II")
FOLDER = "/logs"


def encode(body: bytes) -> bytes:
    return HEADER.pack(len(body), crc32(struct.pack("<I", len(body)) + body)) + body


def decode(data: bytes) -> Iterator[bytes]:
    place = 0
    while place + HEADER.size <= len(data):
        size, checksum = HEADER.unpack_from(data, place)
        body = data[place + HEADER.size : place + HEADER.size + size]
        if len(body) != size or crc32(struct.pack("<I", size) + body) != checksum or not size:
            return
        yield body
        place += HEADER.size + size


class ToyLog:
    """Right by default; each defect is one that real logs had."""

    def __init__(
        self, fs: FileSystem, folder: str = FOLDER, *, defects: Sequence[str] = ()
    ) -> None:
        self._defects = defects
        self._folder = folder
        self._path = f"{folder}/toy.log"
        self._fs = fs
        self._file = self._open()
        self.bodies = list(decode(self._file.pread(self._file.size(), 0)))
        self._end = sum(HEADER.size + len(body) for body in self.bodies)
        if "keeps torn tail" in defects:
            self._end = self._file.size()
        elif self._file.size() > self._end:
            self._file.truncate(self._end)
            self._file.datasync()
        self._count = len(self.bodies)
        self.writer: GroupWriter[bytes] = GroupWriter(self._write, self._sync, name=self._path)

    def append(self, body: bytes) -> GroupTicket[bytes]:
        record = encode(body)
        return self.writer.submit(record, len(record))

    def commit(self, body: bytes) -> int:
        record = encode(body)
        return self.writer.commit(record, len(record))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.writer.close()
        self._file.close()

    def _open(self) -> File:
        self._fs.mkdir(self._folder)
        new = not self._fs.exists(self._path)
        file = self._fs.create(self._path) if new else self._fs.open(self._path)
        if "no directory sync" not in self._defects:
            self._fs.sync_dir(self._folder)
        return file

    def _write(self, records: list[bytes]) -> range:
        data = b"".join(records)
        self._file.pwrite(data, self._end)
        self._end += len(data)
        first, self._count = self._count, self._count + len(records)
        return range(first, self._count)

    def _sync(self) -> None:
        if "no sync" not in self._defects:
            self._file.datasync()


def recover(fs: FileSystem, folder: str = FOLDER) -> list[bytes]:
    """Restart: return what it finds; it may write, as it cuts a torn tail."""
    log = ToyLog(fs, folder)
    log.close()
    return log.bodies


def recover_reading(fs: FileSystem, folder: str = FOLDER) -> list[bytes]:
    """Return what a restart would find, without writing."""
    path = f"{folder}/toy.log"
    return list(decode(read_file(fs, path))) if fs.exists(path) else []
