"""A part of a plain log, as it is planned: where it begins, and what it needs of the rest.

In: the state of a `Split`. Out: a `Part`, and the stream and the open transactions of it. Offsets
are those of the whole stream; the stream of a part begins with the page of its first record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tallystick.systems.h2.format.catalogue import TableLives, TableName
from tallystick.systems.h2.format.entries import Entry, Type
from tallystick.systems.h2.format.layout import DATA_START
from tallystick.systems.h2.format.page_kernels import count_whole_pages
from tallystick.systems.h2.read.ledger import OpenTransaction
from tallystick.systems.h2.read.stream import DataFault, LogStream, PageFile, TrunkChain
from tallystick.systems.h2.read.walk import Progress
from tallystick.systems.rests import items, longs, packed

if TYPE_CHECKING:
    from tallystick.systems.protocol import Longs

_NO_RECORD = -1


class Opened(NamedTuple):
    """A transaction that is open between two records.

    Attributes:
        session: its session.
        begin: the offset of its first record.
        records, bytes, changes: how many come before.
        prepared_at: how many changes come before its last prepare record; -1 without one.
        last: the offset of its last record that is no change; -1 if there is none.
        code: the type of that record.
        names: those it prepared under.
    """

    session: int
    begin: int
    records: int
    bytes: int
    changes: int
    prepared_at: int
    last: int
    code: int
    names: tuple[str, ...]

    @classmethod
    def built(cls, value: Any) -> Opened:
        """Return what was packed."""
        found = items(value, *[int] * 8, list)
        found[-2:] = Type(found[-2]), tuple(items(found[-1], *[str] * len(found[-1])))
        return cls(*found)

    @classmethod
    def of(cls, session: int, one: OpenTransaction, base: int) -> Opened:
        """Return what a ledger has open; ``base`` is added to its offsets."""
        records, size, changes, prepared_at = (int(each) for each in one.figures[1:5])
        last, code = _NO_RECORD, 0
        if one.last is not None:
            last, code = one.last.start + base, one.last.code
        return cls(
            session, one.begin + base, records, size, changes, prepared_at, last, code,
            tuple(one.names),
        )  # fmt: skip

    def transaction(self, base: int) -> OpenTransaction:
        """Return it for a ledger from whose offsets ``base`` was taken."""
        last = None
        if self.last != _NO_RECORD:
            last = Entry(0, 0, self.code, self.last - base, type=Type(self.code).name)
        figures = np.array([0, *self[2:6], -1, -1], np.int64)
        return OpenTransaction(figures, self.begin - base, list(self.names), last, carried=True)


class Mark(NamedTuple):
    """A place between two records, and what is known there.

    Attributes:
        position: the offset of the next record.
        records, sections: how many come before.
        listed, commits: transactions that ended before, and those of them that are committed.
        filled: the record before is a no-op.
        opened: what is open, in the order of beginnings.
    """

    position: int = 0
    records: int = 0
    sections: int = 0
    listed: int = 0
    commits: int = 0
    filled: int = 0
    opened: tuple[Opened, ...] = ()

    @classmethod
    def built(cls, value: Any) -> Mark:
        """Return what was packed."""
        found = items(value, *[int] * 6, list)
        found[-1] = tuple(map(Opened.built, found[-1]))
        return cls(*found)


class Ending(NamedTuple):
    """What became of a transaction that was open at an edge of a part.

    ``commit`` is the number of its commit, 0 if it is not committed.
    """

    session: int
    begin: int
    commit: int
    gtrid: bytes | None

    @classmethod
    def built(cls, value: Any) -> Ending:
        """Return what was packed."""
        return cls(*items(value, int, int, int, bytes | None))


class Pages(NamedTuple):
    """Data pages that follow each other in a log.

    Attributes:
        size: bytes of a page.
        first: how many data pages of the log come before.
        ids: their numbers.
        keys: the log key of each.
    """

    size: int
    first: int
    ids: Longs
    keys: Longs

    @classmethod
    def built(cls, value: Any) -> Pages:
        """Return what was packed."""
        size, first, ids, keys = items(value, int, int, bytes, bytes)
        return cls(size, first, longs(ids).cumsum(), longs(keys).cumsum())

    def stored(self) -> list[Any]:
        """Return it as it is packed: steps are mostly alike."""
        steps = (np.diff(one, prepend=np.int64(0)) for one in (self.ids, self.keys))
        return [self.size, self.first, *steps]


class End(NamedTuple):
    """How the log ends after its last part, as `LogStream` has it."""

    fault: str
    fault_page: int
    end_key: int
    end_of_file: int

    @classmethod
    def built(cls, value: Any) -> End:
        """Return what was packed."""
        return cls(*items(value, str, int, int, int))


class Part(NamedTuple):
    """What a part needs of the rest of the log.

    Attributes:
        begin: where it begins.
        position: the offset after its last record.
        end: how the log ends; None where another part follows.
        pages: the pages that its records are on.
        endings: of what is open at its end.
        names: the tables of the database, as they are expected to be after recovery.
    """

    begin: Mark
    position: int
    end: End | None
    pages: Pages
    endings: Sequence[Ending]
    names: TableLives

    @classmethod
    def built(cls, value: Any) -> Part:
        """Return the part whose value was packed, for `unpacked`."""
        begin, position, end, pages, endings, names = items(
            value, list, int, list | None, list, list, list
        )
        return cls(
            Mark.built(begin),
            position,
            None if end is None else End.built(end),
            Pages.built(pages),
            [Ending.built(one) for one in endings],
            names_of(names),
        )

    def packed(self) -> bytes:
        """Return it as bytes."""
        begin, position, end, pages, endings, names = self
        return packed((begin, position, end, pages.stored(), endings, stored_names(names)))

    @property
    def base(self) -> int:
        """The offset of the first byte of its pages."""
        return self.pages.first * self._body_size

    @property
    def _body_size(self) -> int:
        return self.pages.size - DATA_START

    def progress(self) -> Progress:
        """Return where a walk over the part begins."""
        return Progress(records=self.begin.records, sections=self.begin.sections)

    def is_read(self, progress: Progress) -> bool:
        """Return True if a walk has come to the end of the part, and no further."""
        return not progress.irregular and self.base + progress.offset == self.position

    def stream(self, file: PageFile) -> LogStream | None:
        """Return the part as a stream; None if the file has not these pages any more."""
        size, _, ids, keys = self.pages
        data = np.frombuffer(file.data, np.uint8)
        if file.page_size != size or count_whole_pages(data, ids, keys, size) < len(ids):
            return None
        end = self.base + len(ids) * self._body_size
        stream = LogStream(file, TrunkChain(), ids.tolist())
        stream.skip = self.begin.position - self.base
        if self.end is None:
            stream.cut = end - self.position
        else:
            stream.fault = DataFault(self.end.fault) if self.end.fault else None
            stream.fault_page, stream.end_key = self.end.fault_page, self.end.end_key
            stream.end_of_file = bool(self.end.end_of_file)
        return stream


def keys_of(stream: LogStream) -> Longs:
    """Return the log key of each data page of a stream."""
    trunks = stream.chain.trunks
    counts = [len(trunk.data_pages) for trunk in trunks]
    keys = np.repeat(np.array([trunk.key for trunk in trunks], np.int64), counts)
    first = len(stream.dropped)
    return keys[first : first + len(stream.data_pages)]


def stored_names(lives: TableLives) -> list[Any]:
    """Return tables as they are packed."""
    names = [(table, one.name, one.columns, one.types) for table, one in lives.names.items()]
    return [names, [(table, *births) for table, births in lives.births.items()], lives.build]


def names_of(stored: Any) -> TableLives:
    """Return tables that were packed."""
    names, births, build = items(stored, list, list, int)
    found = {}
    for one in names:
        table, name, *lists = items(one, int, str, list, list)
        columns, types = (tuple(items(each, *[str] * len(each))) for each in lists)
        found[table] = TableName(name, columns, types)
    born = (items(one, *[int] * len(one)) for one in births)
    return TableLives(found, {table: tuple(places) for table, *places in born}, build)
