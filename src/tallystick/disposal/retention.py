"""Disposers around disposers: hold files back for a reader, do several things in turn.

In: a redundant log file, and another disposer. Out: the other one is called, now or later.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tallystick.disposal.worker import HoldingDisposer, LogDisposer, Postponed
from tallystick.storage.local import LOCAL

Committed = Callable[[], str | None]
"""The name of the newest log file that a reader is through with; None if there is none."""


def agreed_by(disposer: LogDisposer, path: str) -> bool:
    """True unless the disposer holds the file for a reader."""
    return not isinstance(disposer, HoldingDisposer) or disposer.agrees(path)


@dataclass(frozen=True, slots=True)
class KeepForReader:
    """Holds files back until the reader ``committed`` speaks for is through with them.

    Names of log files sort in the order of the log, so a file may go when its name is not above
    the committed one. Then ``disposer`` gets it.
    """

    committed: Committed
    disposer: LogDisposer

    def agrees(self, path: str) -> bool:
        """True once the reader is through with the file."""
        return self._waiting(path) is None and agreed_by(self.disposer, path)

    def dispose(self, path: str) -> None:
        if waiting := self._waiting(path):
            raise Postponed(waiting)
        self.disposer.dispose(path)

    def _waiting(self, path: str) -> str | None:
        done = self.committed()
        name = posixpath.basename(path)
        if done is None or name > done:
            return f"{name} waits for its reader, who is through with {done}"
        return None


@dataclass(frozen=True, slots=True)
class ReaderOffset:
    """The committed offset of a named reader in a file, for `KeepForReader`.

    The reader calls `commit` with the name of the newest log file that it is through with.
    """

    folder: str
    reader: str

    @property
    def path(self) -> Path:
        """Where the offset is kept."""
        return Path(self.folder) / f"{self.reader}.offset"

    def commit(self, name: str) -> None:
        """Move on, durably; never back."""
        if (before := self()) is not None and name <= before:
            return
        folder = Path(self.folder)
        folder.mkdir(parents=True, exist_ok=True)
        fresh = str(self.path.with_suffix(".new"))
        if LOCAL.exists(fresh):
            LOCAL.remove(fresh)
        file = LOCAL.create(fresh)
        try:
            file.pwrite(json.dumps({"file": name}).encode(), 0)
            file.datasync()
        finally:
            file.close()
        LOCAL.rename(fresh, str(self.path))
        LOCAL.sync_dir(self.folder)

    def __call__(self) -> str | None:
        """The committed name; None if nothing is committed yet."""
        try:
            text = self.path.read_text("utf-8")
        except FileNotFoundError:
            return None
        name = json.loads(text)["file"]
        return str(name)


@dataclass(frozen=True, slots=True)
class Chain:
    """Calls several disposers with the file, the last of which takes it away.

    After a failure all are called again, so each has to bear that, as a disposer has anyhow.
    """

    steps: Sequence[LogDisposer]

    def agrees(self, path: str) -> bool:
        """True once every step agrees."""
        return all(agreed_by(step, path) for step in self.steps)

    def dispose(self, path: str) -> None:
        for step in self.steps:
            step.dispose(path)


@dataclass(frozen=True, slots=True)
class Copying:
    """Turns a disposer that takes files away into a step of a `Chain` that leaves them.

    It gets a hard link in a folder beside the log, and takes that away.
    """

    disposer: LogDisposer

    def agrees(self, path: str) -> bool:
        """True once the disposer agrees."""
        return agreed_by(self.disposer, path)

    def dispose(self, path: str) -> None:
        folder = Path(path).parent / ".disposal"
        folder.mkdir(exist_ok=True)
        link = folder / posixpath.basename(path)
        if not link.exists():
            link.hardlink_to(path)
        self.disposer.dispose(str(link))
