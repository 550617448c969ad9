"""For users: test your own recovery, and readers of your own formats.

In: code that makes its file calls through a `tallystick.storage.files.FileSystem`. Out: proof, or a
counterexample, that it survives crashes (`RecordingFileSystem`, `check_recovery`), failing calls
(`FaultyFileSystem`, `every_fault`), kills (`check_kills`) and lost networks (`TcpProxy`); see
``docs/guide/testing.md``. `tallystick.testing.simulate` has them all, with every order of threads
and tasks, from one seed.
"""

from __future__ import annotations

from tallystick.storage.files import SECTOR
from tallystick.testing.checks import CrashReport, check_items, check_recovery
from tallystick.testing.crashes import CrashState, RecordingFileSystem
from tallystick.testing.faults import (
    CHANGES,
    NAMES,
    READS,
    SYNCS,
    WRITES,
    FailedSync,
    Fault,
    FaultyFileSystem,
    every_fault,
)
from tallystick.testing.kill import Killed, Reporter, check_kills, run_and_kill
from tallystick.testing.memory import MemoryFileSystem
from tallystick.testing.proxy import TcpProxy
from tallystick.testing.spans import check_tiling

__all__ = [
    "CHANGES",
    "NAMES",
    "READS",
    "SECTOR",
    "SYNCS",
    "WRITES",
    "CrashReport",
    "CrashState",
    "FailedSync",
    "Fault",
    "FaultyFileSystem",
    "Killed",
    "MemoryFileSystem",
    "RecordingFileSystem",
    "Reporter",
    "TcpProxy",
    "check_items",
    "check_kills",
    "check_recovery",
    "check_tiling",
    "every_fault",
    "run_and_kill",
]
