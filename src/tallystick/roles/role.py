"""The names of the roles that a log can play."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """What a log can be used for; each value names one Protocol of this package."""

    DECISION_LOG = "decision log"
    RECORD_JOURNAL = "record journal"
    UNDO_REDO_LOG = "undo/redo log"
    PAGED_LOG = "undo/redo log with pages"
    PERSIST_LOG = "persist log"
    JOURNAL = "journal"
    """A record journal with plain records, replay and followers: `JournalEngine`."""
