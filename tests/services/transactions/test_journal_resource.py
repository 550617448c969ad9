"""A journal and a page store in one transaction: both or neither, whatever crashes."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tallystick.reading.survey import survey
from tallystick.records import State, Xid
from tallystick.services.journal import Journal
from tallystick.services.journal.resource import decode_xid, encode_xid
from tallystick.services.page_store import PageStore
from tallystick.services.transactions import TransactionManager
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
