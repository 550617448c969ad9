"""Ids of global transactions are found as people write them, and tell who made them."""

from __future__ import annotations

import pytest

from tallystick.errors import TransactionUsageError
from tallystick.reconcile.ids import (
    BITRONIX,
    NARAYANA,
    NARAYANA_UID,
    find_gtrid,
    forms,
    maker_of,
    owner_of,
    owner_text,
    xid_of,
)
from tallystick.records import Xid
from tallystick.services.transactions.xids import FORMAT_ID, XidFactory

ONE = Xid(FORMAT_ID, bytes.fromhex("0a0b0c0d"), bytes.fromhex("ff00"))
OTHER = Xid(-5, bytes.fromhex("0a0b0c0e"), bytes.fromhex("ee"))
SPELLINGS = (
    "0a0b0c0d",
    "0A0B0C0D",
    " '0a0b0c0d'",
    "1114926712:0a0b0c0d:ff00",
    "1114926712:0A0B0C0D",
    "0x0a0b0c0d",
    "0x0A0B0C0DFF00",
    "XID_1114926712_FF00_0A0B0C0D",
    "xid_1114926712_ff00",
    "1114926712_CgsMDQ==_/wA=",
    "X'0A0B0C0D',X'FF00',1114926712",
    "(1114926712,0a0b0c0d,ff00)",
    "_wAKCwwN",
)


@pytest.mark.parametrize("text", SPELLINGS)
def test_every_spelling_is_taken_and_its_beginning_too(text: str) -> None:
    assert find_gtrid(text, [ONE, OTHER]) == ONE.gtrid


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("0a0", "too short for an id"),
        ("", "too short for an id"),
        ("0a0b", "2 global transactions begin with '0a0b'. Give more of it: 0a0b0c0d, 0a0b0c0e"),
        ("0c0e", "no global transaction here begins with '0c0e'. Did you mean 0a0b0c0e?"),
        ("0a0b0c0dff", "Did you mean 0a0b0c0d?"),
        ("/wAKCwwN", "no global transaction"),
        ("\x1b[2J,'\"\n", r"begins with '\x1b[2J,\'"),
    ],
)
def test_what_is_of_none_or_of_several_is_refused_with_candidates(text: str, found: str) -> None:
    with pytest.raises(TransactionUsageError) as error:
        find_gtrid(text, [ONE, OTHER])
    assert found in str(error.value)


def test_a_whole_id_is_found_where_others_begin_with_it() -> None:
    longer = Xid(FORMAT_ID, b"\x0a\x0b")
    assert find_gtrid("0a", [Xid(FORMAT_ID, b"\x0a"), longer]) == b"\x0a"
    assert find_gtrid("0a0b", [longer, ONE]) == longer.gtrid


@pytest.mark.parametrize("text", ["XID_1114926712_FF01_0A0B0C0D", "1114926712:0a0b0c0d:ff01"])
def test_another_branch_of_a_global_transaction_names_it(text: str) -> None:
    """Each resource has a branch of its own, and an operator copies the id of one of them."""
    with pytest.raises(TransactionUsageError, match=r"Did you mean 0a0b0c0d\?"):
        find_gtrid(text, [ONE, OTHER])


def test_all_that_is_unknown_is_refused_where_nothing_is_known() -> None:
    with pytest.raises(TransactionUsageError, match="No global transaction is here"):
        find_gtrid("0a0b0c0d", [])


@pytest.mark.parametrize(
    ("xid", "packed"),
    [
        (Xid(-5, b"\xfb\xef\xff\xff\x01", b"\xff\xfe\xfd"), "__79--___wH7____"),
        (Xid(131_077, b"\xfb\xef\xff\xff\x01", b"\xff\xfe"), "__777___AQcCAgA="),
    ],
)
def test_an_id_is_packed_as_artemis_packs_it(xid: Xid, packed: str) -> None:
    """Said by XidImpl.toBase64String of Artemis 2.40."""
    assert forms(xid)["packed"] == packed


def test_the_printed_spelling_is_read_again() -> None:
    assert [xid_of(str(one)) for one in (ONE, OTHER)] == [ONE, OTHER]
    assert xid_of(forms(OTHER)["name"]) == xid_of(forms(OTHER)["gid"]) == OTHER
    assert xid_of("a name") is None


def test_the_owner_of_an_id_of_narayana_is_its_node() -> None:
    gtrid = bytes(NARAYANA_UID) + b"node-1"
    assert owner_text(NARAYANA, gtrid, owner_of(gtrid)) == "node-1"
    assert owner_text(BITRONIX, gtrid, owner_of(gtrid)) == "\0" * 22
    assert owner_text(None, b"", None) == ""


def test_ids_of_ours_and_of_bitronix_tell_who_made_them() -> None:
    ours = XidFactory("orders-1", clock=lambda: 1_764_150_000_000).gtrid()
    bitronix = b"bank-1" + (5_140_041).to_bytes(8, "big") + (83).to_bytes(4, "big")
    newer = b"bank-1" + (1_764_150_000_000).to_bytes(8, "big") + bytes(4)
    assert str(maker_of(FORMAT_ID, ours)).startswith("orders-1, 2025-11-26T09:40:00.000Z, number ")
    told = "bank-1, 1:25:40 after its machine began, number 83"
    assert str(maker_of(FORMAT_ID, bitronix)) == told
    made = maker_of(FORMAT_ID, newer)
    assert made is not None
    assert made.to_dict() == {
        "coordinator": "bank-1",
        "time": "2025-11-26T09:40:00.000Z",
        "milliseconds": 1_764_150_000_000,
        "sequence": 0,
    }


@pytest.mark.parametrize(
    ("format_id", "gtrid"),
    [
        (131_077, b"bank-1" + bytes(12)),
        (FORMAT_ID, bytes(12)),
        (FORMAT_ID, b"\x00" + bytes(12)),
        (FORMAT_ID, b"a-name-of-some-length-made-by-others"),
        (FORMAT_ID, b"bank-1" + b"\xff" * 12),
    ],
)
def test_an_id_of_another_make_tells_nothing(format_id: int, gtrid: bytes) -> None:
    assert maker_of(format_id, gtrid) is None
