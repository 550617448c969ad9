"""What the engine's open does with a file: whether it opens, what is in doubt, or which error.

In: an `OpenedFile`. Out: an `EngineResult`: recovery and an `Opening`. Redo is simulated on table
ids and row keys only, which is what decides. Two things are not examined: what redo does to the
pages of indexes, and SQL in the catalogue beyond its quoting.
Source: docs/formats/h2.md, "What recovery does" and "What the engine does not say".
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from tallystick.errors import CorruptLogError
from tallystick.systems.h2.engine.catalog import contradictions
from tallystick.systems.h2.engine.digest import LogDigest
from tallystick.systems.h2.engine.large_objects import Blocks, block_tables
from tallystick.systems.h2.engine.recovery import Recovery, recover
from tallystick.systems.h2.engine.redo import Redo
from tallystick.systems.h2.engine.tables import (
    FILE_CORRUPTED,
    GENERAL_ERROR,
    READ_ONLY,
    StoreError,
    Tables,
    UndonePages,
)
from tallystick.systems.h2.format import layout
from tallystick.systems.h2.format.catalogue import TableLives, build_of, table_names
from tallystick.systems.h2.format.entries import INCOMPLETE, Entry
from tallystick.systems.h2.format.values.types import Value
from tallystick.systems.h2.read.files import OpenedFile
from tallystick.systems.h2.read.stream import LogStream, PageFile
from tallystick.systems.h2.runs.pieces import OWN_TABLES, LogPieces

EVERY = sys.maxsize
"""More records than a log has."""
UNSUPPORTED = 90048
ENCRYPTION = 90049
SYNTAX_ERROR = 42000
_COMMENTS = re.compile(r"--|//|/\*|\$\$")
"""Begins a comment, or text in dollars, in which quotes mean nothing."""
_KEYWORD = re.compile(
    r"CREATE\s(?:(?:DOMAIN|ROLE)\s(IF)(?:\sAS\s|\s*\Z)"
    r"|[\w\s]*?TABLE\s(?:IF NOT EXISTS\s)?(?:(IF)\.|[\w.]*\((?:.*\n)*?"
    r"[^\S\n]*(CHECK|CONSTRAINT|FOREIGN)\s))"
)
"""Domain, role, schema or column of a table that versions before 1.4.197 write without quotes, and
that none reads: what 1.2.147, 1.3.160, 1.3.176, 1.4.194 and 1.4.196 do of 400 words that their
parser knows.
"""
_TABLE = re.compile(r"CREATE\s[\w\s]*?TABLE\s")
_TERMS = {
    "CASE": r"\bCASE\b",
    "CURRENT_USER": r"\bCURRENT_USER\b|\bUSER\(\)",
    "INTERSECTS": r"\bINTERSECTS\b",
}
"""Columns that these versions write without quotes, and take for something else, mostly a syntax
error, where a default, a check or a computed column uses them, with how it is written there."""
_CUT = "the log makes it the root of a table or an index, and the file ends before it"
_WRITTEN = re.compile(r"[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f]*")
"""What the engine writes outside of quotes: of control characters tabs and ends of lines. Others
are blanks to its parser, so a damaged statement may still be what it was."""


@dataclass(slots=True)
class Opening:
    """The engine's answer.

    Attributes:
        error_code: the engine's number of the error; 0: it opens.
        stages: the recovery stages that ran to their end, but for stage 1: it reads no records.
        read: the position of the last record that stage 0 read; it applied those before it.
        redone_before: the position where redo ended; 0: it never began.
        partial: why redo stopped early although the database opens; ``partial_at``: the byte
            offset in the file, -1 if unknown, as ``failed_at``.
        replaced: the engine would discard the file and start a new one.
        catalog: rows of SYS by key.
        births: as `TableLives.births`.
        emptied: tables whose root page is zeroed without an image in the log, to that page. Not
            the tables that redo empties, which are `Redo.emptied`.
        had_rows: those of ``emptied`` that had rows.
        damaged_pages: table pages that the database has before redo and that are damaged, and
            why: the engine fails, or finds other rows, when it comes to them.
        damaged_blocks: blocks of large objects that hold other bytes than were stored.
        missing_objects: large objects that rows name, and that are not there in full.
        odd_index_rows: byte offsets of rows of the page index in the log, committed or not, that
            the engine never writes.
        odd_changes: changes of rows that redo meets and the engine never writes, to how many, and
            the byte offset of the first one's record.
        odd_sql: a statement of the catalogue with bytes that the engine never writes into one.
        odd_catalog: what else of the catalogue and the page index the engine never leaves.
    """

    error_code: int = 0
    error: str = ""
    in_doubt: tuple[str, ...] = ()
    read_only: bool = False
    stages: tuple[int, ...] = ()
    read: int = EVERY
    redone_before: int = EVERY
    partial: str = ""
    partial_at: int = -1
    failed_at: int = -1
    replaced: bool = False
    catalog: dict[int, tuple[Value | None, ...]] = field(default_factory=dict)
    births: dict[int, tuple[int, ...]] = field(default_factory=dict)
    emptied: dict[int, int] = field(default_factory=dict)
    had_rows: Collection[int] = ()
    damaged_pages: dict[int, str] = field(default_factory=dict)
    damaged_blocks: tuple[int, ...] = ()
    missing_objects: tuple[int, ...] = ()
    odd_index_rows: tuple[int, ...] = ()
    odd_changes: dict[str, tuple[int, int]] = field(default_factory=dict)
    odd_sql: str = ""
    odd_catalog: tuple[str, ...] = ()

    @property
    def tables(self) -> TableLives:
        """The tables of the database, and which of them a number means where."""
        rows = self.catalog.values()
        return TableLives(table_names(rows), self.births, build_of(rows))

    @property
    def opened(self) -> bool:
        """True if the database opens."""
        return not self.error_code

    def to_json(self) -> dict[str, Any]:
        """Return the oracle's `recovery` without the contents of tables."""
        if not self.opened:
            return {"opened": False, "error_code": self.error_code, "error": self.error}
        return {
            "opened": True,
            "read_only": self.read_only,
            "in_doubt": [{"transaction": name, "state": "IN_DOUBT"} for name in self.in_doubt],
        }


