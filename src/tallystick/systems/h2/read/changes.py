"""Changes of rows, with names of tables and columns from the database's own catalogue.

In: the entries of a log, and the tables of the catalogue. Out: changes as their transactions end.
The log itself knows tables by number only; where the catalogue says nothing the number stays.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence

from tallystick.records import Change, Fate, Row, State, Xid
from tallystick.systems.h2.format.catalogue import TableLives, TableName
from tallystick.systems.h2.format.entries import Entry, Type
from tallystick.systems.h2.format.layout import SYSTEM_NAME
from tallystick.systems.h2.format.values.shown import Presentation, Shown
from tallystick.systems.h2.format.values.types import Value
from tallystick.systems.h2.read.records import KINDS
from tallystick.systems.h2.read.stream import LogStream
from tallystick.systems.h2.read.transactions import transactions_of


def rows_of(
    entries: Iterable[Entry],
    stream: LogStream,
    lives: TableLives,
    presentation: Presentation,
    log: str,
    lost: Container[int] = (),
    fates: Container[Fate] = frozenset(Fate),
) -> Iterator[Row]:
    """Yield the changes of all transactions as these end, those that do not end last.

    A rollback after a prepare record writes the inverse of each change: the changes before it are
    undone, and their inverses are left out.

    Args:
        entries: the records of the log.
        stream: the log.
        lives: its tables.
        presentation: shows values.
        log: the name of the log.
        lost: where in the stream records begin that a restart drops.
        fates: only transactions with these are wanted.
    """
    commits = 0
    for one in transactions_of(entries):
        fate = FATES[one.state]
        commits += fate is Fate.COMMITTED
        if fate not in fates:
            continue
        # The inverse of each change follows the prepare record.
        kept = one.prepared_at if one.names and fate is Fate.UNDONE else len(one.changes)
        for ordinal, entry in enumerate(one.changes[:kept]):
            place = (commits, ordinal) if fate is Fate.COMMITTED else (0, 0)
            change = _change(entry, one.xid, stream, lives, presentation, log, entry.start, place)
            yield Row(Fate.LOST if entry.start in lost else fate, change)


FATES = {
    State.COMMITTED: Fate.COMMITTED,
    State.ROLLED_BACK: Fate.UNDONE,
    State.ACTIVE: Fate.UNDONE,
    State.PREPARED: Fate.IN_DOUBT,
}
"""What becomes of the changes of a transaction in a state."""


def lost_row(
    entry: Entry, stream: LogStream, lives: TableLives, presentation: Presentation, log: str
) -> Row:
    """Return a change that stands outside of the log that a restart reads.

    Args:
        entry: the record.
        stream: the part of the file in which it was found.
        lives: the tables of the log.
        presentation: shows values.
        log: the name of the log.
    """
    # Its place in the log is not known: an offset after the last record gives the tables of the
    # log's end.
    return Row(Fate.LOST, _change(entry, None, stream, lives, presentation, log, 1 << 62))


def _change(
    entry: Entry,
    xid: Xid | None,
    stream: LogStream,
    lives: TableLives,
    presentation: Presentation,
    log: str,
    position: int,
    place: tuple[int, int] = (0, 0),
) -> Change:
    """Return the change with the names of its table and columns.

    Args:
        entry: the record.
        xid: the branch that its transaction was prepared as.
        stream: where it stands.
        lives: the tables of the log.
        presentation: shows values.
        log: the name of the log.
        position: the offset in the stream of the log at which tables have the wanted names.
        place: the number of its commit, from 1, and its own number in it, from 0; both are 0 of
            what is not committed.
    """
    number = lives.number(entry.table, position)
    table = lives.get(number) or TableName(lives.name(number))
    added = entry.code == Type.ADD
    return Change(
        SYSTEM_NAME,
        log,
        *place,
        KINDS[Type(entry.code)],
        table.name,
        "" if entry.code == Type.TRUNCATE else str(entry.key),
        stream.pages.file,
        stream.file_offset(entry.start),
        transaction=str(entry.session),
        gtrid=xid.gtrid if xid else None,
        after=entry.row if added else None,
        values=by_column(entry.values, table, presentation, position) if added else None,
    )


def column_names(table: TableName | None, count: int) -> Sequence[str]:
    """Return the names of the columns of a row; ``C1`` and so on where they are not known."""
    if table is not None and len(table.columns) == count:
        return table.columns
    return [f"C{at + 1}" for at in range(count)]


def by_column(
    values: tuple[Value | None, ...],
    table: TableName | None,
    presentation: Presentation,
    position: int,
) -> dict[str, Shown]:
    """Return the values of a row of a record at an offset as a query shows them, by column."""
    names = column_names(table, len(values))
    known = table is not None and len(table.types) == len(values)
    types = table.types if known and table is not None else [""] * len(values)
    columns = zip(names, values, types, strict=True)
    return {name: presentation.shown(one, position, kind) for name, one, kind in columns}
