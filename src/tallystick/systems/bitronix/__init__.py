"""Bitronix: a coordinator's decisions in two alternating files of fixed length.

In: a folder with a pair such as ``btm1.tlog`` and ``btm2.tlog``. Out: `SYSTEM`, which finds and
reads journals with two verdicts (2.1.4 and the 3.0 line), and in `log.py` the live journal that
the originals read. `layout.py` and `record.py` are the format; `cursor*.py` and `engine*.py` the
originals' behaviour; `scan.py`, `pair.py`, `findings.py`, `verdict.py` what the bytes prove.
"""

from __future__ import annotations

from tallystick.systems.base import Folder, LogReading, LogSource, ReadOptions, System
from tallystick.systems.bitronix.detect import detect
from tallystick.systems.bitronix.reader import BitronixReading


class _Bitronix:
    """The entry of the registry."""

    name = "bitronix"
    title = "Bitronix Transaction Manager"

    def detect(self, folder: Folder) -> list[LogSource]:
        return detect(folder)

    def read(self, source: LogSource, options: ReadOptions) -> LogReading:
        return BitronixReading(source, options)


SYSTEM: System = _Bitronix()
