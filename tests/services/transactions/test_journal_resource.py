"""A journal and a page store in one transaction: both or neither, whatever crashes."""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tallystick.errors import HeuristicError, LogPoisonedError
from tallystick.reading.survey import survey
from tallystick.records import State, Xid
from tallystick.services.journal import Journal, outcomes
from tallystick.services.journal.outcomes import Outcomes
from tallystick.services.journal.resource import decode_xid, encode_xid
from tallystick.services.page_store import PageStore
from tallystick.services.transactions import AsyncTransactionManager, TransactionManager
from tallystick.services.transactions.recovery import UNPROVED
from tallystick.storage.files import write_whole
from tallystick.storage.local import LOCAL
from tallystick.testing import MemoryFileSystem
from tallystick.testing.faults import Fault, FaultyFileSystem
from tests.kit import unpack
from tests.services.transactions.faces import FACES, Face


class Stop(BaseException):
    """The process is gone."""


def both(tm: TransactionManager, number: int) -> None:
    with tm.begin() as tx:
        tx["queue"].add(number, b"message %d" % number)
        tx["store"].table("t")[number] = b"row"


def manager(
    folder: Path,
    journal: Journal,
    store: PageStore,
    at: int = -1,
    face: Face = FACES["blocking"],
) -> TransactionManager:
    steps = itertools.count()

    def stop(_: str) -> None:
        if next(steps) == at:
            raise Stop

    return face(
        TransactionManager(
            folder / "tm",
            {"queue": journal, "store": store},
            orphan_interval=0.0,
            recovery_interval=None,
            on_step=stop,
        )
    )


@pytest.mark.long
@pytest.mark.sampled(1)
def test_a_message_and_a_row_are_there_together_or_not_at_all(
    tmp_path: Path, server_face: Face
) -> None:
    with PageStore(tmp_path / "store") as store:
        store.create_table("t")
    for at in itertools.count():
        stopped = False
        with (
            Journal(tmp_path / "queue") as journal,
            PageStore(tmp_path / "store") as store,
            manager(tmp_path, journal, store, at, server_face) as tm,
        ):
            try:
                both(tm, at)
            except Stop:
                stopped = True
        with (
            Journal(tmp_path / "queue") as journal,
            PageStore(tmp_path / "store") as store,
            manager(tmp_path, journal, store) as tm,
        ):
            assert tm.recover().clean
            assert not journal.prepared()
            messages = {record.record_id for record in journal.live_records()}
            with store.begin() as tx:
                assert set(tx.table("t")) == messages, f"stopped at step {at}"
        if not stopped:
            break
    assert at in messages
    assert at > 8


@pytest.mark.sampled(3)
@pytest.mark.parametrize("system", ["tally", "jboss"])
@pytest.mark.parametrize(
    "ended", ["committed", "outcomes lost", "rolled back by hand", "restored", "another"]
)
def test_a_decision_is_closed_only_if_this_journal_has_committed_it(
    tmp_path: Path, system: str, ended: str
) -> None:
    """The process stops after the decision, and the branch is not listed when it recovers."""
    queue = tmp_path / "queue"
    with PageStore(tmp_path / "store") as store:
        store.create_table("t")
    with (
        Journal(queue, system=system) as journal,
        PageStore(tmp_path / "store") as store,
        manager(tmp_path, journal, store) as tm,
    ):
        both(tm, 1)
        assert tm.recover().clean  # the identities are noted
    shutil.copytree(queue, tmp_path / "backup")
    committed = ended in ("committed", "outcomes lost")
    wanted = "after commit queue" if committed else "after decision"

    def stop(step: str) -> None:
        if step == wanted:
            raise Stop

    with Journal(queue, system=system) as journal, PageStore(tmp_path / "store") as store:
        resources: dict[str, Any] = {"queue": journal, "store": store}
        with (
            pytest.raises(Stop),
            TransactionManager(
                tmp_path / "tm", resources, recovery_interval=None, on_step=stop
            ) as tm,
        ):
            both(tm, 2)
    if ended == "outcomes lost":  # in a power cut; the log itself proves the commit
        kept = queue / "outcomes"
        kept.write_text(kept.read_text("ascii").split("\n")[0], "ascii")
    if ended in ("restored", "another"):
        shutil.rmtree(queue)
    if ended == "restored":
        shutil.copytree(tmp_path / "backup", queue)
    with Journal(queue, system=system) as journal, PageStore(tmp_path / "store") as store:
        if ended == "rolled back by hand":
            (one,) = journal.prepared()
            journal.rollback_prepared(one.transaction)
        with manager(tmp_path, journal, store) as tm:
            report = tm.recover()
            assert report.clean is committed, report
            assert tm.recover().clean is report.clean
            if ended == "another":
                assert "another database" in report.unreachable["queue"]
            elif not committed:
                (left,) = report.ours
                assert (left.resource, left.why) == ("queue", UNPROVED)
            assert report.open_decisions == (not committed)


