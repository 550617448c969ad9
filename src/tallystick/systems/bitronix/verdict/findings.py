"""Findings about a journal: damage, invalid headers, the wrong file in use, server ids.

In: both files as their bytes prove them. Out: a `Finding` each, with file and offset.
"""

from __future__ import annotations

from collections.abc import Iterator

from tallystick.records import Finding, Outcome, Severity
from tallystick.systems.bitronix.engine.reached import with_reached
from tallystick.systems.bitronix.format.layout import (
    COMMITTING,
    CURRENT_POSITION_HEADER,
    FORMAT_ID,
    FORMAT_ID_HEADER,
    HEADER_LENGTH,
    LARGEST_FOR_PAGE,
    STATE_HEADER,
    TIMESTAMP_HEADER,
    UNCLEAN_LOG_STATE,
    FileHeader,
    split_gtrid,
    status_name,
)
from tallystick.systems.bitronix.read.files import DualFiles, Part
from tallystick.systems.bitronix.read.scan import RecordSpan
from tallystick.systems.findings import FindingBuilder

SERVER_ID_MAX = 51
DETAILS_MAX = 1000
"""Findings about single records and ranges per file; one more finding counts the rest."""


def findings(pair: DualFiles, build: FindingBuilder) -> list[Finding]:
    """Return all findings about the bytes, without the engine's verdict."""
    found = [*_about_files(pair, build), *_about_order(pair, build)]
    for part in pair.parts:
        found += _limited(build, part, list(_about_spans(pair, build, part)))
    return [*found, *_about_server_ids(pair, build)]


# -- files and headers -------------------------------------------------------------------------


def _about_files(pair: DualFiles, build: FindingBuilder) -> Iterator[Finding]:
    parts = pair.parts
    for part in parts:
        yield from _about_header(build, part)
    if parts[0].data is not None and parts[1].data is not None and parts[0].size != parts[1].size:
        yield build(
            "lengths-differ",
            "the two files differ in length: one was cut, or both do not belong together; the "
            "manager refuses to start",
            file=min(parts, key=lambda part: part.size).path,
            expected=f"{max(part.size for part in parts)} bytes",
            found=f"{min(part.size for part in parts)} bytes",
        )


def _about_header(build: FindingBuilder, part: Part) -> Iterator[Finding]:
    if part.data is None:
        if part.path is None:
            yield _missing(build, part)
        return
    if part.header is None:
        yield build(
            "file-too-short",
            f"part {part.number} has {part.size} bytes and no header; the manager reads it "
            "for ever",
            file=part.path,
            expected=f"at least {HEADER_LENGTH} bytes",
            found=f"{part.size} bytes",
        )
        return
    if part.header.format_id != FORMAT_ID:
        yield build(
            "format-id",
            "the format id is not Btnx; the manager does not look at it",
            file=part.path,
            offset=FORMAT_ID_HEADER,
            length=4,
            expected=f"{FORMAT_ID:08x}",
            found=f"{part.header.format_id & 0xFFFFFFFF:08x}",
        )
    if not HEADER_LENGTH <= part.header.position <= part.size:
        yield _invalid_position(build, part, part.header.position)


def _missing(build: FindingBuilder, part: Part) -> Finding:
    return build(
        "missing-file",
        f"part {part.number} of the journal is missing; the manager refuses to start, and with "
        "skipCorruptedLogs it makes the file empty and hangs",
    )


def _invalid_position(build: FindingBuilder, part: Part, position: int) -> Finding:
    low = position < HEADER_LENGTH
    consequence = "the manager sees no record" if low else "reading ends in an error"
    return build(
        "header-position",
        f"the position in the header lies outside the records: {consequence}",
        file=part.path,
        offset=CURRENT_POSITION_HEADER,
        length=8,
        expected=f"{HEADER_LENGTH} to {part.size}",
        found=str(position),
    )


# -- which file is in use ----------------------------------------------------------------------


def _about_order(pair: DualFiles, build: FindingBuilder) -> Iterator[Finding]:
    one, two = pair.parts
    later = pair.order()[1]
    if one.header is None or two.header is None:
        return
    chosen = one if one.header.timestamp > two.header.timestamp else two
    if chosen is not later:
        yield build(
            "stale-file-in-use",
            f"the manager would open part {chosen.number}, but part {later.number} is the later "
            f"one: {_why_stale(one.header, two.header)}",
            file=chosen.path,
            offset=TIMESTAMP_HEADER,
            length=8,
            expected=f"part {later.number} in use",
            found=f"timestamps {one.header.timestamp} and {two.header.timestamp}",
            advice=f"Before starting the manager, set the timestamp of part {later.number} "
            f"(8 bytes at offset 4) above {chosen.header.timestamp if chosen.header else 0}",
        )
    elif later.swap_defect:
        yield build(
            "swap-timestamp",
            "the timestamp is a position in the file, as 2.1.3 and 2.1.4 leave it after changing "
            "files; that the right file is taken is chance",
            file=later.path,
            offset=TIMESTAMP_HEADER,
            length=8,
            found=str(later.header.timestamp) if later.header else None,
        )
    if later.header is not None and later.header.state == UNCLEAN_LOG_STATE:
        text = "the manager was not shut down in order"
        yield build("unclean", text, file=later.path, offset=STATE_HEADER, length=1)


