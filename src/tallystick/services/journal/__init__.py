"""The journal: records that are durable when a call returns, shared by threads and tasks.

In: bodies of records, with or without ids, in and out of transactions. Out: log sequence numbers,
and after a restart the records again. `Journal` blocks, `AsyncJournal` is awaited; both stand on
one `JournalEngine`, of the native log or of a historic one.
"""

from __future__ import annotations

from tallystick.services.journal.aio import AsyncJournal
from tallystick.services.journal.threads import Journal
from tallystick.services.journal.transaction import JournalTransaction

__all__ = ["AsyncJournal", "Journal", "JournalTransaction"]
