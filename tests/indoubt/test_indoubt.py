"""Branches in doubt over the logs of real estates, over live databases, and settled by hand."""

from __future__ import annotations

import gzip
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tallystick.cli.act.indoubt import command
from tallystick.errors import TransactionUsageError
from tallystick.indoubt.listing import list_in_doubt
from tallystick.indoubt.settle import settle
from tallystick.reading import scan, triage, verify
from tallystick.records import Xid
from tallystick.roles import DecisionOutcome
from tallystick.roles.coordinator_files import IDENTITIES
from tallystick.services.page_store import PageStore
from tallystick.services.transactions import TransactionManager
from tallystick.services.transactions.coordinator_dir import ClosedDecisions, Texts
from tallystick.services.transactions.resources.sqlite import SqliteResource
from tallystick.services.transactions.xids import FORMAT_ID, XidFactory
from tests.fixtures import cases, fixture_dir
from tests.indoubt.estates import (
    EXAMPLES,
    committed_by_hand,
    damaged_decision,
    older_file_in_use,
)
from tests.kit import untouched
from tests.services.transactions.model import Database, ModelResource

ESTATE = fixture_dir("estate")


@pytest.mark.parametrize("case", cases("estate"))
def test_every_branch_in_doubt_of_an_estate_has_its_right_outcome(case: str) -> None:
    manifest = json.loads((ESTATE / case / "manifest.json").read_text())
    with untouched(ESTATE / case):
        report = list_in_doubt([str(ESTATE / case)])
    found = {
        branch["bqual"].hex(): branch["due"]
        for one in report.transactions
        for branch in one.branches
        if branch["state"] == "prepared"
    }
    assert found == {one["bqual"]: one["right_outcome"] for one in manifest["in_doubt"]}
    assert not report.problems


@pytest.mark.parametrize(
    ("case", "ending", "resolution", "alarm"),
    [
        ("heuristic-h2-rolled-back", 0x59, "commit", None),
        ("presumed-abort", 0x74, "heuristic_mismatch", "heuristic-mismatch"),
    ],
)
def test_a_branch_that_was_committed_by_hand_is_found_without_its_name(
    tmp_path: Path, case: str, ending: int, resolution: str, alarm: str | None
) -> None:
    report = list_in_doubt([str(committed_by_hand(tmp_path / "estate", case))])
    (one,) = (one for one in report.transactions if one.gtrid[-1] == ending)
    states = {branch["resource"]: branch["state"] for branch in one.branches}
    assert (states["jdbc/branch-b"], one.resolution, one.alarm) == ("committed", resolution, alarm)
    assert "jdbc/branch-b: committed, COMMIT in " in one.evidence


# -- a coordinator of ours ----------------------------------------------------------------------


class Stop(BaseException):
    """The process is gone."""


class Site:
    """Two page stores and a coordinator that stopped at a step of its one transaction."""

    def __init__(self, folder: Path, step: str) -> None:
        self.folder = folder
        self.stores = [PageStore(folder / name) for name in "ab"]
        for store in self.stores:
            store.create_table("t")

        def stop(name: str) -> None:
            if name == step:
                raise Stop

        self.coordinator = str(folder / "coordinator")
        tm = TransactionManager(
            self.coordinator, self.resources(), node="site-1", on_step=stop, recovery_interval=None
        )
        tx = tm.begin()
        self.gtrid = tx.gtrid
        for name in "ab":
            tx[name].table("t")[1] = b"row"
        with pytest.raises(Stop):
            tx.commit()
        tm.close()

    def resources(self) -> dict[str, Any]:
        return {
            name: store.as_resource(name) for name, store in zip("ab", self.stores, strict=True)
        }

    def rows(self) -> list[list[bytes]]:
        return [
            [row for _, row in store.begin().table("t").range()]  # never ended: it only reads
            for store in self.stores
        ]

    def close(self) -> None:
        for store in self.stores:
            store.close()


@pytest.fixture
def undecided(tmp_path: Path) -> Any:
    site = Site(tmp_path, "before decision")
    yield site
    site.close()


@pytest.fixture
def decided(tmp_path: Path) -> Any:
    site = Site(tmp_path, "after decision")
    yield site
    site.close()


