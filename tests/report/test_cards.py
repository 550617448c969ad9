"""The first screen: one sentence that is right, and what is to be done, the gravest first."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from tallystick.report.cards import Names, cards, headline
from tallystick.report.data import ReportData
from tests.report.conftest import answer, due

LOSES = answer("/e/d", "loses", transactions_at_stake=54)
REFUSES = answer("/e/d", "refuses")
CANNOT_TELL = answer("/e/d", "cannot-tell", decided_by="the twin")
SAFE = answer("/e/d", "safe", after_crash=True)
LOST = due(2, "commit", "lost-commit")
MISMATCH = due(5, "heuristic_mismatch", "heuristic-mismatch")


def _data(*rows: dict[str, Any], logs: int = 1) -> ReportData:
    data = ReportData()
    data.states[("bitronix", "/e/bitronix")] = Counter()
    for number in range(logs):
        data.states[("derby", f"/e/{'d' * (number + 1)}")] = Counter()
    for row in rows:
        if "gtrid" in row:
            data.add_due(row)
        elif "severity" in row:
            data.add_finding(row)
        else:
            data.add_answer(row)
    data.finish()
    return data


def _names(data: ReportData) -> Names:
    return Names(data.systems)


@pytest.mark.parametrize(
    ("rows", "text", "counts"),
    [
        ([SAFE], "Nothing is due, and nothing would be lost.", ""),
        (
            [LOST, due(1, "commit"), due(3, "rollback"), due(4, "foreign", "foreign-branch")],
            "Do not start bitronix yet: 1 commit would be lost.",
            "2 to commit, 1 to roll back, 1 of another coordinator.",
        ),
        ([LOSES], "Do not start derby yet: 54 commits would be lost.", ""),
        (
            [LOST, LOSES, MISMATCH],
            "Do not start bitronix and derby yet: 55 commits would be lost.",
            "1 to commit, 1 to mend by hand.",
        ),
        (
            [LOSES | {"transactions_at_stake": None}],
            "Do not start derby yet: commits would be lost.",
            "",
        ),
        ([REFUSES], "derby does not start with its log.", ""),
        (
            [MISMATCH, CANNOT_TELL],
            "1 global transaction went against the decision: mend the data by hand.",
            "1 to mend by hand, 1 log that cannot be judged yet.",
        ),
        ([CANNOT_TELL], "What a restart does to 1 of 2 logs cannot be told yet.", ""),
        (
            [SAFE, {"severity": "damage", "log": "/e/d"}],
            "Logs are damaged: read the findings before anything starts.",
            "",
        ),
        (
            [due(1, "commit")],
            "Nothing is lost by a start: coordinators do what is due.",
            "1 to commit.",
        ),
    ],
)
def test_the_first_sentence_says_what_not_to_start(
    rows: list[dict[str, Any]], text: str, counts: str
) -> None:
    data = _data(*rows)
    found = headline(data, _names(data))
    assert (found.text, found.counts) == (text, counts)


def test_of_several_logs_of_a_system_the_sentence_says_which() -> None:
    data = _data(LOSES, logs=2)
    assert headline(data, _names(data)).text.startswith("Do not start derby (d) yet")


def test_the_page_of_a_log_names_the_coordinator_of_another() -> None:
    part = ReportData(states={("derby", "/e/d"): Counter()})
    part.add_due(LOST)
    names = Names({"/e/d": "derby", "/e/bitronix": "bitronix", "/e/b/bitronix": "bitronix"})
    found = headline(part, names)
    assert found.text == "Do not start bitronix (bitronix) yet: 1 commit would be lost."


def test_a_log_that_a_lost_commit_is_about_has_no_card_of_its_own() -> None:
    told = answer("/e/d", "loses", reason="commit-lost", transactions_at_stake=1)
    data = _data(LOST, told)
    assert [one.gtrid for one in cards(data, _names(data), datetime.now(UTC))] == [
        "62616e6b2d31020202020202020202020202"
    ]
    assert "1 commit would be lost" in headline(data, _names(data)).text


def test_no_log_at_all_is_said() -> None:
    assert headline(ReportData(), Names({})).text == "No log was found."


def test_the_branch_that_went_against_the_decision_is_named_before_what_to_do() -> None:
    evidence = "jdbc/b rolled back against the decision; COMMITTING in f"
    data = _data(MISMATCH | {"evidence": evidence})
    (card,) = cards(data, _names(data), datetime.now(UTC))
    assert card.why == (
        "jdbc/b rolled back against the decision. Compare the resources and correct the data by "
        "hand."
    )