@dataclass(frozen=True, slots=True)
class EngineResult:
    """What the engine does with a file.

    ``log``, ``recovery`` and ``digest`` are None where the log cannot be followed, ``redo`` where
    it comes to no redo.
    """

    file: OpenedFile
    opening: Opening
    log: LogPieces | None = None
    recovery: Recovery | None = None
    digest: LogDigest | None = None
    redo: Redo | None = None

    def redone(self, tables: Collection[int] | None = None) -> Iterator[Entry]:
        """Yield the records that redo applies, all or at least those of some tables, with bytes."""
        if self.log is None or self.redo is None or self.recovery is None:
            return
        for entry in _redone(self.log, self.recovery, tables):
            if entry.pos >= self.opening.redone_before:
                return
            yield entry

    def columnar_log(self) -> LogPieces | None:
        """Return the log where the rows of all changes can be read from columns."""
        odd = self.log is None or not self.log.in_runs or (self.digest and self.digest.odd_rows)
        return None if odd else self.log

    def decisions(self, entry: Entry) -> dict[str, Any]:
        """Return what the engine did with an entry, as far as its opening came."""
        found = {} if self.recovery is None else self.recovery.decisions(entry)
        if "applied_in_stage0" in found and self.opening.read != EVERY:
            found["applied_in_stage0"] &= entry.pos < self.opening.read
        if entry.pos >= self.opening.redone_before:
            found |= {name: none for name, none in _NOT_REDONE.items() if name in found}
        return found


_NOT_REDONE: dict[str, Any] = {"redo": False, "freed": []}


