"""Whatever a caller passes is an error of that caller alone, or is in the log, byte for byte."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

from tallystick.services import journal, page_store, transactions, write_behind
from tallystick.services.journal import (
    AsyncJournal,
    AsyncJournalTransaction,
    Journal,
    JournalTransaction,
)
from tallystick.services.page_store import PageStore, Session, Table
from tallystick.services.transactions import (
    AsyncTransaction,
    AsyncTransactionManager,
    Outbox,
    Relay,
    Transaction,
    TransactionManager,
)
from tallystick.services.write_behind import WriteBehind, WriteBehindTransaction
from tallystick.storage.group import queue
from tallystick.systems.tally.live import appender
from tests.need import need
from tests.services.hostile_calls import (
    AsyncSubject,
    JournalSubject,
    SharedSubject,
    Subject,
    parameters,
    try_odd_arguments,
)
from tests.services.hostile_managers import ManagerSubject, TaskManagerSubject
from tests.services.hostile_services import (
    MessagingSubject,
    PageStoreSubject,
    WriteBehindSubject,
)

CLASSES: Sequence[type] = (
    Journal, AsyncJournal, JournalTransaction, AsyncJournalTransaction, PageStore, Session, Table,
    WriteBehind, WriteBehindTransaction, Outbox, Relay, TransactionManager, Transaction,
    AsyncTransactionManager, AsyncTransaction,
)  # fmt: skip
"""Public classes whose calls write."""
OTHERS = {
    "is_store",  # reads files
    *("CountingTarget", "Resource", "Target"),  # what an application implements
    *("IdempotencyKey", "Retry", "WriteBehindSettings"),  # given to calls that are tried
    *("BacklogSize", "BranchInDoubt", "Defect", "Message", "Pending", "PendingTransaction",
      "Problem", "RecoveryReport", "Status", "TargetStatus", "Vote"),  # answers
}  # fmt: skip
"""All other names that the services export, errors aside."""
SUBJECTS: dict[str, type[Subject]] = {
    "core": JournalSubject,
    "twin": JournalSubject,
    "shared": SharedSubject,
    "tasks": AsyncSubject,
    "page store, core": PageStoreSubject,
    "page store, twin": PageStoreSubject,
    "write-behind, core": WriteBehindSubject,
    "write-behind, twin": WriteBehindSubject,
    "messaging": MessagingSubject,
    "manager": ManagerSubject,
    "manager of tasks": TaskManagerSubject,
}
KNOWN = {call.method: list(call.right) for subject in SUBJECTS.values() for call in subject.calls}
SHARE = 0.09
"""Share of the values that one run tries, unless it tries all."""


def test_every_parameter_of_every_public_method_is_classified() -> None:
    for owner in CLASSES:
        found = parameters(owner)
        assert found == {one: KNOWN.get(one) for one in found}


@pytest.mark.parametrize("package", [journal, page_store, transactions, write_behind])
def test_every_public_name_is_classified(package: ModuleType) -> None:
    exported = {name: getattr(package, name) for name in package.__all__}
    for name, thing in exported.items():
        if inspect.isfunction(thing) and name not in OTHERS:
            assert list(inspect.signature(thing).parameters) == KNOWN.get(name), name
        elif not (name in OTHERS or (inspect.isclass(thing) and issubclass(thing, Exception))):
            assert thing in CLASSES, name


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "share", [pytest.param(SHARE, id="sample"), pytest.param(1, id="all", marks=pytest.mark.soak)]
)
@pytest.mark.parametrize("name", list(SUBJECTS))
def test_an_odd_argument_is_refused_to_its_caller_alone_or_stored_byte_for_byte(
    name: str, share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name.endswith("core"):
        need("core")
    if name.endswith("twin"):
        monkeypatch.setattr(queue, "CORE", None)
        monkeypatch.setattr(appender, "CORE", None)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")  # some values are relative paths
    try_odd_arguments(SUBJECTS[name], tmp_path, share)
