"""Bitronix: a coordinator's decisions in two alternating files of fixed length.

In: a folder with a pair of files such as ``btm1.tlog`` and ``btm2.tlog``. Out: decisions, records
and both verdicts (Bitronix 2.1.4 and the 3.0 line), and a live journal that the originals read.
"""

from __future__ import annotations

from tallystick.records import Clock
from tallystick.roles import Role
from tallystick.systems.protocol import System

SYSTEM = System(
    name="bitronix",
    title="Bitronix Transaction Manager",
    detector="tallystick.systems.bitronix.read.detect:detect",
    reader="tallystick.systems.bitronix.reader:BitronixReading",
    codes="tallystick.systems.bitronix.codes:CODES",
    mender="tallystick.systems.bitronix.live.mend:patches",
    numbered=True,
    reasons="tallystick.systems.bitronix.codes:REASONS",
    errors="tallystick.systems.bitronix.codes:ERRORS",
    roles={
        Role.DECISION_LOG: "tallystick.systems.bitronix.live.role:BitronixDecisionLog",
    },
    reopener="tallystick.systems.bitronix.live.role:reopen",
    clocks=frozenset({Clock.WALL_MS, Clock.BOOT_MS}),
    change_feed=True,
    splittable=False,
    put_aside="tallystick.systems.bitronix.read.detect:put_aside",
)
