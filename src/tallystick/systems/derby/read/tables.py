"""Changes of one table with its own columns, and its rows from before the log.

In: the ranges of a log, and the database's files beside it. Out: `Change`s whose values are plain,
by name of column. A row that is longer than a page is put together; an update has the columns that
it changes. Where a table gets another container, its rows are taken away and come anew: Derby logs
neither, so they are read from the database. Memory grows with rows longer than a page, and with
the rows that the log changes in containers that were there before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain

from tallystick.errors import LogFormatError
from tallystick.records import Change, Fate, Kind, Row, jsonable
from tallystick.systems.derby.format import operations
from tallystick.systems.derby.format.layout import SYSTEM_NAME, Group
from tallystick.systems.derby.format.page_rows import images_of
from tallystick.systems.derby.format.record_body import Body
from tallystick.systems.derby.format.sql_values import Plain, SqlType
from tallystick.systems.derby.read.catalogue import (
    CATALOGUE,
    NAMING,
    Catalogue,
    Layout,
    Table,
    new_part,
)
from tallystick.systems.derby.read.changes import (
    Ended,
    EndedFeed,
    Operations,
    committed_operations,
    emptied_by,
    fate_of,
    raw_change,
)
from tallystick.systems.derby.read.containers import (
    CONTROL_ROW,
    Before,
    Container,
    Key,
    Part,
    Parts,
    columns_of,
    continuations,
    open_container,
    part_of,
)
from tallystick.systems.derby.read.names import Names, Rows
from tallystick.systems.derby.read.spans import ByteRange
from tallystick.systems.protocol import LOST, Collection, Column, Reference

Numbers = Sequence[int]
Ranges = Callable[[Numbers, Numbers], Iterable[ByteRange]]
"""Gives ranges from the beginning of the log on. Records may be left out that tell nothing of what
is committed on these containers, or by commits at these instants."""
Values = dict[str, Plain | dict[str, str]]


class Database:
    """The tables that a log belongs to.

    Args:
        ranges: gives the ranges of the log that are believed.
        log: the folder of the log.
    """

    def __init__(self, ranges: Ranges, log: str) -> None:
        self._all_ranges, self._log = ranges, log
        self._freed: dict[int, int] = {}
        before = self._files(CATALOGUE)
        noted = _noted(self._ranges(CATALOGUE, ()), before)
        found = committed_operations(noted, wanted=partial(_is_on, before))
        self._catalogue_commits = [one for one in found if one.operations]
        catalogue = _catalogue(before)
        self._at_begin = catalogue.copied()
        for one in self._catalogue_commits:
            catalogue.apply((body for _, body in one.operations), one.commit)
        self.tables = {table.name: table for table in catalogue.tables.values()}
        self._by_id = dict(catalogue.tables)
        self._freed, self._is_other = catalogue.freed, cache(catalogue.is_other)

    def names(self, until: int = 0) -> Names:
        """Return the names of tables after what commits before an instant."""
        names = Names(self._at_begin.copied(), self.rows_of)
        for one in self._catalogue_commits:
            if one.commit < until:
                names.take((body for _, body in one.operations), one.commit)
        return names

    def rows_of(self, number: int, commit: int) -> Rows:
        """Yield the rows that a container got at a commit, and that the log does not hold itself.

        They are in the database's files, if the number was not given to another one since.
        """
        if self._freed.get(number, 0) <= commit:
            before = self._noted_files([number])[number]
            for key, part in before.rows():
                yield key, columns_of(part, before)

    def collections(self) -> list[Collection]:
        """Return the tables of users by name, with their columns at the end of the log."""
        return [
            Collection(
                name,
                tuple(
                    Column(
                        one[0],
                        one[1].declared,
                        one[1].kind,
                        _place(at, table.key),
                        one[1].computed,
                        one[1].counted,
                    )
                    for at, one in enumerate(table.layout)
                    if one
                ),
                tuple(table.names),
                table.quoted,
                tuple(
                    tuple(one[0] for at, one in enumerate(table.layout) if one and at in index)
                    for index in table.unique
                ),
                tuple(self._references(table)),
            )
            for name, table in sorted(self.tables.items())
        ]

    def _references(self, table: Table) -> Iterator[Reference]:
        """Yield the foreign keys of a table by names, as far as they are known."""
        for columns, identity, others in table.references:
            if (other := self._by_id.get(identity)) is not None:
                known = [
                    tuple(one[0] for at in numbers if at < len(layout) and (one := layout[at]))
                    for numbers, layout in ((columns, table.layout), (others, other.layout))
                ]
                if len(known[0]) == len(known[1]) > 0:
                    yield known[0], other.name, known[1]

    def changes(self, name: str, ranges: Ranges, after: int | None = None) -> Iterator[Change]:
        """Yield the changes of a table that these ranges commit, in commit order.

        Those that commit before the instant ``after`` are left out.
        """
        table = self.tables.get(name)
        if table is not None:
            found = self._changes_of(table)
            given = ranges([number for number, _ in table.containers], [*found.renewed])
            yield from found.changes(self._of_last_lives(given), after)

    def row_feed(self, lost: Set[int]) -> RowFeed:
        """Return what gives the rows of transactions; ``lost`` as for `fate_of`."""
        tables = {table.name: self._changes_of(table) for table in self.tables.values()}
        return RowFeed(tables, self.names(), self._freed, self._is_other, self._log, lost)

    def _changes_of(self, table: Table) -> _TableChanges:
        return _TableChanges(table, self._before(table), self._log)

    def rows_before(self, name: str) -> Iterator[tuple[str, Values]]:
        """Yield keys and values of the rows that a table has where the log begins."""
        table = self.tables.get(name)
        if table is not None and table.containers[0][1] is None:
            number = table.containers[0][0]
            yield from _rows(self._noted_files([number])[number], table.layouts[number])

    def _before(self, table: Table) -> dict[int, Before]:
        """Return the rows of a table's containers that the log does not hold itself."""
        numbers = [number for number, _ in table.containers]
        # Made by a commit in this log, and not in the place of another container, of which rows are
        # copied without records: all its rows are in the log, and no file has to be read.
        if table.containers[0][1] is not None and len(numbers) == 1 and not table.loaded:
            return {number: Before(Container(None)) for number in numbers}
        return self._noted_files(numbers)

    def _noted_files(self, numbers: Numbers) -> dict[int, Before]:
        """Return rows of containers before the log, which is read once somebody asks for one."""
        before = self._files(numbers)

        @cache
        def note() -> None:
            deque(_noted(self._ranges(numbers, ()), before), maxlen=0)

        for one in before.values():
            one.noted = note
        return before

    def _ranges(self, containers: Numbers, commits: Numbers) -> Iterator[ByteRange]:
        return self._of_last_lives(self._all_ranges(containers, commits))

    def _of_last_lives(self, ranges: Iterable[ByteRange]) -> Iterator[ByteRange]:
        """Leave out what was done to a container before its number was given up."""
        for one in ranges:
            page = one.body.fields.get("pageId") if one.body is not None else None
            if page is None or page.segment or one.place >= self._freed.get(page.container, 0):
                yield one

    def _files(self, numbers: Iterable[int]) -> dict[int, Before]:
        return {number: Before(Container(open_container(self._log, number))) for number in numbers}


