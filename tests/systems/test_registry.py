"""`registry`: the order in which systems are asked for their logs."""

from __future__ import annotations

from pathlib import Path

from tallystick.reading.discovery import discover
from tallystick.storage.local import LOCAL
from tallystick.systems.jboss.format.layout import SHAPES, Item, RecordType, decode_header, encode
from tallystick.systems.jboss.read.detect import looks_like_journal
from tests.systems.live_logs import Derby


def test_a_derby_log_whose_bytes_pass_for_a_record_of_another_system_is_derby(
    tmp_path: Path,
) -> None:
    """The bytes of one in fifty log files of Derby happen to look like a JBoss record of 2008."""
    log = Derby(LOCAL, str(tmp_path))
    log.put(1)
    log.close()
    file = tmp_path / "log1.dat"
    data = bytearray(file.read_bytes())
    stamp = decode_header(SHAPES["g2"], bytes(data)).stamp
    record = encode(SHAPES["g2"], Item(0, 0, RecordType.ROLLBACK, stamp, transaction=20))
    data[2048 : 2048 + len(record)] = record
    file.write_bytes(data)
    assert looks_like_journal(bytes(data[:4096]))
    (found,) = discover(tmp_path).logs
    assert (found.system, len(found.files)) == ("derby", 3)
