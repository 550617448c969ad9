"""The XML that Artemis imports has what waits, and says what it leaves.

That the original imports it is shown in tests/interop/imports.
"""

from __future__ import annotations

import struct
import xml.etree.ElementTree as ET
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from click.testing import CliRunner, Result

from tallystick import scan
from tallystick.cli import tallystick
from tallystick.errors import LogUnreadableError
from tallystick.records import Kind
from tallystick.systems.jboss.format.messages import (
    ACKNOWLEDGED,
    ALL_TAKEN,
    LARGE_MESSAGE,
    MESSAGE,
    MESSAGE_TAKEN,
    PAGE_COUNT,
    PAGE_TRANSACTION,
    POSITION,
    REFERENCE,
)
from tallystick.systems.jboss.live.log import CircularJournal
from tests.rescue.kit import change
from tests.systems.jboss.applications.test_tables import journal, queue, write_bindings
from tests.systems.jboss.format import test_messages as encoded
from tests.systems.jboss.format.test_pages import entry as page_entry

LEFT, GONE = 3, 4
"""Queues: one that the bindings have, and one that they do not."""


def salvaged(folder: Path, target: Path) -> Result:
    arguments = ["salvage", str(folder), "--as", "artemis-xml", "--to", str(target)]
    return CliRunner().invoke(tallystick, arguments)


def send(log: CircularJournal, number: int, words: bytes, *queues: int) -> None:
    body = encoded.core(words, encoded.headers(encoded.BYTES, encoded.PROPERTIES))
    log.append_add_record(number, MESSAGE, body)
    for one in queues:
        log.append_update_record(number, REFERENCE, queue(one))


@contextmanager
def messages_of(broker: Path) -> Iterator[CircularJournal]:
    """Give the journal of messages of a new broker with bindings."""
    broker.mkdir()
    write_bindings(broker / "bindings")
    with journal(broker / "journal", "activemq-data", "amq") as log:
        yield log


def bodies(target: Path) -> list[bytes]:
    # Of our own making: no entity is in it.
    root = ET.parse(target).getroot()
    return [
        b"".join(urlsafe_b64decode(piece) for piece in (one.text or "").split())
        for one in root.iter("body")
    ]


def test_messages_that_damage_may_hide_are_told(tmp_path: Path) -> None:
    with messages_of(tmp_path / "data") as log:
        for number in range(10, 14):
            send(log, number, b"waits %d" % number, LEFT)
    adds = [one for one in scan(tmp_path / "data/journal") if one.kind is Kind.ADD]
    change(Path(adds[1].file), adds[1].offset + adds[1].length - 1)
    found = salvaged(tmp_path / "data", tmp_path / "waiting.xml")
    assert found.exit_code == 1
    assert "1 place of damage, after which changes may be missing: " in found.output


def test_what_waits_is_brought_and_what_is_left_is_told(tmp_path: Path) -> None:
    with messages_of(tmp_path / "data") as log:
        send(log, 10, b"taken", LEFT)
        log.append_update_record(10, ACKNOWLEDGED, queue(LEFT))
        send(log, 11, b"waits", LEFT, GONE)
        send(log, 12, b"deleted", LEFT)
        log.append_delete_record(12)
        send(log, 13, b"\x1f\x8b", LEFT)
        log.append_add_record(14, LARGE_MESSAGE, encoded.headers(encoded.BYTES))
        log.append_update_record(14, REFERENCE, queue(LEFT))
        log.append_add_record(15, MESSAGE, b"\2" + queue(15))
        log.append_update_record(15, REFERENCE, queue(LEFT))
        log.append_add_record(16, PAGE_COUNT, queue(LEFT) + struct.pack(">q", 5))
        log.append_update_record_transactional(1, 11, ACKNOWLEDGED, queue(LEFT))
        log.append_prepare_record(1)
        log.append_add_record_transactional(2, 17, MESSAGE, b"\1")
        log.append_update_record_transactional(2, 17, REFERENCE, queue(LEFT))
        log.append_rollback_record(2).wait()
    ran = salvaged(tmp_path / "data", tmp_path / "out.xml")
    assert ran.exit_code == 1, ran.output
    assert bodies(tmp_path / "out.xml") == [b"waits", b"\x1f\x8b"]
    for line in (
        "brought: 2 messages for left",
        "left: 1 acknowledgement in doubt, whose messages are brought",
        "left: 5 messages for a queue, in pages that are not there or not read",
        "left: 1 message for a queue that the bindings beside do not have",
        "left: 1 message for a queue, in another protocol or damaged",
        "left: 1 message for a queue, whose file of a large body is missing",
        "left: 2 properties of one character",
    ):
        assert line in ran.output


