"""Apache Derby's transaction log, read and written byte for byte (10.1 to 10.17).

In: the files of one log folder and the properties of its database. Out: records, transactions,
row changes and both verdicts, and a live log that Derby boots from.
"""

from __future__ import annotations

from tallystick.records import Clock
from tallystick.systems.protocol import ResourceTraits, System

SYSTEM = System(
    name="derby",
    title="Apache Derby",
    detector="tallystick.systems.derby.read.detect:detect",
    reader="tallystick.systems.derby.reader:DerbyReading",
    codes="tallystick.systems.derby.codes:CODES",
    reasons="tallystick.systems.derby.codes:REASONS",
    clocks=frozenset({Clock.NONE}),
    change_feed=True,
    secrets=frozenset({"boot_password", "encryption_key"}),
    settings={
        "derby_version": "the version of the Derby that would boot, as 10.14.2",
        "*": "properties of the database that service.properties does not give",
    },
    resource=ResourceTraits(read_only_unlogged=True),
)