def _why_stale(one: FileHeader, two: FileHeader) -> str:
    if one.timestamp == two.timestamp:
        return "the timestamps are equal, and it then takes part 2"
    return "its timestamp is spoilt, as 2.1.3 and 2.1.4 leave it after changing files"


# -- spans -------------------------------------------------------------------------------------


def _about_spans(pair: DualFiles, build: FindingBuilder, part: Part) -> Iterator[Finding]:
    after_damage = False
    for span, reached in with_reached(part.data, part.odd_spans(pair.newest)):
        if span.offset and span.outcome in (Outcome.CORRUPT, Outcome.TORN):
            yield _damage(build, part, span)
            after_damage = True
        elif span.record is not None and span.outcome is Outcome.VALID:
            if not span.counted:
                yield _uncounted(build, part, span)
            elif not reached:
                yield _unreached(build, part, span, after_damage)
            yield from _unreadable_for_newer(build, part, span)


def _damage(build: FindingBuilder, part: Part, span: RecordSpan) -> Finding:
    torn = span.outcome is Outcome.TORN
    return build(
        "torn-tail" if torn else span.what.replace(" ", "-"),
        f"{span.reason}. The manager refuses to start unless skipCorruptedLogs is on",
        file=part.path,
        offset=span.offset,
        length=span.length,
        bytes_at_risk=span.length,
    )


def _unreached(build: FindingBuilder, part: Part, span: RecordSpan, after_damage: bool) -> Finding:
    where = (
        "after damage, where the manager has lost step" if after_damage else "not where it looks"
    )
    text = f"lies {where}: skipCorruptedLogs drops it without a word"
    return _dropped_record("lost-behind-damage", build, part, span, text)


def _uncounted(build: FindingBuilder, part: Part, span: RecordSpan) -> Finding:
    text = (
        "lies after the position in the header; the manager does not see it and will overwrite it"
    )
    return _dropped_record("uncounted-record", build, part, span, text)


def _dropped_record(
    code: str, build: FindingBuilder, part: Part, span: RecordSpan, text: str
) -> Finding:
    """Return the finding for a whole record that a restart drops: a LOSS if it is a decision."""
    assert span.record is not None  # called for records only
    record = span.record
    return build(
        code,
        f"a whole {status_name(record.status)} record {text}",
        severity=Severity.LOSS if record.status == COMMITTING else None,
        file=part.path,
        offset=span.offset,
        length=span.length,
        bytes_at_risk=span.length,
        gtrid=record.gtrid,
    )


def _unreadable_for_newer(build: FindingBuilder, part: Part, span: RecordSpan) -> Iterator[Finding]:
    assert span.record is not None  # called for records only
    if span.record.record_length > LARGEST_FOR_PAGE:
        why = f"it is longer than {LARGEST_FOR_PAGE} bytes"
    elif not span.record.is_exact:
        why = "its length is not that of its content"
    else:
        return
    yield build(
        "unreadable-for-3.0",
        f"the 3.0 line cannot read this record: {why}; 2.1.4 can",
        file=part.path,
        offset=span.offset,
        length=span.length,
        gtrid=span.record.gtrid,
    )


def _limited(build: FindingBuilder, part: Part, found: list[Finding]) -> list[Finding]:
    if len(found) <= DETAILS_MAX:
        return found
    rest = found[DETAILS_MAX:]
    lost = any(one.severity is Severity.LOSS for one in rest)
    more = build(
        "more-findings",
        f"{len(rest)} more findings in this file are not listed",
        severity=Severity.LOSS if lost else None,
        file=part.path,
        offset=rest[0].offset,
        bytes_at_risk=sum(one.bytes_at_risk for one in rest),
    )
    return [*found[:DETAILS_MAX], more]


# -- server ids --------------------------------------------------------------------------------


def _about_server_ids(pair: DualFiles, build: FindingBuilder) -> Iterator[Finding]:
    ids: set[str | None] = set()
    for part in pair.parts:
        ids |= frozenset() if part.plain is None else part.plain.server_ids
        ids |= {split_gtrid(record.gtrid).server_id for _, record in pair.records_of(part)}
    known = sorted(one for one in ids if one is not None)
    if len(known) > 1:
        yield build(
            "server-ids",
            f"the journal holds transactions of {len(known)} server ids: a manager under one of "
            "them closes the others' decisions and leaves their branches in doubt",
            found=", ".join(known[:5]),
        )
    for one in known:
        if len(one) == SERVER_ID_MAX or not one.isascii() or "?" in one:
            text = f"the server id {one!r} may have been cut or altered: it must be ASCII and short"
            yield build("server-id-altered", text)
