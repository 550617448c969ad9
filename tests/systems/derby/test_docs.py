"""The hex example of the format's page is what it says, and a real file begins with it."""

from __future__ import annotations

from pathlib import Path

from tallystick.systems.derby.format import operations
from tallystick.systems.derby.format.layout import HEADER_SIZE, Group, decode_header, read_envelope
from tallystick.systems.derby.format.record_body import decode_body
from tests.systems.derby.logs import log_bytes

PAGE = Path(__file__).parents[3] / "docs" / "formats" / "derby.md"


def example() -> bytes:
    return bytes.fromhex(PAGE.read_text().partition("```hex\n")[2].partition("```")[0])


def test_example_stands_at_the_start_of_a_fixture() -> None:
    assert log_bytes("halted").startswith(example())


def test_example_decodes_to_what_the_page_says() -> None:
    data = memoryview(example())
    assert decode_header(data).number == 1
    # The example ends before the group does; a file would go on.
    checksum = read_envelope(data, HEADER_SIZE)
    assert checksum is not None
    assert decode_body(data[checksum.body :][: checksum.length]).fields["dataLength"] == 157
    begin = read_envelope(data, checksum.end)
    assert begin is not None
    body = decode_body(data[begin.body :][: begin.length])
    assert (begin.position, begin.length, body.transaction) == (61, 20, 1)
    assert body.group == Group.FIRST | Group.RAWSTORE
    assert body.fields == {"transactionStatus": 0, "xactId": None}
    assert body.optional == b""


def test_page_lists_every_operation() -> None:
    text = PAGE.read_text()
    listed = {
        int(number)
        for line in text.splitlines()
        if line.startswith("| ")
        for number in line.split("|")[1].replace(",", " ").split()
        if number.isdigit()
    }
    assert set(operations.OPERATIONS) <= listed
