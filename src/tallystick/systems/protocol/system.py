"""A log system and its capabilities: one value for each system.

In: a folder. Out: the logs of this system that are in it (`System.detect`), and for each of them a
`LogReading` (`System.read`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import Any, NamedTuple, cast

from tallystick.records import Clock, Record
from tallystick.roles import Operation, Role
from tallystick.storage.files import FileSystem
from tallystick.systems.answers import Reasons
from tallystick.systems.engine_errors import EngineErrors
from tallystick.systems.findings import Codes, FindingBuilder
from tallystick.systems.protocol.reading import LogReading
from tallystick.systems.protocol.rows import Dialect
from tallystick.systems.protocol.source import Folder, LogSource, ReadOptions


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
        statements: the statements with which an operator ends one of its branches.
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


class OwnLog(NamedTuple):
    """What a copy of a database has, so that a start of it does not write to a log elsewhere.

    Attributes:
        origin: the folder of the log, as the database names it; it may be missing.
        files: the files of the log there.
        name: the folder of the copy that they belong into; nothing else is in it.
        settings: files of the database by name, and what they hold in the copy, unpacked.
        text: what that is, for a person.
    """

    origin: str
    files: tuple[str, ...]
    name: str
    settings: Mapping[str, bytes]
    text: str


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
        setting_values: for each of them a regular expression that its whole value fits,
            and what that is in words; none where any text may be right.
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
        named_without: ends of the names of its files that its own addresses leave out: a path
            without one names the file; none where they name a folder or a whole name.
        url_reader: function ``(url) -> str | None`` that gives the path, on this machine, of the
            database that a URL of JDBC names: empty where it names none here, None where it is of
            another system. No name of a function of systems that have no such URLs.
        url_password: function ``(url) -> str | None`` that gives the password of the file or log
            that such a URL has, None without one, or of another system.
        other_file: function ``(name, head) -> str`` that tells what a file that is no log is to the
            system, from its name and first bytes; empty where it is nothing. No name of a function
            of systems that know no such files.
        companions: names of files that services keep beside, or one folder above, its logs, or what
            such names begin with before a dot.
        neighbours: patterns of names of files and folders beside, or one folder above, its logs
            that belong to its databases or brokers.
        folders: names of folders that its databases or brokers keep logs in: one that is a link,
            as to a faster disk, is read too.
        resource: what its logs hold where they take part in a global transaction.
        persist_entry: function ``(Record) -> StoredEntry`` that reads a persisting record of a
            persist log; empty for other systems.
        mender: function ``(LogSource, ReadOptions) -> Iterable[Patch]`` that gives what is damaged
            in a log as other bytes of it prove that it was; empty for systems without such proofs.
        log_owner: function ``(folder) -> OwnLog | None`` that gives what a copy has of the database
            in a folder that names another place for its log; empty for systems without such.
        sql: the `Dialect` of its databases; empty where it has none.
        put_aside: function ``(LogSource) -> str`` that tells, in words, why the system never reads
            the files (again), such as copies that it has put aside, and says nothing of others.
        notes_suffice: function ``(folder, FileSystem) -> bool`` that tells whether a log opens in a
            folder that has nothing of it but its own notes: all of its files were disposed of. No
            name of a function of systems whose logs leave no such notes.
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
    setting_values: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    reopener: str = ""
    role_finder: str = ""
    name_finder: str = ""
    log_file: str = ""
    named_without: tuple[str, ...] = ()
    url_reader: str = ""
    url_password: str = ""
    other_file: str = ""
    companions: frozenset[str] = frozenset()
    neighbours: frozenset[str] = frozenset()
    resource: ResourceTraits = ResourceTraits()
    persist_entry: str = ""
    mender: str = ""
    log_owner: str = ""
    put_aside: str = ""
    notes_suffice: str = ""
    folders: frozenset[str] = frozenset()
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

    def opens_by_notes(self, folder: str, fs: FileSystem) -> bool:
        """Return whether notes that a log of this system may have left say that no file is lost."""
        return not self.notes_suffice or bool(resolve_name(self.notes_suffice)(folder, fs))

    def mends(self, source: LogSource, options: ReadOptions) -> list[Patch]:
        """Return what mends a log, as far as its bytes prove it. Raises what reading it raises."""
        return list(resolve_name(self.mender)(source, options)) if self.mender else []

    def own_log(self, folder: str) -> OwnLog | None:
        """Return what a copy of the database in a folder has, if its log is elsewhere.

        Raises:
            LogUnreadableError: something of it cannot be read.
        """
        found = resolve_name(self.log_owner)(folder) if self.log_owner else None
        return cast("OwnLog | None", found)

    def is_to(self, name: str, head: bytes) -> str:
        """Return what a file that is no log is to the system; empty where it is nothing."""
        return str(resolve_name(self.other_file)(name, head)) if self.other_file else ""

    def path_in(self, url: str) -> str | None:
        """Return the path that a URL of JDBC names; empty if there is none here.

        Return None if the URL is that of another system.
        """
        return cast("str | None", resolve_name(self.url_reader)(url)) if self.url_reader else None

    def password_in(self, url: str) -> str | None:
        """Return the password of its files that a URL of JDBC gives; None without one."""
        found = resolve_name(self.url_password)(url) if self.url_password else None
        return cast("str | None", found)

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
