"""Derby logs: a generator by our own writer, and how fast they are read, every checksum verified.

``python benchmarks/derby_scan.py [--mib 128] [--group ROWS]`` writes a log of that size to a
temporary folder and prints rates: the vectorised batches, the record objects, the bare CRC.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import zlib
from collections.abc import Callable
from itertools import count
from pathlib import Path

from tallystick.reading.discovery import discover
from tallystick.storage.crc import crc32
from tallystick.systems.derby import SYSTEM
from tallystick.systems.derby.format.compressed_numbers import (
    compressed_int,
    compressed_long,
    format_id,
)
from tallystick.systems.derby.format.layout import (
    END_MARKER,
    HEADER_SIZE,
    LOG_RECORD_FIXED_OVERHEAD_SIZE,
    Control,
    Group,
    encode_control,
    encode_header,
    make_instant,
)
from tallystick.systems.derby.format.operations import encode_begin, encode_end
from tallystick.systems.derby.format.record_body import encode_body
from tallystick.systems.derby.live.access_file import LogAccessFile
from tallystick.systems.protocol import ReadOptions


class _Memory:
    """A file that keeps what is written one after the other."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def pwrite(self, data: bytes | memoryview, offset: int) -> None:
        del offset
        self.pieces.append(bytes(data))

    def datasync(self) -> None: ...

    def close(self) -> None: ...


def generate(folder: Path, mib: int, rows: int, flush_each: bool) -> int:
    """A log of ``mib`` files of 1 MiB, as the engine makes them: transactions of ``rows`` inserts
    of 100 bytes.

    Groups are full buffers, or with ``flush_each`` one transaction each. Returns its records.
    """
    folder.mkdir(parents=True)
    image = b"\0\6\1\x20\0\x60" + bytes(range(96))
    numbers = count(1)
    previous = records = 0
    for file in range(1, mib + 1):
        memory = _Memory()
        writer = LogAccessFile(memory, HEADER_SIZE)
        end = HEADER_SIZE
        while end < 1 << 20:
            for body in _transaction(next(numbers), rows, image):
                end += writer.reserve_space_for_checksum(len(body), file, end)
                writer.write_log_record(len(body), make_instant(file, end), body)
                end += len(body) + LOG_RECORD_FIXED_OVERHEAD_SIZE
                records += 1
            if flush_each:
                writer.flush_log_access_file()
        writer.flush_log_access_file()
        if file < mib:
            writer.write_end_marker(END_MARKER)
        writer.close()
        content = encode_header(file, previous) + b"".join(memory.pieces)
        (folder / f"log{file}.dat").write_bytes(content)
        previous = make_instant(file, end)
    for name in ("log.ctrl", "logmirror.ctrl"):
        (folder / name).write_bytes(encode_control(Control(0)))
    return records


def _transaction(number: int, rows: int, image: bytes) -> list[bytes]:
    page = b"".join(map(compressed_long, (0, 1168, 1 + number // 100, number)))
    insert = format_id(103) + page + compressed_int(6) + b"\0\0" + compressed_int(0) + b"\1"
    raw = Group.RAWSTORE
    begin = encode_body(raw | Group.FIRST, number, encode_begin(0, None))
    middle = encode_body(raw | Group.XA_NEEDLOCK, number, insert, image)
    finish = encode_body(raw | Group.LAST | Group.COMMIT, number, encode_end(4, None))
    return [begin, *[middle] * rows, finish]


def _best(work: Callable[[], int], times: int = 3) -> tuple[float, int]:
    best, result = float("inf"), 0
    for _ in range(times):
        start = time.perf_counter()
        result = work()
        best = min(best, time.perf_counter() - start)
    return best, result


def _measure(folder: Path, mib: int) -> None:
    (source,) = discover(folder, known=[SYSTEM]).logs
    data = b"".join(Path(file).read_bytes() for file in source.files if file.endswith(".dat"))
    size = len(data)

    def batches() -> int:
        reading = SYSTEM.read(source, ReadOptions())
        return sum(batch.num_rows for batch in reading.batches())

    batches()  # compile
    for name, work in (
        ("crc of the file, isal", lambda: crc32(data)),
        ("crc of the file, zlib", lambda: zlib.crc32(data)),
        ("batches, checksums verified", batches),
    ):
        seconds, result = _best(work)
        shown = f", {result:,} rows" if name.startswith("batches") else ""
        print(f"  {name:30} {size / seconds / 1e9:6.2f} GB/s  ({seconds * 1e3:.0f} ms{shown})")
    if mib <= 16:
        reading = SYSTEM.read(source, ReadOptions())
        seconds, rows = _best(lambda: sum(1 for _ in reading.records()), 1)
        rate = size / seconds / 1e6
        print(f"  {'record objects':30} {rate:6.1f} MB/s  ({rows:,} records)")


def main() -> None:
    """Generate and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=128)
    parser.add_argument("--rows", type=int, default=20, help="inserts per transaction")
    options = parser.parse_args()
    for flush_each in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / "log"
            records = generate(place, options.mib, options.rows, flush_each)
            groups = "one transaction each" if flush_each else "full buffers"
            print(f"{options.mib} MiB, {records:,} records, groups: {groups}")
            _measure(place, options.mib)


if __name__ == "__main__":
    main()
