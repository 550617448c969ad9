"""What a log is asked for by the names that its applications know: tables, queues and columns.

In: a log. Out: its collections with their columns, their rows and what becomes of them, and its
records by a condition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Protocol, runtime_checkable

from tallystick.records import Change, Record, Row
from tallystick.systems.protocol.reading import Split

if TYPE_CHECKING:
    import pyarrow as pa

    from tallystick.systems.protocol.following import Longs

    Fitting = Callable[[pa.RecordBatch], Longs]
    """Returns the numbers of the rows that fit, of a batch as ``batches()`` gives it."""


LOST = "lost"
"""In ``values``, an object with this key stands for a value that cannot be had: what is known of
it."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a collection.

    Attributes:
        name: its name, as in `Change.values`.
        declared: its type in the words of the system.
        kind: its type in SQL, as Spark has it: ``int``, ``decimal(10,2)``, ``string`` and so on;
            ``string`` for types that SQL has not.
        key_position: its place in the primary key, from 1; None for a column outside of the key.
        computed: the database refuses a value for it, as it is computed of others.
        counted: the database refuses a value for it until its identity is ``BY DEFAULT``.
    """

    name: str
    declared: str
    kind: str = "string"
    key_position: int | None = None
    computed: bool = False
    counted: bool = False


Reference = tuple[tuple[str, ...], str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Collection:
    """A table, queue or container.

    Attributes:
        name: its name, which `Change.collection` has.
        columns: its columns.
        stored: what `Change.collection` has for it in ``changes()``, if that may be another name.
        quoted: its name as statements of SQL have it; empty where it is in no database.
        unique: names of columns of which no two rows have the same values, besides the key.
        references: foreign keys: names of columns, the table that they lead to, and its columns.
        bound: why the database may refuse to make an identity ``BY DEFAULT``, after "it was";
            empty where nothing speaks for that.
    """

    name: str
    columns: tuple[Column, ...]
    stored: tuple[str, ...] = ()
    quoted: str = field(default="", compare=False)
    unique: tuple[tuple[str, ...], ...] = field(default=(), compare=False)
    references: tuple[Reference, ...] = field(default=(), compare=False)
    bound: str = field(default="", compare=False)

    @property
    def key(self) -> tuple[str, ...]:
        """The names of the columns of the primary key, in its order; none where it has no key."""
        places = {one.key_position: one.name for one in self.columns if one.key_position}
        return tuple(places[at] for at in sorted(places))


@dataclass(frozen=True, slots=True)
class Dialect:
    """How values stand in statements of SQL of a system.

    Attributes:
        literal: function ``(Column, value) -> str``; the value is one of `Change.values`. Raises
            `UnsupportedFormatError` where none stands for it.
        compares: whether ``=`` takes the values of a column.
        folded: function ``(Column, value)`` that gives what ``=`` looks at of a value: what it
            takes for equal has the same.
        declared: function ``(Column, int) -> str`` that gives the type in which the values of a
            column of another system stand; the longest has so many characters, or bytes.
        holds: function ``(Column, value) -> bool`` whether a value of another system stands in a
            column of such a type.
        one: what, at the end of a DELETE or an UPDATE, limits it to one row; empty where nothing
            does.
        zoned: whether dates and times depend on `ReadOptions.timezone`.
        rewrites: whether the log has an UPDATE as the delete of a row and the add of one, which may
            have another key.
    """

    literal: Callable[[Column, Any], str]
    compares: Callable[[Column], bool]
    folded: Callable[[Column, Any], Any]
    declared: Callable[[Column, int], str]
    holds: Callable[[Column, Any], bool] = lambda _column, _value: True
    one: str = ""
    zoned: bool = False
    rewrites: bool = False


@runtime_checkable
class Catalogued(Protocol):
    """A `LogReading` that knows the columns of its collections."""

    def collections(self) -> Sequence[Collection]:
        """Return the collections that have names and columns, as they are at the log's end."""
        ...


@runtime_checkable
class KnowsRowsBefore(Catalogued, Protocol):
    """A `Catalogued` reading that knows rows from before its log."""

    def rows_before(self, collection: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield key and values of the rows that a collection has where the log begins.

        They are those that the database beside the log tells; none where there is no database.
        """
        ...


@runtime_checkable
class Typed(KnowsRowsBefore, Protocol):
    """A `Catalogued` reading that decodes the raw bytes of ``changes()`` for one collection.

    Values are plain, by name of column; an update has the columns that it changes.
    """

    def changes_of(
        self, collection: str, after: int | None = None, until: int | None = None
    ) -> Iterator[Change]:
        """Yield committed changes of a collection; with ``until`` as `ChangesBetween` does."""
        ...


@runtime_checkable
class KnowsFates(Protocol):
    """A `LogReading` that gives changes that are not committed, too."""

    def fated_changes(self) -> Iterator[Row]:
        """Yield the changes of all transactions as these end, then those that do not end.

        Values are as applications know them where the reading knows columns. The committed ones
        are those of ``changes()``, but for what a restart drops of these.
        """
        ...


@runtime_checkable
class FateBatches(KnowsFates, Protocol):
    """A `KnowsFates` that gives these rows as Arrow batches, too."""

    def fated_batches(self, rows: int) -> Iterator[pa.RecordBatch] | None:
        """Return all of ``fated_changes()`` in the same order, as batches of the `FATED` schema.

        A batch has at most ``rows`` rows. Return None if rows can only be had one by one: the log
        is short, or odd, or the package that makes columns is not installed.
        """
        ...


@runtime_checkable
class DecodesLater(FateBatches, Protocol):
    """A `FateBatches` whose batches lack what is decoded of rows that are asked for, and no others.

    They may be of the `NAMED` schema.
    """

    def decoded(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """Return some rows of a batch with all of their ``values``."""
        ...


@runtime_checkable
class Importable(Protocol):
    """A `LogReading` of which the original can import what is in it, where it is running."""

    @property
    def holds_messages(self) -> bool:
        """Whether there is something to import in a log of this kind."""
        ...

    def write_import(self, out: IO[bytes]) -> tuple[Counter[str], Counter[str], str]:
        """Write what it imports; return what that brings, what is left, and what else to know."""
        ...


@runtime_checkable
class ChoosesRecords(Protocol):
    """A `LogReading` that makes objects, with attributes, of the records that are asked for."""

    def chosen_records(self, fitting: Fitting) -> Iterator[Record]:
        """Yield those of ``records()`` that fit by their columns, and maybe others."""
        ...


@runtime_checkable
class AttributeBatches(Protocol):
    """A `LogReading` whose records come as Arrow batches with their attributes, too."""

    def attribute_batches(self, split: Split | None, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield what ``batches`` yields, with the column ``attributes`` filled."""
        ...
