"""What the engine does with the changes of a log when it opens the file, and why that can be said.

In: an `EngineResult` and its findings. Out: the `Ground`s of the answer. The engine acknowledges
before it writes: with its default WRITE_DELAY the commits of the last 500 ms are in no file. So an
end as a crash leaves it is safe but for these, and the text says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tallystick.records import AtStake, Finding, Severity
from tallystick.systems.answers import ENDS_IN_PREPARE, Ground
from tallystick.systems.h2.engine.digest import LogDigest
from tallystick.systems.h2.engine.opening import EngineResult
from tallystick.systems.h2.format.entries import Type
from tallystick.systems.h2.format.layout import VariableHeader
from tallystick.systems.h2.read.files import OpenedFile
from tallystick.systems.h2.read.stream import LogStream
from tallystick.systems.h2.verdict.closed import is_freed, later_page, not_closed
from tallystick.systems.h2.verdict.losses import dropped_with, empties, missing_of

_SURE = frozenset({"file-would-be-replaced", "table-page-empty"})
"""Codes of losses that are certain, though the log does not tell how many rows are lost."""
_WHOLE = frozenset({"header-drops-log", "partial-redo"})
"""Codes of losses that can be counted: all records are there. Others hide some on damaged pages."""


def grounds(result: EngineResult, findings: Sequence[Finding]) -> Iterator[Ground]:
    """Yield the reasons that hold of the file, with what was found."""
    opening, file = result.opening, result.file
    if file.encrypted:
        text = file.why_encrypted
        decided_by = "the right file password, with --boot-password" if file.password_given else ""
        yield Ground("encrypted", f"{text[0].upper()}{text[1:]}.", decided_by=decided_by)
        return
    if file.being_created or file.header_only:
        yield Ground("header-only" if file.header_only else "being-created")
        return
    if not opening.opened and not _differs_by_version(result):
        text = f"The database does not open: error {opening.error_code}, {opening.error}."
        decided = None if result.digest is None else result.digest.decided
        yield Ground("does-not-open", text, AtStake(decided))
    yield from _losses(result, findings)
    if result.digest is not None and opening.opened:
        yield from _proof(file, result.digest)


def _differs_by_version(result: EngineResult) -> bool:
    """Return True if the error comes after damage that not every version of the engine reads alike.

    1.3.176 stops redo at a type that it does not know, and opens the database.
    """
    begin = None if result.digest is None else result.digest.versions_differ_from
    if begin is None or result.recovery is None:
        return False
    return bool(result.recovery.end.error) or result.opening.redone_before >= begin


def _losses(result: EngineResult, findings: Sequence[Finding]) -> Iterator[Ground]:
    """Yield a ground for each finding of a loss that the tables do not make good."""
    for one in findings:
        if one.severity is not Severity.LOSS:
            continue
        # Before anything is counted: these lose more than the log tells of.
        if one.code in _SURE:
            yield Ground("changes-lost", one.message)
            continue
        missing = missing_of(result, dropped_with(result, one.code))
        if missing.rows:
            known = one.code in _WHOLE and not empties(dropped_with(result, one.code))
            stake = AtStake(missing.commits, missing.rows) if known else AtStake()
            yield Ground("changes-lost", one.message, stake)


def _proof(file: OpenedFile, digest: LogDigest) -> Iterator[Ground]:
    """Yield what proves that nothing is missing at the log's end, and what speaks against that."""
    header, stream = file.header, digest.stream
    if header is not None and not header.first_trunk and not header.first_data:
        # The second copy is written after the first: a crash between them leaves that of the open
        # log.
        others = [one for one in stream.pages.headers() if one is not None and one != header]
        if not others and (found := not_closed(stream.pages, header, file.zone)):
            yield Ground("log-not-named", found)
            return
        yield Ground("closed-in-one-copy" if others else "log-closed")
        return
    if header is not None and is_freed(stream.pages, stream, header):
        yield Ground("log-freed")
        return
    yield from _of_different_times(stream, header)
    for start in digest.after_fill:
        place = stream.file_offset(start)
        yield Ground("record-after-fill", f"Zeros stand before the record at {place}.")
    if digest.last is None:
        if stream.ends_unwritten and not stream.misnamed:
            yield Ground("log-begun")
    elif digest.flushed_end:
        yield Ground("flushed-end")
    elif stream.ends_unwritten:
        prepare = digest.last.code == Type.PREPARE_COMMIT
        yield Ground(ENDS_IN_PREPARE if prepare else "full-last-page")


def _of_different_times(stream: LogStream, header: VariableHeader | None) -> Iterator[Ground]:
    """Yield what shows that parts of the file were copied at different times."""
    if header is not None and (page := later_page(stream, header)) is not None:
        text = f"Page {page} is of a later log than the header leads to"
        yield Ground("later-log", f"{text}: parts of the file are of different times.")
    first, second = stream.pages.headers()
    if first and second and first.write_counter < second.write_counter:
        yield Ground("older-header")