class RowFeed:
    """Takes ranges in log order, and gives the rows of transactions as these end.

    Rows of containers that the catalogue does not know (any more) are as the log has them, with
    hex digits for bytes.

    Args:
        tables: what tells the changes of each table, by its name.
        names: those of tables where the log begins.
        freed: by number of a container, where it was last given up.
        is_other: tells whether a container is none of a table of users.
        log: the folder of the log.
        lost: as for `fate_of`.
    """

    def __init__(
        self,
        tables: Mapping[str, _TableChanges],
        names: Names,
        freed: Mapping[int, int],
        is_other: Callable[[int], bool],
        log: str,
        lost: Set[int],
    ) -> None:
        self.names, self.freed, self.is_other, self.lost = names, freed, is_other, lost
        self._tables, self._log, self._feed = tables, log, EndedFeed()
        self.tables: dict[int, _TableChanges] = {}
        """By container what tells the changes of its table."""
        self._anew: dict[int, _TableChanges] = {}
        for changes in tables.values():
            self.tables |= dict.fromkeys(changes.containers, changes)
            self._anew |= dict.fromkeys(changes.renewed, changes)

    @property
    def open(self) -> Set[int]:
        """The numbers of the transactions that have not ended."""
        return self._feed.open

    def take(self, one: ByteRange) -> list[Row]:
        """Take the next range; return the rows of the transaction that it ends."""
        self.note(one)
        ended = self._feed.take(one)
        return [] if ended is None else [*self._rows(ended)]

    def rest(self) -> Iterator[Row]:
        """Yield the rows of transactions that have not ended."""
        return chain.from_iterable(map(self._rows, self._feed.rest()))

    def note(self, one: ByteRange) -> None:
        """Note that a page gets another use; ranges of last lives tell that."""
        body = one.body
        if body is None or body.operation != operations.INIT_PAGE:
            return
        if (table := self._table_of(one, body)) is not None:
            table.note_page(body)

    def _table_of(self, one: ByteRange, body: Body) -> _TableChanges | None:
        page = body.fields["pageId"]
        if page.segment or one.place < self.freed.get(page.container, 0):
            return None
        return self.tables.get(page.container)

    def _rows(self, done: Ended) -> Iterator[Row]:
        """Yield the changes of a transaction that stand, and those that were taken back."""
        end = done.end if done.commits else None
        gone = list[Change]()
        if end is not None:
            for what in self.names.take((body for _, body in done.operations), end.place):
                if what.name not in self._tables:  # else its table tells that
                    gone += emptied_by(what, end, self._log, self.names)
        standing = self._by_table(done.operations)
        if end is not None and end.place in self._anew:
            standing.setdefault(self._anew[end.place], [])
        undone = self._by_table(done.undone)
        fate, gtrid = fate_of(done, self.lost), done.xid.gtrid if done.xid else None
        commit = end.place if end is not None and fate is Fate.COMMITTED else 0
        stands = (self._of(table, mine, end) for table, mine in standing.items())
        for ordinal, one in enumerate([*chain.from_iterable(stands), *gone]):
            placed = replace(one, commit_sequence=commit, ordinal=ordinal, gtrid=gtrid)
            yield Row(fate, placed)
        for table, mine in undone.items():
            for one in self._of(table, mine, None):
                yield Row(Fate.UNDONE, replace(one, gtrid=gtrid))

    def _by_table(self, done: Operations) -> dict[_TableChanges | None, Operations]:
        """Return operations by the table that they change; None for containers without one."""
        found: dict[_TableChanges | None, Operations] = {}
        for one in done:
            page, table = one[1].fields["pageId"], self._table_of(*one)
            row = page.number, one[1].fields["recordId"]
            if table is not None or (row != CONTROL_ROW and not self.is_other(page.container)):
                found.setdefault(table, []).append(one)
        return found

    def _of(
        self, table: _TableChanges | None, mine: Operations, commit: ByteRange | None
    ) -> Iterable[Change]:
        if table is not None:
            return table.of(mine, commit)
        raw = (raw_change(one, body, self._log, self.names) for one, body in mine)
        return (replace(one, values=jsonable(one.values) or None) for one in raw)


