"""Tables and columns by the statements of the catalogue."""

from __future__ import annotations

import pytest

from tallystick.systems.h2.format.catalogue import TableLives, TableName, collections, table_names
from tallystick.systems.h2.format.values.types import Value
from tallystick.systems.protocol import Column


def _names(*statements: str) -> dict[int, TableName]:
    return table_names(
        (Value("INTEGER", str(at)), None, None, Value("VARCHAR", sql))
        for at, sql in enumerate(statements, 1)
    )


def _columns(*statements: str) -> dict[str, tuple[Column, ...]]:
    return {one.name: one.columns for one in collections(_names(*statements))}


@pytest.mark.parametrize(
    "comment", ["COMMENT 'a(''b'", r"COMMENT STRINGDECODE('x\n ( \"A\" INT, ''q'')')"]
)
def test_a_table_with_a_comment_is_found(comment: str) -> None:
    found = _columns(f'CREATE CACHED TABLE "PUBLIC"."T" {comment}(\n    "ID" INT NOT NULL\n)')
    assert found == {"PUBLIC.T": (Column("ID", "INT", "int"),)}


@pytest.mark.parametrize(
    ("declared", "large"),
    [
        ("BLOB", True), ("CLOB(1000)", True), ("LONGTEXT", True), ("NCLOB", True), ("OID", True),
        ("IMAGE NOT NULL", True), ("DB", True), ("VARCHAR(20)", False), ("TEXTS", False),
    ],
)  # fmt: skip
def test_tables_of_large_objects_are_told_by_the_types_of_columns(
    declared: str, large: bool
) -> None:
    table = f'CREATE CACHED TABLE "PUBLIC"."T"(\n    "A" INT,\n    "B" {declared}\n)'
    names = _names("CREATE DOMAIN DB AS BLOB", table)
    for build in (0, 147, 175):
        assert TableLives(names, build=build).of_lob_files == ({2} if large else set())
    assert not TableLives(names, build=176).of_lob_files  # it has none in files


def test_names_and_labels_may_have_all_that_ends_a_column_elsewhere() -> None:
    found = _columns(
        'CREATE CACHED TABLE "PUBLIC"."T"(\n    "a\n(,b" INT CHECK ("a" > 0),\n'
        "    \"E\" ENUM('x\n', 'y)', 'it''s, '),\n    \"D\" DECIMAL(10, 2) DEFAULT 1 + (2, 3)\n)"
    )
    assert found["PUBLIC.T"] == (
        Column("a\n(,b", "INT", "int"),
        Column("E", "ENUM('x\n', 'y)', 'it''s, ')", "string"),
        Column("D", "DECIMAL(10, 2)", "decimal(10,2)"),
    )


@pytest.mark.parametrize(
    ("name", "declared", "kind"),
    [
        ('"DD"', "ENUM('x', 'y')", "string"),
        ("DB", "BLOB", "binary"),
        ('"d e"', "VARBINARY(20)", "binary"),
        ("TWICE", "BLOB", "binary"),
        ("ROUND", "ROUND", "string"),
        ('"OTHER"', '"OTHER"', "string"),
    ],
)
def test_a_domain_is_the_type_that_it_stands_for(name: str, declared: str, kind: str) -> None:
    found = _columns(
        f'CREATE CACHED TABLE "PUBLIC"."T"(\n    "A" {name},\n    "B" INT\n)',
        "CREATE DOMAIN \"DD\" AS ENUM('x', 'y')",
        "CREATE DOMAIN DB AS BLOB",
        'CREATE DOMAIN "d e" AS VARBINARY(20) NOT NULL CHECK (LENGTH(VALUE) > 2)',
        "CREATE DOMAIN TWICE AS DB",
        "CREATE DOMAIN ROUND AS ROUND",
    )
    assert found["PUBLIC.T"] == (Column("A", declared, kind), Column("B", "INT", "int"))


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        ("FLOAT(24)", "float"),
        ("FLOAT(25)", "double"),
        ("FLOAT", "double"),
        ("INTERVAL DAY(5) TO SECOND(9)", "string"),
        ("INTERVAL SECOND(5, 3)", "string"),
        ("TIMESTAMP(9) WITH TIME ZONE", "string"),
        ("DOUBLE PRECISION", "double"),
    ],
)
def test_types_are_told_whole(declared: str, kind: str) -> None:
    found = _columns(f'CREATE CACHED TABLE "PUBLIC"."T"(\n    "A" {declared} NOT NULL\n)')
    assert found["PUBLIC.T"] == (Column("A", declared, kind),)


def _key(*statements: str) -> tuple[str, ...]:
    created = 'CREATE CACHED TABLE "PUBLIC"."T"(\n    "a, b" INT NOT NULL,\n    "B" INT NOT NULL\n)'
    rows = [
        (Value("INTEGER", str(at)), None, None, Value("VARCHAR", sql))
        for at, sql in enumerate((created, *statements))
    ]
    (found,) = collections(table_names(rows))
    return found.key


@pytest.mark.parametrize(
    ("constraint", "key"),
    [
        ('ADD CONSTRAINT "PUBLIC"."C" PRIMARY KEY("B", "a, b") INDEX "PUBLIC"."I"', ("B", "a, b")),
        ('ADD CONSTRAINT IF NOT EXISTS PUBLIC.C PRIMARY KEY("a, b") INDEX PUBLIC.I', ("a, b",)),
        ("ADD CONSTRAINT C COMMENT 'PRIMARY KEY(1)' PRIMARY KEY(B)", ("B",)),
        ('ADD CONSTRAINT "PUBLIC"."C" UNIQUE("B") INDEX "PUBLIC"."I"', ()),
        ('ADD CONSTRAINT "C" CHECK("B" > \'PRIMARY KEY(B)\')', ()),
    ],
)
def test_the_primary_key_is_that_of_its_constraint(constraint: str, key: tuple[str, ...]) -> None:
    assert _key(f'ALTER TABLE "PUBLIC"."T" {constraint}') == key
    assert _key(f'ALTER TABLE "PUBLIC"."OTHER" {constraint}') == ()
