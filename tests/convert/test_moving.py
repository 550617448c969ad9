"""The guide on moving: each of its sections is typed as it stands, from the old log to new work."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tallystick import Journal, PageStore, TransactionManager, WriteBehind
from tallystick.cli import tallystick
from tallystick.convert.command import convert
from tallystick.errors import TransactionUsageError
from tallystick.records import Xid
from tallystick.roles import DecisionOutcome, Operation, OperationCode
from tallystick.services.transactions.coordinator_dir import BESIDE_LOG, ClosedDecisions
from tallystick.systems.jboss.live.settings import JournalSettings
from tallystick.systems.registry import open_decision_log, open_persist_log

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "moving.md"
_SECTION = re.compile(r"^### (From .*?)\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SECTIONS = dict(_SECTION.findall(PAGE.read_text("utf-8")))
KEY = bytes(range(16))

# -- what the sections begin with ---------------------------------------------------------------


def _coordinated(log: str | None) -> None:
    """A coordinator, as a kill leaves it between its decision and the branches' commits."""
    Path("live").mkdir()

    def step(name: str) -> None:
        if name == "after decision":
            shutil.copytree("live", "left")

    with PageStore("live/stock") as stock, Journal("live/mail") as mail:
        stock.create_table("items")
        decisions = None if log is None else open_decision_log("live/btm", log)
        with TransactionManager(
            "live/coordinator", {"stock": stock, "mail": mail},
            node="shop-1", log=decisions, on_step=step,
        ) as tm, tm.begin() as tx:  # fmt: skip
            tx["stock"].table("items")[7] = b"9"
            tx["mail"].add(1, b"pear, ordered")
    for one in Path("left").iterdir():
        one.rename(one.name)
    if log is not None:
        shutil.rmtree("coordinator")  # Bitronix keeps its log alone


def _settled_and_gone_on() -> None:
    with PageStore("stock") as stock, Journal("mail") as mail:
        assert stock.begin().table("items")[7] == b"8"
        assert [one.body for one in mail.live_records()] == [b"pear, ordered", b"plum, ordered"]


def _through_coordinator() -> None:
    _settled_and_gone_on()
    assert Path("coordinator/node").read_text() == "shop-1\n"
    with TransactionManager("coordinator", {}) as tm:
        assert tm.node == "shop-1"


def _through_bitronix() -> None:
    _settled_and_gone_on()
    with closing(open_decision_log("bitronix/decisions", "bitronix")) as log:
        assert not log.open_decisions()
    assert set(BESIDE_LOG[:2]) <= {one.name for one in Path("bitronix").iterdir()}


def _records(folder: str, **options: Any) -> Callable[[], None]:
    def make() -> None:
        with Journal(folder, **options) as log:
            log.add(1, b"kept")
            log.update(1, b"changed")
            with log.transaction() as tx:
                tx.add(2, b"in doubt")
                if "system" in options:
                    tx.prepare(b"extra")
                else:
                    tx.prepare(xid=Xid(1, b"gtrid", b"bqual"))

    return make


def _recorded(folder: str, *plain: bytes, **options: Any) -> Callable[[], None]:
    def check() -> None:
        with Journal(folder, **options) as log:
            assert [one.body for one in log.live_records()] == [b"kept", b"changed", b"new"]
            assert not log.prepared()
            bodies = [] if "system" in options else [one.body for one in log.replay()]
            assert [body for body in bodies if body in plain] == list(plain)

    return check


def _pending(folder: str, system: str) -> None:
    numbers = range(1, 4)
    with closing(open_persist_log(folder, system)) as log:
        for number in numbers:
            row = Operation(OperationCode.INSERT, "orders", b'{"id": %d}' % number, b"{}")
            log.persisting(["shop"], [row], f"old-{number}")[1].wait()
        log.persisted(2, ["shop"])


