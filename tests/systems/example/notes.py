"""Bytes <-> notes, and the log that is written."""

from struct import Struct
from typing import NamedTuple

from tallystick.records import Outcome
from tallystick.storage.crc import crc32
from tallystick.storage.files import FileSystem
from tallystick.storage.local import LOCAL

MAGIC = b"NOTES 1\n"
HEAD = Struct(">II")  # length of the body in bytes, CRC-32 of the magic bytes and the body


class Note(NamedTuple):
    offset: int
    size: int
    body: bytes
    reason: str = ""  # why it is torn

    @property
    def outcome(self) -> Outcome:
        return Outcome.TORN if self.reason else Outcome.VALID


def encode(body: bytes) -> bytes:
    # The magic bytes keep the checksum of an empty body from being 0: a crash can leave zeros.
    return HEAD.pack(len(body), crc32(MAGIC + body)) + body


def decode(data: bytes) -> list[Note]:
    """Return the notes of a file; a torn one is the last and ends with the file."""
    found, place = list[Note](), len(MAGIC)
    while place < len(data):
        head = data[place : place + HEAD.size].ljust(HEAD.size, b"\xff")
        body = data[place + HEAD.size : place + HEAD.size + HEAD.unpack(head)[0]]
        if encode(body) != head + body:
            return [*found, Note(place, len(data) - place, body, "the last note is torn")]
        found.append(Note(place, HEAD.size + len(body), body))
        place += found[-1].size
    return found


class NotesLog:
    """Notes in one file; each is durable when `append` returns."""

    def __init__(self, folder: str, *, fs: FileSystem = LOCAL) -> None:
        path = f"{folder}/log.notes"
        fs.mkdir(folder)
        self._file = fs.open(path) if fs.exists(path) else fs.create(path)
        fs.sync_dir(folder)
        self.notes = [n for n in decode(self._file.pread(self._file.size(), 0)) if not n.reason]
        self._file.truncate(len(MAGIC) + sum(note.size for note in self.notes))
        self._file.pwrite(MAGIC, 0)
        self._file.datasync()

    def append(self, body: bytes) -> None:
        self._file.pwrite(encode(body), self._file.size())
        self._file.datasync()

    def close(self) -> None:
        self._file.close()
