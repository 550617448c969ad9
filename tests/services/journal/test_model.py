"""A state machine: journal beside model, with crashes at any point and recovery after each."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tallystick.errors import TransactionUsageError
from tallystick.services.journal import Journal, JournalTransaction
from tallystick.testing import RecordingFileSystem
from tests.systems.tally.build import FOLDER, TINY
from tests.systems.tally.script import Live, live_of

KEYS = st.integers(0, 6)
SIZES = st.sampled_from([0, 3, 500, 3000])


class JournalMachine(RuleBasedStateMachine):
    """Rules are calls of the journal; the model is a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.fs = RecordingFileSystem()
        self.model: Live = {}
        self.plain: list[bytes] = []
        self.transaction: JournalTransaction | None = None
        self.staged: Live = {}
        self.number = 0

    @initialize()
    def open(self) -> None:
        self.journal = Journal(FOLDER, fs=self.fs, settings=TINY)
        self.transaction = None

    def _body(self, size: int) -> bytes:
        self.number += 1
        return b"%d:" % self.number + bytes(size)

    @rule(size=SIZES)
    def append(self, size: int) -> None:
        body = self._body(size)
        self.journal.append(body)
        self.plain.append(body)

    @rule(count=st.integers(0, 30), size=SIZES)
    def append_many(self, count: int, size: int) -> None:
        bodies = [self._body(size) for _ in range(count)]
        self.journal.append_many(bodies)
        self.plain += bodies

    @rule(key=KEYS, size=SIZES)
    def add(self, key: int, size: int) -> None:
        body = self._body(size)
        try:
            self.journal.add(key, body)
        except TransactionUsageError:
            assert key in self.model
        else:
            self.model[key] = (body,)

    @rule(key=KEYS, size=SIZES)
    def update(self, key: int, size: int) -> None:
        body = self._body(size)
        try:
            self.journal.update(key, body)
        except TransactionUsageError:
            assert key not in self.model
        else:
            self.model[key] = (*self.model[key], body)

    @precondition(lambda self: self.transaction is None)
    @rule(key=KEYS)
    def delete(self, key: int) -> None:
        if key in self.model:
            self.journal.delete(key)
            del self.model[key]

    @precondition(lambda self: self.transaction is None)
    @rule()
    def begin(self) -> None:
        self.transaction = self.journal.transaction()
        self.staged = {}

    @precondition(lambda self: self.transaction is not None)
    @rule(key=st.integers(100, 110), size=SIZES)
    def stage(self, key: int, size: int) -> None:
        assert self.transaction is not None
        if key not in self.staged and key not in self.model:
            body = self._body(size)
            self.transaction.add(key, body)
            self.staged[key] = (body,)

    @precondition(lambda self: self.transaction is not None)
    @rule(commit=st.booleans())
    def end(self, commit: bool) -> None:
        assert self.transaction is not None
        if commit:
            self.transaction.commit()
            self.model |= self.staged
        else:
            self.transaction.rollback()
        self.transaction = None

    @rule()
    def checkpoint(self) -> None:
        self.journal.checkpoint()
        self.plain.clear()

    @rule()
    def compact(self) -> None:
        self.journal.compact(force=True)

    @rule()
    def reopen(self) -> None:
        self.journal.close()
        self.open()

    @rule(seed=st.integers(0, 1000))
    def crash(self, seed: int) -> None:
        """Everything so far was acknowledged, but for an open transaction: nothing may go."""
        states = list(self.fs.crash_states(limit=1, seed=seed))
        self.fs = states[-1].recording()
        self.open()

    @invariant()
    def same(self) -> None:
        if not hasattr(self, "journal"):
            return
        assert live_of(self.journal) == self.model

    def teardown(self) -> None:
        if hasattr(self, "journal"):
            found = [
                one.body for one in self.journal.replay()
                if one.type == "append" and one.transaction is None
            ]  # fmt: skip
            assert not self.plain or found[-len(self.plain) :] == self.plain
            self.journal.close()


TestJournalMachine = JournalMachine.TestCase
TestJournalMachine.settings = settings(
    max_examples=40 if settings().max_examples <= 100 else 1_000,  # more in the soak profile
    stateful_step_count=25,
)
