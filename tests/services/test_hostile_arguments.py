"""Whatever a caller passes is an error of that caller alone, or is in the log, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystick.services.journal import (
    AsyncJournal,
    AsyncJournalTransaction,
    Journal,
    JournalTransaction,
)
from tallystick.services.page_store import PageStore, Session, Table
from tallystick.services.transactions import Outbox, Transaction, TransactionManager
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
from tests.services.hostile_services import (
    ManagerSubject,
    MessagingSubject,
    PageStoreSubject,
    WriteBehindSubject,
)

CLASSES: dict[type, set[str]] = {
    Journal: {
        "as_resource", "backup", "close", "flush", "follow", "live_records", "prepared", "reclaim",
        "replay", "transaction",
    },
    AsyncJournal: {
        "as_resource", "backup", "close", "flush", "follow", "live_records", "open", "prepared",
        "reclaim", "replay", "transaction",
    },
    JournalTransaction: {"commit", "rollback"},
    AsyncJournalTransaction: {"commit", "rollback"},
    PageStore: {
        "as_resource", "backup", "check", "checkpoint", "close", "forked", "in_doubt", "table_id",
        "tables",
    },
    Session: {"commit", "end", "get", "rollback", "savepoint", "scan", "stay_prepared"},
    Table: {"clear", "get", "items", "keys", "pop", "popitem", "setdefault", "update", "values"},
    WriteBehind: {"close", "drain", "find", "forked", "pending", "replay", "wait"},
    WriteBehindTransaction: {"commit"},
    Outbox: {"add_awaiting", "pending"},
    TransactionManager: {"close", "current", "preflight", "recover"},
    Transaction: {"commit", "mark_rollback", "prepare", "resume", "rollback", "suspend"},
}  # fmt: skip
"""Public classes that write, and those of their methods that write nothing that is passed.

Those that a mapping has from `collections.abc` call others of it, `Outbox.add_awaiting` what
`Outbox.add` calls.
"""
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
}
SHARE = 0.09
"""Share of the values that one run tries, unless it tries all."""


def test_every_parameter_of_every_public_method_is_classified() -> None:
    known = {
        call.method: list(call.right) for subject in SUBJECTS.values() for call in subject.calls
    }
    for owner, others in CLASSES.items():
        found = parameters(owner)
        writes = {one: found[one] for one in found if one.partition(".")[2] not in others}
        assert writes == {one: known.get(one) for one in writes}


@pytest.mark.parametrize(
    "share", [pytest.param(SHARE, id="sample"), pytest.param(1, id="all", marks=pytest.mark.soak)]
)
@pytest.mark.parametrize("name", list(SUBJECTS))
def test_an_odd_argument_is_refused_to_its_caller_alone_or_stored_byte_for_byte(
    name: str, share: float, memory_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name.endswith("core"):
        need("core")
    if name.endswith("twin"):
        monkeypatch.setattr(queue, "CORE", None)
        monkeypatch.setattr(appender, "CORE", None)
    try_odd_arguments(SUBJECTS[name], memory_folder, share)
