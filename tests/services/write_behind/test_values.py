"""Rows hold the values that tables have, and are refused at the call otherwise."""

from __future__ import annotations

import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa

from tallystick.errors import TransactionUsageError
from tallystick.roles import PersistEntry
from tallystick.services.write_behind import WriteBehind
from tallystick.services.write_behind.targets.rows import decode_row
from tests.kit import unpack

ROW: dict[str, Any] = {
    "moment": datetime(2026, 1, 31, 12, 30),
    "day": date(2026, 1, 31),
    "hour": time(12, 30),
    "span": timedelta(hours=1),
    "price": Decimal("1.10"),
    "number": UUID(int=7),
    "picture": b"\0\xff",
    "weight": math.inf,
    "plain": "text",
}


def test_a_target_gets_the_values_of_a_row(tmp_path: Path) -> None:
    seen: list[PersistEntry] = []
    with WriteBehind(tmp_path / "w", {"x": seen.append}) as behind:
        with behind.begin() as tx:
            tx.insert("t", {"id": UUID(int=1)}, ROW)
            tx.insert("t", {"id": 2}, {"v": "plain"})
        assert behind.drain(timeout=10)
    first, second = seen[0].operations
    assert decode_row(first.key) == {"id": UUID(int=1)}
    assert decode_row(first.value or b"") == ROW
    assert (second.key, second.value) == (b'{"id":2}', b'{"v":"plain"}'), "plain JSON as ever"


def test_a_database_gets_them(tmp_path: Path) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path}/a.db")
    columns = ", ".join(ROW)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE TABLE t (id PRIMARY KEY, {columns})")
    with WriteBehind(tmp_path / "w", {"x": engine}) as behind:
        with behind.begin() as tx:
            tx.insert("t", {"id": UUID(int=1)}, ROW)
        assert behind.drain(timeout=10)
    with engine.begin() as connection:
        (found,) = connection.exec_driver_sql(f"SELECT {columns} FROM t").all()
    assert tuple(found) == (
        "2026-01-31 12:30:00", "2026-01-31", "12:30:00", 3600.0, "1.10", str(UUID(int=7)),
        b"\0\xff", math.inf, "text",
    )  # fmt: skip
    engine.dispose()


def test_a_value_without_an_encoding_is_refused_at_the_call(tmp_path: Path) -> None:
    with WriteBehind(tmp_path / "w", {"x": print}) as behind:
        tx = behind.begin()
        with pytest.raises(TransactionUsageError, match="no encoding"):
            tx.insert("t", {"id": 1}, {"v": object()})
        with pytest.raises(TransactionUsageError, match="no encoding"):
            tx.delete("t", {"id": object()})
        assert not tx.operations


def test_a_serializer_encodes_what_has_no_encoding(tmp_path: Path) -> None:
    seen: list[PersistEntry] = []
    with WriteBehind(tmp_path / "w", {"x": seen.append}, serializer=sorted) as behind:
        with behind.begin() as tx:
            tx.insert("t", {"id": 1}, {"v": {2, 1}})
        assert behind.drain(timeout=10)
    assert decode_row(seen[0].operations[0].value or b"") == {"v": [1, 2]}


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """A log with pending rows, written before values had tags."""
    unpack(Path(__file__).with_name("earlier_rows.b64"), tmp_path)
    return tmp_path / "spool"


def test_rows_of_an_earlier_version_are_applied(earlier: Path) -> None:
    seen: list[PersistEntry] = []
    with WriteBehind(earlier, {"x": seen.append}, on_incomplete="replay") as behind:
        assert behind.drain(timeout=10)
    (first, second) = (one for entry in seen for one in entry.operations)
    assert decode_row(first.value or b"") == {"v": 1.5, "w": "grün", "n": None}
    assert math.isnan(decode_row(second.value or b"")["v"])
