"""The decision table, row by row, and all of its inputs against what must hold for each."""

from __future__ import annotations

import itertools

import pytest

from tallystick.reconcile.decision_table import (
    DECISIONS,
    Branch,
    Decided,
    Decision,
    Judgement,
    Place,
    Resolution,
    due_of,
    judge,
    named_branches,
)
from tallystick.records import State

NAMES = ("a", "b")
PLACE = Place("COMMITTING", "part1.tlog", 100)
ENDS = ("prepared", "committed", "rolled_back", "active", "unknown")


def decided(
    state: State, names: tuple[str, ...] = NAMES, open_names: tuple[str, ...] = NAMES
) -> Decided:
    return Decided("journal", state, names, open_names, PLACE)


def branches(*states: str) -> list[Branch]:
    return [
        Branch("h2", f"/log {name}", name, name.encode(), state, PLACE)
        for name, state in zip("abc", states, strict=False)
    ]


def judged(
    state: State | None,
    *states: str,
    owned: bool = True,
    covered: bool = True,
    damaged: bool = False,
    lasts: tuple[str, ...] = (),
) -> Judgement:
    note = None if state is None else decided(state)
    return judge(
        note, branches(*states), owned=owned, covered=covered, damaged=damaged, lasts=lasts
    )


NOTHING = "nothing is in doubt"
ABORT = "no decision to commit is recorded: presumed abort"
MAY_HAVE_HELD = {
    "doubtful-abort": "no decision to commit can be read, but the journal is damaged and may have "
    "held one: presumed abort is not proved",
    "missing-decision": "every branch has committed; the damaged journal may have held the "
    "decision",
    "unread": "the damaged journal may have held that decision",
}
LOST = "committed against no decision to commit"
LOST_COMMIT = (
    "the coordinator has closed its decision to commit, and the resource lost that commit: "
    "a restart would roll it back without a word"
)


@pytest.mark.parametrize(
    ("state", "states", "resolution", "alarm", "reasons"),
    [
        (
            State.COMMITTING, ("prepared", "committed"), "commit", "",
            ["the decision to commit is not closed"],
        ),
        (
            State.COMMITTED, ("prepared", "committed"), "commit", "lost-commit",
            [LOST_COMMIT],
        ),
        (
            State.COMMITTING, ("committed", "committed"), "none", "",
            ["nothing is in doubt; only the closing record is missing"],
        ),
        (State.COMMITTED, ("committed", "committed"), "none", "", [NOTHING]),
        (
            State.COMMITTED, ("committed", "rolled_back"), "heuristic_mismatch",
            "heuristic-mismatch", ["b rolled back against the decision to commit"],
        ),
        (
            State.COMMITTING, ("active", "prepared"), "heuristic_mismatch",
            "heuristic-mismatch", ["a not even prepared against the decision to commit"],
        ),
        (State.ACTIVE, ("prepared", "active"), "rollback", "", [ABORT]),
        (State.UNDECIDED, ("prepared", "prepared"), "rollback", "", [ABORT]),
        (None, ("prepared", "prepared"), "rollback", "", [ABORT]),
        (
            State.ROLLED_BACK, ("prepared", "rolled_back"), "rollback", "",
            ["the decision is to roll back"],
        ),
        (
            State.ROLLING_BACK, ("prepared", "prepared"), "rollback", "",
            ["the decision is to roll back"],
        ),
        (
            State.UNDECIDED, ("committed", "prepared"), "heuristic_mismatch",
            "heuristic-mismatch", [f"a {LOST}"],
        ),
        (
            State.ROLLED_BACK, ("rolled_back", "committed"), "heuristic_mismatch",
            "heuristic-mismatch", [f"b {LOST}"],
        ),
        (
            None, ("committed", "committed"), "heuristic_mismatch", "heuristic-mismatch",
            [f"a {LOST}", f"b {LOST}"],
        ),
        (
            State.HEURISTIC, ("committed", "prepared"), "heuristic_mismatch",
            "heuristic-outcome",
            ["the coordinator recorded a heuristic outcome: look at each resource"],
        ),
        (None, (), "none", "", [NOTHING]),
        (State.ROLLED_BACK, ("rolled_back", "active"), "none", "", [NOTHING]),
    ],
)  # fmt: skip
def test_a_row_of_the_table(
    state: State | None, states: tuple[str, ...], resolution: str, alarm: str, reasons: list[str]
) -> None:
    found = judged(state, *states)
    assert (found.resolution, found.alarm, list(found.reasons)) == (resolution, alarm, reasons)
    assert found.decision == (None if state is None else DECISIONS.get(state))
    assert not found.unread


