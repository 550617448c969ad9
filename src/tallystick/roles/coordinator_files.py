"""The small files beside a decision log, which say whose it is and what it has forgotten.

In: the directory of a coordinator. Out: names of its files, and what its notes say. Nothing is
written here; `tallystick.services.transactions.coordinator_dir` does that.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from tallystick.errors import CorruptLogError
from tallystick.storage.files import FileSystem, read_file
from tallystick.storage.opening import opening_log

NODE_FILE = "node"
LOG_FOLDER = "decisions"
CLOSED_FILE = "closed"
LOST_FILE = "lost-before"

DECIDES, PREPARES = "decides", "prepares"
"""A last resource, whose outcome rows are decisions that no log has; and any other."""

_CHUNK = 1 << 20


class TextsFile(NamedTuple):
    """A small file of texts by the name of a resource.

    Attributes:
        name: of the file.
        texts: what they are, for errors.
        advice: what to do where it is damaged.
        known: all texts that may be in it; None for any.
    """

    name: str
    texts: str
    advice: str
    known: Collection[str] | None = None

    def read(self, fs: FileSystem, folder: str) -> dict[str, str]:
        """Return the texts; none where the file is not there.

        Args:
            fs: the file system.
            folder: the directory of the coordinator.

        Raises:
            CorruptLogError: the file is damaged.
            LogUnreadableError: the disk refuses.
        """
        path = posixpath.join(folder, self.name)
        with opening_log(path):
            if not fs.exists(path):
                return {}
            try:
                found = {str(k): str(v) for k, v in json.loads(read_file(fs, path)).items()}
                if self.known is not None and (others := {*found.values()} - {*self.known}):
                    raise ValueError(f"resources that {others.pop()!r}")
            except (ValueError, AttributeError) as error:
                raise CorruptLogError(
                    f"the {self.texts} cannot be read: {error}", file=path, advice=self.advice
                ) from error
        return found


IDENTITIES = TextsFile(
    "identities.json",
    "identities of the databases",
    "Remove the file once you have checked the addresses of the resources",
)
"""The database that each resource was."""
RESOURCES = TextsFile(
    "resources.json",
    "names of the resources",
    "Remove the file once all resources that there ever were are given",
    (DECIDES, PREPARES),
)
"""What each resource is that a coordinator was ever opened with: `DECIDES` or `PREPARES`."""


def last_resources(known: Mapping[str, str]) -> set[str]:
    """Return those of `RESOURCES` whose own commit decides."""
    return {name for name, what in known.items() if what == DECIDES}


def note_files(path: str) -> tuple[str, str]:
    """Return both files of notes, the newer one first."""
    return path, f"{path}.old"


def noted(fs: FileSystem, path: str, gtrids: Collection[bytes]) -> dict[bytes, str]:
    """Return those of the transactions that were noted, with their texts.

    Args:
        fs: the file system.
        path: the newer file of notes.
        gtrids: the global ids that are looked for.

    Raises:
        LogUnreadableError: the disk refuses.
    """
    wanted = {gtrid.hex().encode(): gtrid for gtrid in gtrids}
    found: dict[bytes, str] = {}
    for file in note_files(path):
        with opening_log(file):
            if wanted and fs.exists(file):
                for line in _lines(fs, file):
                    key, _, text = line.strip().partition(b" ")
                    if key in wanted:
                        found[wanted[key]] = text.decode("ascii", "replace")
    return found


def _lines(fs: FileSystem, path: str) -> Iterator[bytes]:
    file, place, cut = fs.open(path, write=False), 0, b""
    try:
        while chunk := file.pread(_CHUNK, place):
            place += len(chunk)
            *lines, cut = (cut + chunk).split(b"\n")
            yield from lines
        yield cut
    finally:
        file.close()
