"""The block log of write-behind: persisting, persisted, doubled block headers, disposers.

In: files of blocks, each one write with its header at both ends, and transactions on their
way to data stores. Out: records, pending transactions per target, both verdicts; and a live
log that writes such files, hands redundant ones to a disposer and replays after a crash.
Layout: docs/formats/cloudtran.md.
"""

from __future__ import annotations

from tallystick.systems.base import Folder, LogSource, ReadOptions
from tallystick.systems.cloudtran.detect import detect
from tallystick.systems.cloudtran.reader import CloudtranReading
from tallystick.systems.cloudtran.verdict import SYSTEM_NAME


class Cloudtran:
    """The block log as one of the registered systems."""

    name = SYSTEM_NAME
    title = "CloudTran transaction log"

    def detect(self, folder: Folder) -> list[LogSource]:
        return detect(folder)

    def read(self, source: LogSource, options: ReadOptions) -> CloudtranReading:
        return CloudtranReading(source, options)


SYSTEM = Cloudtran()