@pytest.mark.parametrize(
    ("states", "resolution", "alarm", "reason"),
    [
        (
            ("prepared",), "foreign", "foreign-branch",
            "its coordinator is not in the estate and must decide: leave it alone",
        ),
        (("committed", "committed"), "none", "", NOTHING),
        (
            ("committed", "rolled_back"), "heuristic_mismatch", "heuristic-mismatch",
            "b rolled back against the commit of another branch",
        ),
        (("rolled_back", "rolled_back"), "none", "", NOTHING),
    ],
)  # fmt: skip
def test_without_the_journal_branches_have_only_each_other(
    states: tuple[str, ...], resolution: str, alarm: str, reason: str
) -> None:
    found = judged(None, *states, owned=False, covered=False)
    assert (found.resolution, found.alarm, found.reasons) == (resolution, alarm, (reason,))
    assert found.decision is None


@pytest.mark.parametrize(
    ("state", "states", "resolution", "alarm", "unread"),
    [
        (None, ("prepared", "prepared"), "rollback", "doubtful-abort", False),
        (State.UNDECIDED, ("prepared", "prepared"), "rollback", "doubtful-abort", False),
        (State.ROLLED_BACK, ("prepared", "prepared"), "rollback", "", False),
        (State.COMMITTING, ("prepared", "prepared"), "commit", "", False),
        (None, ("committed", "committed"), "none", "missing-decision", False),
        (State.ACTIVE, ("committed", "committed"), "none", "missing-decision", False),
        (State.ACTIVE, ("committed",), "heuristic_mismatch", "heuristic-mismatch", True),
        (
            State.ROLLED_BACK, ("committed", "committed"), "heuristic_mismatch",
            "heuristic-mismatch", False,
        ),
        (None, ("committed", "prepared"), "heuristic_mismatch", "heuristic-mismatch", True),
        (
            State.COMMITTING, ("rolled_back", "prepared"), "heuristic_mismatch",
            "heuristic-mismatch", False,
        ),
    ],
)  # fmt: skip
def test_a_damaged_journal_may_have_held_the_decision(
    state: State | None, states: tuple[str, ...], resolution: str, alarm: str, unread: bool
) -> None:
    found = judged(state, *states, damaged=True)
    assert (found.resolution, found.alarm, found.unread) == (resolution, alarm, unread)
    said = MAY_HAVE_HELD.get("unread" if unread else alarm)
    assert (found.reasons[-1] == said) == bool(said)
    assert found.decision == (None if state is None else DECISIONS.get(state))


@pytest.mark.parametrize(
    ("state", "states", "damaged", "resolution", "alarm"),
    [
        (None, ("prepared", "prepared"), False, "rollback", "decided-elsewhere"),
        (State.UNDECIDED, ("prepared",), False, "rollback", "decided-elsewhere"),
        (None, ("prepared", "prepared"), True, "rollback", "doubtful-abort"),
        (State.ROLLED_BACK, ("prepared", "prepared"), False, "rollback", ""),
        (State.COMMITTING, ("prepared", "prepared"), False, "commit", ""),
        (None, (), False, "none", ""),
    ],
)
def test_an_outcome_row_of_a_last_resource_may_be_the_decision(
    state: State | None, states: tuple[str, ...], damaged: bool, resolution: str, alarm: str
) -> None:
    found = judged(state, *states, damaged=damaged, lasts=("app", "lite"))
    assert (found.resolution, found.alarm) == (resolution, alarm)
    said = "no decision to commit is in the journal, and an outcome row of app, lite may be it"
    assert found.reasons[0].startswith(said) == (alarm == "decided-elsewhere")


@pytest.mark.parametrize("end", ["committed", "rolled_back", "active", "unknown"])
@pytest.mark.parametrize("state", [State.ACTIVE, State.ROLLED_BACK, State.COMMITTED])
def test_of_a_transaction_with_one_resource_that_one_alone_knows_the_outcome(
    state: State, end: str
) -> None:
    one = decided(state, ("a",), ())
    found = judge(one, branches(end), owned=True, covered=True)
    assert found == Judgement(DECISIONS[state], Resolution.NONE, (NOTHING,))


def test_a_journal_counts_as_whole_unless_damage_is_said() -> None:
    found = judge(None, branches("prepared", "prepared"), owned=True, covered=True)
    assert found.alarm == ""


def test_no_log_that_is_silent_is_taken_for_one_that_has_nothing_in_doubt() -> None:
    silent = [Branch(None, None, "a", None, "unknown"), Branch(None, None, None, None, "unknown")]
    heard = Branch("h2", "/log c", "c", b"c", "committed")
    found = judge(decided(State.COMMITTING), [*silent, heard], owned=True, covered=True)
    assert found.reasons == ("nothing is in doubt here, and no log here tells of a, ",)