def _place(column: int, key: Sequence[int]) -> int | None:
    return key.index(column) + 1 if column in key else None


def names_of_files(log: str) -> Catalogue:
    """Return what the database's files tell of a log that changes no names of tables."""
    return _catalogue({one: Before(Container(open_container(log, one))) for one in NAMING})


def _catalogue(before: Mapping[int, Before]) -> Catalogue:
    return Catalogue(
        {
            number: {key: columns_of(part, rows) for key, part in rows.rows()}
            for number, rows in before.items()
        }
    )


def _noted(ranges: Iterable[ByteRange], before: dict[int, Before]) -> Iterator[ByteRange]:
    """Yield the ranges, and note the operations on the containers."""
    for one in ranges:
        body = one.body
        if body is not None and _is_on(before, body):
            before[body.fields["pageId"].container].note(body, one.place)
        if body is not None and body.group & Group.LAST:
            for rows in before.values():
                rows.end(body.transaction)
        yield one


def _is_on(containers: Mapping[int, Before], body: Body) -> bool:
    page = body.fields.get("pageId")
    return page is not None and not page.segment and page.container in containers


def _rows(before: Before, layout: Layout) -> Iterator[tuple[str, Values]]:
    for key, part in before.rows():
        yield _key_text(key), _values(columns_of(part, before), layout, whole=True)


def _values(columns: dict[int, bytes | None], layout: Layout, *, whole: bool) -> Values:
    """Return values by names of columns; with ``whole`` null where a row does not reach."""
    found: Values = {}
    for number, one in enumerate(layout):
        if one is None:
            continue
        name, kind = one
        if number not in columns:
            if whole and number > max(columns, default=-1):
                found[name] = None
            continue
        data = columns[number]
        found[name] = None if data is None else plain_value(kind, data)
    return found


def holds_parts(body: Body) -> bool:
    """Return whether an operation that makes a page makes it for continuations of rows."""
    return bool(body.fields["initFlag"] & operations.OVERFLOW_PAGE)


