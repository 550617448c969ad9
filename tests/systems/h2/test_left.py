"""Databases as H2 itself left them: what it opens with everything is no damage, and not in doubt.

In: files below ``left``, made by the engine and killed between two of its writes; what the engine
makes of a copy of each stands beside its name. Out: the answers.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystick.records import Answer, Severity
from tallystick.systems.h2.engine.opening import Opening, _check_catalog
from tallystick.systems.h2.format.values.types import Value
from tests.systems.h2.kit import reading_of

LEFT = Path(__file__).parent / "left"
HEALTHY = {
    "created-log-not-named": "being-created",  # opens, without tables
    "first-log-begun": "log-begun",  # opens, without tables
    "first-life-1.3.176": "flushed-end",  # opens: 5 rows of 5
    "first-life-1.4.200": "flushed-end",  # opens: 5 rows of 5
    "first-life-3-commits": "flushed-end",  # opens: every acknowledged row
    "ends-in-checkpoint": "full-last-page",  # opens: 18 transactions of 18
    "opened-after-close": "log-closed",  # opens: 2 transactions of 2
}


@pytest.mark.parametrize("name", HEALTHY)
def test_what_the_engine_opens_with_everything_is_safe(name: str) -> None:
    one = reading_of(LEFT / f"{name}.h2.db.gz")
    judgement = one.judgement
    assert (judgement.answer, judgement.reason) == (Answer.SAFE, HEALTHY[name])
    assert not [
        found for found in one.findings() if found.severity in (Severity.DAMAGE, Severity.LOSS)
    ]


def test_of_a_file_with_nothing_but_its_first_header_it_cannot_be_told_what_it_was() -> None:
    one = reading_of(LEFT / "header-only.h2.db.gz")  # 1.4.200 makes a new database of it
    assert (one.judgement.answer, one.judgement.reason) == (Answer.CANNOT_TELL, "header-only")
    assert not one.findings()


def test_changes_that_no_commit_ended_are_not_counted_as_lost() -> None:
    one = reading_of(LEFT / "uncommitted-page-zeroed.h2.db.gz")  # 1.4.200 opens it: 16 rows of 16
    judgement = one.judgement
    assert (judgement.answer, judgement.reason) == (Answer.CANNOT_TELL, "damaged")
    assert judgement.at_stake.transactions is judgement.at_stake.rows is None
    assert "no commit" in judgement.text


def test_an_empty_leaf_of_a_table_keeps_the_database_from_nothing() -> None:
    """1.3.176 opens it, its header being an older one, and fails when it comes to table T."""
    one = reading_of(LEFT / "empty-leaf.h2.db.gz")
    assert (one.judgement.answer, one.judgement.reason) == (Answer.CANNOT_TELL, "later-log")
    assert "table-page-damaged" in {found.code for found in one.findings()}


KEYWORDS = ["constraint", "check", "foreign", "if", "if-domain", "if-role", "in-1.4.196"]


@pytest.mark.parametrize("name", KEYWORDS)
def test_a_keyword_that_the_engine_wrote_without_quotes_is_refused(name: str) -> None:
    """Neither the engine that wrote it nor 1.4.200 opens it: a syntax error in its statement."""
    one = reading_of(LEFT / f"keyword-{name}.h2.db.gz")
    assert (one.judgement.answer, one.judgement.reason) == (Answer.REFUSES, "does-not-open")
    assert "is a keyword" in one.judgement.text


def test_of_a_column_that_an_expression_of_its_table_cannot_name_nothing_is_promised() -> None:
    one = reading_of(LEFT / "keyword-case-computed.h2.db.gz")  # 1.3.176: a syntax error
    assert (one.judgement.answer, one.judgement.reason) == (Answer.CANNOT_TELL, "damaged")
    assert "uses the column CASE" in one.judgement.text


USED = [
    "CASE INT,\n    B INT AS (CASE + 1)",
    "INTERSECTS INT DEFAULT 1,\n    B INT AS (INTERSECTS + 1)",
    "CURRENT_USER INT CHECK (USER() > 1)",
]
NOT_USED = [
    "CASE INT,\n    B INT AS (A + 1)",
    "A INT,\n    B INT AS CASE WHEN (A = 1) THEN 2 ELSE CASE WHEN (A = 2) THEN 3 END END",
    "A VARCHAR DEFAULT USER()",
]


@pytest.mark.parametrize("columns", USED + NOT_USED)
def test_a_column_that_is_another_thing_in_an_expression_is_named(columns: str) -> None:
    sql = f"CREATE CACHED TABLE PUBLIC.T(\n    {columns}\n)"
    opening = Opening(catalog={1: (Value("INT", "1"), Value("VARCHAR", sql))})
    _check_catalog(opening)
    assert opening.opened
    assert bool(opening.odd_catalog) == (columns in USED)


QUOTED = [
    """CREATE CACHED TABLE PUBLIC.T(\n    "check" INT NOT NULL,\n    ID INT\n)""",
    """CREATE CACHED TABLE PUBLIC.T(\n    "x" CHECK NOT NULL,\n    ID INT\n)""",
    """CREATE CACHED TABLE PUBLIC.T(\n    V INT CHECK (V > 0),\n    CHECKED INT\n)""",
    """CREATE CACHED TABLE "IF".T(\n    ID INT\n)""",
    'CREATE DOMAIN "IF" AS INT',
    "CREATE ROLE IF_ANY",
]


@pytest.mark.parametrize("sql", QUOTED)
def test_what_is_quoted_or_no_name_is_no_keyword(sql: str) -> None:
    opening = Opening(catalog={1: (Value("INT", "1"), Value("VARCHAR", sql))})
    _check_catalog(opening)
    assert opening.opened
