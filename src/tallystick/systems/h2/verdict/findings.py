"""What a person should know about one file: damage, doubt, and what a restart would lose.

In: the state of a file. Out: findings: the file's own here, those of its log in `log_findings`.
Texts are written for somebody who has to decide something at night.
"""

from __future__ import annotations

from collections.abc import Iterator

from tallystick.records import Finding, Severity
from tallystick.systems.h2.engine.state import LogState
from tallystick.systems.h2.format import layout
from tallystick.systems.h2.read.page_chain import PageFile
from tallystick.systems.h2.verdict.log_findings import log_findings
from tallystick.systems.h2.verdict.place import Place


def findings_of(state: LogState, place: Place) -> Iterator[Finding]:
    """Every finding, the file's own first."""
    yield from _file_findings(state, place)
    if state.pages is not None and state.pages.static.encrypted:
        return
    if state.pages is not None:
        yield from _header_findings(state.pages, place)
    if state.stream is not None and state.recovery is not None:
        yield from log_findings(state, state.stream, place)
    yield from _opening_findings(state, place)


def _file_findings(state: LogState, place: Place) -> Iterator[Finding]:
    if state.opening.replaced:
        yield place.finding(
            "file-would-be-replaced",
            Severity.LOSS,
            "the file is so short that the engine takes it for empty and starts a new database "
            "in its place",
            advice="Copy it away before anything opens it",
            risk=state.size,
        )
    if state.problem is not None:
        error = state.problem
        yield place.finding(
            "unreadable-structure",
            Severity.DAMAGE,
            error.message,
            advice=error.advice,
            offset=error.offset,
        )
    if state.pages is not None and state.pages.static.encrypted:
        yield place.finding(
            "encrypted",
            Severity.WARNING,
            "the file is encrypted, or its third header line is damaged: its log cannot be read",
            offset=layout.INNER_MAGIC_OFFSET,
        )


def _header_findings(pages: PageFile, place: Place) -> Iterator[Finding]:
    first, second = pages.headers()
    for page, header in zip(layout.VARIABLE_HEADER_PAGES, (first, second), strict=True):
        if header is None and pages.exists(page):
            yield place.finding(
                "header-copy-damaged",
                Severity.DAMAGE,
                f"the CRC-32 of header page {page} is wrong"
                + ("; the other copy is used" if first or second else ""),
                offset=page * pages.page_size,
            )
    if first and second and first != second:
        yield place.finding(
            "header-copies-differ",
            Severity.WARNING,
            "the two header copies differ; the process ended between writing them, and the "
            "first is used",
            offset=2 * pages.page_size,
        )


def _opening_findings(state: LogState, place: Place) -> Iterator[Finding]:
    opening = state.opening
    if not opening.opened:
        yield place.finding(
            "does-not-open",
            Severity.DAMAGE,
            f"the engine refuses to open the database: error {opening.error_code}, {opening.error}",
            offset=opening.failed_at if opening.failed_at >= 0 else None,
            advice="Keep a copy of the file; the log can be read without the engine",
        )
    if opening.partial:
        yield place.finding(
            "partial-redo",
            Severity.LOSS,
            f"the engine stops redoing here without a word and opens the database: "
            f"{opening.partial}; committed changes behind this place are lost",
            offset=opening.partial_at if opening.partial_at >= 0 else None,
            advice="Copy the file before any restart",
        )