def judge(file: OpenedFile, log: LogPieces | None) -> EngineResult:
    """Run recovery on the log of a file and decide whether the engine opens it."""
    if file.pages is None:
        error = file.problem
        if isinstance(error, CorruptLogError):
            code = UNSUPPORTED if error.offset == 0 else FILE_CORRUPTED
            return EngineResult(file, _failed(code, error.message, read=0))
        return EngineResult(file, Opening(replaced=True, read=0, redone_before=0))
    refusal = _header_refusal(file.pages)
    if file.stream is None or log is None:
        if refusal is None and file.problem is not None:
            refusal = _failed(GENERAL_ERROR, file.problem.message)
        return EngineResult(file, refusal or Opening())
    digest = LogDigest(file.stream)
    recovery = recover(log, digest)
    digest.finish()
    opening, redo = (refusal, None) if refusal else _open_log(file, log, recovery)
    return EngineResult(file, opening, log, recovery, digest, redo)


def _failed(code: int, error: str, *stages: int, read: int = EVERY) -> Opening:
    """Return an opening that ends with an error before redo; the rest is as in `Opening`."""
    return Opening(error_code=code, error=error, stages=stages, read=read, redone_before=0)


def _header_refusal(pages: PageFile) -> Opening | None:
    """Return what comes of the file if its headers stop the engine; None if they do not."""
    static = pages.static
    if pages.page_count < layout.PAGE_COUNT_MIN and not static.encrypted:
        return Opening(replaced=True, read=0, redone_before=0)
    if not static.magic_ok:
        return _failed(UNSUPPORTED, "unsupported version or invalid file header", read=0)
    if static.encrypted:
        return _failed(ENCRYPTION, "encryption error, or wrong password", read=0)
    if static.read_version > layout.VERSION:
        return _failed(UNSUPPORTED, f"unsupported read version {static.read_version}", read=0)
    if not any(pages.headers()):
        return _failed(FILE_CORRUPTED, "both copies of the variable header are damaged")
    return None


def _log_refusal(stream: LogStream, recovery: Recovery) -> Opening | None:
    """Return the error with which the log stops stage 0 or 1; None if it does not."""
    if recovery.end.error:
        return _failed(GENERAL_ERROR, recovery.end.error)
    if recovery.short_index_row is not None:
        pos, start = recovery.short_index_row
        failed = _failed(GENERAL_ERROR, "a row of the page index is too short", read=pos)
        failed.failed_at = stream.file_offset(start)
        return failed
    if stream.pages.static.write_version > layout.VERSION and recovery.undo:
        first = min(pos for pos, _ in recovery.undo.values())
        return _failed(READ_ONLY, "the database is read only", read=first)
    if min(recovery.used_pages, default=0) < 0:
        return _failed(GENERAL_ERROR, f"the log lists page {min(recovery.used_pages)}", 0)
    return None


def _open_log(file: OpenedFile, log: LogPieces, recovery: Recovery) -> tuple[Opening, Redo | None]:
    """Return what opening comes to after stages 0 and 1, and the redo if it comes to that."""
    stream = log.stream
    if refusal := _log_refusal(stream, recovery):
        return refusal, None
    read_only = stream.pages.static.write_version > layout.VERSION
    tables = Tables(UndonePages(stream.pages, stream, recovery), file.zone)
    try:
        tables.open_meta(never_written=file.in_first_life)
    except StoreError as error:
        return _failed(error.code, error.text, 0), None
    opening = Opening(
        in_doubt=tuple(state.in_doubt or "" for state in recovery.in_doubt()),
        stages=(0, 2),
        emptied=tables.emptied,
        had_rows=tables.had_rows,
        damaged_pages=dict(tables.damaged_pages()),
    )
    opening.read_only = read_only or bool(opening.in_doubt)
    outside = [root for root in recovery.index_roots if not stream.pages.exists(root)]
    opening.damaged_pages |= dict.fromkeys(outside, _CUT)
    opening.odd_index_rows = tuple(map(stream.file_offset, recovery.odd_index_rows))
    redo = Redo(tables, stream, file.zone, opening.odd_changes)
    _simulate_redo(redo, recovery, opening, log)
    return opening, redo


