"""Values in statements of Derby: each type's literal, and what has none."""

from __future__ import annotations

from typing import Any

import pytest

from tallystick.errors import UnsupportedFormatError
from tallystick.systems.derby.format.literals import DIALECT
from tallystick.systems.protocol import Column


@pytest.mark.parametrize(
    ("declared", "kind", "value", "literal"),
    [
        ("INTEGER", "int", None, "NULL"),
        ("SMALLINT", "smallint", -5, "-5"),
        ("BIGINT", "bigint", 7, "7"),
        ("BOOLEAN", "boolean", "true", "TRUE"),
        ("DECIMAL(5,2)", "decimal(5,2)", "0.50", ".50"),
        ("DECIMAL(5,2)", "decimal(5,2)", "-0.50", "-.50"),
        ("DECIMAL(5,2)", "decimal(5,2)", "10.50", "10.50"),
        ("REAL", "float", 1.5, "CAST(1.5E0 AS REAL)"),
        ("DOUBLE", "double", 1e300, "1E+300"),
        ("DOUBLE", "double", "-2.5", "-2.5E0"),
        ("DATE", "date", "2026-01-02", "DATE('2026-01-02')"),
        ("TIME", "string", "01:02:03", "TIME('01:02:03')"),
        ("TIMESTAMP", "timestamp_ntz", "2026-01-02 00:00:00", "TIMESTAMP('2026-01-02 00:00:00')"),
        ("XML", "string", "<a/>", "XMLPARSE(DOCUMENT CAST('<a/>' AS CLOB) PRESERVE WHITESPACE)"),
        ("CHAR(3)", "string", "it's", "'it''s'"),
        ("VARCHAR(9)", "string", "", "''"),
        ("CLOB(1K)", "string", "c", "CAST('c' AS CLOB)"),
        ("LONG VARCHAR", "string", "c", "CAST('c' AS LONG VARCHAR)"),
        ("CHAR(2) FOR BIT DATA", "binary", "00ff", "X'00ff'"),
        ("BLOB(1K)", "binary", "", "CAST(X'' AS BLOB)"),
        ("VARCHAR(20000)", "string", "a" * 10_000, "'" + "a" * 10_000 + "'"),
        (
            "VARCHAR(20000)", "string", "a" * 10_001,
            "CAST('" + "a" * 10_000 + "' || 'a' AS VARCHAR(20000))",
        ),
        (
            "CLOB(1M)", "string", "a" * 10_001,
            "CAST('" + "a" * 10_000 + "' AS CLOB) || CAST('a' AS CLOB)",
        ),
        ("BLOB(1M)", "binary", "0" * 16_000, "CAST(X'" + "0" * 16_000 + "' AS BLOB)"),
        (
            "BLOB(1M)", "binary", "0" * 16_002,
            "CAST(X'" + "0" * 16_000 + "' AS BLOB) || CAST(X'00' AS BLOB)",
        ),
    ],
)  # fmt: skip
def test_a_value_has_the_literal_of_its_type(
    declared: str, kind: str, value: Any, literal: str
) -> None:
    assert DIALECT.literal(Column("c", declared, kind), value) == literal


@pytest.mark.parametrize(
    ("declared", "value", "said"),
    [
        ("VARCHAR(9)", "a\ufffd", "may hold what is no character"),
        ('"APP"."MONEY"', "00ff", "MONEY"),
        ("", "x", r"\(unknown\)"),
    ],
)
def test_a_value_without_a_literal_is_refused(declared: str, value: str, said: str) -> None:
    with pytest.raises(UnsupportedFormatError, match=said):
        DIALECT.literal(Column("c", declared), value)


@pytest.mark.parametrize(
    ("declared", "kind", "compares"),
    [
        ("INTEGER", "int", True),
        ("CHAR(3)", "string", True),
        ("VARCHAR(3)", "string", True),
        ("TIME", "string", True),
        ("CHAR(2) FOR BIT DATA", "binary", True),
        ("CLOB(1K)", "string", False),
        ("BLOB(1K)", "binary", False),
        ("XML", "string", False),
        ("LONG VARCHAR", "string", False),
        ('"APP"."MONEY"', "string", False),
    ],
)
def test_what_is_equal_can_be_asked_of_some_types(declared: str, kind: str, compares: bool) -> None:
    assert DIALECT.compares(Column("c", declared, kind)) is compares