def test_what_is_due_is_read_from_the_log_and_the_resources(decided: Site) -> None:
    with untouched(Path(decided.coordinator)):
        (one,) = list_in_doubt([decided.coordinator], decided.resources()).transactions
    assert (one.owner, one.decision, one.resolution) == ("site-1", "commit", "commit")
    assert one.age_seconds is not None
    assert one.age_seconds < 600


def test_an_undecided_transaction_is_presumed_aborted(undecided: Site) -> None:
    (one,) = list_in_doubt([undecided.coordinator], undecided.resources()).transactions
    assert one.resolution == "rollback"


def test_a_decision_that_is_closed_and_forgotten_by_the_log_is_no_abort(undecided: Site) -> None:
    """The branch came back with a backup of its database."""
    (waiting,) = list_in_doubt([undecided.coordinator], undecided.resources()).transactions
    closed = ClosedDecisions(Path(undecided.coordinator))
    closed.add(waiting.gtrid)
    closed.close()
    with untouched(Path(undecided.coordinator)):
        (one,) = list_in_doubt([undecided.coordinator], undecided.resources()).transactions
    assert (one.decision, one.resolution, one.alarm) == ("commit", "commit", "lost-commit")
    assert {branch["due"] for branch in one.branches} == {"commit"}
    assert "closed" in one.evidence


def test_without_its_coordinator_a_branch_is_foreign(decided: Site) -> None:
    (one,) = list_in_doubt([], decided.resources()).transactions
    assert one.resolution == "foreign"


def test_a_coordinator_elsewhere_with_the_same_name_does_not_answer(tmp_path: Path) -> None:
    sites = [Site(tmp_path / name, "after decision") for name in ("one", "two")]
    for site in sites:
        site.close()
    shutil.rmtree(sites[0].coordinator)
    found = {one.gtrid: one.resolution for one in list_in_doubt([str(tmp_path)]).transactions}
    assert found == {sites[0].gtrid: "foreign", sites[1].gtrid: "commit"}


def test_a_damaged_journal_proves_no_abort(tmp_path: Path) -> None:
    estate = shutil.copytree(ESTATE / "presumed-abort", tmp_path / "estate")
    before = list_in_doubt([str(estate)]).transactions
    journal = estate / "bitronix" / "part1.tlog.gz"
    data = bytearray(gzip.decompress(journal.read_bytes()))
    data[500] ^= 0xFF  # inside of a record that others follow
    journal.write_bytes(gzip.compress(data))
    after = list_in_doubt([str(estate)]).transactions
    assert [one.resolution for one in after] == [one.resolution for one in before]
    assert not any("not proved" in one.evidence for one in before)
    assert all("not proved" in one.evidence for one in after)


def test_settled_by_hand_both_ways(undecided: Site, tmp_path_factory: Any) -> None:
    done = settle(undecided.coordinator, undecided.resources(), undecided.gtrid, commit=True)
    assert done == ["a: committed", "b: committed"]
    assert undecided.rows() == [[b"row"], [b"row"]]
    other = Site(tmp_path_factory.mktemp("other"), "before decision")
    assert settle(other.coordinator, other.resources(), other.gtrid, commit=False) == [
        "a: rolled back",
        "b: rolled back",
    ]
    assert other.rows() == [[], []]
    with pytest.raises(TransactionUsageError, match="no resource has a branch"):
        settle(other.coordinator, other.resources(), other.gtrid, commit=False)
    other.close()


def test_a_decision_is_not_gone_against_by_accident(decided: Site) -> None:
    with pytest.raises(TransactionUsageError, match="was decided: commit"):
        settle(decided.coordinator, decided.resources(), decided.gtrid, commit=False)
    settle(decided.coordinator, decided.resources(), decided.gtrid, commit=False, force=True)
    assert decided.rows() == [[], []]
    (one,) = list_in_doubt([decided.coordinator], decided.resources()).transactions
    assert one.resolution == "heuristic_mismatch", "until somebody says that it was repaired"


