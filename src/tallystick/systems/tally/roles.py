"""The native log in each role of the house: thin faces over one `TallyLog`.

In: the calls of `tallystick.services.roles`. Out: drafts submitted to the log, and views of its
state. A role owns the log that it is given and closes it. The undo/redo log, which also recovers
the store behind it, is in `tallystick.systems.tally.undoredo`.
"""

from __future__ import annotations

from tallystick.systems.tally.decision_log import TallyDecisionLog
from tallystick.systems.tally.persist_log import TallyPersistLog
from tallystick.systems.tally.record_journal import TallyRecordJournal

__all__ = ["TallyDecisionLog", "TallyPersistLog", "TallyRecordJournal"]