def plain_value(kind: SqlType, data: bytes) -> Plain | dict[str, str]:
    """Return the value of a field; its bytes in hex where they are none of that type."""
    try:
        return kind.read(data)
    except LogFormatError:
        return {LOST: data.hex()}


def _key_text(key: Key) -> str:
    return f"{key[0]}:{key[1]}"


@dataclass(slots=True)
class _Written:
    """What one operation of a transaction does to a row."""

    one: ByteRange
    body: Body
    container: int
    key: Key
    kind: Kind
    part: Part


class _Continuations(Parts):
    """Continuations of rows in one container, and the rows that they belong to.

    The beginning of a long transaction is given up with its file once it has ended: then parts that
    it wrote are in the database only, as they were where the log begins.
    """

    def __init__(self, before: Before) -> None:
        super().__init__()
        self._before = before
        self._overflow: dict[int, bool] = {}
        self._owners: dict[Key, Key] = {}
        self._looked = False
        self._inserted = set[Key]()
        self._changed = set[Key]()
        """Those that transactions have changed since: the database had them otherwise."""

    def note_page(self, body: Body) -> None:
        """Note that a page gets another use."""
        self._overflow[body.fields["pageId"].number] = holds_parts(body)

    def holds(self, page: int) -> bool | None:
        """Return whether a page holds continuations; None if that is not known.

        It was freed since, and the log does not have any more what it was made for.
        """
        known = self._overflow.get(page)
        return self._before.overflow(page) if known is None else known

    def refer(self, page: int) -> None:
        """Note that a row goes on in a page."""
        self._overflow[page] = True

    def part(self, key: Key) -> Part | None:
        """Return a part as the transaction leaves it; None if it is not known."""
        known = self.known.get(key)
        if key in self._inserted or key in self._changed:
            return known
        old = self._before.part(key)
        if known is None or old is None:
            return known or old
        return Part({**old.fields, **known.fields}, known.next or old.next)

    def own(self, key: Key, part: Part) -> None:
        """Note where a row goes on."""
        following = part.next
        while following is not None and self._owners.get(following) != key:
            self._owners[following] = key
            more = self.part(following)
            following = None if more is None else more.next

    def owner(self, key: Key) -> Key | None:
        """Return the row to which a continuation belongs; None for a part of a long value."""
        if key not in self._owners and not self._looked and self._before.overflow(key[0]):
            self._looked = True
            for row, part in self._before.rows():
                self.own(row, part)
        return self._owners.get(key)

    def write(self, key: Key, part: Part, *, inserts: bool) -> None:
        """Note what is written to a continuation, until the end of its transaction."""
        if inserts:
            self._inserted.add(key)
        known = self.known.setdefault(key, part)
        if known is not part:
            known.fields.update(part.fields)
            known.next = part.next or known.next

    def forget(self) -> None:
        """Forget what was written: its transaction has ended."""
        self._changed |= self.known.keys() - self._inserted
        self.known.clear()
        self._inserted.clear()


