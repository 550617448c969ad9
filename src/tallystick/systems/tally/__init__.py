"""The native log: group = commit = checksum = batch, and all five roles in one format.

In: drafts of records from threads and tasks (`log.TallyLog`), or the files of a log
(`reader.TallyReading`). Out: groups on disk, durable when acknowledged; records, batches and
verdicts. ``docs/formats/tally.md`` is the specification; `layout`, `columns`, `kinds` and
`bodies` are its bytes, `decision` its judgement of damage, `walk` and `scan` its order.
"""

from __future__ import annotations

from tallystick.systems.tally.reader import TallySystem

SYSTEM = TallySystem()

__all__ = ["SYSTEM"]
