"""A forked child leaves the block in which it was forked by what it raised itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest

from tallystick.services.journal import Journal
from tallystick.services.page_store import PageStore
from tallystick.services.transactions import TransactionManager
from tallystick.services.write_behind import WriteBehind

Block = AbstractContextManager[Any]
SAID = 7


def journal(path: Path, open_: ExitStack) -> tuple[Block, Callable[[Any], object]]:
    log = open_.enter_context(Journal(path))
    return log.transaction(), lambda tx: tx.add(1, b"x")


def shared_journal(path: Path, open_: ExitStack) -> tuple[Block, Callable[[Any], object]]:
    log = open_.enter_context(Journal(path, shared=True))
    return log.transaction(), lambda tx: tx.add(1, b"x")


def manager(path: Path, open_: ExitStack) -> tuple[Block, Callable[[Any], object]]:
    log = open_.enter_context(Journal(path / "log"))
    found = TransactionManager(path / "tm", {"log": log, "db": f"sqlite:///{path}/a.db"})
    return open_.enter_context(found).begin(), lambda tx: tx["log"].add(1, b"x")


def page_store(path: Path, open_: ExitStack) -> tuple[Block, Callable[[Any], object]]:
    store = open_.enter_context(PageStore(path))
    store.create_table("t")
    return store.begin(), lambda tx: tx.table("t").update({1: b"x"})


def write_behind(path: Path, open_: ExitStack) -> tuple[Block, Callable[[Any], object]]:
    service = open_.enter_context(WriteBehind(path, {"one": lambda _: None}))
    return service.begin(), lambda tx: tx.insert("t", {"a": 1}, {"b": 2})


@pytest.mark.parametrize("made", [journal, shared_journal, manager, page_store, write_behind])
def test_what_a_child_raises_in_a_block_of_its_parent_leaves_it(
    made: Callable[[Path, ExitStack], tuple[Block, Callable[[Any], object]]], tmp_path: Path
) -> None:
    (tmp_path / "at").mkdir()
    with ExitStack() as open_:
        block, work = made(tmp_path / "at", open_)
        child = -1
        try:
            with block as tx:
                work(tx)
                if not (child := os.fork()):
                    sys.exit(SAID)
                status = os.waitpid(child, 0)[1]
        except BaseException as error:
            if not child:
                os._exit(error.code if isinstance(error, SystemExit) else 1)  # type: ignore[arg-type]
            raise
        assert os.waitstatus_to_exitcode(status) == SAID
