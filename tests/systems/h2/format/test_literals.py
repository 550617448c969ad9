"""Values in statements of H2: each type's literal, and what has none."""

from __future__ import annotations

import pytest

from tallystick.errors import UnsupportedFormatError
from tallystick.systems.h2.format.values.literals import DIALECT
from tallystick.systems.protocol import Column


@pytest.mark.parametrize(
    ("declared", "kind", "value", "literal"),
    [
        ("INTEGER", "int", None, "NULL"),
        ("INTEGER", "int", -5, "-5"),
        ("BIGINT", "bigint", -(2**63), "CAST('-9223372036854775808' AS BIGINT)"),
        ("BIGINT", "bigint", 1 - 2**63, "-9223372036854775807"),
        ("BOOLEAN", "boolean", "TRUE", "TRUE"),
        ("DECIMAL(5, 2)", "decimal(5,2)", "1.50", "1.50"),
        ("NUMERIC", "string", "1.50", "1.50"),
        ("VARBINARY(9)", "binary", "00ff", "X'00ff'"),
        ("OTHER", "string", "aced", "X'aced'"),
        ("VARCHAR(9)", "string", "it's", "'it''s'"),
        ("CLOB", "string", "", "''"),
        ("REAL", "float", "1.5", "CAST('1.5' AS REAL)"),
        ("FLOAT", "double", "1.5", "CAST('1.5' AS DOUBLE)"),
        ("UUID", "string", "0-0", "CAST('0-0' AS UUID)"),
        ("GEOMETRY", "string", "POINT (1 2)", "CAST('POINT (1 2)' AS GEOMETRY)"),
        ("DATE", "date", "2026-01-02", "DATE '2026-01-02'"),
        ("TIME", "string", "01:02:03", "TIME '01:02:03'"),
        ("TIMESTAMP(6)", "timestamp_ntz", "2026-01-02 00:00:00", "TIMESTAMP '2026-01-02 00:00:00'"),
        (
            "TIMESTAMP(6) WITH TIME ZONE", "string", "2026-01-02 00:00:00+01",
            "CAST('2026-01-02 00:00:00+01' AS TIMESTAMP(6) WITH TIME ZONE)",
        ),
    ],
)  # fmt: skip
def test_a_value_has_the_literal_of_its_type(
    declared: str, kind: str, value: object, literal: str
) -> None:
    assert DIALECT.literal(Column("c", declared, kind), value) == literal


@pytest.mark.parametrize(
    ("declared", "value", "said"),
    [
        ("VARCHAR(9)", "a\ufffd", "may hold what is no character"),
        ("ROW(A INT)", "1", "ROW"),
        ("", "x", r"\(unknown\)"),
    ],
)
def test_a_value_without_a_literal_is_refused(declared: str, value: str, said: str) -> None:
    with pytest.raises(UnsupportedFormatError, match=said):
        DIALECT.literal(Column("c", declared), value)


@pytest.mark.parametrize(
    ("declared", "compares"),
    [("INTEGER", True), ("CLOB", True), ("VARCHAR(9)", True)]
    + [(one, False) for one in ("OTHER", "OBJECT", "JAVA_OBJECT", "ARRAY", "ROW(A INT)", "JSON")]
    + [("GEOMETRY", False)],
)
def test_what_is_equal_can_be_asked_of_some_types(declared: str, compares: bool) -> None:
    assert DIALECT.compares(Column("c", declared)) is compares
