"""Values of rows reach each database in the form that its driver takes."""

from __future__ import annotations

import json
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from tallystick.roles import Operation, OperationCode
from tallystick.services.write_behind.targets.rows import encode_row
from tallystick.services.write_behind.targets.statements import statements

ROW: dict[str, Any] = {
    "moment": datetime(2026, 1, 31, 12, 30),
    "day": date(2026, 1, 31),
    "hour": time(12, 30),
    "span": timedelta(days=1, microseconds=5),
    "price": Decimal("1.10"),
    "number": UUID(int=7),
    "picture": b"\0\xff",
    "weight": float("inf"),
    "plain": "text",
}
AS_TEXT = {
    "moment": "2026-01-31 12:30:00",
    "day": "2026-01-31",
    "hour": "12:30:00",
    "span": timedelta(days=1, microseconds=5).total_seconds(),
    "price": "1.10",
}


def parameters(dialect: str, *, at_once: bool) -> Any:
    insert = Operation(OperationCode.INSERT, "t", encode_row({"id": 1}), encode_row(ROW))
    ((_, found),) = statements(dialect, [insert], lambda _: at_once)
    return found


@pytest.mark.parametrize(
    ("dialect", "changed"),
    [
        ("postgresql", {}),
        ("mysql", {"number": str(UUID(int=7))}),
        ("sqlite", AS_TEXT | {"number": str(UUID(int=7))}),
    ],
)
def test_a_row_has_the_types_of_its_driver(dialect: str, changed: dict[str, Any]) -> None:
    (found,) = parameters(dialect, at_once=False)
    assert found == {"id": 1} | ROW | changed


def test_a_document_has_text_that_postgresql_reads_as_its_types() -> None:
    (found,) = json.loads(parameters("postgresql", at_once=True)["rows"])
    assert found == {
        "id": 1,
        "moment": "2026-01-31T12:30:00",
        "day": "2026-01-31",
        "hour": "12:30:00",
        "span": "1 days 0.000005 seconds",
        "price": "1.10",
        "number": str(UUID(int=7)),
        "picture": "\\x00ff",
        "weight": "Infinity",
        "plain": "text",
    }


def update_of(value: object) -> Operation:
    row = {"id": value, "state": "paid"}
    return Operation(OperationCode.UPDATE, "t", encode_row({"id": 7}), encode_row(row))


@pytest.mark.parametrize("dialect", ["postgresql", "mysql", "sqlite"])
def test_a_row_that_would_change_its_key_is_no_other_row(dialect: str) -> None:
    with pytest.raises(ValueError, match="the row has 8 in column 'id', and its key 7; a key"):
        list(statements(dialect, [update_of(8)], lambda _: True))


@pytest.mark.parametrize("same", [7, "7", 7.0])
def test_a_row_may_repeat_its_key(same: object) -> None:
    ((_, (found,)),) = statements("sqlite", [update_of(same)])
    assert found == {"id": same, "state": "paid"}