def test_a_directory_that_is_not_the_coordinators_decides_nothing(
    decided: Site, tmp_path: Path
) -> None:
    mistyped = tmp_path / "mistyped"
    with pytest.raises(TransactionUsageError, match="not the directory of a coordinator"):
        settle(str(mistyped), decided.resources(), decided.gtrid, commit=False)
    assert not mistyped.exists()
    TransactionManager(mistyped, {}, node="site-2", recovery_interval=None).close()
    with pytest.raises(TransactionUsageError, match="is of node 'site-1'"):
        settle(str(mistyped), decided.resources(), decided.gtrid, commit=False)
    assert all(store.in_doubt() for store in decided.stores)


def test_an_outcome_row_is_a_decision_too(undecided: Site, tmp_path: Path) -> None:
    last = SqliteResource("lite", tmp_path / "lite.db")
    branch = last.begin(Xid(FORMAT_ID, undecided.gtrid, undecided.gtrid))
    branch.commit()
    branch.close()
    with pytest.raises(TransactionUsageError, match="was decided: commit"):
        settle(
            undecided.coordinator,
            undecided.resources() | {"lite": last},
            undecided.gtrid,
            commit=False,
        )
    assert all(store.in_doubt() for store in undecided.stores)


def test_a_resource_that_fails_keeps_no_other_one_from_being_asked() -> None:
    class Failing(ModelResource):
        def in_doubt(self) -> Sequence[Xid]:
            raise ZeroDivisionError("a driver may raise anything")

    server = Database()
    server.prepared[XidFactory("site-1").branch(XidFactory("site-1").gtrid())] = {}
    report = list_in_doubt([], {"a": Failing("a", server), "b": ModelResource("b", server)})
    assert report.unreachable == {"a": "a driver may raise anything"}
    (one,) = report.transactions
    assert [branch["log"] for branch in one.branches] == ["live:b"]


@pytest.mark.parametrize("commit", [True, False])
def test_two_resources_of_one_server_list_the_same_branches(tmp_path: Path, commit: bool) -> None:
    server, coordinator = Database(), str(tmp_path / "c")
    with TransactionManager(coordinator, {}, node="site-1", recovery_interval=None) as tm:
        gtrid = XidFactory(tm.node).gtrid()
        for name in ("first", "second"):
            server.prepared[XidFactory(tm.node).branch(gtrid)] = {name: 1}
        if commit:
            tm.decisions.decide(gtrid, ["a", "b"]).wait()
    resources = {name: ModelResource(name, server) for name in "ab"}
    done = settle(coordinator, resources, gtrid, commit=commit)
    assert {one.partition(": ")[2] for one in done} == {"committed" if commit else "rolled back"}
    assert server.values == ({"first": 1, "second": 1} if commit else {})
    with TransactionManager(coordinator, {}, recovery_interval=None) as tm:
        assert not tm.decisions.open_decisions()


def test_a_heuristic_outcome_stays_until_it_is_settled(tmp_path: Path) -> None:
    coordinator = str(tmp_path / "c")
    with TransactionManager(coordinator, {}, node="site-1") as tm:
        gtrid = XidFactory(tm.node).gtrid()
        tm.decisions.finish(gtrid, ["a"], DecisionOutcome.HEURISTIC)
    (one,) = list_in_doubt([coordinator]).transactions
    assert one.resolution == "heuristic_mismatch"
    assert settle(coordinator, {}, gtrid, commit=None)
    assert not list_in_doubt([coordinator]).transactions
    with pytest.raises(TransactionUsageError, match="no heuristic outcome"):
        settle(coordinator, {}, gtrid, commit=None)


