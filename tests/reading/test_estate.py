"""The logs below one path are judged together: all commands tell what one decides for another."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from tallystick.reading import explain, inspect, triage, verify
from tallystick.reading.coordinators import coordinators_of
from tallystick.reading.estate import REASONS, Gatherer
from tallystick.reading.survey import survey
from tallystick.records import Answer, Clock, Judgement, State, Transaction
from tallystick.roles.coordinator_files import CLOSED_FILE, DECIDES, RESOURCES
from tallystick.services.page_store import PageStore
from tallystick.services.transactions import TransactionManager
from tallystick.services.transactions.coordinator_dir import ClosedDecisions
from tallystick.systems.answers import ENDS_IN_PREPARE, NO_REASONS
from tallystick.systems.protocol import LogReading, LogSource
from tests.fixtures import fixture_dir
from tests.indoubt.estates import EXAMPLES, damaged_decision
from tests.indoubt.test_indoubt import Site
from tests.kit import untouched

COMMANDS: tuple[Callable[[Any], Any], ...] = (triage, explain, verify, inspect)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_tells_the_gravest_facts_of_the_estate(command: Any) -> None:
    with untouched(EXAMPLES):
        found = command(EXAMPLES)
    lines = [(line.judgement.words, line.judgement.reason) for line in found.estate.lines]
    assert lines == [
        ("LOSES", "commit-lost"),
        ("LOSES", "went-against"),
        ("SAFE AFTER A CRASH", "due"),
        ("SAFE AFTER A CRASH", "foreign"),
    ]
    lost, against, due, foreign = found.estate.lines
    assert lost.judgement.text == (
        "1 global transaction: closed by bitronix, only prepared in h2; commit it in h2 before you "
        "start bitronix"
    )
    folder = f"{EXAMPLES}/h2-commit-not-flushed"
    assert lost.logs == (("bitronix", f"{folder}/bitronix"), ("h2", f"{folder}/h2"))
    assert "it has happened" in against.judgement.text
    assert due.judgement.text == "2 to commit and 1 to roll back when coordinators start"
    assert "branch-office-9" in foreign.judgement.text
    assert found.estate.judgement.at_stake.transactions == 2
    assert found.exit_code == 1


def test_a_coordinator_that_would_lose_a_commit_is_not_shown_as_safe() -> None:
    found = triage(EXAMPLES)
    coordinator = f"{EXAMPLES}/h2-commit-not-flushed/bitronix"
    (row,) = (one for one in found.logs if one.path == coordinator)
    assert (row.judgement.answer, row.judgement.at_stake.transactions) == (Answer.LOSES, 1)
    assert not row.fine
    assert found.logs.index(row) < 2
    explained = {one.path: one.judgement for one in explain(EXAMPLES).logs}
    assert explained[coordinator] == row.judgement
    lost, *others = verify(EXAMPLES).findings
    assert (lost.code, lost.log) == ("lost-commit", coordinator)
    assert all(one.log != coordinator or one.code == "unclean" for one in others)
    assert triage(coordinator).logs[0].judgement.answer is Answer.SAFE  # alone it cannot know


def test_a_commit_that_its_coordinator_has_closed_is_lost_where_its_log_is_there() -> None:
    for case, own, reason in (
        ("mid-phase-two", "ends-in-prepare", "ends-in-prepare"),
        ("h2-commit-not-flushed", "ends-in-prepare", "commit-lost"),
        ("orphan", "ends-in-prepare", "ends-in-prepare"),
        ("heuristic-h2-rolled-back", "flushed-end", "flushed-end"),
    ):
        path = f"{EXAMPLES}/{case}/h2"
        assert {one.judgement.reason for one in explain(path).logs} == {own}
        together = [one for one in explain(f"{EXAMPLES}/{case}").logs if one.path == path]
        assert {one.judgement.reason for one in together} == {reason}, case


# -- the table of answers -----------------------------------------------------------------------


def _copied(case: str) -> Callable[[Path], Path]:
    def made(folder: Path) -> Path:
        return Path(shutil.copytree(EXAMPLES / case, folder / "estate"))

    return made


def _unreadable(folder: Path) -> Path:
    root = _copied("mid-phase-two")(folder)
    packed = root / "h2" / "bank.h2.db.gz"
    packed.write_bytes(packed.read_bytes()[:-100])
    return root


def _stopped(step: str) -> Callable[[Path], Path]:
    def made(folder: Path) -> Path:
        site = Site(folder / "site", step)
        site.close()
        return site.folder

    return made


def _closed(folder: Path) -> Path:
    """Make a coordinator that has closed what both stores hold as prepared: they were restored."""
    site = Site(folder / "site", "before decision")
    site.close()
    with_note = ClosedDecisions(Path(site.coordinator))
    with_note.add(site.gtrid)
    with_note.close()
    return site.folder


def _decided_elsewhere(folder: Path) -> Path:
    """Make a coordinator that had a database whose own commit decides."""
    site = Site(folder / "site", "before decision")
    site.close()
    file = Path(site.coordinator) / RESOURCES.name
    file.write_text(json.dumps(json.loads(file.read_text()) | {"lite": DECIDES}))
    return site.folder


def _without_decisions(folder: Path) -> Path:
    root = _stopped("after decision")(folder)
    shutil.rmtree(root / "coordinator" / "decisions")
    shutil.move(root / "coordinator" / "node", root / "node")
    return root


def _ended(folder: Path) -> Path:
    root = folder / "site"
    stores = [PageStore(root / name) for name in "ab"]
    resources = {name: one.as_resource(name) for name, one in zip("ab", stores, strict=True)}
    for store in stores:
        store.create_table("t")
    manager = TransactionManager(root / "coordinator", resources, node="site-1")
    with manager as tm, tm.begin() as tx:
        for name in "ab":
            tx[name].table("t")[1] = b"row"
    for store in stores:
        store.close()
    return root


def _unnamed(folder: Path) -> Path:
    root = _copied("orphan")(folder)
    shutil.copytree(fixture_dir("h2") / "indoubt-many-512", root / "other")
    return root


TABLE = {
    "commit-lost": (_copied("h2-commit-not-flushed"), Answer.LOSES),
    "commit-lost of ours": (_closed, Answer.LOSES),
    "went-against": (_copied("heuristic-h2-rolled-back"), Answer.LOSES),
    "log-unread": (_unreadable, Answer.CANNOT_TELL),
    "decisions-absent": (_without_decisions, Answer.CANNOT_TELL),
    "decision-unread": (lambda folder: damaged_decision(folder / "estate"), Answer.CANNOT_TELL),
    "due": (_copied("mid-phase-two"), Answer.SAFE),
    "due of ours": (_stopped("after decision"), Answer.SAFE),
    "decided-elsewhere": (_decided_elsewhere, Answer.SAFE),
    "foreign": (_copied("orphan"), Answer.SAFE),
    "unnamed": (_unnamed, Answer.SAFE),
    "nothing-due": (_ended, Answer.SAFE),
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", TABLE)
def test_the_table_of_answers_of_an_estate(tmp_path: Path, name: str) -> None:
    make, answer = TABLE[name]
    reason = name.partition(" ")[0]
    found = explain(make(tmp_path))
    assert found.estate is not None
    said = {line.judgement.reason: line.judgement.answer for line in found.estate.lines}
    assert said.get(reason) is answer, said
    assert found.estate.judgement.answer is max(said.values(), key=_gravity)
    assert found.exit_code or found.estate.judgement.answer is Answer.SAFE


def _gravity(answer: Answer) -> int:
    return [Answer.SAFE, Answer.CANNOT_TELL, Answer.LOSES].index(answer)


def test_small_files_of_a_coordinator_that_cannot_be_read_leave_its_decisions_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = _closed(tmp_path)
    file = root / "coordinator" / CLOSED_FILE
    file.unlink()
    file.mkdir()
    for node in (b"site-1", None):
        (known,) = coordinators_of([str(root)], survey(str(root)).logs)
        assert (known.node, known.lost, known.closed([b"some"])) == (node, True, set())
        found = explain(root)
        assert found.estate is not None
        (row,) = found.estate.transactions
        assert row["alarm"] == ("foreign-branch" if node is None else "doubtful-abort")
        monkeypatch.setattr(Path, "read_bytes", _refused)


def _refused(path: Path) -> bytes:
    raise PermissionError(13, "Permission denied", str(path))


def test_of_several_logs_in_a_folder_only_the_damaged_one_counts_as_damaged(
    tmp_path: Path,
) -> None:
    root = damaged_decision(tmp_path / "estate")
    for name in ("part1.tlog.gz", "part2.tlog.gz"):
        whole = EXAMPLES / "orphan" / "bitronix" / name
        shutil.copy(whole, root / "bitronix" / name.replace("part", "other"))
    found = explain(root)
    assert found.estate is not None
    logs = {line.judgement.reason: line.logs for line in found.estate.lines}
    assert logs["log-unread"] == (("bitronix", f"{root}/bitronix/part"),)
    assert "decision-unread" in logs


def test_every_reason_of_an_estate_occurs() -> None:
    shown = {name.partition(" ")[0] for name in TABLE} | {"too-many", "later-commit-missing"}
    assert set(REASONS) - set(NO_REASONS) == shown


def test_more_than_fits_into_memory_is_left_to_the_pipeline() -> None:
    found = survey(EXAMPLES)
    gathered = Gatherer(found.paths, found.logs, most=30)
    for reading in found.readings():
        gathered.add(reading, ())
    answer = gathered.judged(())
    assert len(gathered.estate) == 0
    assert answer is not None
    assert (answer.judgement.answer, answer.judgement.reason) == (Answer.CANNOT_TELL, "too-many")
    assert answer.command.startswith("tallystick pipeline run ")
    assert [one.code for one in answer.findings] == ["not-safe"]


@pytest.mark.parametrize("command", COMMANDS)
def test_one_log_is_not_judged_together_with_itself(
    monkeypatch: pytest.MonkeyPatch, command: Any
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("tallystick.reconcile.estate.Estate.add_transaction", refuse)
    found = command(EXAMPLES / "mid-phase-two" / "h2")
    assert found.estate is None
    with pytest.raises(AssertionError):
        command(EXAMPLES / "mid-phase-two")


def test_logs_without_global_transactions_are_no_estate() -> None:
    assert explain(fixture_dir("cloudtran")).estate is None


def test_the_next_command_is_one_for_the_tree() -> None:
    found = triage(EXAMPLES)
    assert found.estate is not None
    assert found.estate.command == f"tallystick indoubt list {EXAMPLES}"
    waiting = [one for one in found.logs if one.in_doubt and one.judgement.answer is Answer.SAFE]
    assert waiting
    assert {one.command for one in waiting} == {found.estate.command}
    (alone,) = triage(EXAMPLES / "mid-phase-two" / "derby").logs
    assert alone.command.endswith("/mid-phase-two/derby/log")


TODAY = {
    triage: ({"logs", "problems", "others"}, {
        "path", "system", "answer", "reason", "at_stake", "in_doubt", "verdicts_agree", "next",
    }),
    explain: ({"logs", "problems", "others"}, {
        "path", "system", "format", "answer", "reason", "at_stake", "engine", "strict",
        "differences",
    }),
    inspect: ({"logs", "problems", "others"}, {
        "path", "system", "title", "format", "name", "files", "bytes", "records", "transactions",
        "findings",
    }),
}  # fmt: skip
"""Keys that scripts read before the logs were judged together."""


@pytest.mark.parametrize("command", TODAY)
def test_a_script_for_the_keys_of_before_goes_on(command: Any) -> None:
    keys, of_a_log = TODAY[command]
    found = command(EXAMPLES / "mid-phase-two").to_dict()
    assert keys <= set(found)
    assert all(of_a_log <= set(log) for log in found["logs"])
    estate = found["estate"]
    assert {"answer", "reason", "at_stake", "global_transactions"} <= set(estate)
    assert {row["resolution"] for row in estate["global_transactions"]} == {"commit", "rollback"}
    assert all(isinstance(row["gtrid"], str) for row in estate["global_transactions"])


class Reading:
    """A log of a few transactions."""

    def __init__(self, log: str, *transactions: Transaction) -> None:
        self.source = LogSource("made", log, ())
        self.clock = Clock.WALL_MS
        self._transactions = transactions

    def transactions(self) -> tuple[Transaction, ...]:
        return self._transactions


def _gtrid(number: int) -> bytes:
    return b"node" + bytes(7) + bytes([number]) + bytes(4)


def _decision(number: int, state: State) -> Transaction:
    names = ("db", "queue")
    waiting = names if state is State.COMMITTING else ()
    return Transaction(
        "made", "/tm", str(number), state, gtrid=_gtrid(number), participants=names,
        open_participants=waiting,
    )  # fmt: skip


def _branch(log: str, number: int, state: State) -> Transaction:
    return Transaction("made", log, str(number), state, gtrid=_gtrid(number), bqual=log.encode())


@pytest.mark.parametrize(("last", "open_"), [(2, False), (9, True)])
def test_a_later_commit_that_is_missing_leaves_the_end_of_a_log_open(
    last: int, open_: bool
) -> None:
    """It may have stood where nothing stands now, after the branch that is prepared."""
    committed, prepared = State.COMMITTED, State.PREPARED
    made = (
        Reading(
            "/tm", *(_decision(n, committed) for n in (1, last)), _decision(5, State.COMMITTING)
        ),
        Reading("/db", _branch("/db", 1, committed), _branch("/db", 5, prepared)),
        Reading("/queue", *(_branch("/queue", n, committed) for n in (1, last, 5))),
    )
    own = Judgement(Answer.SAFE, ENDS_IN_PREPARE)
    gathered = Gatherer(["/"], [one.source for one in made])
    for one in made:
        gathered.add(cast(LogReading, one), (), own if one.source.path == "/db" else None)
    answer = gathered.judged(())
    assert answer is not None
    reasons = {log: one.reason for log, one in answer.logs.items()}
    assert reasons == ({"/db": "later-commit-missing"} if open_ else {})
