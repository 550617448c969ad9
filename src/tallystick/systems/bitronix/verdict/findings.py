"""What a person should know about a journal: damage, wrong headers, the wrong file in use.

In: a `Pair` and what its engine does. Out: `Finding` objects with file and offset.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tallystick.records import Finding, Outcome, Severity
from tallystick.systems.bitronix.format.layout import (
    COMMITTING,
    FORMAT_ID,
    HEADER_LENGTH,
    SYSTEM_NAME,
    UNCLEAN_LOG_STATE,
    FileHeader,
    split_gtrid,
    status_name,
)
from tallystick.systems.bitronix.read.files import Pair, Part
from tallystick.systems.bitronix.read.scan import Piece

SERVER_ID_MAX = 51
LARGEST_FOR_PAGE = 8184
"""Largest L that the 3.0 line reads."""
DETAILS_MAX = 1000
"""Findings about single places per file; the rest is counted in one more."""


@dataclass(frozen=True, slots=True)
class Journal:
    """A pair under the name of its log."""

    log: str
    pair: Pair

    def finding(
        self, code: str, severity: Severity, part: Part | None, message: str, **details: object
    ) -> Finding:
        file = None if part is None else part.path
        return Finding(code, severity, SYSTEM_NAME, self.log, message, file=file, **details)  # type: ignore[arg-type]


def findings(journal: Journal) -> list[Finding]:
    """All findings about the bytes, without the engine's verdict."""
    found = [*_about_files(journal), *_about_order(journal)]
    for part in journal.pair.parts:
        found += _limited(journal, part, list(_about_pieces(journal, part)))
    return [*found, *_about_server_ids(journal)]


# -- files and headers -------------------------------------------------------------------------


def _about_files(journal: Journal) -> Iterator[Finding]:
    parts = journal.pair.parts
    for part in parts:
        yield from _about_header(journal, part)
    if parts[0].data is not None and parts[1].data is not None and parts[0].size != parts[1].size:
        yield journal.finding(
            "lengths-differ",
            Severity.DAMAGE,
            min(parts, key=lambda part: part.size),
            "the two files differ in length: one was cut, or both do not belong together; the "
            "manager refuses to start",
            expected=f"{max(part.size for part in parts)} bytes",
            found=f"{min(part.size for part in parts)} bytes",
            advice="Put the right file back from a backup; do not delete the pair, it may hold "
            "decisions that nothing else knows",
        )


def _about_header(journal: Journal, part: Part) -> Iterator[Finding]:
    if part.data is None:
        if part.path is None:
            yield _missing(journal, part)
        return
    if part.header is None:
        yield journal.finding(
            "file-too-short",
            Severity.DAMAGE,
            part,
            f"part {part.number} has {part.size} bytes and no header; the manager reads it "
            "for ever",
            expected=f"at least {HEADER_LENGTH} bytes",
            found=f"{part.size} bytes",
        )
        return
    if part.header.format_id != FORMAT_ID:
        yield journal.finding(
            "format-id",
            Severity.DAMAGE,
            part,
            "the format id is not Btnx; the manager does not look at it",
            offset=0,
            length=4,
            expected=f"{FORMAT_ID:08x}",
            found=f"{part.header.format_id & 0xFFFFFFFF:08x}",
        )
    if not HEADER_LENGTH <= part.header.position <= part.size:
        yield _bad_position(journal, part, part.header.position)


def _missing(journal: Journal, part: Part) -> Finding:
    return journal.finding(
        "missing-file",
        Severity.DAMAGE,
        None,
        f"part {part.number} of the journal is missing; the manager refuses to start, and with "
        "skipCorruptedLogs it makes the file empty and hangs",
        advice="Look for it where it was moved; records of recent decisions may be in it",
    )


def _bad_position(journal: Journal, part: Part, position: int) -> Finding:
    low = position < HEADER_LENGTH
    consequence = "the manager sees no record" if low else "reading ends in an error"
    return journal.finding(
        "header-position",
        Severity.DAMAGE,
        part,
        f"the position in the header lies outside the records: {consequence}",
        offset=13,
        length=8,
        expected=f"{HEADER_LENGTH} to {part.size}",
        found=str(position),
    )


# -- which file is in use ------------------------------------------------------------------------


def _about_order(journal: Journal) -> Iterator[Finding]:
    one, two = journal.pair.parts
    later = journal.pair.order()[1]
    if one.header is None or two.header is None:
        return
    chosen = one if one.header.timestamp > two.header.timestamp else two
    if chosen is not later:
        yield journal.finding(
            "stale-file-in-use",
            Severity.LOSS,
            chosen,
            f"the manager would open part {chosen.number}, but part {later.number} is the later "
            f"one: {_why_stale(one.header, two.header)}",
            offset=4,
            length=8,
            expected=f"part {later.number} in use",
            found=f"timestamps {one.header.timestamp} and {two.header.timestamp}",
            advice=f"Before starting the manager, set the timestamp of part {later.number} "
            f"(8 bytes at offset 4) above {chosen.header.timestamp if chosen.header else 0}",
        )
    elif later.swap_defect:
        yield journal.finding(
            "swap-timestamp",
            Severity.WARNING,
            later,
            "the timestamp is a position in the file, as 2.1.3 and 2.1.4 leave it after changing "
            "files; that the right file is taken is chance",
            offset=4,
            length=8,
            found=str(later.header.timestamp) if later.header else None,
        )
    if later.header is not None and later.header.state == UNCLEAN_LOG_STATE:
        text = "the manager was not shut down in order"
        yield journal.finding("unclean", Severity.INFO, later, text, offset=12, length=1)


