"""Whatever holds something open refuses to be copied, and goes on as if nobody had tried."""

from __future__ import annotations

import copy
import copyreg
import gc
import pickle
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from tallystick.services.journal import AsyncJournal, Journal
from tallystick.services.page_store import PageStore
from tallystick.services.transactions import (
    AsyncTransactionManager,
    Outbox,
    Relay,
    TransactionManager,
)
from tallystick.services.write_behind import WriteBehind
from tests.services.write_behind.kit import Recorder
from tests.systems.hostile_logs import LOGS


@dataclass
class Holder:
    """Somebody's settings."""

    held: object


COPIES: dict[str, Callable[[Any], object]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "deepcopy of what holds it": lambda one: copy.deepcopy({"settings": [Holder(one)]}),
    "asdict": lambda one: asdict(Holder(one)),
    **{
        f"pickle {protocol}": partial(pickle.dumps, protocol=protocol)
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
    },
    "object's own": lambda one: object.__reduce_ex__(one, 4),
    "object's oldest": object.__reduce__,
    "copyreg": lambda one: cast(Any, copyreg).__reduce_ex__(one, 1),
}


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Everything public that holds something open, by name."""
    folder = tmp_path_factory.mktemp("things")
    with ExitStack() as stack:
        yield dict(_things(folder, stack))


def _things(folder: Path, stack: ExitStack) -> Iterator[tuple[str, Any]]:
    journal = stack.enter_context(Journal(folder / "journal"))
    shared = stack.enter_context(Journal(folder / "shared", shared=True))
    tasks = AsyncJournal(folder / "tasks")
    stack.callback(tasks._close)
    yield from {"Journal": journal, "shared Journal": shared, "AsyncJournal": tasks}.items()
    yield from {
        "ticket": journal.submit(b"a"),
        "shared ticket": shared.submit(b"a"),
        "JournalTransaction": journal.transaction(),
        "JournalResource": journal.as_resource("j"),
    }.items()
    store = stack.enter_context(PageStore(folder / "store"))
    store.create_table("t")
    session = store.begin()
    yield from {"PageStore": store, "Session": session, "Table": session.table("t")}.items()
    yield "PageStoreResource", store.as_resource("s")
    behind = stack.enter_context(WriteBehind(folder / "behind", {"one": Recorder()}))
    yield from {"WriteBehind": behind, "WriteBehindTransaction": behind.begin()}.items()
    database = f"sqlite:///{folder / 'database'}"
    manager = stack.enter_context(TransactionManager(folder / "manager", {"db": database}))
    outbox = Outbox(manager, "db")
    yield from {"TransactionManager": manager, "Outbox": outbox}.items()
    yield "resource", manager.resources["db"]
    yield "Relay", Relay(outbox, lambda _: None)
    transaction = manager.begin()
    stack.callback(transaction.rollback)
    yield "Transaction", transaction
    yield "AsyncTransactionManager", AsyncTransactionManager(manager)
    for name, kind in LOGS.items():
        subject = kind(folder / name.replace("/", " "))
        stack.callback(subject.close)
        yield name, subject.log  # type: ignore[attr-defined]


@pytest.mark.parametrize("how", COPIES)
def test_nothing_that_holds_something_open_is_copied(how: str, things: dict[str, Any]) -> None:
    taken = []
    for name, thing in things.items():
        try:
            COPIES[how](thing)
        except TypeError:
            continue
        taken.append(name)
    gc.collect()
    assert taken == []
    assert things["Journal"].append(b"it goes on") > 0
    assert things["shared Journal"].append(b"it goes on") > 0
    assert things["Session"].table("t").setdefault(1, b"row") == b"row"
