"""What tests of disposal share: a log with files, and a disposal that is quick."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tallystick.disposal.worker import Disposal, LogDisposer

CONTENT = bytes(range(256)) * 1000


class Log:
    """A log whose files may all go."""

    def __init__(self, folder: Path, count: int) -> None:
        self.paths = [str(folder / f"log-{number}") for number in range(count)]
        for path in self.paths:
            Path(path).write_bytes(CONTENT)
        self.gone: list[str] = []

    def disposable(self) -> Sequence[str]:
        return [path for path in self.paths if path not in self.gone]

    def disposed(self, path: str) -> None:
        self.gone.append(path)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def run(log: Log, disposer: LogDisposer) -> Disposal:
    return Disposal(log, disposer, retry_seconds=0.005, poll_seconds=0.005)


def check_copies(disposer: LogDisposer, file: Path) -> None:
    """Check that it accepts an identical copy that is there already, and refuses another file."""
    file.write_bytes(CONTENT)
    disposer.dispose(str(file))
    assert not file.exists()
    file.write_bytes(b"other")
    with pytest.raises(FileExistsError):
        disposer.dispose(str(file))
    assert file.read_bytes() == b"other"