def test_outcomes_of_a_journal_are_forgotten_when_no_decision_needs_them(tmp_path: Path) -> None:
    with Journal(tmp_path / "queue") as journal, PageStore(tmp_path / "store") as store:
        store.create_table("t")
        with manager(tmp_path, journal, store) as tm:
            for number in range(5):
                both(tm, number)
            resource: Any = tm.resources["queue"]
            assert len(resource.outcomes()) == 5
            with (tmp_path / "queue" / "outcomes").open("a") as file:
                file.write("0a0")  # cut
            assert len(resource.outcomes()) == 5
            assert tm.recover().clean
            assert resource.outcomes() == []
            both(tm, 7)
            assert len(resource.outcomes()) == 1


def test_a_commit_that_the_journal_could_not_make_durable_closes_no_decision(
    tmp_path: Path,
) -> None:
    disk = FaultyFileSystem(LOCAL)

    def stop(step: str) -> None:
        if step == "before commit queue":
            disk.fault = Fault(1, calls=("datasync",), lasting=True)

    with (
        PageStore(tmp_path / "store") as store,
        pytest.raises(LogPoisonedError),  # by the end of the journal's block
        Journal(tmp_path / "queue", fs=disk) as journal,
    ):
        store.create_table("t")
        resources: dict[str, Any] = {"queue": journal, "store": store}
        with TransactionManager(
            tmp_path / "tm", resources, recovery_interval=None, on_step=stop
        ) as tm:
            both(tm, 1)
            assert not tm.recover().clean
            assert tm.decisions.open_decisions()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("system", ["tally", "jboss"])
@pytest.mark.parametrize("why", ["descriptors", "disk", "interrupt", "exit"])
def test_a_branch_that_is_left_to_recovery_is_committed_by_the_same_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str, system: str
) -> None:
    refused = {"descriptors": errno.EMFILE, "disk": errno.ENOSPC}.get(why)

    def refuse(*_: object) -> None:
        assert refused is not None
        raise OSError(refused, os.strerror(refused))

    def fail(step: str) -> None:
        if refused is None and step == "decision written":
            raise {"interrupt": KeyboardInterrupt, "exit": SystemExit}[why]
        if refused is not None and step == "before commit queue":
            monkeypatch.setattr(Outcomes, "add", refuse)
        if refused is not None and step == "after commit queue":
            monkeypatch.undo()

    with (
        Journal(tmp_path / "queue", system=system) as journal,
        PageStore(tmp_path / "store") as store,
    ):
        store.create_table("t")
        resources: dict[str, Any] = {"queue": journal, "store": store}
        with TransactionManager(
            tmp_path / "tm", resources, recovery_interval=None, on_step=fail
        ) as tm:
            with nullcontext() if refused else pytest.raises((KeyboardInterrupt, SystemExit)):
                both(tm, 1)
            assert tm.recover().clean
            assert not tm.decisions.open_decisions()
        assert [one.record_id for one in journal.live_records()] == [1]
        with store.begin(read_only=True) as read:
            assert read.table("t")[1] == b"row"
        journal.append(b"another")


def test_the_log_names_the_branch_by_its_xa_id(tmp_path: Path) -> None:
    xid = Xid(0x42746E78, b"node-1AAAAAAAABBBB", b"node-1AAAAAAAABBBC")
    with Journal(tmp_path / "queue") as journal:
        branch = journal.as_resource("queue").begin(xid)
        branch.handle.add(1, b"message")
        branch.prepare()
    (reading,) = survey(tmp_path).readings()
    (one,) = reading.transactions()
    assert one.state is State.PREPARED
    assert Xid(one.format_id or 0, one.gtrid or b"", one.bqual or b"") == xid