def _simulate_redo(redo: Redo, recovery: Recovery, opening: Opening, log: LogPieces) -> None:
    """Run stage 2 on row keys, and note in ``opening`` what comes of it."""
    entry, stream = None, redo.stream
    unreadable = redo.start(opening.read_only)
    try:
        for entry in _to_apply(redo, recovery, log):
            redo.apply(entry)
    except StoreError as error:
        place = stream.file_offset(entry.start) if entry is not None else -1
        opening.redone_before = 0 if entry is None else entry.pos
        if error.code != FILE_CORRUPTED:
            opening.stages = (0,)
            opening.error_code, opening.error = error.code, error.text
            opening.failed_at = place
            return
        opening.partial, opening.partial_at = error.text, place
    if unreadable is not None:  # redo may end early, but the catalogue is read after it
        opening.error_code, opening.error = unreadable.code, unreadable.text
        return
    opening.catalog, opening.births = redo.catalogue.rows, redo.catalogue.births
    _check_catalog(opening)
    if opening.opened and not opening.partial:
        meta, catalog = redo.tables.meta, opening.catalog.values()
        opening.odd_catalog += tuple(contradictions(meta, catalog, recovery.used_pages))
        _check_large_objects(redo, recovery, opening, log)


def _check_large_objects(redo: Redo, recovery: Recovery, opening: Opening, log: LogPieces) -> None:
    """Hold large objects against the map of their blocks, and rows against both."""
    tables = opening.tables
    entries = _redone(log, recovery, block_tables(tables.names))
    blocks = Blocks(redo.tables, redo.emptied, tables.names, entries)
    opening.damaged_blocks = tuple(blocks.damaged())
    holders = tables.of_large_objects
    added = _redone(log, recovery, holders) if holders else ()
    opening.missing_objects = tuple(blocks.missing(redo.stored_objects(added)))


def _to_apply(redo: Redo, recovery: Recovery, log: LogPieces) -> Iterator[Entry]:
    """Yield the records that redo applies one by one; the others, in between, are applied here."""
    if not log.in_runs:
        return _redone(log, recovery, None)
    from tallystick.systems.h2.engine.redo_of_runs import apply_at_once

    return apply_at_once(redo, recovery, log)


def _redone(log: LogPieces, recovery: Recovery, tables: Collection[int] | None) -> Iterator[Entry]:
    """Yield the records that redo applies, all or those of some tables with their values."""
    if tables is not None and log.in_runs:
        from tallystick.systems.h2.engine.redo_of_runs import redone_in

        yield from redone_in(tables, recovery, log)
        return
    for entry in log.entries(tables or OWN_TABLES):
        if entry.session_bound and entry.type != INCOMPLETE and recovery.redo(entry):
            yield entry


def _check_catalog(opening: Opening) -> None:
    """Find a statement that does not parse, and one that is damaged.

    Quotes that do not close do not parse, nor does a name that is a keyword without quotes.
    """
    for values in opening.catalog.values():
        sql = values[-1] if values else None
        if sql is None or not isinstance(sql.text, str):
            continue
        plain = _outside_quotes(sql.text)
        keyword = _KEYWORD.match(plain or "")
        if keyword is not None or (plain is None and not _COMMENTS.search(sql.text)):
            opening.error_code = SYNTAX_ERROR
            opening.error = f"syntax error in SQL statement {sql.text[:200]!r}"
            if keyword is not None:
                name = keyword[1] or keyword[2] or keyword[3]
                opening.error += f": the name {name} is a keyword, and the engine left out quotes"
            return
        if plain is None or not _WRITTEN.fullmatch(plain):
            opening.odd_sql = opening.odd_sql or sql.text
        opening.odd_catalog += _columns_read_otherwise(plain or "")


def _columns_read_otherwise(plain: str) -> tuple[str, ...]:
    """Return a text for each of the columns of `_TERMS` that an expression of their table uses."""
    if not _TABLE.match(plain):
        return ()
    return tuple(
        f"an expression uses the column {name}, and the engine takes that name for something else"
        for name, used in _TERMS.items()
        if re.search(rf"(?m)^[^\S\n]*{name}\s", plain) and len(re.findall(used, plain)) > 1
    )


def _outside_quotes(sql: str) -> str | None:
    """Return what stands outside of quotes, with one mark for each; None if one does not close."""
    quote, plain = "", []
    for letter in sql:
        if letter == quote:
            quote = ""
        elif not quote and letter in "\"'":
            quote = letter
            plain.append(letter)
        elif not quote:
            plain.append(letter)
    return None if quote else "".join(plain)
