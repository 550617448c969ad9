"""The files of a folder, and what they are read with.

In: paths. Out: each file's name and first bytes, by which a log is recognised; the files that make
up one log, and the options of a reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tallystick.arguments import time_zone
from tallystick.errors import LogUnreadableError
from tallystick.storage.source import ByteSource, logical_name, open_source, read_head

HEAD_SIZE = 4096


class LogSealedError(LogUnreadableError):
    """A log is encrypted, and its key was not given, or is another one: nobody knows what it has.

    Its files are listed and judged all the same.
    """


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of a folder, for recognition by content.

    Attributes:
        path: the file.
        stored_size: bytes on disk (packed).
    """

    path: str
    stored_size: int
    _heads: dict[str, bytes] = field(default_factory=dict, repr=False, compare=False)

    @property
    def name(self) -> str:
        """The file name without the suffix of a packed file."""
        return logical_name(self.path)

    @property
    def packed(self) -> bool:
        """True if the file is packed."""
        return not self.path.endswith(self.name)

    @property
    def head(self) -> bytes:
        """The first `HEAD_SIZE` unpacked bytes.

        Raises:
            LogUnreadableError: the file cannot be read.
        """
        if "head" not in self._heads:
            self._heads["head"] = read_head(self.path, HEAD_SIZE)
        return self._heads["head"]

    def open(self) -> ByteSource:
        """Open all of its bytes.

        Raises:
            LogUnreadableError: the file cannot be read.
        """
        return open_source(self.path)


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder's path and its readable files, in order of names."""

    path: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class LogSource:
    """One log: its system, the folder that holds it and its files, in order of names.

    ``name`` distinguishes several logs in one folder (a prefix, a file name; a system) and is empty
    where the folder holds only one. ``database`` is the folder whose settings name that of the log;
    empty where the layout of its system tells what the log belongs to. ``followable`` is false of a
    log whose files come and go, though its system's other logs are (`System.followable`).
    """

    system: str
    path: str
    files: tuple[str, ...]
    name: str = ""
    database: str = ""
    followable: bool = True


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a reader may need to know that is not in the bytes.

    Attributes:
        timezone: zone of the process that wrote H2's DATE, TIME and TIMESTAMP values.
        boot_password: the boot password of Derby, the file password of H2.
        encryption_key: the native log's secret, as raw bytes.
        settings: names that a single system documents (`System.settings`).
        log_only: judge the log alone, not what a restart opens besides it.
        skip_lost: of changes between two places, leave out what is gone or damaged, as a reading
            of all changes does. Otherwise that is an error.
    """

    timezone: str = "UTC"
    boot_password: str | None = field(default=None, repr=False)
    encryption_key: bytes | None = field(default=None, repr=False)
    settings: Mapping[str, str] = field(default_factory=dict)
    log_only: bool = False
    skip_lost: bool = False

    def __post_init__(self) -> None:
        """Check the zone, whether or not a log here needs it.

        Raises:
            UnsupportedFormatError: the zone is not known.
        """
        time_zone(self.timezone)


def readable_entries(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yield the entries whose first bytes can be read; other code reports the others."""
    for entry in entries:
        try:
            entry.head  # noqa: B018 - reading it is the test
        except LogUnreadableError:
            continue
        yield entry


def group_by(entries: Iterable[Entry], key: Callable[[Entry], str]) -> dict[str, list[Entry]]:
    """Return entries by key, keys and entries in order of first appearance."""
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(key(entry), []).append(entry)
    return groups
