"""Estates with faults, made of the example estate."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples" / "estate"


def damaged_decision(folder: Path) -> Path:
    """Make an estate with a flipped bit in the COMMITTING record of the transaction in doubt."""
    shutil.copytree(EXAMPLES / "mid-phase-two", folder)
    data = _read(folder, 1)
    data[10_028 + 60] ^= 4
    _write(folder, data)
    return folder


def older_file_in_use(folder: Path) -> Path:
    """Make an estate whose coordinator would open the older file: both have the same stamp."""
    shutil.copytree(EXAMPLES / "mid-phase-two", folder)
    data = _read(folder, 1)
    data[4:12] = _read(folder, 2)[4:12]
    _write(folder, data)
    return folder


def _read(folder: Path, number: int) -> bytearray:
    (part,) = folder.rglob(f"part{number}.tlog.gz")
    return bytearray(gzip.decompress(part.read_bytes()))


def _write(folder: Path, data: bytearray) -> None:
    (part,) = folder.rglob("part1.tlog.gz")
    part.write_bytes(gzip.compress(data))
