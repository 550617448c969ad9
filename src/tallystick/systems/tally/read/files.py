"""Which files make a log, in which order, by their heads alone.

In: the names of a folder, and a way to read them (`Reach`). Out: a `Catalog`: the control block
and the segments by number, with findings for every head that was repaired, is missing or does
not belong. Nothing is written, and of each file only the first 8 KiB are read.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from tallystick.errors import LogUnreadableError
from tallystick.records import Finding, Severity
from tallystick.storage.source import ByteSource, logical_name, open_source, read_head, read_part
from tallystick.systems.tally.format.headers import (
    Control,
    SegmentHeader,
    decode_control,
    decode_segment_header,
)
from tallystick.systems.tally.format.layout import (
    CONTROL_NAME,
    COPY_OFFSET,
    DATA_OFFSET,
    SPARE_PREFIX,
    SUFFIX,
    SYSTEM_NAME,
    segment_name,
    segment_number,
)


@dataclass(frozen=True, slots=True)
class Reach:
    """How to get at files: ``head(path, size)``, ``part(path, offset, size)`` and ``open(path)``.
    All raise `LogUnreadableError`."""

    head: Callable[[str, int], bytes] = read_head
    part: Callable[[str, int, int], bytes] = read_part
    open: Callable[[str], ByteSource] = open_source


class Life(StrEnum):
    """What a segment file is to its log."""

    LIVE = "segment"
    FREED = "freed segment"
    """Its number is below the first kept: it waits to be recycled."""
    SPARE = "spare"
    """Made ahead of need, never used; or the roll to it was not finished."""
    DAMAGED = "segment without header"
    FOREIGN = "foreign segment"
    """Of another log."""


@dataclass(slots=True)
class SegmentFile:
    """A segment file by its head. ``header`` is made up for `Life.DAMAGED`, None for spares."""

    path: str
    life: Life
    header: SegmentHeader | None
    damaged_copy: int | None = None
    """Offset of the copy of the header that is not whole."""
    durable_lsn: int = 0
    """Everything up to here is known to have been durable, by other files."""
    until: int | None = None
    """Where its successor says that it ended."""


@dataclass(slots=True)
class Catalog:
    """A log by the heads of its files."""

    folder: str
    control: Control | None = None
    control_path: str | None = None
    control_damage: int | None = None
    """Offset of the copy of the control block that is not whole."""
    segments: list[SegmentFile] = field(default_factory=list)
    """Live and damaged ones, by ascending number."""
    others: list[SegmentFile] = field(default_factory=list)
    """Freed, spare and foreign ones."""
    missing: list[int] = field(default_factory=list)
    """Numbers of segments that must be there and are not."""
    findings: list[Finding] = field(default_factory=list)

    @property
    def identity(self) -> bytes | None:
        """The identity of the log."""
        if self.control is not None:
            return self.control.identity
        return next((one.header.identity for one in self.segments if one.header), None)

    def report(
        self, code: str, severity: Severity, message: str, *, file: str | None = None,
        offset: int | None = None, advice: str | None = None, at_risk: int = 0,
    ) -> None:  # fmt: skip
        """Add a finding."""
        finding = Finding(
            code, severity, SYSTEM_NAME, self.folder, message,
            file=file, offset=offset, advice=advice, bytes_at_risk=at_risk,
        )  # fmt: skip
        self.findings.append(finding)


class _Head(NamedTuple):
    """What the first bytes of a segment file say: its header (the newer of two that differ), and
    the offset of a copy that is not whole."""

    path: str
    header: SegmentHeader | None
    damaged: int | None


def read_catalog(folder: str, paths: Iterable[str], reach: Reach | None = None) -> Catalog:
    """The catalog of the files at ``paths``. Raises `UnsupportedFormatError`."""
    catalog = Catalog(folder)
    heads: list[_Head] = []
    for path, head in _heads(catalog, paths, reach or Reach()):
        if logical_name(path) == CONTROL_NAME:
            _take_control(catalog, path, head)
        else:
            heads.append(_segment_head(path, head))
    identity = catalog.identity or _common_identity(heads)
    for one in heads:
        _take_segment(catalog, one, identity)
    catalog.segments.sort(key=_number)
    _require_control(catalog)
    _complete(catalog)
    return catalog


def is_member(name: str) -> bool:
    """True for the name of a file that belongs to a native log."""
    return name.endswith(SUFFIX) or name.startswith(SPARE_PREFIX)


def _heads(catalog: Catalog, paths: Iterable[str], reach: Reach) -> Iterable[tuple[str, bytes]]:
    for path in sorted(paths):
        if not is_member(logical_name(path)):
            continue
        try:
            yield path, reach.head(path, DATA_OFFSET)
        except LogUnreadableError as error:
            catalog.report("unreadable", Severity.DAMAGE, str(error), file=path)


def _take_control(catalog: Catalog, path: str, head: bytes) -> None:
    catalog.control_path = path
    copies = [decode_control(head, 0), decode_control(head, COPY_OFFSET)]
    whole = [copy for copy in copies if copy is not None]
    if not whole:
        return
    catalog.control = max(whole, key=lambda one: one.generation)
    if len(whole) == 1:
        catalog.control_damage = COPY_OFFSET if copies[0] is not None else 0
        catalog.report(
            "control-repaired",
            Severity.WARNING,
            "one copy of the control block is damaged; the other one is used",
            file=path,
            offset=catalog.control_damage,
            advice="Opening the log writes both anew",
        )


def _common_identity(heads: Iterable[_Head]) -> bytes | None:
    """The identity that the newest segment has."""
    found = [one.header for one in heads if one.header is not None]
    return max(found, key=lambda header: header.number).identity if found else None


def _segment_head(path: str, head: bytes) -> _Head:
    copies = [decode_segment_header(head, 0), decode_segment_header(head, COPY_OFFSET)]
    whole = [copy for copy in copies if copy is not None]
    if not whole:
        return _Head(path, None, None)
    newest = max(whole, key=lambda one: one.number)
    bad = [place for place, copy in zip((0, COPY_OFFSET), copies, strict=True) if copy != newest]
    return _Head(path, newest, bad[0] if bad else None)


def _take_segment(catalog: Catalog, head: _Head, identity: bytes | None) -> None:
    path, header, damaged = head
    one = SegmentFile(path, Life.LIVE, header, damaged)
    if logical_name(path).startswith(SPARE_PREFIX):
        one.life = Life.SPARE
        catalog.others.append(one)
    elif header is None:
        _take_headless(catalog, one)
    elif header.identity != identity:
        one.life = Life.FOREIGN
        catalog.others.append(one)
        catalog.report(
            "foreign-segment", Severity.WARNING, "a segment of another log", file=path,
            advice="Move it to the folder of its own log",
        )  # fmt: skip
    elif catalog.control is not None and header.number < catalog.control.first_segment:
        one.life = Life.FREED
        catalog.others.append(one)
    else:
        catalog.segments.append(one)


def _take_headless(catalog: Catalog, one: SegmentFile) -> None:
    number = segment_number(logical_name(one.path))
    control = catalog.control
    if control is None or number is None or not _must_exist(control, number):
        one.life = Life.SPARE
        catalog.others.append(one)
        return
    one.life = Life.DAMAGED
    one.header = SegmentHeader(
        control.identity, number, 1, control.segment_size, control.sector_size
    )
    catalog.segments.append(one)
    catalog.report(
        "corrupt-segment-header", Severity.LOSS, "both copies of a segment's header are damaged",
        file=one.path, offset=0, advice="Restore the file, or salvage what can be read",
    )  # fmt: skip


def _must_exist(control: Control, number: int) -> bool:
    return control.first_segment <= number <= control.last_segment


def _number(one: SegmentFile) -> int:
    return one.header.number if one.header else 0


def _require_control(catalog: Catalog) -> None:
    if catalog.control is None and catalog.segments:
        catalog.report(
            "corrupt-control",
            Severity.DAMAGE,
            "the control block is missing, or both of its copies are damaged",
            file=catalog.control_path or posixpath.join(catalog.folder, CONTROL_NAME),
            advice="Repair the log: the control block is made anew from the segments",
        )


def _complete(catalog: Catalog) -> None:
    """Find gaps, double numbers and repairs, and tell each segment what its successors know."""
    control = catalog.control
    durable = control.durable_lsn if control else 0
    for one in reversed(catalog.segments):
        one.durable_lsn = durable
        if one.header is not None and one.life is Life.LIVE:
            durable = max(durable, one.header.previous_lsn)
    for before, after in zip(catalog.segments, catalog.segments[1:], strict=False):
        if after.header and after.life is Life.LIVE and after.header.previous == _number(before):
            before.until = after.header.previous_end
    for one in catalog.segments:
        if one.damaged_copy is not None:
            catalog.report(
                "header-repaired", Severity.WARNING,
                "one copy of a segment's header is damaged; the other one is used",
                file=one.path, offset=one.damaged_copy,
                advice="Opening the log writes both anew",
            )  # fmt: skip
    _find_missing(catalog)


def _find_missing(catalog: Catalog) -> None:
    numbers = [_number(one) for one in catalog.segments]
    control = catalog.control
    first = control.first_segment if control else min(numbers, default=1)
    last = max([control.last_segment if control else 0, *numbers])
    present = set(numbers)
    # A hostile control block may claim any range: what is listed stays bounded.
    catalog.missing = [
        number for number in range(first, min(last, first + 100_000) + 1) if number not in present
    ]
    for number in catalog.missing[:100]:
        catalog.report(
            "missing-segment", Severity.LOSS,
            f"segment {number} must be there and is missing",
            file=posixpath.join(catalog.folder, segment_name(number)),
            advice="Restore the file, or salvage what is left",
        )  # fmt: skip
    if len(numbers) != len(present):
        catalog.report(
            "double-segment", Severity.DAMAGE, "two files claim to be the same segment",
            advice="Move the copy away",
        )  # fmt: skip
