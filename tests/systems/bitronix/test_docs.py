"""The example of the format page is a real record."""

from __future__ import annotations

import re
from pathlib import Path

from tallystick.systems.bitronix.format.layout import COMMITTING, split_gtrid
from tallystick.systems.bitronix.format.record import decode_record

PAGE = Path(__file__).parents[3] / "docs" / "formats" / "bitronix.md"
HEX_BYTE = re.compile(r"[0-9a-f]{2}")


def _example() -> bytes:
    (block,) = re.findall(r"```hex\n(.*?)```", PAGE.read_text(), re.DOTALL)
    columns = (line[:50] for line in block.splitlines())
    return bytes.fromhex("".join(HEX_BYTE.findall(" ".join(columns))))


def test_the_example_decodes_and_encodes() -> None:
    record = decode_record(_example(), 0, len(_example()))
    assert record is not None
    assert record.encode() == _example()
    assert (record.status, record.record_length, record.sequence_number) == (COMMITTING, 75, 4)
    assert record.unique_names == ("jdbc/orders", "jms/queue")
    assert split_gtrid(record.gtrid).server_id == "btm-test-1"
    assert record.size == len(_example()) == 83
