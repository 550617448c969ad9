"""Open the files of one journal: their names after a pending compaction, headers and bytes.

In: a `LogSource`. Out: `JournalFiles`: the data files that a load reads, and the others.
Bytes are read on demand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tallystick.storage.recent import RecentSources
from tallystick.storage.source import (
    ByteSource,
    logical_name,
    open_source,
    read_head,
    source_size,
)
from tallystick.systems.jboss.format.compaction_control import (
    Control,
    decode_orders,
    plan,
)
from tallystick.systems.jboss.format.file_names import extension_of
from tallystick.systems.jboss.format.layout import (
    ADD,
    CONTROL_FILE,
    SHAPES,
    FileHeader,
    Shape,
    decode,
    decode_header,
)
from tallystick.systems.jboss.read.generations import Generation, identify, shape_of_file
from tallystick.systems.jboss.read.scan import VALID, scan
from tallystick.systems.protocol import LogSource

HEAD_SIZE = 64
TAIL_SIZE = 16


class Sources:
    """Bytes of files by path, as ``opener`` gives them; those read last are held."""

    def __init__(self, opener: Callable[[str], ByteSource] | None = None) -> None:
        self._reads_heads = opener is None
        self._recent = RecentSources(opener or open_source)
        self._sizes: dict[str, int] = {}
        self._tails: dict[str, bytes] = {}

    def head(self, path: str) -> bytes:
        """Return the first `HEAD_SIZE` bytes of a file. Raises `LogUnreadableError`."""
        if self._reads_heads:
            return read_head(path, HEAD_SIZE)
        return bytes(self.data(path)[:HEAD_SIZE])

    def data(self, path: str) -> memoryview:
        """Return all bytes of a file. Raises `LogUnreadableError`."""
        data = self._recent.data(path)
        self._sizes[path], self._tails[path] = len(data), bytes(data[-TAIL_SIZE:])
        return data

    def size(self, path: str) -> int:
        """Return the size of a file. Raises `LogUnreadableError`."""
        if path not in self._sizes:
            size = source_size(path) if self._reads_heads else len(self.data(path))
            self._sizes[path] = size
        return self._sizes[path]

    def tail(self, path: str) -> bytes:
        """Return the last `TAIL_SIZE` bytes of a file. Raises `LogUnreadableError`."""
        if path not in self._tails:
            self.data(path)
        return self._tails[path]


@dataclass(slots=True)
class JournalFile:
    """One data file.

    Attributes:
        path: where it is stored.
        name: its name after a pending compaction is carried out.
        head: its first bytes.
        sources: the bytes of all files.
        header: its header; None where the file is shorter than one.
    """

    path: str
    name: str
    head: bytes
    sources: Sources = field(repr=False)
    header: FileHeader | None = None

    def data(self) -> memoryview:
        """Return all of its bytes. Raises `LogUnreadableError`."""
        return self.sources.data(self.path)

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return self.sources.size(self.path)

    @property
    def tail(self) -> bytes:
        """Its last bytes."""
        return self.sources.tail(self.path)

    @property
    def stamp(self) -> int:
        """The file id as its records carry it; 0 without a header."""
        return self.header.stamp if self.header else 0

    @property
    def file_id(self) -> int:
        """The id in its header; 0 without a header."""
        return self.header.file_id if self.header else 0


@dataclass(slots=True)
class JournalFiles:
    """All files of one journal.

    Attributes:
        generation: the code that wrote it.
        files: the data files in order of names.
        leftovers: path -> role of the files that a load would delete, rename or carry out.
        control: the orders of a pending compaction.
        sources: the bytes of all files.
    """

    generation: Generation
    files: list[JournalFile]
    leftovers: dict[str, str]
    control: Control | None
    sources: Sources

    def choose(self, generation: Generation) -> None:
        """Decode the headers as those of this generation."""
        self.generation = generation
        for file in self.files:
            shape = self.shape(file)
            whole = len(file.head) >= shape.header_size
            file.header = decode_header(shape, file.head) if whole else None

    def shape(self, file: JournalFile) -> Shape:
        """Return the shape by which the loader reads this file."""
        return shape_of_file(self.generation, file.head)

    def ordered(self) -> list[JournalFile]:
        """Return the files with a header, by ascending file id."""
        return sorted((file for file in self.files if file.header), key=lambda file: file.file_id)


def open_files(source: LogSource, sources: Sources | None = None) -> JournalFiles:
    """Return the files of a journal with its generation. Raises `LogUnreadableError`."""
    sources = sources or Sources()
    paths = {logical_name(path): path for path in source.files}
    extension = next((e for name in paths if (e := extension_of(name))), "")
    control = _control(paths, sources)
    names = plan(paths, control, extension)
    files = [
        JournalFile(paths[stored], name, sources.head(paths[stored]), sources)
        for stored, name in sorted(names.items(), key=lambda pair: pair[1])
    ]
    leftovers = {path: _role(name, control) for name, path in paths.items() if name not in names}
    generation = identify(files)
    journal = JournalFiles(generation, files, leftovers, control, sources)
    journal.choose(generation)
    return journal


def decode_control(data: memoryview) -> Control | None:
    """Return the orders of a control file; None if it holds no whole record: it is ignored."""
    # Its generation is not known yet: data files tell it, and which are data files is ordered here.
    for shape in (SHAPES["g3"], SHAPES["hash"], SHAPES["g2"], SHAPES["g1d"]):
        if len(data) < shape.header_size:
            continue
        stamp = decode_header(shape, data).stamp
        for row in scan(data, shape, stamp):
            if row.status == VALID and data[row.offset] == ADD:
                body = decode(shape, data, row.offset, row.size).body or b""
                return decode_orders(memoryview(body))
    return None


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
    """Return the most frequent value; of several, one divisible by 512, then the largest."""
    counts = Counter(values)
    return max(counts, key=lambda v: (counts[v], v % 512 == 0, v)) if counts else None
