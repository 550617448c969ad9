"""The roles a log can play, each a Protocol that `tally` and one historic system implement.

What returns a `Ticket` is durable once the ticket is done, everything else with the next forced
record. All raise `LogClosedError`, `LogPoisonedError` after a failed write or sync,
`RecordTooLargeError`, and on opening `CorruptLogError` if acknowledged data is damaged.
"""

from __future__ import annotations

from tallystick.roles.decision_log import (
    Decision,
    DecisionLog,
    DecisionOutcome,
    SharedDecisionLog,
)
from tallystick.roles.journal_engine import JournalEngine, SharedJournalEngine, TailPosition
from tallystick.roles.paged_log import (
    CATALOGUE,
    Changes,
    Codec,
    Defect,
    PagedLog,
    Pages,
    Row,
    Rows,
    TableSpace,
    Tree,
    checked_rows,
)
from tallystick.roles.persist_log import (
    Operation,
    OperationCode,
    PersistEntry,
    PersistLog,
)
from tallystick.roles.record_journal import (
    RECORD_ID_MAX,
    RECORD_ID_MIN,
    HoldsPlainRecords,
    JournalRecord,
    JournalStep,
    PreparedTransaction,
    RecordJournal,
    StepKind,
)
from tallystick.roles.recovered import NOT_JUDGED, RecoveryResult, recovery_result
from tallystick.roles.role import Role
from tallystick.roles.ticket import DoneTicket, Ticket
from tallystick.roles.undo_redo_log import (
    InDoubt,
    RecoveryHandler,
    UndoRedoLog,
    branch_name,
    branch_of,
)

__all__ = [
    "CATALOGUE",
    "NOT_JUDGED",
    "RECORD_ID_MAX",
    "RECORD_ID_MIN",
    "Changes",
    "Codec",
    "Decision",
    "DecisionLog",
    "DecisionOutcome",
    "Defect",
    "DoneTicket",
    "HoldsPlainRecords",
    "InDoubt",
    "JournalEngine",
    "JournalRecord",
    "JournalStep",
    "Operation",
    "OperationCode",
    "PagedLog",
    "Pages",
    "PersistEntry",
    "PersistLog",
    "PreparedTransaction",
    "RecordJournal",
    "RecoveryHandler",
    "RecoveryResult",
    "Role",
    "Row",
    "Rows",
    "SharedDecisionLog",
    "SharedJournalEngine",
    "StepKind",
    "TableSpace",
    "TailPosition",
    "Ticket",
    "Tree",
    "UndoRedoLog",
    "branch_name",
    "branch_of",
    "checked_rows",
    "recovery_result",
]
