"""What is in no log that could be read is not said to be nowhere."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tallystick.errors import TransactionUsageError, UnsupportedFormatError
from tallystick.investigate.asof import Moment, asof
from tallystick.investigate.export import export
from tallystick.investigate.rows import row_dicts
from tallystick.investigate.undo import redo, undo
from tallystick.reading.filters import Filter
from tallystick.records import Finding, Severity
from tests.fixtures import fixture_dir
from tests.indoubt.estates import EXAMPLES

ORPHAN = EXAMPLES / "orphan"
TIME = datetime(2026, 7, 5, tzinfo=UTC)
OTHER_ID = "ff" * 8
Asked = Callable[[list[Finding]], object]
ASKED: dict[str, Asked] = {
    "undo": lambda problems: undo(ORPHAN, "218", problems=problems),
    "undo-id": lambda problems: undo(ORPHAN, OTHER_ID, problems=problems),
    "redo": lambda problems: redo(ORPHAN, "218", problems=problems),
    "rows-id": lambda problems: [*row_dicts(ORPHAN, Filter(gtrid=OTHER_ID), problems=problems)],
    "rows-table": lambda problems: [
        *row_dicts(ORPHAN, Filter(table="APP.ACCOUNTS"), problems=problems)
    ],
    "export-id": lambda problems: export(
        ORPHAN, "csv", os.devnull, wanted=Filter(gtrid=OTHER_ID), problems=problems
    ),
    "asof-before": lambda problems: [*asof(ORPHAN, Moment(before="218"), problems=problems)],
    "asof-id": lambda problems: [*asof(ORPHAN, Moment(before=OTHER_ID), problems=problems)],
    "asof-time": lambda problems: [*asof(ORPHAN, Moment(time=TIME), problems=problems)],
    "asof-table": lambda problems: [
        *asof(ORPHAN, Moment(lsn=10**10), "APP.ACCOUNTS", problems=problems)
    ],
}


@pytest.fixture
def denied(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log of Derby cannot be read."""
    opened = os.open

    def refusing(path: Any, *more: Any, **named: Any) -> int:
        if Path(str(path)).name == "log1.dat.gz":
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *more, **named)

    monkeypatch.setattr(os, "open", refusing)


@pytest.mark.usefixtures("denied")
@pytest.mark.parametrize("asked", ASKED)
def test_who_finds_nothing_says_that_not_all_was_read(asked: str) -> None:
    with pytest.raises((TransactionUsageError, UnsupportedFormatError)) as raised:
        ASKED[asked]([])
    text = str(raised.value)
    assert f"not all was read: {ORPHAN}/derby/log/log1.dat.gz: cannot read: Permission" in text


@pytest.mark.parametrize("asked", ["undo-id", "rows-id", "export-id", "asof-id", "asof-time"])
def test_where_all_was_read_nothing_is_said_of_it(asked: str) -> None:
    with pytest.raises((TransactionUsageError, UnsupportedFormatError)) as raised:
        ASKED[asked]([])
    assert "not all" not in str(raised.value)


@pytest.mark.parametrize("called", ["9999", "6272"])
def test_a_number_that_is_no_transaction_may_have_been_an_id(called: str) -> None:
    """It was told as the beginning of an id only, which is not what most mean by a number."""
    said = f"no transaction here is called '{called}', and .* global transactions? .*begins? with"
    with pytest.raises(TransactionUsageError, match=said):
        undo(ORPHAN, called)


def test_rows_of_an_encrypted_log_without_its_key_are_not_said_to_be_none() -> None:
    log = fixture_dir("derby") / "encrypted-aes-external-key"
    problems: list[Finding] = []
    assert [*row_dicts(log, Filter(), problems=problems)] == []
    assert "the key is not known, so no row" in problems[0].message
    assert problems[0].severity is Severity.DAMAGE
