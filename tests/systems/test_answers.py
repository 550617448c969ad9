"""The rule that chooses an answer: calm needs a ground of its own, and stands beside no damage."""

from __future__ import annotations

import pytest

from tallystick.records import Answer, AtStake, Finding, Severity, Verdict
from tallystick.systems.answers import Ground, Reason, judgement_of, reasons
from tallystick.systems.findings import Code, codes

TABLE = reasons(
    Reason("stops", Answer.REFUSES, "It does not start."),
    Reason("drops", Answer.LOSES, "It drops records."),
    Reason("open", Answer.CANNOT_TELL, "It depends.", "the other file"),
    Reason("closed", Answer.SAFE, "It was closed."),
    Reason("crashed", Answer.SAFE, "It ends as a crash leaves it.", after_crash=True),
)
CODES = codes(
    Code("hole", Severity.DAMAGE, "Bytes are missing.", "Read a copy"),
    Code("copy-damaged", Severity.DAMAGE, "One copy is damaged.", "Read a copy", whole=True),
)


def _finding(code: str, severity: Severity = Severity.DAMAGE) -> Finding:
    return Finding(code, severity, "example", "/log", f"a {code}")


def test_without_a_ground_nothing_can_be_told() -> None:
    one = judgement_of(TABLE, CODES, (), ())
    assert (one.answer, one.reason, one.words) == (Answer.CANNOT_TELL, "no-proof", "CANNOT TELL")
    assert one.decided_by
    assert Verdict("example", "/log", "1", {}, {}).judgement.answer is Answer.CANNOT_TELL


@pytest.mark.parametrize(
    ("codes_that_hold", "answer"),
    [
        (["closed", "open", "drops", "stops"], Answer.REFUSES),
        (["closed", "open", "drops"], Answer.LOSES),
        (["closed", "open"], Answer.CANNOT_TELL),
        (["closed", "crashed"], Answer.SAFE),
    ],
)
def test_the_gravest_ground_decides(codes_that_hold: list[str], answer: Answer) -> None:
    assert judgement_of(TABLE, CODES, map(Ground, codes_that_hold), ()).answer is answer


def test_damage_that_no_ground_explains_takes_the_calm_away() -> None:
    for severity in (Severity.DAMAGE, Severity.LOSS):
        one = judgement_of(TABLE, CODES, [Ground("closed")], [_finding("hole", severity)])
        assert (one.answer, one.reason, one.text) == (Answer.CANNOT_TELL, "damaged", "a hole")
    unreadable = judgement_of(TABLE, CODES, [Ground("closed")], [_finding("unreadable")])
    assert unreadable.reason == "unreadable"


def test_damage_that_leaves_every_record_readable_does_not() -> None:
    one = judgement_of(TABLE, CODES, [Ground("closed")], [_finding("copy-damaged")])
    assert one.answer is Answer.SAFE
    assert (one.at_stake.transactions, one.at_stake.rows) == (0, 0)


def test_the_answer_stands_in_the_dictionary_of_a_verdict() -> None:
    one = judgement_of(TABLE, CODES, [Ground("drops", "It drops 2.", AtStake(2, 5))], ())
    plain = Verdict("example", "/log", "1", {}, {}, judgement=one).to_dict()
    assert plain["answer"] == "loses"
    assert plain["at_stake"] == {"transactions": 2, "rows": 5}
    assert plain["reason"]["code"] == "drops"
    assert plain["reason"]["text"] == "It drops 2."
    assert plain["reason"]["decided_by"] is None


def test_words_begin_with_the_answer() -> None:
    words = [judgement_of(TABLE, CODES, [Ground(code)], ()).words for code in TABLE]
    assert words[len(reasons()) :] == [
        "REFUSES",
        "LOSES",
        "CANNOT TELL",
        "SAFE",
        "SAFE AFTER A CRASH",
    ]


def test_a_reason_stands_once_and_says_what_would_decide() -> None:
    with pytest.raises(ValueError, match="twice"):
        reasons(*TABLE.values())
    with pytest.raises(ValueError, match="what would decide"):
        reasons(Reason("open", Answer.CANNOT_TELL, "It depends."))
