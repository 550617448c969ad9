"""The circular journal of JBoss Messaging (2008), HornetQ, Artemis and Narayana, read and written.

In: folders with ``PREFIX-N.EXT`` files of any generation, or the calls of an application.
Out: records, transactions and both verdicts (`reader`), or such files (`log`).
`layout` has the bytes, `walk` and `quirks` find records, `replay` applies them, `loader` is the
original's load, `analysis` and `verdict` are ours, `SYSTEM` is what the registry takes.
"""

from tallystick.systems.jboss.reader import SYSTEM

__all__ = ["SYSTEM"]
