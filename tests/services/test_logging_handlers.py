"""What the application's logging handlers raise harms nothing, and is no answer to a commit."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tallystick import Journal, PageStore, TransactionManager, WriteBehind
from tallystick.printable import logger
from tests.services.write_behind.kit import Recorder, put, quick


class _Raising(logging.Handler):
    """A handler without the care that Python's own take."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(f"{record.funcName}: {record.getMessage()}")
        raise RuntimeError("of the handler")


@pytest.fixture
def handler() -> Iterator[_Raising]:
    added = _Raising()
    logging.getLogger("tallystick").addHandler(added)
    yield added
    logging.getLogger("tallystick").removeHandler(added)


def test_what_a_handler_raises_is_printed_and_the_caller_is_named(
    handler: _Raising, capsys: pytest.CaptureFixture[str]
) -> None:
    logger("tallystick.test").warning("a message of %d", 1)
    [message] = handler.messages
    assert message.startswith("test_what_a_handler_raises")
    assert "RuntimeError: of the handler" in capsys.readouterr().err


def test_a_commit_whose_hook_fails_is_a_commit(handler: _Raising, tmp_path: Path) -> None:
    def hook(*_: object) -> None:
        raise ValueError("of the hook")

    with (
        Journal(tmp_path / "a") as one,
        Journal(tmp_path / "b") as two,
        TransactionManager(tmp_path / "coordinator", {"a": one, "b": two}) as manager,
    ):
        with manager.begin() as tx:
            tx["a"].append(b"1")
            tx["b"].append(b"2")
            tx.after_completion(hook)
        assert b"1" in [record.body for record in one.replay()]
    assert handler.messages


def test_a_row_that_was_left_locked_is_taken(handler: _Raising, tmp_path: Path) -> None:
    with PageStore(tmp_path / "store") as store:
        store.create_table("t")
        left = store.begin()
        left.table("t")[1] = b"never committed"
        del left
        with store.begin() as tx:
            tx.table("t")[1] = b"row"
    assert handler.messages


class _Refusing(Recorder):
    """A target that cannot take some rows."""

    def apply(self, entries: object) -> None:
        raise ValueError(f"not these: {entries}")


def test_a_target_that_refuses_gets_the_next_transactions(
    handler: _Raising, tmp_path: Path
) -> None:
    target = Recorder()
    with WriteBehind(
        tmp_path / "spool", {"bad": _Refusing(), "good": target}, settings=quick(close_timeout=0.2)
    ) as behind:
        for number in range(3):
            behind.commit([put(b"k", b"row")], str(number))
        while len(target.applied) < 3 or not handler.messages:
            assert not behind.drain(0.01)
        assert [one.reference for one in target.applied] == ["0", "1", "2"]
    assert "set aside" in handler.messages[0]