def test_a_task_rolls_its_messages_back(tmp_path: Path, server_face: Face) -> None:
    with (
        Journal(tmp_path / "queue") as journal,
        PageStore(tmp_path / "store") as store,
        manager(tmp_path, journal, store, face=server_face) as tm,
    ):
        store.create_table("t")
        with pytest.raises(KeyError), tm.begin() as tx:
            tx["queue"].add(1, b"message")
            raise KeyError
        with tm.begin() as tx:  # one phase
            tx["queue"].add(2, b"message")
        both(tm, 3)
        assert [record.record_id for record in journal.live_records()] == [2, 3]
        assert not journal.prepared()


@pytest.mark.parametrize("xid", [Xid(-1, b"", b""), Xid(7, bytes(64), b"b" * 64)])
def test_an_id_survives_its_form_as_extra_data(xid: Xid) -> None:
    assert decode_xid(encode_xid(xid)) == xid


@pytest.mark.parametrize("extra", [b"", b"short", encode_xid(Xid(1, b"g", b"b")) + b"more"])
def test_other_extra_data_is_no_id(extra: bytes) -> None:
    assert decode_xid(extra) is None


def test_outcomes_of_an_earlier_version_close_its_decisions(tmp_path: Path) -> None:
    unpack(Path(__file__).with_name("earlier_outcomes.b64"), tmp_path)
    with Journal(tmp_path / "journal") as journal, Journal(tmp_path / "other") as other:
        resources: dict[str, Any] = {
            "lite": f"sqlite:///{tmp_path}/db",
            "journal": journal,
            "other": other,
        }
        with TransactionManager(
            tmp_path / "coordinator", resources, recovery_interval=None, orphan_interval=0.0
        ) as tm:
            assert tm.decisions.open_decisions()
            assert tm.recover().clean
            assert not tm.decisions.open_decisions()
        for one in (journal, other):
            assert [record.body for record in one.live_records()] == [b"seven", b"eight"]


def test_a_transaction_that_ends_during_a_recovery_is_none_of_a_restored_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    decided, asked, ended = threading.Event(), threading.Event(), threading.Event()

    def step(name: str) -> None:
        if name == "after decision":
            decided.set()
            assert asked.wait(60)

    with Journal(tmp_path / "queue") as journal, PageStore(tmp_path / "store") as store:
        store.create_table("t")
        resource = journal.as_resource("queue")
        now_in_doubt = resource.in_doubt

        def in_doubt_before() -> Sequence[Xid]:
            found = now_in_doubt()
            asked.set()
            assert ended.wait(60)
            return found

        monkeypatch.setattr(resource, "in_doubt", in_doubt_before)
        with (
            TransactionManager(
                tmp_path / "tm",
                {"queue": resource, "store": store},
                recovery_interval=None,
                on_step=step,
            ) as tm,
            ThreadPoolExecutor(1) as other,
        ):
            recovery = other.submit(lambda: tm.recover() if decided.wait(60) else None)
            both(tm, 1)
            ended.set()
            report = recovery.result(60)
    assert report is not None
    assert not report.left
    assert not caplog.records


def test_outcomes_behind_a_link_are_kept_and_nothing_is_written_through_it(tmp_path: Path) -> None:
    """The first who opens it makes a file in its place."""
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "journal"
    folder.mkdir()
    Outcomes(folder).add(b"a")
    (folder / outcomes.FILE).rename(elsewhere)
    (folder / outcomes.FILE).symlink_to(elsewhere)
    before = elsewhere.read_bytes()
    Outcomes(folder).add(b"b")
    assert Outcomes(folder).all() == [b"a", b"b"]
    assert elsewhere.read_bytes() == before


def test_an_outcome_that_is_noted_while_another_process_forgets_others_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = Outcomes(tmp_path), Outcomes(tmp_path)
    one.add(b"over")
    noting = threading.Thread(target=other.add, args=(b"new",))

    def write_later(*arguments: Any) -> None:
        noting.start()
        noting.join(0.05)
        write_whole(*arguments)

    monkeypatch.setattr(outcomes, "write_whole", write_later)
    one.forget([b"over"])
    noting.join()
    assert one.all() == other.all() == [b"new"]


