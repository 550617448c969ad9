"""For users: test your own recovery, and readers of your own formats.

In: code of yours that does its file calls through a `tallystick.storage.files.FileSystem`.
Out: proof, or a counterexample, that it survives crashes, faults and kills.

* `RecordingFileSystem`, `check_recovery`: crash a recorded run in every legal way, recover, check
* `FaultyFileSystem`, `every_fault`: fail the n-th call, for every n; failed syncs of three kinds
* `check_kills`, `run_and_kill`: SIGKILL a child process, recover, check
* `MemoryFileSystem`: fast, and knows what a crash would leave
* `check_tiling`: the invariant that every byte of a file lies in exactly one span
"""

from __future__ import annotations

from tallystick.testing.checks import CrashReport, check_items, check_recovery
from tallystick.testing.crashes import CrashState, RecordingFileSystem
from tallystick.testing.disk import SECTOR
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
    "check_items",
    "check_kills",
    "check_recovery",
    "check_tiling",
    "every_fault",
    "run_and_kill",
]
