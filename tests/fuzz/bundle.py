"""The files of a log as one byte string, which is what a fuzzer mutates and keeps."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tallystick.testing import MemoryFileSystem

Bundle = dict[str, bytes]
"""Contents of files by their paths in the folder of the log."""

UNPACKED_MAX = 1 << 20
"""Bytes of all files of a mutant, at most."""
_NAME = struct.Struct(">B")
_SIZE = struct.Struct(">I")


def encode(files: Mapping[str, bytes | bytearray]) -> bytes:
    """Return the files as one string, packed: logs hold many zeros."""
    parts: list[bytes | bytearray] = []
    for name, content in sorted(files.items()):
        raw = name.encode()
        parts += [_NAME.pack(len(raw)), raw, _SIZE.pack(len(content)), content]
    return zlib.compress(b"".join(parts), 6)


def decode(data: bytes) -> Bundle | None:
    """Return the files; None if the string is none that `encode` made."""
    try:
        stream = zlib.decompressobj()
        raw = stream.decompress(data, UNPACKED_MAX)
        files: Bundle = {}
        at = 0
        while at < len(raw):
            (length,) = _NAME.unpack_from(raw, at)
            name = raw[at + 1 : at + 1 + length].decode()
            (size,) = _SIZE.unpack_from(raw, at := at + 1 + length)
            files[name] = raw[at + 4 : (at := at + 4 + size)]
    except (zlib.error, struct.error, UnicodeDecodeError):
        return None
    safe = all(name and not name.startswith("/") and ".." not in name for name in files)
    return files if stream.eof and at == len(raw) and safe else None


def of_memory(fs: MemoryFileSystem, folder: str) -> Bundle:
    """Return the files below a folder of a file system in memory."""
    prefix = f"{folder}/"
    return {
        path.removeprefix(prefix): bytes(content)
        for path, content in fs.contents().items()
        if path.startswith(prefix)
    }


def in_memory(files: Bundle, folder: str) -> MemoryFileSystem:
    """Return a file system in memory with these files below a folder; it notes no crash states."""
    return _Uncrashed({f"{folder}/{name}": content for name, content in files.items()})


class _Uncrashed(MemoryFileSystem):
    """Files in memory of which nobody asks what a crash would leave: writes cost their bytes."""

    def apply(self, call: str, *arguments: Any) -> None:
        """Change the disk; of what a write changes only the visible bytes are kept."""
        with self._mutex:
            if call == "write" and arguments[1]:
                number, data, offset = arguments
                content = self.disk.inodes[number].data
                content.extend(bytes(max(0, offset - len(content))))
                content[offset : offset + len(data)] = data
            elif call == "truncate":
                number, size = arguments
                content = self.disk.inodes[number].data
                content.extend(bytes(max(0, size - len(content))))
                del content[size:]
            elif call not in ("write", "sync"):
                super().apply(call, *arguments)


def write(files: Bundle, folder: Path) -> None:
    """Write the files into a folder."""
    for name, content in files.items():
        path = folder / name
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True)
        path.write_bytes(content)
