"""Random transactions in a Derby log, step by step."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Protocol

from tallystick.records import Xid
from tallystick.systems.derby.format import operations
from tallystick.systems.derby.format.field_types import Page
from tallystick.systems.derby.format.operations import encode_operation
from tallystick.systems.derby.live.log import LogToFile


class Steps(Protocol):
    """A log that does one random thing at a time."""

    def step(self, number: int, choice: random.Random) -> None: ...

    def close(self) -> None: ...


class DerbySteps:
    """Rows inserted by transactions side by side, over many small files; some are prepared."""

    def __init__(self, path: Path) -> None:
        self.log = LogToFile(str(path), buffer_size=512, switch_interval=4096, archive=True)
        self.open: dict[int, bool] = {}

    def step(self, number: int, choice: random.Random) -> None:
        roll = choice.random()
        if roll < 0.3 and len(self.open) < 4:
            self.open[self.log.begin(Xid(7, b"gtrid-%d" % number, b"b"))] = False
        elif roll < 0.7 and (free := [one for one, prepared in self.open.items() if not prepared]):
            place = {"pageId": Page(0, 1168, 1), "pageVersion": number, "recordId": number}
            insert = place | {"undo": None, "doMeSlot": 0, "insertFlag": 1}
            data = b"%d" % number + bytes(choice.randrange(200))
            row = b"\0\6\1\x20" + len(data).to_bytes(2) + data
            self.log.log(choice.choice(free), encode_operation(operations.INSERT, insert), row)
        elif self.open:
            ours = choice.choice([*self.open])
            if not self.open[ours] and choice.random() < 0.3:
                self.log.prepare(ours)
                self.open[ours] = True
            else:
                del self.open[ours]
                (self.log.commit if choice.random() < 0.7 else self.log.abort)(ours)

    def close(self) -> None:
        self.log.close()


def write_steps(steps: Steps, first: int, count: int) -> None:
    """Do ``count`` random things, numbered from ``first``."""
    choice = random.Random(first)
    for number in range(first, first + count):
        steps.step(number, choice)
