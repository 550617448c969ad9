"""CloudTran: the block log of write-behind, with a header at both ends of each block.

In: files of blocks with transactions on their way to data stores. Out: records, pending
transactions per target, both verdicts, and a live log that gives redundant files to a disposer.
Layout: docs/formats/cloudtran.md.
"""

from __future__ import annotations

from tallystick.records import Clock
from tallystick.roles import Role
from tallystick.systems.protocol import System

SYSTEM = System(
    name="cloudtran",
    title="CloudTran transaction log",
    detector="tallystick.systems.cloudtran.read.detect:detect",
    reader="tallystick.systems.cloudtran.reader:CloudtranReading",
    codes="tallystick.systems.cloudtran.codes:CODES",
    mender="tallystick.systems.cloudtran.live.mend:patches",
    numbered=True,
    reasons="tallystick.systems.cloudtran.codes:REASONS",
    roles={
        Role.PERSIST_LOG: "tallystick.systems.cloudtran.live.role:CloudtranPersistLog",
    },
    reopener="tallystick.systems.cloudtran.live.role:reopen",
    clocks=frozenset({Clock.WALL_US}),
    notes_suffice="tallystick.systems.cloudtran.live.opening:notes_suffice",
    neighbours=frozenset({"*.lock", "*.mark"}),
    change_feed=True,
    settings={
        "signature": "the signature of the block headers, 128 hex digits",
        "disk_block_size": "the disk block size in bytes, a power of two from 512 to 65536",
        "max_transaction_size": "the largest size in bytes of the unpacked entries of a block",
    },
    setting_values={
        "signature": ("[0-9a-fA-F]{128}", "128 hex digits"),
        "disk_block_size": (
            "512|1024|2048|4096|8192|16384|32768|65536",
            "a power of two from 512 to 65536",
        ),
        "max_transaction_size": ("[0-9]{1,12}", "a number of bytes"),
    },
    persist_entry="tallystick.systems.cloudtran.read.records:stored_entry",
)
