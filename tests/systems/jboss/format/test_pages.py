"""What a page of a broker holds, from bytes made here as Artemis 2.40 writes them."""

from __future__ import annotations

import struct

import pytest

from tallystick.systems.jboss.format.messages import LargeFile
from tallystick.systems.jboss.format.pages import LargeMessage, PageContents, contents_of

SMALL = struct.pack(">qB", -1, 0) + bytes(40)
LARGE = struct.pack(">qBiq", -1, 1, 38, 7) + bytes(30) + struct.pack(">iqq", 2, 5, 6)
"""A large message for two queues, whose record says no size."""


def entry(message: bytes) -> bytes:
    return b"{" + struct.pack(">i", len(message)) + message + b"}"


@pytest.mark.parametrize(
    ("data", "messages", "whole"),
    [
        (b"", 0, True),
        (entry(SMALL) * 3, 3, True),
        (entry(SMALL) + entry(LARGE), 2, True),
        (entry(SMALL) + entry(SMALL)[:-1], 1, False),
        (entry(SMALL) + b"{", 1, False),
        (entry(SMALL) + bytes(20), 1, False),
        (b"{" + struct.pack(">i", -9) + SMALL, 0, False),
    ],
)
def test_a_page_is_whole_where_nothing_but_whole_messages_stands_in_it(
    data: bytes, messages: int, whole: bool
) -> None:
    assert contents_of(memoryview(data))[:2] == (messages, whole)


WRITTEN = bytes.fromhex(
    "ffffffffffffffff0100000064000000000000010f01000000086600610073007400000001000000"
    "0000000000000001a21b00367d0401000000020000001e5f0041004d0051005f004c004100520047"
    "0045005f00530049005a0045000700000000000249f0000000026e0006000000bf00000001000000"
    "0000000007"
)
"""A large message of 150,000 bytes in a page of Artemis 2.40, with the id 271."""


def test_messages_in_a_page_name_their_transactions() -> None:
    page = b"".join(entry(struct.pack(">qB", one, 0) + bytes(40)) for one in (-1, 7, 7, 9, 0))
    assert contents_of(memoryview(page)).transactions == {7: [1, 2], 9: [3]}


CORE = struct.pack(">qBBq", 7, 0, 1, 371) + bytes(40)
OF_HORNETQ = struct.pack(">qBiq", 7, 0, 5, 371) + bytes(40)


@pytest.mark.parametrize(
    ("messages", "first"),
    [
        ([CORE, LARGE], 371),
        ([WRITTEN, CORE], 271),
        ([OF_HORNETQ], None),
        ([], None),
        ([b"x"], None),
    ],
)
def test_the_first_message_of_artemis_in_a_page_has_an_id(
    messages: list[bytes], first: int | None
) -> None:
    assert contents_of(memoryview(b"".join(map(entry, messages)))).first == first


@pytest.mark.parametrize(
    ("message", "number", "file", "transaction", "queues"),
    [
        (WRITTEN, 271, LargeFile(150_000, True), -1, (7,)),
        (struct.pack(">q", 9) + WRITTEN[8:], 271, LargeFile(150_000, True), 9, (7,)),
        (LARGE, 7, LargeFile(None, False), -1, (5, 6)),
        (LARGE[:-8], 7, LargeFile(None, False), -1, ()),
        (LARGE[:9] + struct.pack(">i", -1) + LARGE[13:], 7, LargeFile(None, False), -1, ()),
    ],
)
def test_a_large_message_in_a_page_says_how_long_its_file_is_and_for_whom(
    message: bytes, number: int, file: LargeFile, transaction: int, queues: tuple[int, ...]
) -> None:
    page = memoryview(entry(SMALL) + entry(message) + entry(SMALL))
    sent = {} if transaction < 0 else {transaction: [1]}
    large = {number: LargeMessage(file, 1, transaction, queues)}
    assert contents_of(page) == PageContents(3, True, large, sent)
