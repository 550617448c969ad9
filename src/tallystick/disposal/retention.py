"""Disposers that call other disposers: wait for a reader, do several things in turn.

In: a redundant log file, and another disposer. Out: the other one is called, now or later.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tallystick.callables import require_plain, require_value
from tallystick.disposal.worker import (
    HoldingDisposer,
    LogDisposer,
    Postponed,
    dispose_of,
    places_of,
    require_disposer,
)
from tallystick.errors import CorruptLogError
from tallystick.storage.files import absolute, write_whole
from tallystick.storage.local import LOCAL

Committed = Callable[[], str | None]
"""Returns the name of the newest log file that a reader has finished with; None if none."""


def agreed_by(disposer: LogDisposer, path: str) -> bool:
    """Return True unless the disposer keeps the file for a reader."""
    return not isinstance(disposer, HoldingDisposer) or require_value(
        disposer.agrees(path), "agrees of a disposer"
    )


@dataclass(frozen=True, slots=True)
class KeepForReader:
    """Keeps files until a reader has finished with them, then calls ``disposer``.

    Names of log files sort in the order of the log, so a file may go once its name is not above the
    one that ``committed`` returns.
    """

    committed: Committed
    disposer: LogDisposer

    def __post_init__(self) -> None:
        require_plain(self.committed, "committed of KeepForReader")
        require_disposer(self.disposer)

    def agrees(self, path: str) -> bool:
        """Return True once the reader has finished with the file."""
        return self._waiting(path) is None and agreed_by(self.disposer, path)

    def places(self) -> Sequence[str]:
        """Return the local folders into which files are put."""
        return places_of(self.disposer)

    def dispose(self, path: str) -> None:
        """Dispose of the file; see `dispose_as`."""
        self.dispose_as(path, posixpath.basename(path))

    def dispose_as(self, path: str, name: str) -> None:
        """Dispose of the file, under another name if the disposer gives names.

        Raises:
            Postponed: The reader has not finished with it.
        """
        if waiting := self._waiting(path):
            raise Postponed(waiting)
        dispose_of(self.disposer, path, name)

    def _waiting(self, path: str) -> str | None:
        done = require_value(self.committed(), "committed of KeepForReader")
        name = posixpath.basename(path)
        if done is None or name > done:
            return f"{name} waits for its reader, who is through with {done}"
        return None


@dataclass(frozen=True, slots=True)
class ReaderOffset:
    """The committed offset of a named reader in a file, for `KeepForReader`.

    The reader calls `commit` with the name of the newest log file that it has finished with.
    """

    folder: str
    reader: str

    def __post_init__(self) -> None:
        """Make the folder absolute: the working directory may change."""
        object.__setattr__(self, "folder", absolute(self.folder))

    @property
    def path(self) -> Path:
        """Return the path of the file that keeps the offset."""
        return Path(self.folder) / f"{self.reader}.offset"

    def commit(self, name: str) -> None:
        """Move the offset to a file's name, durably; never backwards."""
        if (before := self()) is not None and name <= before:
            return
        LOCAL.mkdir(self.folder)
        write_whole(LOCAL, str(self.path), [json.dumps({"file": name}).encode()])

    def __call__(self) -> str | None:
        """Return the committed name; None if nothing is committed yet.

        Raises:
            CorruptLogError: the file holds something else.
        """
        try:
            text = self.path.read_text("utf-8", "replace")
        except FileNotFoundError:
            return None
        try:
            return str(json.loads(text)["file"])
        except (ValueError, LookupError, TypeError) as error:
            raise CorruptLogError(
                "the offset of a reader cannot be read, so no file that it may need is disposed of",
                file=str(self.path),
                advice="Remove the file: the reader commits its offset again, or write to it the "
                'newest file that it has finished with, {"file": "NAME"}',
            ) from error


@dataclass(frozen=True, slots=True)
class Chain:
    """Calls several disposers with the file, the last of which takes it away.

    After a failure all are called again; a disposer must bear that anyway.
    """

    steps: Sequence[LogDisposer]

    def __post_init__(self) -> None:
        for step in self.steps:
            require_disposer(step)

    def agrees(self, path: str) -> bool:
        """Return True once every step agrees."""
        return all(agreed_by(step, path) for step in self.steps)

    def places(self) -> Sequence[str]:
        """Return the local folders into which files are put."""
        return places_of(*self.steps)

    def dispose(self, path: str) -> None:
        """Call every step in turn."""
        self.dispose_as(path, posixpath.basename(path))

    def dispose_as(self, path: str, name: str) -> None:
        """Call every step in turn; steps that name a file give it this name."""
        for step in self.steps:
            dispose_of(step, path, name)


@dataclass(frozen=True, slots=True)
class Copying:
    """Turns a disposer that takes files away into a step of a `Chain` that leaves them.

    It takes away a hard link instead, in a folder next to the log's files.
    """

    disposer: LogDisposer

    def __post_init__(self) -> None:
        require_disposer(self.disposer)

    def agrees(self, path: str) -> bool:
        """Return True once the disposer agrees."""
        return agreed_by(self.disposer, path)

    def places(self) -> Sequence[str]:
        """Return the local folders into which files are put."""
        return places_of(self.disposer)

    def dispose(self, path: str) -> None:
        """Make the link and dispose of it."""
        self.dispose_as(path, posixpath.basename(path))

    def dispose_as(self, path: str, name: str) -> None:
        """Make the link and dispose of it, under another name if the disposer gives names."""
        folder = Path(path).parent / ".disposal"
        LOCAL.mkdir(str(folder))
        link = folder / posixpath.basename(path)
        if not link.exists():
            link.hardlink_to(path)
        dispose_of(self.disposer, str(link), name)
