"""Apache Derby's transaction log, read and written byte for byte (10.1 to 10.17).

Bytes <-> records: `layout`, `encodings`, `operations`, `encoders`, `body`, `rows`, `crypto`. What
the engine does: `scan`, `recovery`. What the bytes prove: `walk`, `history`, `changes`, `verdict`.
In come the files of one log folder and the database's properties; out go records, transactions,
changes and verdicts (`reader`, vectorised `batches`), and a live log that Derby boots from (`log`).
"""

from __future__ import annotations

from tallystick.systems.derby.reader import DerbyReading, DerbySystem

SYSTEM = DerbySystem()

__all__ = ["SYSTEM", "DerbyReading", "DerbySystem"]
