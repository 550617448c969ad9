"""Processes that share a log, and what must be true of the log afterwards."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tallystick import Journal
from tallystick.errors import CorruptLogError
from tallystick.storage.crc import crc32
from tallystick.storage.shared import epochs
from tallystick.systems.tally.format.headers import decode_control, decode_segment_header
from tallystick.systems.tally.format.layout import (
    CONTROL_NAME,
    COPY_OFFSET,
    HEADER_SIZE,
    SECTOR_SIZE,
    decode_group_header,
)

PATIENCE_S = 60.0
"""Most time that a test waits for anything."""


class Worker:
    """A process of `worker`, with the file of what was acknowledged to it."""

    def __init__(self, folder: Path, number: int, *arguments: int) -> None:
        self.notes = folder / f"notes-{number}"
        program = str(Path(__file__).with_name("worker.py"))
        self.process = subprocess.Popen(
            [sys.executable, program, str(folder / "log"), str(self.notes), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        """Process id."""
        return self.process.pid

    def ready(self) -> None:
        """Wait until it has opened the log."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def tell(self, line: str) -> None:
        """Write a line to its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """Kill it."""
        self.process.kill()
        self._reap()

    def end(self) -> None:
        """Wait until it has closed the log."""
        with contextlib.suppress(BrokenPipeError):
            self.tell("quit")
        assert self.process.wait(PATIENCE_S) == 0
        self._reap()

    def _reap(self) -> None:
        self.process.wait(PATIENCE_S)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def acknowledged(self) -> dict[bytes, int]:
        """Return the LSN of each record that was acknowledged."""
        lines = self.notes.read_bytes().splitlines() if self.notes.exists() else []
        assert not [line for line in lines if line.startswith(b"error")], lines
        return {line.split()[1]: int(line.split()[0]) for line in lines}


@contextlib.contextmanager
def workers(folder: Path) -> Iterator[Callable[..., Worker]]:
    """Give a function that starts workers; at the end those that still run are killed."""
    started: list[Worker] = []

    def start(*arguments: int) -> Worker:
        started.append(Worker(folder, len(started), *arguments))
        return started[-1]

    try:
        yield start
    finally:
        for one in started:
            if one.process.poll() is None:
                one.process.send_signal(signal.SIGCONT)
                one.kill()


def leader_of(log: Path) -> int | None:
    """Return the process that leads; None while nobody does."""
    there = epochs.numbers(str(log)) if log.is_dir() else []
    epoch = epochs.open_epoch(str(log), there[-1]) if there else None
    if epoch is None:
        return None
    with contextlib.closing(epoch):
        return epoch.pid if epoch.is_current() and epoch.is_led() else None


def wait_for(what: Callable[[], object]) -> None:
    """Wait until something is true."""
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.01)


def is_stopped(pid: int) -> bool:
    """Return True if a process is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def check(log: Path, acknowledged: dict[bytes, int]) -> int:
    """Check that everything acknowledged is in the log, and nothing twice; return the records."""
    try:
        journal = Journal(log)
    except CorruptLogError as error:
        error.add_note(_what_stands_in(log, Path(error.file or "")))
        raise
    with journal:
        found: dict[bytes, int] = {}
        for record in journal.replay():
            body = (record.body or b"").rstrip(b"\0")
            assert body not in found, f"{body!r} was written twice"
            assert record.sequence is not None
            found[body] = record.sequence
    lost = {body for body, lsn in acknowledged.items() if found.get(body) != lsn}
    assert not lost, f"{len(lost)} acknowledged records are not where they should be: {lost}"
    assert not [name for name in [path.name for path in log.iterdir()] if name.endswith(".new")]
    return len(found)


def _what_stands_in(log: Path, damaged: Path) -> str:
    """Return what tells who wrote what: the heads of all files, the sectors of the damaged one."""
    block = (log / CONTROL_NAME).read_bytes()
    lines = [str(decode_control(block, place)) for place in (0, COPY_OFFSET)]
    for path in sorted(log.iterdir()):
        head = decode_segment_header(path.read_bytes()[:COPY_OFFSET]) if path.is_file() else None
        lines.append(f"{path.name}: {head}")
    data = damaged.read_bytes() if damaged.is_file() else b""
    for start in range(0, len(data), SECTOR_SIZE):
        if not any(data[start : start + SECTOR_SIZE]):
            continue
        lines.append(f"{start}: {data[start : start + 24].hex()}")
        header = decode_group_header(data, start)
        if header is not None:
            content = data[start + HEADER_SIZE : header.end - HEADER_SIZE]
            twin = decode_group_header(data, header.end - HEADER_SIZE)
            lines.append(f"  {header}, twin {twin == header}, checksum {crc32(content)}")
    return "\n".join(lines)
