"""Estates with faults, made of the example estate."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

from tallystick.systems.h2.engine.recovery import UNDO_STAGE
from tallystick.systems.h2.live.files import PageStoreFile
from tallystick.systems.h2.live.log import PageLog
from tallystick.testing import MemoryFileSystem
from tests.fixtures import fixture_dir

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


def committed_by_hand(folder: Path, case: str) -> Path:
    """Make an estate in whose H2 log an operator has committed every branch in doubt."""
    shutil.copytree(fixture_dir("estate") / case, folder)
    packed = folder / "h2" / "bank.h2.db.gz"
    before = folder / "h2" / "bank.h2.db.before-operator.gz"
    data = gzip.decompress((before if before.exists() else packed).read_bytes())
    fs = MemoryFileSystem({"/bank.h2.db": data})
    with PageStoreFile("/bank.h2.db", fs=fs) as store:
        log = PageLog(store)
        log.recover(UNDO_STAGE)
        for one in log.get_in_doubt_transactions():
            log.set_in_doubt_transaction_state(one.session, one.page, commit=True)
        log.close()
    before.unlink(missing_ok=True)
    packed.write_bytes(gzip.compress(fs.contents()["/bank.h2.db"]))
    return folder


def _read(folder: Path, number: int) -> bytearray:
    (part,) = folder.rglob(f"part{number}.tlog.gz")
    return bytearray(gzip.decompress(part.read_bytes()))


def _write(folder: Path, data: bytearray) -> None:
    (part,) = folder.rglob("part1.tlog.gz")
    part.write_bytes(gzip.compress(data))