# -- the command ----------------------------------------------------------------------------------


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(command, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_the_list_is_a_table_for_people_and_json_for_programs() -> None:
    path = str(ESTATE / "mid-phase-two")
    code, text = run("list", path)
    assert code == 1
    assert "presumed" not in text
    assert "rollback" in text
    code, text = run("list", path, "--json")
    assert code == 1
    assert {one["resolution"] for one in json.loads(text)["transactions"]} == {"commit", "rollback"}
    assert run("list", str(ESTATE / "clean")) == (0, "Nothing is in doubt.\n")


def coordinator_with_a_decision(path: Path) -> bytes:
    """Leave a coordinator that has decided for two databases, and tells nothing of the end."""
    with TransactionManager(path, {}, node="site-1", recovery_interval=None) as tm:
        gtrid = XidFactory(tm.node).gtrid()
        tm.decisions.decide(gtrid, ("pg", "maria")).wait()
    return gtrid


def test_nothing_is_in_doubt_only_if_all_was_seen(tmp_path: Path) -> None:
    coordinator = tmp_path / "c"
    gtrid = coordinator_with_a_decision(coordinator)
    code, text = run("list", str(coordinator))
    assert code == 1
    assert text.startswith("CANNOT TELL")
    assert "1 decision to commit not known to be carried out at maria, which was not" in text
    assert "--resource pg=URL" in text
    code, text = run("explain", gtrid.hex(), str(coordinator))
    assert (code, text[:11]) == (1, "CANNOT TELL")
    code, text = run("list", str(coordinator), "--json")
    assert code == 1
    assert len(json.loads(text)["unproved"]) == 2
    with TransactionManager(coordinator, {}, node="site-1", recovery_interval=None) as tm:
        tm.decisions.finish(gtrid, ["pg", "maria"], DecisionOutcome.COMMITTED)
    code, text = run("list", str(coordinator))
    assert (code, text[:11]) == (1, "CANNOT TELL")
    assert "maria, pg: not asked" in text


def test_databases_that_a_coordinator_knows_and_nobody_asked_are_named(undecided: Site) -> None:
    """Both hold a prepared branch with its locks, of which the coordinator's log knows nothing."""
    coordinator, (store, other) = undecided.coordinator, (undecided.folder / n for n in "ab")
    known = Texts(IDENTITIES, coordinator)
    known.update({name: str(one.identity()) for name, one in undecided.resources().items()})
    known["pg"] = "PostgreSQL 7 database 5"
    with untouched(Path(coordinator)):
        code, text = run("list", coordinator)
    assert (code, text[:11]) == (1, "CANNOT TELL")
    assert f"a, b, pg: not asked; a branch of the coordinator {coordinator} may be" in text
    line = f"tallystick indoubt list {coordinator} PATH-OF-a PATH-OF-b --resource pg=URL"
    assert line in text.splitlines()[-1]
    code, text = run("list", coordinator, "--json")
    assert (code, json.loads(text)["next"]) == (1, line)
    code, text = run("list", coordinator, str(store))
    assert code == 1
    assert "\nb, pg: not asked" in text
    assert "due: rollback" in text
    code, text = run("list", coordinator, str(store), str(other))
    assert "\npg: not asked" in text
    del known["pg"]
    code, text = run("list", str(undecided.folder))  # the directory is found below a tree, too
    assert "CANNOT TELL" not in text
    assert "owner: site-1" in text


def test_a_store_of_a_coordinator_without_any_branch_was_looked_at(tmp_path: Path) -> None:
    site = Site(tmp_path, "after decision")
    with TransactionManager(site.coordinator, site.resources(), recovery_interval=None) as tm:
        tm.recover()
    site.close()
    assert run("list", site.coordinator)[0] == 1
    assert run("list", str(tmp_path)) == (0, "Nothing is in doubt.\n")


def test_a_prepared_branch_whose_name_is_no_xid_is_in_doubt() -> None:
    folder = fixture_dir("h2") / "indoubt-many-512"
    counted = triage(folder).logs[0].in_doubt
    code, text = run("list", str(folder))
    assert code == 1
    assert text.count("due: ask who prepared it") == counted > 0
    assert "Nothing is in doubt" not in text
    named = json.loads(run("list", str(folder), "--json")[1])["unnamed"]
    assert len(named) == counted
    assert all(one["name"] in text and one["log"] == str(folder) for one in named)


def test_a_coordinator_without_its_decisions_is_not_calm(tmp_path: Path) -> None:
    coordinator_with_a_decision(tmp_path)
    shutil.rmtree(tmp_path / "decisions")
    code, text = run("list", str(tmp_path))
    assert code == 1
    assert "the decisions of this coordinator are not there" in text


def test_a_damaged_log_may_have_held_a_branch(tmp_path: Path) -> None:
    root = damaged_decision(tmp_path / "estate")
    code, text = run("list", str(root))
    assert code == 1
    assert "damaged, so a prepared branch or a decision may be gone" in text


@pytest.mark.parametrize("command_line", [["list"], ["explain", "00"]])
def test_no_log_is_no_answer(tmp_path: Path, command_line: list[str]) -> None:
    code, text = run(*command_line, str(tmp_path))
    assert code == 2
    assert text.startswith("CANNOT TELL")


def test_explain_gives_the_evidence() -> None:
    gtrid = "62616e6b2d3100000000004e6e4900000053"
    code, text = run("explain", gtrid, str(ESTATE / "mid-phase-two"))
    assert code == 1
    assert "due: commit" in text
    assert "COMMITTING in" in text


@pytest.mark.parametrize(
    "spelled",
    [
        "62616e6b2d3100000000004e6e49",
        "62616E6B2D3100000000004E6E4900000053",
        "1114926712:62616e6b2d3100000000004e6e4900000053:62616E6B2D3100000000004E6E4A00000055",
        "'XID_1114926712_62616E6B2D3100000000004E6E4A00000055_62616E6B2D3100000000004E6E49'",
    ],
)
def test_an_id_is_taken_in_any_spelling_and_printed_in_one(spelled: str) -> None:
    code, text = run("explain", spelled, str(ESTATE / "mid-phase-two"))
    assert code == 1
    first = text.splitlines()[0]
    assert first.startswith("62616e6b2d3100000000004e6e4900000053, format 1114926712, made by bank")
    assert first.endswith("bank-1, 1:25:40 after its machine began, number 83")


def test_an_id_that_is_not_known_is_an_error_with_candidates() -> None:
    folder = str(ESTATE / "mid-phase-two")
    for text in ("4e6e5100000059", "62616e6b2d3100000000004e6e52"):
        code, answer = run("explain", text, folder)
        assert code == 2
        assert f"no global transaction here begins with '{text}'" in answer
        assert "Did you mean 62616e6b2d3100000000004e6e5100000059?" in answer
    code, answer = run("explain", "6261", folder)
    assert (code, "Give more of it: 62616e6b" in answer) == (2, True)
    assert "is not in doubt" not in answer
    assert run("explain", "00", str(ESTATE / "clean"))[0] == 2
    ended = list_in_doubt([folder]).settled[0]["gtrid"].hex()
    code, answer = run("explain", ended, folder)
    assert (code, answer.splitlines()[0]) == (0, f"{ended} is not in doubt here.")


def test_settle_asks_first_and_says_what_it_did(tmp_path: Path) -> None:
    coordinator = str(tmp_path / "c")
    with TransactionManager(coordinator, {}, node="site-1") as tm:
        gtrid = XidFactory(tm.node).gtrid()
        tm.decisions.finish(gtrid, ["a"], DecisionOutcome.HEURISTIC)
    assert run("settle", coordinator, gtrid.hex(), "--forget")[0] == 1, "no answer is a no"
    code, text = run("settle", coordinator, gtrid.hex(), "--forget", "--yes")
    assert (code, text) == (0, "recorded that the heuristic outcome is settled\n")


@pytest.mark.parametrize(
    "arguments",
    [["list"], ["list", "--resource", "nonsense"], ["explain", "xyz"], ["settle", ".", "00"]],
)
def test_wrong_usage_is_exit_code_two(arguments: list[str]) -> None:
    assert run(*arguments)[0] == 2


# -- the same judgement as the pipeline's ---------------------------------------------------------


def test_a_branch_rolled_back_by_hand_is_known_without_its_name() -> None:
    report = list_in_doubt([str(EXAMPLES)])
    (one,) = (one for one in report.transactions if one.gtrid.hex().endswith("51"))
    assert (one.resolution, one.alarm) == ("heuristic_mismatch", "heuristic-mismatch")
    states = {branch["resource"]: branch["state"] for branch in one.branches}
    assert states["jdbc/branch-b"] == "rolled_back"


def test_doubtful_is_never_printed_as_a_plain_resolution(tmp_path: Path) -> None:
    root = damaged_decision(tmp_path / "estate")
    report = list_in_doubt([str(root)])
    doubtful = {one.gtrid.hex() for one in report.transactions if one.alarm == "doubtful-abort"}
    assert doubtful
    printed = CliRunner().invoke(command, ["list", str(root)], env={"COLUMNS": "250"}).output
    for gtrid in doubtful:
        (line,) = (line for line in printed.splitlines() if gtrid in line)
        assert "doubtful: rollback?" in line
        explained = CliRunner().invoke(command, ["explain", gtrid, str(root)]).output
        assert "due: doubtful: rollback?" in explained
        assert "due: rollback" not in explained
    assert "doubtful-abort: Roll back only if" in printed


@pytest.mark.parametrize(
    "flips", [6, pytest.param(400, marks=pytest.mark.soak)], ids=["small", "long"]
)
def test_no_flipped_bit_of_the_coordinator_turns_an_outcome_round(
    tmp_path: Path, flips: int
) -> None:
    """The same is due, or what is due is doubtful."""
    root = tmp_path / "estate"
    shutil.copytree(EXAMPLES / "mid-phase-two", root)
    for packed in root.rglob("*.gz"):
        packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
        packed.unlink()
    before = _due(root)
    assert {due for due, _ in before.values()} == {"commit", "rollback"}
    records = [one for one in scan(root) if one.system == "bitronix"][-40:]
    rng = random.Random("flipped bits of the coordinator")
    for _ in range(flips):
        record = rng.choice(records)
        at, bit = record.offset + rng.randrange(record.length), 1 << rng.randrange(8)
        file = Path(record.file)
        whole = file.read_bytes()
        file.write_bytes(whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :])
        for branch, (due, alarm) in _due(root).items():
            plain = due in ("commit", "rollback") and alarm != "doubtful-abort"
            assert due == before[branch][0] or not plain, (at, bit, branch)
        file.write_bytes(whole)


