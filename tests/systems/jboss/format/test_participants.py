"""Participants in the states of Narayana's transactions."""

from __future__ import annotations

import struct

import pytest

from tallystick.records import Xid
from tallystick.systems.jboss.format.bodies import PACKED_MAGIC, UID_SIZE
from tallystick.systems.jboss.format.participants import (
    SERVER,
    SUBORDINATE,
    TRANSACTION,
    XA_RESOURCE,
    Participant,
    Participants,
    began_elsewhere,
    participants,
)

UID, NAMED = bytes(UID_SIZE - 1) + b"\x07", "0:0:0:0:7"
XID = Xid(131077, gtrid=b"one transaction", bqual=b"branch")
FINISHED, ROLLED_BACK, PREPARED, COMMITTING = 7, 3, 5, 6
UNKNOWN_TYPE = 141

BRANCH = Participant(
    XA_RESOURCE, False, NAMED, XID, "finish_ok", False, "DB", None, "java:/db", None
)  # fmt: skip


def number(value: int) -> bytes:
    return struct.pack(">i", value)


def packed(raw: bytes) -> bytes:
    return number(len(raw)) + raw + bytes(-len(raw) % 4)


def text(words: str | None) -> bytes:
    return number(0) if words is None else packed(words.encode() + b"\0")


def xid() -> bytes:
    numbers = (XID.format_id, len(XID.gtrid), len(XID.bqual))
    return b"".join(map(number, numbers)) + packed((XID.gtrid + XID.bqual).ljust(128, b"\0"))


def branch(outcome: int = FINISHED, *, stored_object: bytes | None = None) -> bytes:
    head = number(XA_RESOURCE) + number(outcome) + number(0) + number(1) + xid() + number(1)
    named = text("DB") + text(None) + text("java:/db")
    stored = number(0) if stored_object is None else number(1) + text("A") + packed(stored_object)
    return head + named + stored + packed(UID) + text(None)


def state(
    prepared: bytes,
    heuristic: bytes = b"",
    *,
    with_transaction: bool = True,
    status: int = COMMITTING,
) -> bytes:
    ids = packed(UID) * 2 if with_transaction else packed(bytes(UID_SIZE))
    end = number(463)
    later = number(1) + heuristic + end if heuristic else number(0)
    head = PACKED_MAGIC + text("#ARJUNA#") + ids + bytes(8) + number(0)
    return head + prepared + end + later + number(status) + number(0) + number(0)


def test_participants_of_both_lists_are_read() -> None:
    found = participants(state(branch() + branch(stored_object=b"java"), branch(ROLLED_BACK)))
    assert found is not None
    assert found.status == "committing"
    assert found.found[0] == BRANCH
    assert [one.resource_class for one in found.found] == [None, "A", None]
    assert [(one.heuristic, one.outcome) for one in found.found] == [
        (False, "finish_ok"),
        (False, "finish_ok"),
        (True, "heuristic_rollback"),
    ]


@pytest.mark.parametrize("with_transaction", [True, False])
def test_a_transaction_may_have_no_participant_and_no_id(*, with_transaction: bool) -> None:
    raw = state(b"", with_transaction=with_transaction)
    expected = Participants((), "committing", began=0, uid=NAMED if with_transaction else None)
    assert participants(raw) == expected
    assert participants(raw.removeprefix(PACKED_MAGIC)) == expected


@pytest.mark.parametrize(
    ("raw", "known"),
    [
        (number(UNKNOWN_TYPE) + b"what its class writes", Participant(UNKNOWN_TYPE, False)),
        (
            number(XA_RESOURCE) + number(FINISHED) + number(1) + number(0) + packed(b"java"),
            Participant(XA_RESOURCE, False, outcome="finish_ok", committed=True),
        ),
        (
            b"".join(map(number, (XA_RESOURCE, 99, 0, 1))) + xid() + number(0) + text("C"),
            Participant(XA_RESOURCE, False, None, XID, "99", False, resource_class="C"),
        ),
    ],
)  # fmt: skip
def test_a_participant_whose_end_is_unknown_hides_what_follows(
    raw: bytes, known: Participant
) -> None:
    expected = Participants((BRANCH, known), "committing", complete=False, began=0, uid=NAMED)
    assert participants(state(branch() + raw + branch())) == expected
    assert participants(state(branch() + raw, branch(ROLLED_BACK))) == expected
    cut = participants(state(branch() + raw + branch())[:-4])
    assert cut == Participants((BRANCH, known), None, complete=False, began=0, uid=NAMED)


@pytest.mark.parametrize(
    ("type_name", "before", "parent"),
    [
        (SUBORDINATE, PACKED_MAGIC + text("#ARJUNA#") + packed(UID) * 2 + bytes(8)
         + number(1) + xid() + text("other"), XID),
        (SUBORDINATE, PACKED_MAGIC + number(1) + xid() + text("other"), XID),
        (SERVER, PACKED_MAGIC + number(1) + text("IOR:01"), None),
        (SERVER + "/JCA", PACKED_MAGIC + number(1) + xid() + number(0), XID),
    ],
)  # fmt: skip
def test_a_transaction_of_another_coordinator_has_its_xid_before_the_header(
    type_name: str, before: bytes, parent: Xid | None
) -> None:
    raw = before + state(branch()).removeprefix(PACKED_MAGIC)
    expected = Participants((BRANCH,), "committing", began=0, parent=parent, uid=NAMED)
    assert participants(raw, TRANSACTION + type_name) == expected
    assert began_elsewhere(TRANSACTION + type_name)


def test_cut_lengthened_and_foreign_states_have_no_participants() -> None:
    whole = state(branch(), branch(ROLLED_BACK))
    for end in range(len(whole)):
        assert participants(whole[:end]) is None
    assert participants(whole + bytes(4)) is None
    assert participants(whole.replace(b"#ARJUNA#", b"#arjuna#")) is None
    for at in range(len(PACKED_MAGIC), len(whole), 4):
        participants(whole[:at] + number(-1) + whole[at + 4 :])