def paged(words: bytes, transaction: int = -1) -> bytes:
    """A message in a page, for a queue of the bindings."""
    body = encoded.core(words, encoded.headers(encoded.BYTES))
    queues = struct.pack(">iq", 1, LEFT)
    return page_entry(struct.pack(">qB", transaction, 0) + body + queues)


def test_messages_in_pages_are_brought_that_their_queues_have_still_to_take(
    tmp_path: Path,
) -> None:
    with messages_of(tmp_path / "data") as log:
        send(log, 10, b"journal", LEFT)
        log.append_add_record(11, PAGE_COUNT, queue(LEFT) + struct.pack(">q", 8))
        log.append_add_record(12, MESSAGE_TAKEN, queue(LEFT) + POSITION.pack(1, 0))
        log.append_add_record(13, ALL_TAKEN, queue(LEFT) + POSITION.pack(2, 0))
        log.append_add_record(14, PAGE_TRANSACTION, queue(77) + struct.pack(">i", 1))
        log.append_add_record_transactional(1, 15, PAGE_TRANSACTION, queue(79) + bytes(4))
        log.append_prepare_record(1).wait()
    folder = tmp_path / "data/paging/one"
    folder.mkdir(parents=True)
    (folder / "address.txt").write_text("orders")
    of_amqp = page_entry(struct.pack(">qBBq", -1, 0, 2, 20) + bytes(30))
    pages = {
        1: paged(b"taken") + paged(b"first") + paged(b"sent", 77) + paged(b"not sent", 78),
        2: paged(b"all taken"),
        3: paged(b"in doubt", 79) + of_amqp + paged(b"last") + paged(b"cut")[:-1],
    }
    for number, content in pages.items():
        (folder / f"{number:09}.page").write_bytes(content)
    ran = salvaged(tmp_path / "data", tmp_path / "out.xml")
    assert bodies(tmp_path / "out.xml") == [b"journal", b"first", b"sent", b"last"], ran.output
    for line in (
        "brought: 4 messages for left",
        "left: 1 message for a queue, in doubt",
        "left: 1 message in pages, in another protocol or damaged",
        "left: 1 page cut within a message",
        "left: 5 messages for a queue, in pages that are not there or not read",
    ):
        assert line in ran.output, ran.output


def test_a_prepared_transaction_of_which_a_record_is_damaged_is_not_brought(
    tmp_path: Path,
) -> None:
    with messages_of(tmp_path / "data") as log:
        send(log, 10, b"whole", LEFT)
        body = encoded.core(b"doubtful", encoded.headers(encoded.BYTES))
        log.append_add_record_transactional(1, 11, MESSAGE, body)
        log.append_update_record_transactional(1, 11, REFERENCE, queue(LEFT))
        log.append_update_record_transactional(1, 11, 99, b"unknown to all readers")
        log.append_prepare_record(1).wait()
    for path in (tmp_path / "data/journal").iterdir():
        data = bytearray(path.read_bytes())
        at = data.find(b"unknown to all readers")
        if at >= 0:
            data[at + 22 : at + 26] = bytes(4)  # its size, at its end
            path.write_bytes(data)
    ran = salvaged(tmp_path / "data", tmp_path / "out.xml")
    assert bodies(tmp_path / "out.xml") == [b"whole"], ran.output
    assert "left: 1 message for a queue, in doubt" in ran.output


def test_where_nothing_can_be_brought_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with journal(tmp_path / "data/journal", "activemq-data", "amq") as log:
        send(log, 10, b"waits", LEFT)
        log.append_add_record(11, 99, b"").wait()
    ran = salvaged(tmp_path / "data", tmp_path / "out.xml")
    assert ran.exit_code == 1
    assert "nothing was written" in " ".join(ran.output.split())
    assert not (tmp_path / "out.xml").exists()
    write_bindings(tmp_path / "data/bindings")
    ran = salvaged(tmp_path / "data/bindings", tmp_path / "out.xml")
    assert isinstance(ran.exception, LogUnreadableError)
    assert "no journal of messages" in str(ran.exception)
