"""The decision table: exhausted, and the same in source and specification."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tallystick.systems.tally.read import decision
from tallystick.systems.tally.read.decision import TABLE, Case, Facts, decide, matches

ALL_FACTS = [Facts(*facts) for facts in itertools.product((False, True), repeat=5)]
SPECIFICATION = Path(__file__).parents[4] / "docs" / "formats" / "tally.md"


@pytest.mark.parametrize("facts", ALL_FACTS, ids=str)
def test_exactly_one_row_matches(facts: Facts) -> None:
    rows = [row for row in TABLE if matches(row, facts)]
    assert len(rows) == 1
    assert decide(facts) is rows[0][5]


def test_nothing_known_to_be_durable_is_ever_cut() -> None:
    for facts in ALL_FACTS:
        if facts.known:
            assert decide(facts) in (Case.VALID, Case.REPAIRED, Case.CORRUPT)


def test_nothing_is_used_without_a_fitting_checksum_and_place_in_the_chain() -> None:
    for facts in ALL_FACTS:
        if decide(facts) in (Case.VALID, Case.REPAIRED):
            assert facts.inner
            assert facts.follows
            assert facts.lead or facts.trail


def test_refusal_needs_proof() -> None:
    assert all(facts.known for facts in ALL_FACTS if decide(facts) is Case.CORRUPT)


def _printed_rows(text: str) -> list[list[str]]:
    rows = [line.replace("|", " ").split() for line in text.splitlines()]
    cases = {case.name for case in Case}
    return [row for row in rows if any(word in cases for word in row[:8])]


def test_specification_prints_the_table_of_the_source() -> None:
    source = [[*row[: row.index(name)], name] for row, name in _named(decision.__doc__ or "")]
    page = [[*row[: row.index(name)], name] for row, name in _named(SPECIFICATION.read_text())]
    assert source == page
    assert len(source) == 9


def _named(text: str) -> list[tuple[list[str], str]]:
    cases = [case.name for case in Case]
    found = []
    for row in _printed_rows(text):
        name = next(word for word in row if word in cases)
        if row[0] in ("yes", "no", "one"):
            found.append((row, name))
    return found


def _expanded(cells: list[str]) -> list[tuple[bool | None, ...]]:
    """The rows of `TABLE` that one printed row stands for."""
    either: dict[str, bool | None] = {"yes": True, "no": False, "-": None}
    if cells[:3] == ["one", "or", "both"]:
        rest = tuple(either[cell] for cell in cells[3:])
        return [(True, None, *rest), (False, True, *rest)]
    return [tuple(either[cell] for cell in cells)]


def test_printed_rows_are_the_rows_of_the_code() -> None:
    printed = {
        (*facts, Case[name])
        for row, name in _named(decision.__doc__ or "")
        for facts in _expanded(row[: row.index(name)])
    }
    assert printed == set(TABLE)