def _applied(folder: str, **options: Any) -> Callable[[], None]:
    def check() -> None:
        with WriteBehind(folder, {"shop": print}, **options) as service:
            assert not list(service.pending())

    return check


SETUPS: dict[str, tuple[Callable[[], None], Callable[[], None]]] = {
    "From Bitronix to a coordinator": (lambda: _coordinated("bitronix"), _through_coordinator),
    "From a coordinator to Bitronix": (lambda: _coordinated(None), _through_bitronix),
    "From Artemis or HornetQ to a journal": (
        _records("artemis", system="jboss"), _recorded("ledger")
    ),
    "From a journal to Artemis": (_records("ledger"), _recorded("artemis", system="jboss")),
    "From HornetQ to Artemis": (
        _records(
            "hornetq",
            system="jboss",
            settings=JournalSettings("g2", prefix="hornetq-data", extension="hq"),
        ),
        _recorded("artemis", system="jboss"),
    ),
    "From a journal to an encrypted one": (
        _records("ledger"), _recorded("sealed", b"plain", key=lambda: KEY)
    ),
    "From CloudTran to write-behind": (
        lambda: _pending("cloudtran", "cloudtran"), _applied("spool")
    ),
    "From write-behind to CloudTran": (
        lambda: _pending("spool/log", "tally"), _applied("cloudtran", system="cloudtran")
    ),
}  # fmt: skip


def test_every_section_has_its_run() -> None:
    assert SETUPS.keys() == SECTIONS.keys()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("title", SETUPS)
def test_a_section_runs_to_its_end(
    title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make, check = SETUPS[title]
    make()
    names: dict[str, Any] = {}
    ran = []
    for language, code in _BLOCK.findall(SECTIONS[title]):
        ran.append(language)
        if language == "python":
            exec(compile(code, title, "exec"), names)
            continue
        for line in code.splitlines():
            command, *arguments = shlex.split(line)
            assert command == "tallystick"
            done = CliRunner().invoke(tallystick, arguments)
            assert done.exit_code == 0, done.output
            assert "Open it with: " in done.output
    assert ran == ["sh", "python"]
    if "applied" in names:
        assert [one.reference for one in names["applied"]] == ["old-1", "old-3", "new"]
    check()


# -- refusals -------------------------------------------------------------------------------------


def _decided(folder: str, *gtrids: bytes) -> None:
    with closing(open_decision_log(folder, "bitronix")) as log:
        for gtrid in gtrids:
            log.decide(gtrid, ["a", "b"]).wait()
            log.finish(gtrid, ["a", "b"], DecisionOutcome.COMMITTED)


@pytest.mark.parametrize("nodes", [(), (b"one", b"two")], ids=["no decision", "two nodes"])
def test_a_node_that_the_log_does_not_tell_has_to_be_named(
    nodes: tuple[bytes, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under another one nobody would roll back what the old one prepared and did not decide."""
    monkeypatch.chdir(tmp_path)
    _decided("btm", *(node + bytes(11) + b"x" for node in nodes))
    with pytest.raises(TransactionUsageError, match="--node"):
        convert("btm", "to", "tally", service=True)
    assert [one.name for one in tmp_path.iterdir()] == ["btm"]
    convert("btm", "to", "tally", service=True, node="one")
    with TransactionManager("to", {}, node="one"):
        pass
    with pytest.raises(TransactionUsageError, match="another node than 'two'"):
        convert("to", "again", "bitronix", service=True, node="two")
    with pytest.raises(TransactionUsageError, match="a node is that of a service"):
        convert("btm", "again", "tally", node="one")


def test_a_new_coordinator_knows_what_the_old_one_has_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with TransactionManager("from", {}, node="one"):
        pass
    notes = ClosedDecisions(tmp_path / "from")
    notes.add(b"gtrid")
    notes.close()
    convert("from", "to", "bitronix", service=True)
    assert ClosedDecisions(tmp_path / "to").among([b"gtrid"]) == {b"gtrid"}