def _due(root: Path) -> dict[tuple[bytes, bytes], tuple[str, str | None]]:
    return {
        (one.gtrid, branch["bqual"]): (branch["due"], one.alarm)
        for one in list_in_doubt([str(root)]).transactions
        for branch in one.branches
        if branch["state"] == "prepared"
    }


def test_the_older_file_in_use_hides_no_decision(tmp_path: Path) -> None:
    before = list_in_doubt([str(EXAMPLES / "mid-phase-two")]).transactions
    root = older_file_in_use(tmp_path / "estate")
    codes = {one.code for one in verify(root).findings}
    assert "stale-file-in-use" in codes
    after = list_in_doubt([str(root)]).transactions
    assert [(one.gtrid, one.resolution, one.alarm) for one in after] == [
        (one.gtrid, one.resolution, one.alarm) for one in before
    ]


def test_a_copy_beside_its_log_does_not_change_the_names(tmp_path: Path) -> None:
    root = tmp_path / "estate"
    shutil.copytree(EXAMPLES / "mid-phase-two", root)
    before = _named_branches(root)
    shutil.copytree(root / "artemis", root / "artemis-backup")
    assert _named_branches(root) == before


def _named_branches(root: Path) -> list[tuple[Any, ...]]:
    return [
        (one.gtrid, branch["resource"], branch["log"], branch["due"])
        for one in list_in_doubt([str(root)]).transactions
        for branch in one.branches
    ]


def test_what_is_in_doubt_is_listed_without_arrow() -> None:
    """With the extras ``cli`` and ``postgres`` alone: what the other extras bring is hidden."""
    program = f"""
import sys
for name in ("numpy", "pyarrow", "pyspark", "numba", "sqlalchemy"):
    sys.modules[name] = None
from tallystick.cli import main
sys.argv = ["tallystick", "indoubt", "list", "--json", {str(ESTATE / "mid-phase-two")!r}]
main()
"""
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert answer.returncode == 1, answer.stderr[-2000:]
    listed = json.loads(answer.stdout)
    assert {one["resolution"] for one in listed["transactions"]} == {"commit", "rollback"}
    assert not listed["problems"]


@pytest.mark.parametrize("said", [[], ["--commit", "--rollback"], ["--rollback", "--forget"]])
def test_settling_takes_one_outcome(tmp_path: Path, said: list[str]) -> None:
    arguments = ["settle", str(tmp_path), "00", "--yes", *said]
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 2
    assert "say one of" in result.output
