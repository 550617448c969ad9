"""The rules of record ids: the same however a journal is opened, and for each core."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tallystick import AsyncJournal, Journal, TransactionManager
from tallystick.errors import RecordIdError, RolledBackError, TransactionUsageError
from tallystick.services.journal import JournalTransaction
from tallystick.services.journal.ids import JournalIds
from tallystick.services.journal.transaction import AsyncJournalTransaction
from tallystick.storage.group import queue
from tallystick.systems.jboss.live.settings import JournalSettings
from tallystick.systems.tally.format.columns import UnplacedRecord
from tallystick.systems.tally.format.kinds import Code
from tallystick.systems.tally.live import appender
from tallystick.systems.tally.live.items import UnplacedEnding
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.settings import Settings

Open = Callable[[], Journal]
NATIVE: dict[str, Any] = {
    "settings": Settings(segment_size=64 << 10, preallocate=False, idle_mark_s=None)
}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": NATIVE,
    "twin": NATIVE,
    "leader": {"shared": True, **NATIVE},
    "member": {"shared": True, **NATIVE},
    "jboss": {"system": "jboss", "settings": JournalSettings(file_size=64 << 10)},
}
"""Alone, with the compiled core or without; shared, in the process that leads or in another one;
and a historic log under the journal."""


@pytest.fixture(params=OPTIONS)
def face(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def opened(face: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Open the journal; a second call closes it and opens it again."""
    if face == "twin":
        monkeypatch.setattr(queue, "CORE", None)
        monkeypatch.setattr(appender, "CORE", None)
    path = tmp_path / "log"
    with ExitStack() as stack:

        def again() -> Journal:
            stack.close()
            if face == "member":
                stack.enter_context(Journal(path, **OPTIONS[face]))
            return stack.enter_context(Journal(path, **OPTIONS[face]))

        yield again


@pytest.fixture
def journal(opened: Open) -> Journal:
    return opened()


def live(journal: Journal) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {}
    for one in journal.live_records():
        found.setdefault(one.record_id, []).append(one.body)
    return found


CHANGES: dict[str, Callable[[Journal | JournalTransaction, int], object]] = {
    "add": lambda where, record_id: where.add(record_id, b"added"),
    "update": lambda where, record_id: where.update(record_id, b"updated"),
    "delete": lambda where, record_id: where.delete(record_id),
}


def refused(call: Callable[[], object]) -> bool:
    try:
        call()
    except RecordIdError:
        return True
    return False


def prepared_ids(journal: Journal, exists: bool, count: list[int]) -> int:
    """Return an id that no case has used, live or not."""
    count[0] += 1
    if exists:
        journal.add(count[0], b"first")
    return count[0]


def test_add_wants_a_free_id_and_update_and_delete_want_a_live_one(journal: Journal) -> None:
    after = {"add": [b"added"], "update": [b"first", b"updated"], "delete": []}
    count = [0]
    for case in itertools.product(CHANGES, (True, False), (True, False)):
        change, exists, inside = case
        key = prepared_ids(journal, exists, count)

        def run(change: str = change, inside: bool = inside, key: int = key) -> None:
            if not inside:
                CHANGES[change](journal, key)
                return
            with journal.transaction() as tx:
                CHANGES[change](tx, key)

        fits = exists == (change != "add")
        assert refused(run) == (not fits), case
        expected = after[change] if fits else [b"first"] if exists else []
        assert live(journal).get(key, []) == expected, case


