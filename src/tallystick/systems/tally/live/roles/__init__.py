"""The native log in each role: one class per role over a `TallyLog`.

In: the calls of `tallystick.roles`. Out: records submitted to the log, and views of its state. A
role owns its log and closes it.
"""

from __future__ import annotations

from tallystick.systems.tally.live.roles.decision_log import TallyDecisionLog
from tallystick.systems.tally.live.roles.persist_log import TallyPersistLog
from tallystick.systems.tally.live.roles.record_journal import TallyRecordJournal

__all__ = ["TallyDecisionLog", "TallyPersistLog", "TallyRecordJournal"]
