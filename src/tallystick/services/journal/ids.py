"""The ids of an open journal: learned from its log, and again after that has refused a change.

In: the engine of a journal. Out: its live ids and those that prepared transactions hold, as they
are once everything that was submitted is durable.
"""

from __future__ import annotations

from tallystick.roles import JournalEngine, PreparedTransaction
from tallystick.roles.record_ids import RecordIds, TransactionIds, ids_in_doubt


class JournalIds(RecordIds):
    """The ids of a journal that no other process shares; the journal's lock guards them.

    Attributes:
        live_count: number of live records when they were learned.
    """

    def __init__(self, engine: JournalEngine) -> None:
        self._engine = engine
        self.learn()

    def learn(self) -> None:
        """Learn the ids from the log."""
        live, in_doubt = self._engine.learn_ids()
        super().__init__(live)
        self.live_count = len(live)
        for one in in_doubt:
            self.prepare(one.transaction, self._held_by(one))

    @property
    def doubted(self) -> bool:
        """Whether a change that was noted here has been refused since."""
        return self._engine.ids_doubted

    def learn_if_doubted(self) -> None:
        """Learn the ids anew if they are doubted, which waits for files."""
        if self.doubted:
            self.learn()

    def _held_by(self, one: PreparedTransaction) -> TransactionIds:
        adds = [record.record_id for record in one.records if not record.update]
        updates = [record.record_id for record in one.records if record.update]
        return ids_in_doubt(
            adds, updates, one.deletes, self.live, deletes_last=self._engine.deletes_last
        )