def test_of_two_that_touch_one_id_the_second_is_refused_unless_both_can_hold(
    opened: Open,
) -> None:
    """A transaction changes an id; then another change takes effect, or is promised."""
    journal, count = opened(), [0]
    for case in itertools.product(CHANGES, CHANGES, ("outside", "other", "prepared")):
        first, second, how = case
        exists = first != "add"
        key = prepared_ids(journal, exists, count)
        tx, other = journal.transaction(), journal.transaction()
        CHANGES[first](tx, key)

        def run(second: str = second, how: str = how, key: int = key, other: Any = other) -> None:
            if how == "outside":
                CHANGES[second](journal, key)
                return
            CHANGES[second](other, key)
            other.prepare() if how == "prepared" else other.commit()

        fits = exists == (second != "add")
        assert refused(run) == (not fits), case
        # What is promised counts as what has happened, unless both only update.
        lives_then = second != "delete" if fits else exists
        both_hold = lives_then == (first != "add")
        if how == "prepared" and fits:
            both_hold = first == second == "update"
        assert refused(tx.commit) == (not both_hold), case
        if how == "prepared" and fits:
            other.commit()
    for bodies in live(opened()).values():
        assert bodies.count(b"added") <= 1
        assert bodies[0] in (b"first", b"added"), "nothing comes back by an update"


@pytest.mark.sampled(5)
@pytest.mark.parametrize("restart", [True, False])
def test_a_prepared_transaction_holds_its_ids_until_it_ends(opened: Open, restart: bool) -> None:
    journal, count = opened(), [0]
    cases: dict[tuple[str, str, bool], tuple[int, JournalTransaction]] = {}
    for case in itertools.product(CHANGES, CHANGES, (True, False)):
        held = case[0]
        key = prepared_ids(journal, held != "add", count)
        tx = journal.transaction()
        CHANGES[held](tx, key)
        tx.prepare()
        cases[case] = key, tx
    if restart:
        journal = opened()
    for case, (key, tx) in cases.items():
        held, change, commit = case
        allowed = held == change == "update"
        assert refused(lambda k=key, c=change: CHANGES[c](journal, k)) == (not allowed), case  # type: ignore[misc]
        later = journal.transaction()

        def promise(later: Any = later, change: str = change, key: int = key) -> None:
            CHANGES[change](later, key)
            later.prepare()

        assert refused(promise) == (not allowed), case
        if allowed:
            later.rollback()
        if restart:
            (journal.commit_prepared if commit else journal.rollback_prepared)(tx.number)
        else:
            (tx.commit if commit else tx.rollback)()
        lives_now = held != "delete" if commit else held != "add"
        assert (key in live(journal)) == lives_now, case
        assert refused(lambda k=key: journal.add(k, b"again")) == lives_now, case  # type: ignore[misc]


@pytest.mark.parametrize("restart", [True, False])
def test_a_promise_is_kept_whatever_was_tried_meanwhile(opened: Open, restart: bool) -> None:
    journal = opened()
    for record_id in (1, 2, 3):
        journal.add(record_id, b"first")
    tx = journal.transaction()
    tx.delete(1)
    tx.update(2, b"updated")
    tx.add(4, b"added")
    if opened_as_original(journal):
        tx.delete(3)
    else:
        tx.delete(3)
        tx.add(3, b"new")
    tx.prepare()
    if restart:
        journal = opened()
    for record_id, change in itertools.product((1, 2, 3, 4), CHANGES):
        refused(lambda r=record_id, c=change: CHANGES[c](journal, r))  # type: ignore[misc]
    if restart:
        journal.commit_prepared(tx.number)
    else:
        tx.commit()
    expected = {2, 4} if opened_as_original(journal) else {2, 3, 4}
    assert set(live(journal)) == expected
    for record_id in (1, 2, 3, 4):
        assert refused(lambda r=record_id: journal.add(r, b"")) == (record_id in expected)  # type: ignore[misc]


def opened_as_original(journal: Journal) -> bool:
    return journal.system != "tally"


def test_an_id_may_be_deleted_and_added_again_in_one_transaction_where_the_format_keeps_the_order(
    journal: Journal,
) -> None:
    journal.add(7, b"old")
    tx = journal.transaction()
    tx.delete(7)
    if opened_as_original(journal):
        # Its loaders apply the deletes of a transaction after its adds: the record would be gone.
        with pytest.raises(RecordIdError, match="deletes of a transaction last"):
            tx.add(7, b"new")
        tx.commit()
        assert live(journal) == {}
    else:
        tx.add(7, b"new")
        tx.update(7, b"newer")
        tx.commit()
        assert live(journal) == {7: [b"new", b"newer"]}
    assert refused(lambda: journal.add(7, b"")) == (not opened_as_original(journal))