class _TableChanges:
    """Changes of one table from committed operations."""

    def __init__(self, table: Table, before: dict[int, Before], log: str) -> None:
        self._table, self._before, self._log = table, before, log
        self._more = {number: _Continuations(rows) for number, rows in before.items()}
        anew = table.follows or table.loaded
        later = table.containers if anew else table.containers[1:]
        self.renewed = {commit: number for number, commit in later if commit is not None}
        """By commit, the container that the table gets."""

    def changes(self, ranges: Iterable[ByteRange], after: int | None) -> Iterator[Change]:
        """Yield the changes that ranges commit, from the instant ``after`` on."""
        wanted = partial(_is_on, self._before)
        for done in committed_operations(self._pages_noted(ranges), wanted=wanted):
            if not done.operations and done.commit not in self.renewed:
                continue
            if after is not None and done.commit < after:
                self._written(done.operations)  # it notes where rows go on
                self._forget_written()
                continue
            found = self.of(done.operations, done.end)
            for ordinal, change in enumerate(found):
                yield replace(
                    change, commit_sequence=done.commit, ordinal=ordinal, gtrid=done.gtrid
                )

    def _pages_noted(self, ranges: Iterable[ByteRange]) -> Iterator[ByteRange]:
        for one in ranges:
            body = one.body
            made = body is not None and body.operation == operations.INIT_PAGE
            if body is not None and made and _is_on(self._before, body):
                self.note_page(body)
            yield one

    @property
    def containers(self) -> Set[int]:
        """The numbers of the table's containers."""
        return self._more.keys()

    @property
    def name(self) -> str:
        """The name of the table."""
        return self._table.name

    def layout(self, container: int) -> Layout:
        """Return the columns of the rows in one of its containers."""
        return self._table.layouts[container]

    def holds_parts(self, container: int, page: int) -> bool:
        """Return whether a page of one of its containers may hold continuations of rows."""
        return self._more[container].holds(page) is not False

    def note_page(self, body: Body) -> None:
        """Note that a page of one of its containers gets another use."""
        self._more[body.fields["pageId"].container].note_page(body)

    def of(self, done: Operations, commit: ByteRange | None) -> Iterator[Change]:
        """Yield what operations of a transaction change; ``commit`` is its commit, if it has one.

        With its commit the table may get another container.
        """
        renewed = None if commit is None else self.renewed.get(commit.place)
        written = self._written(done)
        for one in written:
            if one.container != renewed:
                yield from self._change(one)
        if renewed is not None and commit is not None:
            yield from self._anew(renewed, commit)
            for one in written:
                if one.container == renewed:
                    yield from self._change(one)
        self._forget_written()

    def _forget_written(self) -> None:
        for more in self._more.values():
            more.forget()

    def _anew(self, container: int, end: ByteRange) -> Iterator[Change]:
        """Yield what another container means: all rows are gone, and some are there again."""
        gone = Change(
            SYSTEM_NAME, self._log, 0, 0, Kind.TRUNCATE, self._table.name, "", end.file.path,
            end.offset, transaction=str(end.body.transaction if end.body else ""),
        )  # fmt: skip
        yield gone
        for key, values in _rows(self._before[container], self._table.layouts[container]):
            yield replace(gone, kind=Kind.ADD, key=key, values=dict(values))

    def _written(self, done: Operations) -> list[_Written]:
        """Return what a transaction does to rows; continuations belong to the rows they are of."""
        found: list[_Written] = []
        inserted: dict[tuple[int, Key], Part] = {}
        self._note_referred(done)
        for one, body in done:
            page = body.fields["pageId"]
            more, key = self._more[page.container], (page.number, body.fields["recordId"])
            if key == CONTROL_ROW:
                continue
            part = Part({}) if body.operation == operations.DELETE else new_part(body)
            if more.holds(page.number):
                more.write(key, part, inserts=body.kind is Kind.ADD)
                owner = more.owner(key)
                if owner is None:
                    continue
                more.own(owner, part)
                if (page.container, owner) in inserted or not (part.fields or part.next):
                    continue
                key, kind = owner, Kind.UPDATE
            else:
                kind = body.kind
                more.own(key, part)
            first = inserted.get((page.container, key))
            if kind is Kind.ADD:
                inserted[page.container, key] = part
            elif kind is Kind.UPDATE and first is not None and part.next is not None:
                first.next = part.next
            if part.fields or kind is Kind.DELETE or (part.next is not None and first is None):
                found.append(_Written(one, body, page.container, key, kind, part))
        return found

    def _note_referred(self, done: Operations) -> None:
        """Note which pages of unknown use hold continuations: rows refer to them, or lack columns.

        A row begins with its first column, a continuation mostly with a later one.
        """
        pages = [body.fields["pageId"] for _, body in done]
        if all(self._more[one.container].holds(one.number) is not None for one in pages):
            return
        for page, (_, body) in zip(pages, done, strict=True):
            row = images_of(body).row_after
            if row is None:
                continue
            more = self._more[page.container]
            referred = [number for number, _ in continuations(part_of(row))]
            for number in [page.number] * (row.first_field > 0) + referred:
                if more.holds(number) is None:
                    more.refer(number)

    def _change(self, written: _Written) -> Iterator[Change]:
        body, one, part = written.body, written.one, written.part
        layout, values = self._table.layouts[written.container], None
        images = images_of(body)
        if written.kind is not Kind.DELETE:
            if images.row_before is not None and images.row_before.overflow == part.next:
                part = Part(part.fields)  # what follows changes by operations of its own
            columns = columns_of(part, self._more[written.container])
            values = _values(columns, layout, whole=written.kind is Kind.ADD) or None
        yield Change(
            SYSTEM_NAME, self._log, 0, 0, written.kind, self._table.name, _key_text(written.key),
            one.file.path, one.offset, transaction=str(body.transaction), before=images.before,
            after=images.after, values=values,
        )  # fmt: skip
