"""What a log or a caller gives as text is searched in a time that grows as the text does.

A pattern in which one text can be taken in many ways tries them all where the rest does not fit: a
damaged statement of a catalogue took more than five minutes.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tallystick.rescue.bundling import _MASKS
from tallystick.services.transactions.resources.mysql.branch import _CHANGES_SESSION
from tallystick.systems.h2.engine.opening import _KEYWORD
from tallystick.systems.h2.format.catalogue import table_names
from tallystick.systems.h2.format.values.types import Value

SECONDS = 1.0
"""Of processors; each takes a small part of this, where what grows faster takes more."""
REPEATED = 6000


def _catalogue(sql: str) -> None:
    table_names([(Value("INTEGER", "7"), None, None, Value("VARCHAR", sql))])


def _keyword(sql: str) -> None:
    _KEYWORD.match(sql)


def _statement(sql: str) -> None:
    _CHANGES_SESSION.match(sql)


def _masked(text: str) -> None:
    for pattern, mask in _MASKS:
        text = pattern.sub(mask, text)


KEY = 'ALTER TABLE "PUBLIC"."T" ADD CONSTRAINT "PUBLIC"."C" PRIMARY KEY('
TABLE = 'CREATE CACHED TABLE "PUBLIC"."T"('


@pytest.mark.parametrize(
    ("search", "before", "repeated", "after"),
    [
        (_catalogue, KEY, "A", ""),
        (_catalogue, KEY, "A, ", ""),
        (_catalogue, KEY, '"A"', ";"),
        (_catalogue, KEY, '""', ";"),
        (_catalogue, f'{TABLE}"E" ENUM(', "''", ";"),
        (_catalogue, f'{TABLE}"E" ENUM(', "'a', ", ";"),
        (_catalogue, f'{TABLE}"E" ENUM(', "'a' ", "',)"),
        (_catalogue, "CREATE ", "TABLE ", ""),
        (_catalogue, "CREATE ", "TABLE A.", ""),
        (_catalogue, TABLE, '"A" INT, ', "'"),
        (_catalogue, TABLE, "(", ""),
        (_keyword, "CREATE TABLE T(\n", "\n", ""),
        (_keyword, "CREATE TABLE T(\n", " \n", ""),
        (_keyword, "CREATE TABLE T(\n", " ", ""),
        (_keyword, "CREATE ", "TABLE ", ""),
        (_statement, "", "/* a */ ", "SELECT 1"),
        (_statement, "", "/**/", "SELECT 1"),
        (_statement, "", "-- \n", "SELECT 1"),
        (_statement, "", "#\n", "SELECT 1"),
        (_statement, "", "/*", ""),
        (_statement, "SELECT", " INTO", ""),
        (_masked, "", "key", ""),
        (_masked, "", "a", ""),
        (_masked, "", "a.", ""),
        (_masked, "", "key=", ""),
        (_masked, "", "'\"", ""),
        (_masked, "'", 'a"', ""),
        (_masked, "", "ab01", ""),
    ],
)
def test_a_text_takes_no_more_than_its_length(
    search: Callable[[str], None], before: str, repeated: str, after: str
) -> None:
    began = time.process_time()
    search(before + repeated * REPEATED + after)
    assert time.process_time() - began < SECONDS