def test_a_transaction_sees_its_own_changes_at_the_call(journal: Journal) -> None:
    tx = journal.transaction()
    tx.add(7, b"x")
    with pytest.raises(RecordIdError, match="record 7 exists"):
        tx.add(7, b"again")
    tx.delete(7)
    for change in ("update", "delete"):
        with pytest.raises(RecordIdError, match="no record 7"):
            CHANGES[change](tx, 7)
    tx.add(8, b"the transaction goes on")
    tx.commit()
    assert live(journal) == {8: [b"the transaction goes on"]}


def test_rollback_frees_the_ids(journal: Journal) -> None:
    for end in ("rollback", "prepared"):
        tx = journal.transaction()
        tx.add(7, b"x")
        if end == "prepared":
            tx.prepare()
        tx.rollback()
    with journal.transaction() as tx:
        tx.add(7, b"y")
    assert live(journal) == {7: [b"y"]}


def test_a_refused_transaction_is_rolled_back_whole_and_the_journal_goes_on(
    journal: Journal, opened: Open
) -> None:
    one, two = journal.transaction(), journal.transaction()
    for tx in (one, two):
        tx.add(7, b"x")
        tx.add(10 + tx.number, b"with it")
    one.commit()
    with pytest.raises(RecordIdError, match="already a record 7; the transaction was rolled back"):
        two.commit()
    with pytest.raises(TransactionUsageError, match="has ended"):
        two.rollback()
    journal.add(9, b"goes on")
    expected = {7: [b"x"], 10 + one.number: [b"with it"], 9: [b"goes on"]}
    assert live(journal) == expected
    journal = opened()
    assert live(journal) == expected
    assert list(journal.prepared()) == []


def test_a_transaction_that_another_call_has_settled_has_ended(journal: Journal) -> None:
    tx = journal.transaction()
    tx.add(7, b"x")
    tx.prepare()
    journal.commit_prepared(tx.number)
    assert live(journal) == {7: [b"x"]}
    if journal._ids is not None:
        with pytest.raises(TransactionUsageError, match="ended"):
            tx.rollback()
    assert live(journal) == {7: [b"x"]}


def test_a_manager_says_rolled_back_where_an_id_was_taken_meanwhile(
    journal: Journal, tmp_path: Path
) -> None:
    if journal.system != "tally":
        pytest.skip("prepares with an Xid: only the native log has a place for it")
    with TransactionManager(
        tmp_path / "tm", resources={"log": journal.as_resource("log")}
    ) as manager:
        with pytest.raises(RolledBackError), manager.begin() as tx:
            tx["log"].add(7, b"x")
            journal.add(7, b"faster")
        assert live(journal) == {7: [b"faster"]}


async def test_tasks_have_the_same_rules(tmp_path: Path, face: str) -> None:
    async with await AsyncJournal.open(tmp_path / "log", **OPTIONS[face]) as journal:
        one, two, three = (journal.transaction() for _ in range(3))
        for tx in (one, two, three):
            tx.add(7, b"%d" % tx.number)
        await one.prepare()
        with pytest.raises(RecordIdError, match="holds record 7; the transaction was rolled"):
            await two.commit()
        with pytest.raises(RecordIdError):
            await three.prepare()
        with pytest.raises(RecordIdError):
            await journal.add(7, b"")
        await one.commit()
        assert [one.record_id async for one in journal.live_records()] == [7]


