"""The journal: records that are durable when a call returns, shared by threads and tasks.

In: bodies of records, with or without ids, in and out of transactions. Out: log sequence numbers,
and after a restart the records again. `Journal` blocks and `AsyncJournal` is awaited; both share
`base.BaseJournal` and write to a `JournalEngine`, of the native log or of a historic one.
"""

from __future__ import annotations

from tallystick.services.journal.aio import AsyncJournal
from tallystick.services.journal.journal import Journal
from tallystick.services.journal.transaction import AsyncJournalTransaction, JournalTransaction

__all__ = ["AsyncJournal", "AsyncJournalTransaction", "Journal", "JournalTransaction"]
