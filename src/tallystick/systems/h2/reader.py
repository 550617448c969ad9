"""One H2 page store file as a `LogReading`.

In: the source and the reader's options. Out: files, records, transactions, changes, findings,
both verdicts and Arrow batches. The file is opened when something is asked for first, and
never written. Memory: one record, open transactions, and the undo map (16 bytes a page).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from tallystick.errors import LogUnreadableError
from tallystick.records import (
    Change,
    Clock,
    Finding,
    LogFile,
    Outcome,
    Record,
    State,
    Transaction,
    Verdict,
)
from tallystick.storage.source import ByteSource, open_source
from tallystick.systems.h2.engine.state import LogState, judge, load
from tallystick.systems.h2.format.entries import Entry, Type
from tallystick.systems.h2.format.layout import SYSTEM_NAME
from tallystick.systems.h2.format.values.value import Value, json_of
from tallystick.systems.h2.format.xid import parse_name
from tallystick.systems.h2.read.catalog import TableName, table_names
from tallystick.systems.h2.read.records import KINDS, record_of
from tallystick.systems.h2.read.salvage import salvaged
from tallystick.systems.h2.read.scan import Scan
from tallystick.systems.h2.read.spans import spans_of
from tallystick.systems.h2.read.stream import LogStream
from tallystick.systems.h2.read.transactions import Group, groups
from tallystick.systems.h2.verdict.findings import findings_of
from tallystick.systems.h2.verdict.place import Place
from tallystick.systems.h2.verdict.strict import verdict_of
from tallystick.systems.protocol import LogSource, ReadOptions, Split, unreadable_finding

if TYPE_CHECKING:
    import pyarrow as pa


class H2Reading:
    """Everything that can be read of one page store file."""

    def __init__(self, source: LogSource, options: ReadOptions) -> None:
        self._source = source
        self._options = options
        self._path = source.files[0]

    @property
    def source(self) -> LogSource:
        return self._source

    @property
    def format(self) -> str:
        """``pagestore`` and the two version numbers of the header."""
        pages = None if isinstance(self._opened, Finding) else self._opened.pages
        if pages is None:
            return "pagestore"
        return f"pagestore {pages.static.write_version}/{pages.static.read_version}"

    @property
    def clock(self) -> Clock:
        return Clock.NONE

    @cached_property
    def _bytes(self) -> ByteSource | Finding:
        try:
            return open_source(self._path)
        except LogUnreadableError as error:
            return unreadable_finding(SYSTEM_NAME, self._log, error)

    @cached_property
    def _opened(self) -> LogState | Finding:
        source = self._bytes
        return source if isinstance(source, Finding) else load(source, self._options)

    @cached_property
    def _state(self) -> LogState | Finding:
        state = self._opened
        return state if isinstance(state, Finding) else judge(state)

    @property
    def _log(self) -> str:
        return self._source.path

    def _stream(self) -> tuple[LogState, LogStream] | None:
        state = self._state
        if isinstance(state, Finding) or state.stream is None:
            return None
        return state, state.stream

    def files(self) -> Sequence[LogFile]:
        state = self._state
        if isinstance(state, Finding):
            return [LogFile(self._path, 0, "database", 0, why="it could not be read")]
        header = state.header
        return [
            LogFile(
                self._path,
                state.size,
                "database",
                0,
                generation=header.log_key if header else None,
                redundant=False,
                why="the log is part of the database file",
                spans=spans_of(state),
            )
        ]

    def records(self, *, salvage: bool = False) -> Iterator[Record]:
        found = self._stream()
        if found is not None:
            state, stream = found
            for entry in Scan(stream, state.zone).entries():
                yield record_of(entry, stream, state.recovery)
        if salvage:
            yield from self._salvaged()

    def _salvaged(self) -> Iterator[Record]:
        state = self._state
        if isinstance(state, Finding) or state.pages is None or state.pages.static.encrypted:
            return
        for entry, part, run in salvaged(state.pages, state.stream, state.zone):
            record = record_of(entry, part, None)
            if record.outcome is Outcome.VALID:
                on_damage = state.stream is not None and state.stream.is_damaged(
                    record.attributes["page"]
                )
                record.outcome = Outcome.CORRUPT if on_damage else run.outcome
            record.attributes |= {"salvaged": True, "why": run.why}
            yield record

    def transactions(self) -> Iterable[Transaction]:
        """In the order in which they end, open ones last."""
        found = self._stream()
        if found is None:
            return
        state, stream = found
        entries = Scan(stream, state.zone).entries()
        for number, group in enumerate(groups(entries, keep_rows=False), 1):
            yield self._transaction(number, group, stream)

    def _transaction(self, number: int, group: Group, stream: LogStream) -> Transaction:
        name = group.names[-1] if group.names else None
        xid = parse_name(name) if name is not None else None
        last = group.last
        return Transaction(
            SYSTEM_NAME,
            self._log,
            key=f"{group.session}.{number}",
            state=group.state,
            transaction=group.session,
            format_id=xid.format_id if xid else None,
            gtrid=xid.gtrid if xid else None,
            bqual=xid.bqual if xid else None,
            name=name,
            records=group.records,
            bytes=group.bytes,
            files=(self._path,),
            evidence=(self._path, stream.file_offset(last.start)) if last is not None else None,
            evidence_type=last.type if last is not None else "",
            attributes=_group_attributes(group),
        )

    def changes(self) -> Iterable[Change]:
        found = self._stream()
        if found is None:
            return
        state, stream = found
        names = table_names(state.opening.catalog.values())
        commits = 0
        for group in groups(Scan(stream, state.zone).entries()):
            if group.state is not State.COMMITTED:
                continue
            commits += 1
            for ordinal, entry in enumerate(group.changes):
                yield self._change(commits, ordinal, entry, group, stream, names)

    def _change(
        self,
        commit: int,
        ordinal: int,
        entry: Entry,
        group: Group,
        stream: LogStream,
        names: dict[int, TableName],
    ) -> Change:
        table = names.get(entry.table, TableName(str(entry.table)))
        xid = parse_name(group.names[-1]) if group.names else None
        added = entry.code == Type.ADD
        return Change(
            SYSTEM_NAME,
            self._log,
            commit,
            ordinal,
            KINDS[Type(entry.code)],
            table.name,
            "" if entry.code == Type.TRUNCATE else str(entry.key),
            self._path,
            stream.file_offset(entry.start),
            transaction=str(entry.session),
            gtrid=xid.gtrid if xid else None,
            after=entry.row if added else None,
            values=_named(entry.values, table) if added else None,
        )

    def findings(self) -> Sequence[Finding]:
        state = self._state
        if isinstance(state, Finding):
            return [state]
        return list(findings_of(state, Place(self._log, self._path)))

    def verdict(self) -> Verdict:
        state = self._state
        if isinstance(state, Finding):
            strict = {
                "records": {},
                "transactions": {},
                "in_doubt": [],
                "lost": [],
                "findings": {state.code: 1},
            }
            return Verdict(SYSTEM_NAME, self._log, self.format, {}, strict)
        return verdict_of(state, self._log, self.format, self.findings())

    def batches(
        self, split: Split | None = None, *, rows: int = 10_000
    ) -> Iterator[pa.RecordBatch]:
        from tallystick.systems.h2.columns.batches import record_batches_of

        state = self._opened
        if not isinstance(state, Finding) and state.stream is not None:
            yield from record_batches_of(state.stream, state.zone, self._log, split, rows)

    def splits(self, target_bytes: int) -> Sequence[Split]:
        """One: a record can only be found from the beginning of the log."""
        del target_bytes
        state = self._opened
        if isinstance(state, Finding) or state.stream is None:
            return []
        return [Split(self._path, 0, state.size)]


def _group_attributes(group: Group) -> dict[str, object]:
    attributes: dict[str, object] = {"changes": len(group.changes)}
    if len(group.names) > 1:
        attributes["hidden_names"] = group.names[:-1]
    if group.late:
        attributes["changes_behind_prepare"] = group.late
    return attributes


def _named(values: tuple[Value | None, ...], table: TableName) -> dict[str, object]:
    known = table.columns if len(table.columns) == len(values) else ()
    return {known[at] if known else f"C{at + 1}": _plain(value) for at, value in enumerate(values)}


def _plain(value: Value | None) -> object:
    if value is None or isinstance(value.text, str):
        return value.text if value is not None else None
    return json_of(value)
