"""Blocks, files and readings for the tests of the block log."""

from __future__ import annotations

import zlib
from pathlib import Path

from tallystick.systems.cloudtran.format import layout
from tallystick.systems.cloudtran.format.entries import (
    Entry,
    EntryKind,
    Operation,
    OperationKind,
    encode_entry,
)
from tallystick.systems.cloudtran.format.layout import Prologue, encode_block, encode_data
from tallystick.systems.cloudtran.read.block_format import SizeTrial
from tallystick.systems.cloudtran.read.header_repair import BlockFinder
from tallystick.systems.cloudtran.read.scan import Block, FileScan
from tallystick.systems.cloudtran.reader import CloudtranReading
from tallystick.systems.protocol import LogSource, ReadOptions
from tests.fixtures import fixture_dir

NAME = "translog-0000000001-20130701T100000Z.ctlog"


def sample(case: str) -> bytes:
    (path, *_) = sorted((fixture_dir("cloudtran") / case / "log").iterdir())
    return path.read_bytes()


def blocks(data: bytes, block_size: int = 512) -> list[Block]:
    finder = BlockFinder(memoryview(data), layout.SIGNATURE, block_size)
    return list(FileScan(finder).blocks())


def content(found: list[Block]) -> list[list[tuple[int, int]]]:
    return [
        [(one.entry.kind, one.entry.number) for one in block.entries]
        for block in found
        if block.readable
    ]


def found_block_size(data: bytes) -> int:
    """Return the disk block size that a trial finds in a file."""
    trial = SizeTrial(layout.SIGNATURE)
    trial.follow(memoryview(data), judge=True)
    return trial.size


def reading(folder: Path, **options: str) -> CloudtranReading:
    files = tuple(sorted(str(path) for path in folder.iterdir()))
    source = LogSource("cloudtran", str(folder), files)
    return CloudtranReading(source, ReadOptions(settings=options))


def entry(number: int, value: bytes = b"v", kind: EntryKind = EntryKind.PERSISTING) -> Entry:
    if kind is EntryKind.PERSISTED:
        return Entry(kind, number, 1, ("a",))
    return Entry(
        kind, number, 1, ("a",), (Operation(None, OperationKind.INSERT, "t", b"k", value),)
    )


def block_data(prologue: Prologue, entries: bytes) -> bytes:
    packed = zlib.compress(entries) if prologue.codec == layout.CODEC_ZLIB else entries
    return encode_data(prologue, packed)


def block(offset: int, sequence: int, *entries: Entry, serial: int = 1, codec: int = 0) -> bytes:
    body = b"".join(map(encode_entry, entries))
    data = block_data(Prologue(serial, sequence, codec), body)
    return encode_block(offset, len(entries), data, 512)
