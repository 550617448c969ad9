"""Findings about a journal: damage, invalid headers, the wrong file in use, server ids.

In: both files as their bytes prove them, and the spans of each. Out: a `Finding` each, with file
and offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tallystick.records import Finding, Outcome, Severity
from tallystick.systems.bitronix.format import layout
from tallystick.systems.bitronix.read.files import DualFiles, Part
from tallystick.systems.bitronix.read.scan import RecordSpan
from tallystick.systems.findings import FindingBuilder

SERVER_ID_MAX = 51
DETAILS_MAX = 1000
"""Findings about single records and ranges per file; one more finding counts the rest."""


# -- files and headers -------------------------------------------------------------------------


def about_files(pair: DualFiles, build: FindingBuilder) -> Iterator[Finding]:
    """Yield the findings about the files, their headers, and which is in use."""
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
    yield from _about_order(pair, build)


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
            expected=f"at least {layout.HEADER_LENGTH} bytes",
            found=f"{part.size} bytes",
        )
        return
    if part.header.format_id != layout.FORMAT_ID:
        yield build(
            "format-id",
            "the format id in the file header is not Btnx; the manager does not check that",
            file=part.path,
            offset=layout.FORMAT_ID_HEADER,
            length=4,
            expected=f"{layout.FORMAT_ID:08x}",
            found=f"{part.header.format_id & 0xFFFFFFFF:08x}",
        )
    if not layout.HEADER_LENGTH <= part.header.position <= part.size:
        yield _invalid_position(build, part, part.header.position)


def _missing(build: FindingBuilder, part: Part) -> Finding:
    return build(
        "missing-file",
        f"part {part.number} of the journal is missing; the manager refuses to start, and with "
        "skipCorruptedLogs it makes the file empty and hangs",
    )


def _invalid_position(build: FindingBuilder, part: Part, position: int) -> Finding:
    low = position < layout.HEADER_LENGTH
    consequence = "the manager sees no record" if low else "reading ends in an error"
    return build(
        "header-position",
        f"the position in the header lies outside the records: {consequence}",
        file=part.path,
        offset=layout.CURRENT_POSITION_HEADER,
        length=8,
        expected=f"{layout.HEADER_LENGTH} to {part.size}",
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
            offset=layout.TIMESTAMP_HEADER,
            length=8,
            expected=f"part {later.number} in use",
            found=f"timestamps {one.header.timestamp} and {two.header.timestamp}",
        )
    elif later.swap_defect:
        yield build(
            "swap-timestamp",
            "the timestamp is a position in the file, as 2.1.3 and 2.1.4 leave it after changing "
            "files; that the right file is taken is chance",
            file=later.path,
            offset=layout.TIMESTAMP_HEADER,
            length=8,
            found=str(later.header.timestamp) if later.header else None,
        )
    if later.header is not None and later.header.state == layout.UNCLEAN_LOG_STATE:
        text = "the manager was not shut down in order"
        yield build("unclean", text, file=later.path, offset=layout.STATE_HEADER, length=1)


def _why_stale(one: layout.FileHeader, two: layout.FileHeader) -> str:
    if one.timestamp == two.timestamp:
        return "the timestamps are equal, and it then takes part 2"
    return "its timestamp is spoilt, as 2.1.3 and 2.1.4 leave it after changing files"


# -- spans -------------------------------------------------------------------------------------


def about_span(
    build: FindingBuilder, part: Part, span: RecordSpan, reached: bool, after_damage: bool
) -> Iterator[Finding]:
    """Yield the findings about one span, but for a whole record that no header counts.

    Args:
        build: makes findings.
        part: the file.
        span: of the file.
        reached: whether 2.1.4 reads its record.
        after_damage: whether a span before it is damaged.
    """
    if span.is_damage:
        yield _damage(build, part, span)
    elif span.whole is not None:
        if not reached:
            yield _unreached(build, part, span, after_damage)
        yield from _unreadable_for_newer(build, part, span)


def about_uncounted(
    build: FindingBuilder, part: Part, span: RecordSpan, *, unforced: bool
) -> Iterator[Finding]:
    """Yield the findings about a whole record that no header counts.

    Args:
        build: makes findings.
        part: the file.
        span: of the file.
        unforced: whether a crash leaves it so: then it is no loss.
    """
    text = (
        "lies after the position in the header; the manager does not see it and will overwrite it"
    )
    yield _dropped_record("uncounted-record", build, part, span, text, lost=not unforced)
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


def _dropped_record(
    code: str, build: FindingBuilder, part: Part, span: RecordSpan, text: str, *, lost: bool = True
) -> Finding:
    """Return the finding for a whole record that a restart drops.

    It is a LOSS if it is a decision, and one that may have been acknowledged (``lost``).
    """
    assert span.record is not None  # called for records only
    record = span.record
    return build(
        code,
        f"a whole {layout.status_name(record.status)} record {text}",
        severity=Severity.LOSS if lost and record.status == layout.COMMITTING else None,
        file=part.path,
        offset=span.offset,
        length=span.length,
        bytes_at_risk=span.length,
        gtrid=record.gtrid,
    )


def _unreadable_for_newer(build: FindingBuilder, part: Part, span: RecordSpan) -> Iterator[Finding]:
    assert span.record is not None  # called for records only
    if span.record.record_length > layout.LARGEST_FOR_PAGE:
        why = f"it is longer than {layout.LARGEST_FOR_PAGE} bytes"
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


class Details:
    """The findings about the spans of one file, of which the first `DETAILS_MAX` are kept."""

    def __init__(self) -> None:
        self._kept: list[Finding] = []
        self._first: Finding | None = None
        self._more = self._bytes = 0
        self._lost = False

    def add(self, one: Finding) -> None:
        """Take the next finding."""
        if len(self._kept) < DETAILS_MAX:
            self._kept.append(one)
            return
        self._first = self._first or one
        self._more += 1
        self._bytes += one.bytes_at_risk
        self._lost |= one.severity is Severity.LOSS

    def findings(self, build: FindingBuilder, part: Part) -> list[Finding]:
        """Return what is kept, and a finding that counts the others."""
        if self._first is None:
            return self._kept
        more = build(
            "more-findings",
            f"{self._more} more findings in this file are not listed",
            severity=Severity.LOSS if self._lost else None,
            file=part.path,
            offset=self._first.offset,
            bytes_at_risk=self._bytes,
        )
        return [*self._kept, more]


# -- server ids --------------------------------------------------------------------------------


def about_server_ids(ids: Iterable[str | None], build: FindingBuilder) -> Iterator[Finding]:
    """Yield the findings about the server ids of a journal; None stands for gtrids without one."""
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