@pytest.mark.parametrize(
    ("names", "open_names", "alarm"),
    [(("a", "b"), ("a",), ""), (("a", "b"), ("b",), "lost-commit"), (("b", "c"), ("b",), "")],
)
def test_a_decision_that_is_closed_for_a_name_in_doubt_is_a_lost_commit(
    names: tuple[str, ...], open_names: tuple[str, ...], alarm: str
) -> None:
    note = decided(State.COMMITTING, names, open_names)
    found = judge(note, branches("prepared"), owned=True, covered=True)
    assert (found.resolution, found.alarm) == ("commit", alarm)


def test_every_input_has_an_answer_that_contradicts_nothing() -> None:
    """All states of a coordinator and of two branches, under all that is known of the journal."""
    for state, pair, owned, covered, damaged in itertools.product(
        (None, *State), itertools.product(ENDS, repeat=2), *[(False, True)] * 3
    ):
        found = judged(state, *pair, owned=owned, covered=covered, damaged=damaged)
        in_doubt = "prepared" in pair
        decision = None if state is None else DECISIONS.get(state)
        case = (state, pair, owned, covered, damaged, found)
        assert found.reasons, case
        if found.resolution in ("commit", "rollback", "foreign"):
            assert in_doubt, case
        if found.resolution == "commit":
            assert decision is Decision.COMMIT, case
        if found.resolution == "rollback":
            assert decision is not Decision.COMMIT, case
            assert "committed" not in pair or not covered, case
        if found.resolution == "foreign":
            assert state is None, case
            assert not owned, case
        if found.resolution == "none":
            assert not in_doubt, case


@pytest.mark.parametrize(
    ("state", "states", "damaged", "due"),
    [
        (State.COMMITTING, ("prepared", "committed"), False, ["commit", None]),
        (State.COMMITTING, ("prepared", "rolled_back"), False, ["commit", None]),
        (State.ROLLED_BACK, ("prepared", "committed"), False, ["rollback", None]),
        (None, ("prepared", "committed"), False, ["rollback", None]),
        (None, ("prepared", "committed"), True, ["heuristic_mismatch", None]),
        (State.HEURISTIC, ("prepared", "committed"), False, ["rollback", None]),
        (State.UNDECIDED, ("prepared", "prepared"), False, ["rollback", "rollback"]),
    ],
)
def test_what_is_due_for_a_branch_where_others_disagree(
    state: State | None, states: tuple[str, ...], damaged: bool, due: list[str | None]
) -> None:
    note = None if state is None else decided(state)
    found = judge(note, branches(*states), owned=True, covered=True, damaged=damaged)
    assert [due_of(branch, found, note) for branch in branches(*states)] == due


def test_a_branch_gets_the_name_of_its_log_and_each_further_name_a_branch_of_its_own() -> None:
    known = Branch("h2", "/log a", None, b"x", "prepared", PLACE)
    logs = {"a": "/log a", "b": "/log b"}
    note = decided(State.COMMITTING, ("a", "b", "c"))
    named = Branch("h2", "/log a", "a", b"x", "prepared", PLACE)
    assert named_branches(None, [known], logs) == [named]
    assert named_branches(note, [known], logs) == [
        named,
        Branch(None, "/log b", "b", None, "unknown"),
        Branch(None, None, "c", None, "unknown"),
    ]


def test_a_name_that_is_missing_may_be_that_of_a_log_without_one() -> None:
    logs = {"b": "/log b"}
    note = decided(State.COMMITTING, ("a", "b"))
    nameless = Branch("h2", "/log x", None, b"x", "prepared")
    foreign = Branch("h2", None, None, b"y", "prepared")
    assert named_branches(note, [nameless], logs) == [
        nameless,
        Branch(None, "/log b", "b", None, "unknown"),
    ]
    assert named_branches(note, [foreign], {})[0] == foreign


def test_a_place_is_said_with_its_file_or_without() -> None:
    assert str(PLACE) == "COMMITTING in part1.tlog offset 100"
    assert str(Place("in doubt in pg now", None, None)) == "in doubt in pg now"
    assert str(Place("PREPARE", None, 7)) == "PREPARE in an unknown file offset 7"


def test_resolutions_are_the_words_of_the_tables() -> None:
    assert [one.value for one in Resolution] == [
        "none", "commit", "rollback", "foreign", "heuristic_mismatch",
    ]  # fmt: skip
