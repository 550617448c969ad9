"""Derby logs for tests: the fixtures, and copies of them with damage."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from tallystick.reading.discovery import discover
from tallystick.systems.derby import SYSTEM
from tallystick.systems.derby.engine.page_versions import RedonePage
from tallystick.systems.derby.engine.result import Recovery
from tallystick.systems.derby.format.layout import (
    CHECKSUM_RECORD_SIZE,
    encode_checksum_body,
    encode_record,
)
from tallystick.systems.derby.reader import DerbyReading
from tallystick.systems.protocol import ReadOptions
from tests.fixtures import fixture_dir

Patch = Callable[[bytearray], bytes | bytearray | None]
"""Damage: the bytes of a file changed, or None to remove the file."""

CASES = sorted(path.parent.name for path in fixture_dir("derby").glob("*/manifest.json"))
ESTATES = sorted(path.parent.name for path in fixture_dir("estate").glob("*/manifest.json"))


def manifest(case: str) -> dict[str, Any]:
    """The case's manifest."""
    found: dict[str, Any] = json.loads((fixture_dir("derby") / case / "manifest.json").read_text())
    return found


def oracle(case: str) -> list[dict[str, Any]]:
    """The engine's list of records."""
    path = fixture_dir("derby") / case / "oracle.jsonl.gz"
    with gzip.open(path, "rt") as lines:
        return [json.loads(line) for line in lines]


def options(case: str) -> ReadOptions:
    """With the case's key, if it has one."""
    key = manifest(case).get("key_hex")
    return ReadOptions(encryption_key=bytes.fromhex(key) if key else None)


def reading_of(folder: Path, options: ReadOptions | None = None) -> DerbyReading:
    """A reading of the one log below the folder."""
    (source,) = discover(folder, known=[SYSTEM]).logs
    return DerbyReading(source, options or ReadOptions())


def reading(case: str) -> DerbyReading:
    """A reading of a fixture with its key."""
    return reading_of(fixture_dir("derby") / case, options(case))


def unpacked(path: Path) -> bytes:
    """The bytes of a file, unpacked."""
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def log_bytes(case: str, name: str = "log1.dat") -> bytes:
    """The bytes of a log file of a fixture."""
    return unpacked(fixture_dir("derby") / case / "log" / f"{name}.gz")


def copy(case: str, into: Path, patches: Mapping[str, Patch | None] | None = None) -> Path:
    """An unpacked copy of a fixture's database folder, damaged; a patch of None removes a file."""
    origin = fixture_dir("derby") / case
    (into / "log").mkdir(parents=True)
    (into / "service.properties").write_bytes((origin / "service.properties").read_bytes())
    for path in (origin / "log").iterdir():
        name = path.name.removesuffix(".gz")
        content: bytes | bytearray = unpacked(path)
        if patches and name in patches:
            patch = patches[name]
            if patch is None:
                continue
            content = patch(bytearray(content)) or b""
        (into / "log" / name).write_bytes(content)
    return into


def append(data: bytes, at: int) -> Patch:
    """Put bytes into a preallocated file."""

    def patch(content: bytearray) -> bytearray:
        content[at : at + len(data)] = data
        return content

    return patch


def group_at(instant: int, bodies: Iterable[bytes], *, broken: bool = False) -> bytes:
    """Return records of these bodies after their checksum, which is a wrong one if broken."""
    records = b""
    for body in bodies:
        records += encode_record(instant + CHECKSUM_RECORD_SIZE + len(records), body)
    checksum = encode_checksum_body(len(records), zlib.crc32(records) ^ broken)
    return encode_record(instant, checksum) + records


def flip(at: int, bit: int = 0) -> Patch:
    """Turn one bit."""

    def patch(content: bytearray) -> bytearray:
        content[at] ^= 1 << bit
        return content

    return patch


def cut(at: int) -> Patch:
    """Keep the first bytes only."""
    return lambda content: content[:at]


def zero(begin: int, end: int) -> Patch:
    """Overwrite with zeros."""
    return append(bytes(end - begin), begin)


def redone_pages(recovery: Recovery) -> Iterator[RedonePage]:
    """The pages that a boot redoes, those of a container together."""
    return chain.from_iterable(recovery.by_container())
