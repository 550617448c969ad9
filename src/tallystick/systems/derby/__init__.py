"""Apache Derby's transaction log, read and written byte for byte (10.1 to 10.17).

Here lives: `layout`, `operations`, `body`, `rows`, `crypto` (bytes <-> records), `scan`, `recovery`
(what the engine does), `walk`, `history`, `changes`, `verdict`, `reader` (what the bytes prove),
`batches` (vectorised), `access_file` and `log` (the live log). In come the files of one log
folder, and database properties from above it. Out go records, transactions, changes, verdicts.
"""

from __future__ import annotations

from tallystick.systems.derby.reader import DerbyReading, DerbySystem

SYSTEM = DerbySystem()

__all__ = ["SYSTEM", "DerbyReading", "DerbySystem"]