@pytest.mark.parametrize("seed", range(2))
def test_whatever_transactions_do_the_journal_holds_what_a_model_holds(
    opened: Open, face: str, seed: int
) -> None:
    """Random histories of four transactions and calls outside; no id is ever live twice."""
    rng = random.Random(f"{face} {seed}")
    journal = opened()
    model: set[int] = set()
    running: dict[JournalTransaction, dict[int, bool]] = {}
    promised: set[JournalTransaction] = set()

    def end(tx: JournalTransaction) -> None:
        changed = running.pop(tx)
        if rng.random() < 0.3:
            tx.rollback()
        elif not refused(tx.commit):
            for record_id, lives in changed.items():
                (model.add if lives else model.discard)(record_id)

    for _ in range(60):
        record_id, change = rng.randrange(4), rng.choice([*CHANGES])
        if len(running) < 4 and rng.random() < 0.3:
            running[journal.transaction()] = {}
        elif running and rng.random() < 0.3:
            tx = rng.choice([*running])
            if tx in promised or rng.random() < 0.5:
                end(tx)
            elif refused(tx.prepare):
                del running[tx]
            else:
                promised.add(tx)
        else:
            where = rng.choice([journal, *(tx for tx in running if tx not in promised)])
            if not refused(lambda w=where, r=record_id, c=change: CHANGES[c](w, r)):  # type: ignore[misc]
                if isinstance(where, JournalTransaction):
                    running[where][record_id] = change != "delete"
                else:
                    (model.add if change != "delete" else model.discard)(record_id)
    while running:
        end(rng.choice([*running]))
    assert set(live(journal)) == model
    journal = opened()
    found = live(journal)
    assert set(found) == model
    assert all(bodies.count(b"added") == 1 for bodies in found.values())


def test_a_log_in_which_an_id_is_live_twice_opens_as_before(tmp_path: Path) -> None:
    with TallyLog(str(tmp_path / "log")) as log:
        for number in (1, 2, 3):
            log.submit(UnplacedRecord(Code.ADD, b"%d" % number, number, 7), sync=False)
        log.submit(UnplacedEnding(Code.COMMIT, 1)).wait()
        log.submit(UnplacedEnding(Code.COMMIT, 2)).wait()
        log.submit(UnplacedEnding(Code.PREPARE, 3)).wait()
    for shared in (False, True):
        with Journal(tmp_path / "log", shared=shared) as journal:
            assert live(journal) == {7: [b"1", b"2"]}
            (found,) = journal.prepared()
            assert refused(lambda: journal.add(7, b""))
    with Journal(tmp_path / "log") as journal:
        journal.commit_prepared(found.transaction)  # it was promised
        assert live(journal) == {7: [b"1", b"2", b"3"]}
        journal.delete(7)
        assert live(journal) == {}
        journal.add(7, b"new")


@pytest.mark.parametrize("end", ["prepare", "commit"])
@pytest.mark.parametrize("system", ["tally", "jboss"])
async def test_a_transaction_whose_task_is_cancelled_while_it_ends_has_one_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str, end: str
) -> None:
    checked, over = threading.Event(), threading.Event()
    check_all = AsyncJournalTransaction._check_all

    def check_slowly(transaction: AsyncJournalTransaction) -> None:
        check_all(transaction)
        checked.set()
        over.wait(10)

    async with await AsyncJournal.open(tmp_path / "log", system=system) as journal:

        async def work() -> None:
            async with journal.transaction() as transaction:
                transaction.add(1, b"x")
                await (transaction.prepare() if end == "prepare" else transaction.commit())

        with monkeypatch.context() as patched:
            patched.setattr(JournalIds, "doubted", True)  # a worker thread learns them anew
            patched.setattr(AsyncJournalTransaction, "_check_all", check_slowly)
            task = asyncio.create_task(work())
            await asyncio.to_thread(checked.wait, 10)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            over.set()
            while journal._order.locked():
                await asyncio.sleep(0.001)
        for one in await journal.prepared():
            await journal.commit_prepared(one.transaction)
        assert [one.record_id async for one in journal.live_records()] == [1]
        with pytest.raises(RecordIdError):
            await journal.add(1, b"again")
