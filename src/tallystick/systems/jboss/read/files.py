"""The files of one journal: their names after a compaction was carried out, headers and bytes.

In: a `LogSource`. Out: `JournalFiles`: the data files that a load reads, and the others.
Bytes are read when they are asked for; a few files are kept at hand.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from tallystick.storage.source import ByteSource, logical_name, open_source, read_head
from tallystick.systems.jboss.format.compaction_control import Control, decode_control, plan
from tallystick.systems.jboss.format.file_names import extension_of
from tallystick.systems.jboss.format.layout import CONTROL_FILE, FileHeader, Shape, decode_header
from tallystick.systems.jboss.read.generations import Generation, Sample, shape_of_file, tell
from tallystick.systems.protocol import LogSource, Split

HEAD_SIZE = 64
KEPT_OPEN = 4


class Sources:
    """Bytes of files by path, as ``opener`` gives them; the last `KEPT_OPEN` stay at hand."""

    def __init__(self, opener: Callable[[str], ByteSource] | None = None) -> None:
        self._opener = opener or open_source
        self._heads_alone = opener is None
        self._open: OrderedDict[str, ByteSource] = OrderedDict()

    def head(self, path: str) -> bytes:
        """The first `HEAD_SIZE` bytes of a file. Raises `LogUnreadableError`."""
        if self._heads_alone:
            return read_head(path, HEAD_SIZE)
        return bytes(self.data(path)[:HEAD_SIZE])

    def data(self, path: str) -> memoryview:
        """All bytes of a file. Raises `LogUnreadableError`."""
        if path not in self._open:
            # Not closed but dropped: records of the file may still be held by a caller.
            while len(self._open) >= KEPT_OPEN:
                self._open.popitem(last=False)
            self._open[path] = self._opener(path)
        self._open.move_to_end(path)
        return self._open[path].data


@dataclass(slots=True)
class JournalFile:
    """One data file. ``name`` is the one it has after a pending compaction was carried out.

    ``header`` is None where the file is shorter than one.
    """

    path: str
    name: str
    head: bytes
    sources: Sources = field(repr=False)
    header: FileHeader | None = None

    def data(self) -> memoryview:
        return self.sources.data(self.path)

    def length(self) -> int:
        return len(self.data())

    @property
    def size(self) -> int:
        return len(self.data())

    @property
    def stamp(self) -> int:
        """The file id as its records carry it; 0 without a header."""
        return self.header.stamp if self.header else 0

    def file_id(self) -> int:
        return self.header.file_id if self.header else 0


@dataclass(slots=True)
class JournalFiles:
    """All files of one journal. ``files`` are the data files in order of names, ``aside`` the
    paths that a load would delete, rename or carry out, with what they are."""

    generation: Generation
    files: list[JournalFile]
    aside: dict[str, str]
    control: Control | None
    sources: Sources

    def choose(self, generation: Generation) -> None:
        """Read the files as those of this generation."""
        self.generation = generation
        for file in self.files:
            shape = self.shape(file)
            whole = len(file.head) >= shape.header_size
            file.header = decode_header(shape, file.head) if whole else None

    def shape(self, file: JournalFile) -> Shape:
        """The shape by which the loader reads this file."""
        return shape_of_file(self.generation, file.head)

    def ordered(self) -> list[JournalFile]:
        """The files with a header, by ascending file id."""
        return sorted((file for file in self.files if file.header), key=JournalFile.file_id)

    def splits(self, target_bytes: int) -> list[Split]:
        """Parts of the data files of about ``target_bytes``."""
        parts = []
        for file in self.ordered():
            size = file.size
            pieces = max(1, round(size / max(1, target_bytes)))
            edges = [size * index // pieces for index in range(pieces + 1)]
            parts += [Split(file.path, *edge) for edge in pairwise(edges)]
        return parts


def open_files(source: LogSource, sources: Sources | None = None) -> JournalFiles:
    """The files of a journal with its generation. Raises `LogUnreadableError`."""
    sources = sources or Sources()
    paths = {logical_name(path): path for path in source.files}
    extension = next((e for name in paths if (e := extension_of(name))), "")
    control = _control(paths, sources)
    names = plan(paths, control, extension)
    files = [
        JournalFile(paths[stored], name, sources.head(paths[stored]), sources)
        for stored, name in sorted(names.items(), key=lambda pair: pair[1])
    ]
    aside = {path: _role(name, control) for name, path in paths.items() if name not in names}
    generation = tell([Sample(f.name, f.head, f.length, f.data) for f in files])
    journal = JournalFiles(generation, files, aside, control, sources)
    journal.choose(generation)
    return journal


def _control(paths: dict[str, str], sources: Sources) -> Control | None:
    path = paths.get(CONTROL_FILE)
    return None if path is None else decode_control(sources.data(path))


def _role(name: str, control: Control | None) -> str:
    if name == CONTROL_FILE:
        return "compaction control file"
    if control is not None and name in control.old:
        return "file that was compacted away"
    return "leftover of an unfinished compaction or creation"


def most_common(values: Iterable[int]) -> int | None:
    """The value that occurs most often; of several, one divisible by 512, then the largest."""
    counts = Counter(values)
    return max(counts, key=lambda v: (counts[v], v % 512 == 0, v)) if counts else None
