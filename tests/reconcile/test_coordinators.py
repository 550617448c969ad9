"""Whose transaction it is where coordinators have equal names and no journal has a record."""

from __future__ import annotations

from typing import Any

import pytest

from tallystick.reconcile.coordinators import nearest, responsible_journals

HUB = "/hub"


def journal(site: str, *logs: str) -> dict[str, Any]:
    """A journal that shares transactions with these logs."""
    return {"log": f"/{site}/bitronix", "logs": list(logs)}


ONE = journal("one", "/one/derby/log", "/one/h2")
TWO = journal("two", "/two/derby/log", HUB)
LONELY = journal("lonely")

CASES: dict[str, tuple[list[dict[str, Any]], set[str], list[dict[str, Any]]]] = {
    "of-equal-names-the-one-that-works-with-the-log": ([ONE, TWO], {"/one/h2"}, [ONE]),
    "the-one-that-works-with-most-of-the-logs": (
        [ONE, TWO, journal("three", HUB)],
        {"/two/derby/log", HUB},
        [TWO],
    ),
    "a-log-that-never-met-it-in-its-own-home": ([ONE, TWO], {"/one/artemis"}, [ONE]),
    "elsewhere-it-does-not-answer": ([ONE], {"/three/h2", "/three/derby/log"}, []),
    "a-journal-that-met-no-log-may-have-met-any": ([LONELY], {"/three/h2"}, [LONELY]),
    "no-journal": ([], {"/three/h2"}, []),
}


@pytest.mark.parametrize("name", CASES)
def test_journals_that_answer(name: str) -> None:
    journals, logs, expected = CASES[name]
    assert responsible_journals(journals, logs) == expected


def test_the_nearest_shares_most_folders() -> None:
    assert nearest([ONE, TWO], ["/two/artemis"]) == "/two/bitronix"
    assert nearest([], ["/two/artemis"]) is None
