"""H2's page store log: undo images once per section, redo of rows, transactions in doubt.

In: ``*.h2.db`` files of H2 1.2 to 1.4.200 (engine "PageStore"), found by their first bytes.
Out: a `LogReading` per file with the engine's verdict and ours, and `PageLog`, the live log.
Files are read as they are and never written by the reader. The layouts stand in `layout.py`,
`entries.py` and `decoding.py`; what recovery makes of them in `recovery.py` and `opening.py`.
"""

from __future__ import annotations

from tallystick.errors import LogUnreadableError
from tallystick.systems.base import Entry, Folder, LogReading, LogSource, ReadOptions
from tallystick.systems.h2.layout import INNER_MAGIC_OFFSET, MAGIC, MAGIC_SIZE, STATIC_HEADER

NAME = "h2"
SUFFIX = ".h2.db"


class H2System:
    """How to recognise and read H2 page store files."""

    name = NAME
    title = "H2 page store"

    def detect(self, folder: Folder) -> list[LogSource]:
        """Each page store file is a log of its own."""
        found = [entry for entry in folder.entries if _recognised(entry)]
        several = len(found) > 1
        return [
            LogSource(NAME, folder.path, (entry.path,), entry.name if several else "")
            for entry in found
        ]

    def read(self, source: LogSource, options: ReadOptions) -> LogReading:
        """The reading of one file."""
        from tallystick.systems.h2.reader import H2Reading

        return H2Reading(source, options)


def _recognised(entry: Entry) -> bool:
    try:
        head = entry.head
    except LogUnreadableError:
        return False
    if len(head) < STATIC_HEADER.size:
        return entry.name.endswith(SUFFIX)
    inner = head[INNER_MAGIC_OFFSET : INNER_MAGIC_OFFSET + MAGIC_SIZE]
    return MAGIC in (head[:MAGIC_SIZE], inner)


SYSTEM = H2System()
