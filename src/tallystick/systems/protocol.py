"""What every system offers to the packages above.

In: the files of one folder. Out: which logs are in it (`System.detect`), and for each log a
`LogReading`: files, records, transactions, changes, findings and both verdicts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Protocol, cast, runtime_checkable

from tallystick.arguments import time_zone
from tallystick.errors import LogUnreadableError, TallystickError
from tallystick.records import (
    Change,
    Clock,
    Finding,
    Judgement,
    LogFile,
    Record,
    Row,
    Transaction,
    Verdict,
)
from tallystick.roles import Operation, Role
from tallystick.storage.files import FileSystem
from tallystick.storage.source import ByteSource, logical_name, open_source, read_head
from tallystick.systems.answers import Reasons
from tallystick.systems.engine_errors import EngineErrors
from tallystick.systems.findings import Codes, FindingBuilder

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Longs = npt.NDArray[np.int64]
    Fitting = Callable[[pa.RecordBatch], Longs]
    """Returns the numbers of the rows that fit, of a batch as ``batches()`` gives it."""

HEAD_SIZE = 4096


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

    ``name`` distinguishes several logs in one folder (a prefix, a file name) and is empty where the
    folder holds only one. ``database`` is the folder whose settings name that of the log; empty
    where the layout of its system tells what the log belongs to. ``followable`` is false of a log
    whose files come and go, though its system's other logs are (`System.followable`).
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


@dataclass(frozen=True, slots=True)
class Split:
    """A part of one file: the records whose first byte lies in ``begin <= offset < end``."""

    file: str
    begin: int
    end: int


END = 1 << 62
"""The end of a file that is read whole."""


class Stretch(NamedTuple):
    """A part of a log, and which records it can hold.

    Attributes:
        split: the part.
        lsns: the least and the greatest `Record.sequence`; None for no bound.
        times: the least and the greatest `Record.time`; None for no bound.
    """

    split: Split
    lsns: tuple[int | None, int | None] = (None, None)
    times: tuple[int | None, int | None] = (None, None)


class LogReading(Protocol):
    """Everything that can be read of one log; nothing is written, and bytes are read lazily.

    What follows from the rest is in `Reading`.

    Memory grows with open transactions, not with the log, except in ``transactions()`` and
    ``changes()`` of logs whose format gives no other way (their docstrings say so).
    """

    @property
    def source(self) -> LogSource:
        """The log that is read."""
        ...

    @property
    def format(self) -> str:
        """The generation or version of the format, in the system's words."""
        ...

    @property
    def clock(self) -> Clock:
        """The unit of `Record.time`."""
        ...

    def files(self) -> Sequence[LogFile]:
        """Return the files in the log's own order, each tiled by its spans."""
        ...

    def records(self, *, salvage: bool = False) -> Iterator[Record]:
        """Yield every record in log order.

        With ``salvage`` also those that the engine would not reach or believe, marked by
        ``attributes["salvaged"] = True``.
        """
        ...

    def transactions(self) -> Iterable[Transaction]:
        """Return one `Transaction` for each transaction or decision of the log."""
        ...

    def transaction_batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield all of ``transactions()``, in any order, as batches of the `TRANSACTIONS` schema.

        A batch has at most ``rows`` rows.
        """
        ...

    def changes(self) -> Iterable[Change]:
        """Return committed changes in commit order; empty for logs that hold none."""
        ...

    def change_batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield all of ``changes()`` in the same order, as batches of the `CHANGES` schema.

        A batch has at most ``rows`` rows.
        """
        ...

    def findings(self) -> Sequence[Finding]:
        """Return what is wrong with the log."""
        ...

    def verdict(self) -> Verdict:
        """Return what the log's own engine would do, and what the bytes prove."""
        ...

    @property
    def judgement(self) -> Judgement:
        """The answer of ``verdict()``, which takes less than all of it."""
        ...

    def batches(
        self, split: Split | None = None, *, rows: int = 10_000
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records of a split, or all, as Arrow batches of the `RECORDS` schema.

        They agree with ``records()``; strings may be dictionary-encoded, and ``attributes`` may be
        null. A batch has at most ``rows`` rows.
        """
        ...

    def splits(self, target_bytes: int) -> Sequence[Split]:
        """Return parts of about ``target_bytes`` that together give every record once.

        `batches` can read each on its own. The files are not read through to find them. Of a
        damaged log a part may also give records that a reading of the whole log leaves out because
        of damage in an earlier part.
        """
        ...


class Reading:
    """What follows from the rest of a `LogReading`; a system overrides what it can do better.

    Batches are made of objects, and no record is found from the middle of a file.
    """

    damage_ends_log = False

    @property
    def log_identity(self) -> int | None:
        """None: nothing tells the log from another one at its path."""
        return None

    def transaction_batches(self: LogReading, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield all of ``transactions()`` as batches of at most ``rows`` rows."""
        from tallystick.arrow.schemas import batches_of_transactions

        return batches_of_transactions(self.transactions(), self.clock.value, rows)

    def change_batches(self: LogReading, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield all of ``changes()`` as batches of at most ``rows`` rows."""
        from tallystick.arrow.schemas import batches_of_changes

        return batches_of_changes(self.changes(), self.clock.value, rows)

    @property
    def judgement(self: LogReading) -> Judgement:
        """The answer of ``verdict()``."""
        return self.verdict().judgement

    def resume(self, path: str, offset: int) -> int:
        """Return 0: what a record means depends on all that lies before it in its file."""
        del path, offset
        return 0


class FileLife(NamedTuple):
    """What a file is now: it changes when the file is recycled.

    Attributes:
        identity: as `LogFile.identity`.
        generation: as `LogFile.generation`.
        size: number of bytes that may hold records.
        begin: offset of the first byte that stays as it is while the file lives; None: that of the
            first record.
    """

    identity: int | None
    generation: int | None
    size: int
    begin: int | None = None


@runtime_checkable
class FileByFile(Protocol):
    """A `LogReading` whose batches of one file depend on that file only.

    A log of many files can then be followed without reading all of it.
    """

    def lives(self) -> Mapping[str, FileLife]:
        """Return every file that may hold records; what it takes is read file by file."""
        ...

    def resume(self, path: str, offset: int) -> int:
        """Return the largest safe start offset (bytes) of a `Split` of the file.

        The split contains every record that ends at or after ``offset``. 0 if only reading the file
        would find it.
        """
        ...


@runtime_checkable
class Ranged(Protocol):
    """A `LogReading` whose records have LSNs and times that never fall, so that few can be read.

    What is damaged before a part, and would end a reading of the whole log, is not seen by who
    reads that part only.
    """

    def stretches(self, of: Stretch | None = None) -> Sequence[Stretch]:
        """Return the parts of the log by heads of files; or those of one of them, by its end.

        Together they hold every record.
        """
        ...

    def records_of(self, split: Split) -> Iterator[Record]:
        """Yield the records of a part, as ``records`` does; little else is read."""
        ...


def chosen_splits(
    reading: LogReading, choose: Callable[[Sequence[Stretch]], Iterable[Stretch]]
) -> list[Split] | None:
    """Return the parts of a log with the stretches that are chosen; None for the whole log.

    Those that follow each other are one. Of a log that tells nothing of its parts they are files.
    """
    if not isinstance(reading, Ranged):
        files = [Stretch(Split(path, 0, END)) for path in _files(reading)]
        left = [one.split for one in choose(files)]
        return None if len(left) == len(files) else left
    found: list[Split] = []
    for coarse in choose(reading.stretches()):
        for one in choose(reading.stretches(coarse)):
            split = one.split
            if found and (found[-1].file, found[-1].end) == (split.file, split.begin):
                split = Split(split.file, found.pop().begin, split.end)
            found.append(split)
    return found


def _files(reading: LogReading) -> Iterable[str]:
    return reading.lives() if isinstance(reading, FileByFile) else ()


@runtime_checkable
class ProvesDurability(Protocol):
    """A `LogReading` whose bytes tell which records are durable while the log is written."""

    def durable_sequence(self, path: str, end: int) -> int:
        """Return the highest `Record.sequence` that the log proves durable; 0 if none.

        ``end`` is where the last whole record of the file ends.
        """
        ...


class Reached(NamedTuple):
    """How far the records of a log are known.

    Attributes:
        number: of the last file whose records are known, or of a later one: those up to it are.
        place: of the last record known, as `ChangesBetween.places` has it; None: not known.
        there: True if the file of that record is still there, so that what it held is known.
        since: of the newest file at the first look: what is missing up to it went before.
    """

    number: int
    place: int | None
    there: bool = True
    since: int = -1


class Missing(NamedTuple):
    """What a log has no more, as its own numbers tell.

    Attributes:
        expected: what should come next, in words.
        found: what is there, in words.
        certain: False if nothing tells whether it held records.
        usual: True if the log itself leaves the same at a restart: it does not count as a loss.
        ends_log: True if a reading of the whole log ends there.
    """

    expected: str
    found: str
    certain: bool = True
    usual: bool = False
    ends_log: bool = False


@runtime_checkable
class Ordered(Protocol):
    """A `LogReading` of which each file continues the one before: it can be followed."""

    @property
    def log_identity(self) -> int | None:
        """What tells the log from another one at its path; None if nothing does."""
        ...

    @property
    def damage_ends_log(self) -> bool:
        """True if a reading of the whole log gives no record that lies behind damage."""
        ...

    def number(self, path: str) -> int | None:
        """Return what orders a file in its log; None if it can hold no records.

        Later files have higher numbers. Only the head of the file is read.
        """
        ...

    def missing(self, path: str, reached: Reached | None) -> Missing | None:
        """Return what is missing between the records that are known and those of a file.

        With ``reached`` None no record is known, and the file is the first one. None if the file
        continues what is known.

        Raises:
            LogUnreadableError: a file that would tell cannot be read.
        """
        ...


@runtime_checkable
class StatesItsEnd(Protocol):
    """An `Ordered` log that notes, beside its records, up to where they have to be there."""

    def stated_end(self) -> int:
        """Return the place up to which the log calls its records durable; 0 if it does not say.

        Asked before records are read, as the log may grow meanwhile.
        """
        ...

    def missing_at_end(self, stated: int, place: int | None) -> Missing | None:
        """Return what is missing up to a stated end, behind the last record, whose place is given.

        With ``place`` None no record is known. None if nothing is missing.

        Raises:
            LogUnreadableError: a file that would tell cannot be read.
        """
        ...


@runtime_checkable
class Separable(Protocol):
    """A `LogReading` of which a split needs few of the files, so that a task carries only these."""

    def needed(self, split: Split) -> Sequence[str]:
        """Return the smallest set of files that gives all batches of the split, with its own.

        Reads the heads of the files only.
        """
        ...


class NotClosedInPartsError(TallystickError):
    """What the splits of a log left open shows that only the whole log can be judged."""


@dataclass(slots=True)
class ClosedSplit:
    """What one split closes by itself.

    Attributes:
        batches: table (``transactions`` or ``changes``) and plain rows of its schema, of what
            begins and ends in the split.
        rest: call it after the last batch: what the split leaves open, for `close_rests`; None if
            the split alone cannot be judged (damage, a state that only the whole log explains):
            then the whole log has to be read.
    """

    batches: Iterator[tuple[str, pa.RecordBatch]]
    rest: Callable[[], bytes | None]


@runtime_checkable
class ClosesBySplit(Protocol):
    """A `LogReading` whose splits give transactions and changes each on its own.

    The rows of all splits and of their rests are together those of ``transactions()`` and
    ``changes()`` of the whole log, in any order. Where that is not certain, a split has no rest, or
    joining the rests refuses.
    """

    def close_split(self, split: Split, rows: int) -> ClosedSplit:
        """Return what begins and ends in a split; a batch has at most ``rows`` rows."""
        ...

    def close_rests(
        self, rests: Sequence[bytes], rows: int
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the transactions and changes that no split closed alone, by table.

        ``rests`` are those of all splits of the log, in log order.

        Raises:
            NotClosedInPartsError: the whole log has to be read.
        """
        ...


@runtime_checkable
class JudgedBySplit(Protocol):
    """A `ClosesBySplit` whose splits together tell the files, findings and answer of the log."""

    def knowing(self, rests: Sequence[bytes]) -> LogReading:
        """Return a reading of the log that does not read again what its splits have read.

        Its ``files()``, ``findings()`` and answer are those of the whole log; but spans may tell
        the bytes of a split together. ``rests`` are those of all splits of the log, in log order.

        Raises:
            NotClosedInPartsError: the whole log has to be read.
        """
        ...


@dataclass(frozen=True, slots=True)
class Statements:
    """What a person types to end a branch in doubt; empty where there is no such thing.

    Fields in braces are those of `tallystick.reconcile.ids.forms`, and ``verb`` (commit, rollback),
    ``VERB``, ``gtrid``, ``coordinator``, ``resource``, ``store`` (of a store of ours), ``database``
    (its path as text of Java), ``phase`` (what
    Java's commit takes besides the branch).

    Attributes:
        where: where it is typed, and what is to be done there.
        listing: what shows all branches that are in doubt.
        settling: what ends one of them.
    """

    where: str = ""
    listing: str = ""
    settling: str = ""


@dataclass(frozen=True, slots=True)
class ResourceTraits:
    """Properties of a log's branches of global transactions, for their reconciliation.

    Attributes:
        messages: its records are messages: resource names such as ``jms/orders`` fit its logs.
        read_only_unlogged: a prepared branch that changed nothing leaves no record.
        nameless_end: the attribute of a `Transaction` whose end was written from outside over the
            record that held its global id; empty where the id stays.
        statements: what ends one of its branches by hand.
    """

    messages: bool = False
    read_only_unlogged: bool = False
    nameless_end: str = ""
    statements: Statements = Statements()


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """A persisting record of a persist log, as any persist log could write it again.

    ``number`` is None where damage has taken it. ``operations`` are decoded when they are taken, so
    that an entry can be passed over by its number, whatever its body holds.
    """

    number: int | None
    reference: str
    operations: Iterator[Operation]


@runtime_checkable
class ChangesBetween(Protocol):
    """A `LogReading` whose commits can be followed: `Change.commit_sequence` grows and stays.

    A record's place is a number that grows along the log and is never used again.
    """

    def places(self, file: str, ends: Longs, sequences: Longs) -> Longs:
        """Return the places of valid records of a file.

        Args:
            file: the path of the file.
            ends: where the records end in the file, in bytes.
            sequences: their `Record.sequence`; 0 where they have none.
        """
        ...

    def changes_between(self, after: int | None, until: int) -> Iterator[Change]:
        """Yield the changes that records at places above ``after`` commit, up to ``until``.

        They come in commit order. Everything up to ``after`` is known to the caller; with None
        nothing is, and the log begins with the first record that is there.

        Raises:
            TallystickError: some of these records are damaged, or may be gone, and what is lost is
                not to be skipped (`ReadOptions.skip_lost`).
        """
        ...


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
        key_position: its place in the primary key, from 1; None where it is not in it.
    """

    name: str
    declared: str
    kind: str = "string"
    key_position: int | None = None


@dataclass(frozen=True, slots=True)
class Collection:
    """A table, queue or container.

    Attributes:
        name: its name, which `Change.collection` has.
        columns: its columns.
        stored: what `Change.collection` has for it in ``changes()``, if that may be another name.
        quoted: its name as statements of SQL have it; empty where it is in no database.
    """

    name: str
    columns: tuple[Column, ...]
    stored: tuple[str, ...] = ()
    quoted: str = field(default="", compare=False)

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
        one: what, at the end of a DELETE or an UPDATE, limits it to one row; empty where nothing
            does.
        zoned: whether dates and times depend on `ReadOptions.timezone`.
    """

    literal: Callable[[Column, Any], str]
    compares: Callable[[Column], bool]
    one: str = ""
    zoned: bool = False


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

        A batch has at most ``rows`` rows. None where they come one by one only: the log is short,
        or odd, or nothing is installed that makes columns.
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


class Patch(NamedTuple):
    """Bytes that other bytes of a log prove to belong into a file of it.

    Attributes:
        path: the file; it may be missing.
        offset: where they belong, in bytes.
        data: the bytes.
        why: the proof, for a person.
    """

    path: str
    offset: int
    data: bytes
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """A log system and its capabilities: one value per system, listed in `registry`.

    Code is named as ``"module:attribute"`` and imported when it is used, so that listing the
    systems imports none of them.

    Attributes:
        name: the name in options, tables and messages.
        title: the name that people use.
        detector: function ``(Folder) -> list[LogSource]``.
        reader: class or function ``(LogSource, ReadOptions) -> LogReading``.
        codes: the table of codes of its findings (`tallystick.systems.findings.codes`).
        reasons: the table of reasons of its answers (`tallystick.systems.answers.reasons`).
        errors: the table of errors of the original (`tallystick.systems.engine_errors`).
        roles: the class that plays each role; called with the path and ``fs=``.
        shared: of a role, the name of the class whose log several processes can have open.
        role_options: further keyword arguments that the class of a role takes.
        clocks: what `Record.time` of its logs can count.
        followable: records are only appended to files and can be read exactly once while the log
            is written; False where the engine overwrites its log in place.
        change_feed: its readings are `ChangesBetween`: committed changes can be followed.
        commits_by_lsn: `Change.commit_sequence` is the `Record.sequence` of what commits it.
        numbered: a log has several files, told apart by numbers in their names.
        splittable: a record can be found from the middle of a file, so that one file can be read
            by several tasks.
        secrets: the fields of `ReadOptions` that may hold a key of its logs.
        settings: the names that `ReadOptions.settings` may have, and what each means.
        reopener: function ``(folder, role, like, key, content, *, force)`` that opens the log in a
            folder in that role: with the settings that ``like``, the reading of a copy of it,
            tells, or with None as new logs are, with room for what ``content``, an open log of
            that role, holds open. ``force`` goes on without what is damaged. Empty for systems
            whose logs cannot be converted.
        role_finder: function ``(folder, FileSystem, key) -> Role | None`` that tells what a log is
            used for; empty where the roles of the system tell.
        name_finder: function ``(folder, FileSystem) -> (identity, owner)`` that tells what a log
            says of itself; empty where its logs say nothing.
        log_file: name of the file, in the folder of a page store, of a log that keeps its pages
            in the same file; empty for other logs.
        named_without: end of the names of its files that its own addresses leave out: a path
            without it names the file; empty where they name a folder or a whole name.
        other_file: function ``(name, head) -> str`` that tells what a file that is no log is to the
            system, from its name and first bytes; empty where it is nothing. No name of a function
            of systems that know no such files.
        companions: names of files that services keep beside, or one folder above, its logs, or what
            such names begin with before a dot.
        resource: what its logs hold where they take part in a global transaction.
        persist_entry: function ``(Record) -> StoredEntry`` that reads a persisting record of a
            persist log; empty for other systems.
        mender: function ``(LogSource, ReadOptions) -> Iterable[Patch]`` that gives what is damaged
            in a log as other bytes of it prove that it was; empty for systems without such proofs.
        sql: the `Dialect` of its databases; empty where it has none.
        put_aside: function ``(LogSource) -> str`` that tells, in words, that the files are copies
            which the system has put aside and never reads again, and says nothing of others.
    """

    name: str
    title: str
    detector: str
    reader: str
    codes: str = "tallystick.systems.findings:NO_CODES"
    reasons: str = "tallystick.systems.answers:NO_REASONS"
    errors: str = "tallystick.systems.engine_errors:NO_ERRORS"
    roles: Mapping[Role, str] = field(default_factory=dict)
    shared: Mapping[Role, str] = field(default_factory=dict)
    role_options: Mapping[Role, frozenset[str]] = field(default_factory=dict)
    clocks: frozenset[Clock] = frozenset({Clock.NONE})
    followable: bool = True
    change_feed: bool = False
    commits_by_lsn: bool = False
    numbered: bool = False
    splittable: bool = True
    secrets: frozenset[str] = frozenset()
    settings: Mapping[str, str] = field(default_factory=dict)
    reopener: str = ""
    role_finder: str = ""
    name_finder: str = ""
    log_file: str = ""
    named_without: str = ""
    other_file: str = ""
    companions: frozenset[str] = frozenset()
    resource: ResourceTraits = ResourceTraits()
    persist_entry: str = ""
    mender: str = ""
    put_aside: str = ""
    sql: str = ""

    def detect(self, folder: Folder) -> list[LogSource]:
        """Return the logs of this system in the folder, recognised by content.

        Names are a hint only where the content says nothing (an empty file).

        Raises:
            LogUnreadableError: a file that had to be looked at cannot be read.
        """
        return cast("list[LogSource]", resolve_name(self.detector)(folder))

    def aside(self, source: LogSource) -> str:
        """Return why the system never reads a log again that it has put aside; else nothing."""
        return str(resolve_name(self.put_aside)(source)) if self.put_aside else ""

    def mends(self, source: LogSource, options: ReadOptions) -> list[Patch]:
        """Return what mends a log, as far as its bytes prove it. Raises what reading it raises."""
        return list(resolve_name(self.mender)(source, options)) if self.mender else []

    def is_to(self, name: str, head: bytes) -> str:
        """Return what a file that is no log is to the system; empty where it is nothing."""
        return str(resolve_name(self.other_file)(name, head)) if self.other_file else ""

    def stored_entry(self, record: Record) -> StoredEntry:
        """Return a persisting record of a persist log as any persist log could write it again."""
        return cast(StoredEntry, resolve_name(self.persist_entry)(record))

    def reopen(
        self,
        folder: str,
        role: Role,
        like: LogReading | None,
        key: bytes | None,
        content: Any = None,
        *,
        force: bool = False,
    ) -> Any:
        """Open the log in a folder for a conversion. Raises what opening it raises."""
        return resolve_name(self.reopener)(folder, role, like, key, content, force=force)

    def role_in(self, path: str, fs: FileSystem, key: bytes | None = None) -> Role | None:
        """Return what the log of this system in a folder is used for; None if nothing tells."""
        if self.role_finder:
            return cast("Role | None", resolve_name(self.role_finder)(path, fs, key))
        return next(iter(self.roles), None)

    def names_in(self, path: str, fs: FileSystem) -> tuple[str, str]:
        """Return identity and owner of the log in a folder, each empty if it says nothing."""
        found = resolve_name(self.name_finder)(path, fs) if self.name_finder else ("", "")
        return cast("tuple[str, str]", found)

    def findings_of(self, log: str, file: str | None = None) -> FindingBuilder:
        """Return the builder for findings of the log of that name."""
        return FindingBuilder(self.name, log, self.code_table, file)

    @property
    def dialect(self) -> Dialect | None:
        """The SQL of its databases; None where it has none."""
        return cast(Dialect, resolve_name(self.sql)) if self.sql else None

    @property
    def code_table(self) -> Codes:
        """The rows of its table of codes."""
        return cast(Codes, resolve_name(self.codes))

    @property
    def reason_table(self) -> Reasons:
        """The rows of its table of reasons."""
        return cast(Reasons, resolve_name(self.reasons))

    @property
    def error_table(self) -> EngineErrors:
        """The rows of its table of errors."""
        return cast(EngineErrors, resolve_name(self.errors))

    def read(self, source: LogSource, options: ReadOptions) -> LogReading:
        """Return a reading of one log; its files are read when they are needed."""
        return cast(LogReading, resolve_name(self.reader)(source, options))


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
