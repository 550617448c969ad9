"""The real Bitronix, of the 2.1 and of the 3.0 line, driven from Python.

In: a folder and the name of a line. Out: `Original`, its disk journal in a process of its own,
and what its cursor says about single files.
"""

from __future__ import annotations

import subprocess
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.interop.java import classpath, command, compile_java, run_java, start_java

_LOGGER = "org.slf4j:slf4j-nop:1.6.4"
COORDINATES = {
    "2.1.4": ("org.codehaus.btm:btm:2.1.4", _LOGGER),
    "3.0.0-mk1": (
        "com.github.marcus-nl.btm:btm:3.0.0-mk1",
        "javax.transaction:jta:1.1",  # which 3.0 takes to be provided
        _LOGGER,
    ),
}
"""The jars of each line, by the name of its release."""
OLD, NEW = COORDINATES
on_each_line = pytest.mark.parametrize("line", COORDINATES)
DRIVERS = ("org.postgresql:postgresql:42.7.4", "org.mariadb.jdbc:mariadb-java-client:3.4.1")
SIZE_MB = 1


class Original:
    """One open process with a real journal; each call is one line to it and one back."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def open(self) -> None:
        self._ask("open")

    def log(self, status: int, gtrid: bytes, names: Collection[str]) -> None:
        self._ask(f"log {status} {gtrid.hex().upper() or '-'} {','.join(sorted(names)) or '-'}")

    def force(self) -> None:
        self._ask("force")

    def dangling(self) -> dict[bytes, frozenset[str]]:
        """Open decisions by gtrid, as its own collection finds them."""
        entries = self._ask("dangling").split(";")[:-1]
        pairs = (entry.partition(" ") for entry in entries)
        return {
            bytes.fromhex(gtrid): frozenset(name for name in names.split(",") if name)
            for gtrid, _, names in pairs
        }

    def close(self) -> None:
        self._ask("close")

    def halt(self) -> None:
        """End the process at once; nothing is closed."""
        assert self._process.stdin is not None
        self._process.stdin.write("halt\n")
        self._process.stdin.flush()
        self._process.wait(timeout=20)

    def _ask(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().rstrip("\n")
        assert answer.startswith("ok"), f"{line}: {answer}"
        return answer[3:]


@contextmanager
def original(folder: Path, line: str = OLD, *, skip_corrupted: bool = False) -> Iterator[Original]:
    """The real journal on ``btm1.tlog`` and ``btm2.tlog`` of the folder, not opened yet."""
    files = (folder / "btm1.tlog", folder / "btm2.tlog")
    options = (SIZE_MB, str(skip_corrupted).lower())
    with start_java("RealJournal", *files, *options, classpath=_classes(line)) as process:
        yield Original(process)


def read_records(file: Path, line: str = OLD, *, timeout_s: float = 300) -> tuple[float, int]:
    """Seconds and records of the real cursor over one file."""
    count, nanoseconds = run_java(
        "ReadRecords", file, classpath=_classes(line), timeout_s=timeout_s
    ).split()
    return int(nanoseconds) / 1e9, int(count)


def commit_rate(folder: Path, threads: int, seconds: float, line: str = OLD) -> float:
    """Durable commits per second of the real journal with its defaults."""
    commits, nanoseconds = run_java(
        "CommitLoop", folder, threads, seconds, classpath=_classes(line)
    ).split()
    return int(commits) / int(nanoseconds) * 1e9


def run_manager(
    folder: Path, line: str, server_id: str, mode: str, *sources: tuple[str, str, str]
) -> subprocess.CompletedProcess[str]:
    """The real transaction manager in a process of its own, to its end: over the journal in the
    folder and the data sources, each a unique name, a class and a JDBC URL."""
    arguments = [folder, server_id, mode, *(word for source in sources for word in source)]
    path = f"{_classes(line)}:{classpath(DRIVERS)}"
    return subprocess.run(
        command("RealManager", arguments, path),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def dump_cursor(files: Sequence[Path], line: str) -> dict[Path, list[str]]:
    """What the real cursor says about each file, call by call."""
    with start_java("DumpCursor", classpath=_classes(line)) as process:
        reported, _ = process.communicate("".join(f"{path}\n" for path in files), timeout=120)
    blocks = reported.split("done\n")[:-1]
    return {path: block.splitlines() for path, block in zip(files, blocks, strict=True)}


def _classes(line: str) -> str:
    jars = classpath(COORDINATES[line])
    return f"{compile_java(Path(__file__).parent, jars)}:{jars}"