def test_a_journal_on_another_file_system_keeps_its_outcomes_there() -> None:
    disk = MemoryFileSystem()
    with Journal("/nowhere/one", fs=disk) as one, Journal("/nowhere/two", fs=disk) as two:
        resources: dict[str, Any] = {"one": one, "two": two}
        with TransactionManager("/nowhere/tm", resources, recovery_interval=None, fs=disk) as tm:
            with tm.begin() as tx:
                for name in resources:
                    tx[name].add(1, b"message")
            assert len(list(one.live_records())) == len(list(two.live_records())) == 1
            assert tm.recover().clean
    assert not Path("/nowhere").exists()


async def test_a_commit_in_a_task_waits_neither_for_a_file_nor_for_threads_of_the_application(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted_in: list[int] = []
    add = Outcomes.add

    def noted(file: Outcomes, gtrid: bytes) -> None:
        noted_in.append(threading.get_ident())
        add(file, gtrid)

    monkeypatch.setattr(Outcomes, "add", noted)
    workers, committed = ThreadPoolExecutor(1), threading.Event()
    asyncio.get_running_loop().set_default_executor(workers)
    with Journal(tmp_path / "one") as one, Journal(tmp_path / "two", shared=True) as two:
        manager = TransactionManager(
            tmp_path / "tm", {"one": one, "two": two}, recovery_interval=None
        )
        async with AsyncTransactionManager(manager) as tm:
            tx = tm.begin()
            for name in ("one", "two"):
                await tx.enlist(name)
                tx[name].add(1, b"")
            waits = workers.submit(committed.wait, 60)  # for a lock that the transaction has, say
            await asyncio.wait_for(tx.commit(), 10)
            committed.set()
            assert waits.result(10)
    assert len(noted_in) == 2
    assert threading.get_ident() not in noted_in


@pytest.mark.parametrize("kind", ["journal", "jboss", "store"])
@pytest.mark.parametrize("face", FACES.values(), ids=FACES)
def test_a_branch_that_another_caller_has_rolled_back_is_not_taken_for_committed(
    tmp_path: Path, kind: str, face: Face
) -> None:
    with (
        PageStore(tmp_path / "store") as store,
        Journal(tmp_path / "one", system="jboss" if kind == "jboss" else "tally") as one,
        Journal(tmp_path / "queue") as journal,
    ):
        store.create_table("t")

        def roll_back(step: str) -> None:
            if step != "after decision":
                return
            if kind == "store":
                store.settle(store.in_doubt()[0].name, commit=False)
            else:
                one.rollback_prepared(one.prepared()[0].transaction)

        resources: dict[str, Any] = {"journal": journal, "one": store if kind == "store" else one}
        made = TransactionManager(
            tmp_path / "tm", resources, recovery_interval=None, on_step=roll_back
        )
        with face(made) as tm:
            refusal = r"committed in \['journal'\], but not in one"
            with pytest.raises(HeuristicError, match=refusal), tm.begin() as tx:
                tx["journal"].add(7, b"seven")
                if kind == "store":
                    tx["one"].table("t")[7] = b"seven"
                else:
                    tx["one"].add(7, b"seven")
            tm.recover()
            assert list(tm.decisions.heuristics().values()) == [frozenset({"one"})]
            assert not made.resources["one"].outcomes()  # type: ignore[attr-defined]


def test_the_ids_to_forget_are_looked_through_once_however_many_there_are(tmp_path: Path) -> None:
    class Counted(list[bytes]):
        looks = 0

        def __iter__(self) -> Iterator[bytes]:
            self.looks += 1
            return super().__iter__()

        def __contains__(self, gtrid: object) -> bool:
            raise AssertionError("each of them would be compared with all")

    every = Counted(b"%d" % number for number in range(50))
    noted = Outcomes(tmp_path)
    for gtrid in every:
        noted.add(gtrid)
    noted.add(b"kept")
    before = every.looks
    noted.forget(every)
    assert noted.all() == [b"kept"]
    assert every.looks - before <= 2