def _why_stale(one: FileHeader, two: FileHeader) -> str:
    if one.timestamp == two.timestamp:
        return "the timestamps are equal, and it then takes part 2"
    return "its timestamp is spoilt, as 2.1.3 and 2.1.4 leave it after changing files"


# -- places ----------------------------------------------------------------------------------------


def _about_pieces(journal: Journal, part: Part) -> Iterator[Finding]:
    behind = False
    for piece in part.pieces(journal.pair.newest):
        if piece.offset and piece.outcome in (Outcome.CORRUPT, Outcome.TORN):
            yield _damage(journal, part, piece)
            behind = True
        elif piece.record is not None and piece.outcome is Outcome.VALID:
            if not piece.counted:
                yield _uncounted(journal, part, piece)
            elif not piece.reached:
                yield _unreached(journal, part, piece, behind)
            yield from _unreadable_for_newer(journal, part, piece)


def _damage(journal: Journal, part: Part, piece: Piece) -> Finding:
    torn = piece.outcome is Outcome.TORN
    return journal.finding(
        "torn-tail" if torn else piece.what.replace(" ", "-"),
        Severity.WARNING if torn else Severity.DAMAGE,
        part,
        f"{piece.reason}. The manager refuses to start unless skipCorruptedLogs is on",
        offset=piece.offset,
        length=piece.length,
        bytes_at_risk=piece.length,
    )


def _unreached(journal: Journal, part: Part, piece: Piece, behind: bool) -> Finding:
    assert piece.record is not None  # asked for records only
    record = piece.record
    decision = record.status == COMMITTING
    where = "behind damage, where the manager has lost step" if behind else "not where it looks"
    return journal.finding(
        "lost-behind-damage",
        Severity.LOSS if decision else Severity.DAMAGE,
        part,
        f"a whole {status_name(record.status)} record lies {where}: skipCorruptedLogs drops it "
        "without a word",
        offset=piece.offset,
        length=piece.length,
        bytes_at_risk=piece.length,
        gtrid=record.gtrid,
    )


def _uncounted(journal: Journal, part: Part, piece: Piece) -> Finding:
    assert piece.record is not None  # asked for records only
    record = piece.record
    decision = record.status == COMMITTING
    return journal.finding(
        "uncounted-record",
        Severity.LOSS if decision else Severity.WARNING,
        part,
        f"a whole {status_name(record.status)} record lies behind the position in the header; "
        "the manager does not see it and will overwrite it",
        offset=piece.offset,
        length=piece.length,
        bytes_at_risk=piece.length,
        gtrid=record.gtrid,
    )


def _unreadable_for_newer(journal: Journal, part: Part, piece: Piece) -> Iterator[Finding]:
    assert piece.record is not None  # asked for records only
    if piece.record.record_length > LARGEST_FOR_PAGE:
        why = f"it is longer than {LARGEST_FOR_PAGE} bytes"
    elif not piece.record.is_exact:
        why = "its length is not that of its content"
    else:
        return
    yield journal.finding(
        "unreadable-for-3.0",
        Severity.WARNING,
        part,
        f"the 3.0 line cannot read this record: {why}; 2.1.4 can",
        offset=piece.offset,
        length=piece.length,
        gtrid=piece.record.gtrid,
    )


def _limited(journal: Journal, part: Part, found: list[Finding]) -> list[Finding]:
    if len(found) <= DETAILS_MAX:
        return found
    rest = found[DETAILS_MAX:]
    worst = Severity.LOSS if any(one.severity is Severity.LOSS for one in rest) else Severity.DAMAGE
    more = journal.finding(
        "more-findings",
        worst,
        part,
        f"{len(rest)} more findings in this file are not listed",
        offset=rest[0].offset,
        bytes_at_risk=sum(one.bytes_at_risk for one in rest),
    )
    return [*found[:DETAILS_MAX], more]


# -- server ids ----------------------------------------------------------------------------------


def _about_server_ids(journal: Journal) -> Iterator[Finding]:
    ids = {
        split_gtrid(piece.record.gtrid).server_id
        for _, piece in journal.pair.records()
        if piece.record is not None
    }
    known = sorted(one for one in ids if one is not None)
    if len(known) > 1:
        yield journal.finding(
            "server-ids",
            Severity.WARNING,
            None,
            f"the journal holds transactions of {len(known)} server ids: a manager under one of "
            "them closes the others' decisions and leaves their branches in doubt",
            found=", ".join(known[:5]),
        )
    for one in known:
        if len(one) == SERVER_ID_MAX or not one.isascii() or "?" in one:
            text = f"the server id {one!r} may have been cut or altered: it must be ASCII and short"
            yield journal.finding("server-id-altered", Severity.INFO, None, text)
