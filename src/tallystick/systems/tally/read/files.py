"""Which files make a log, in which order, from their heads alone.

In: the names of a folder, and access to their bytes (`FileAccess`). Out: a `Catalog`: the control
block and the segments by number, with findings for every head that was repaired, is missing or does
not belong to the log. Nothing is written, and of each file only the first 8 KiB are read.
"""

from __future__ import annotations

import contextlib
import itertools
import posixpath
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple

from tallystick.errors import LogUnreadableError
from tallystick.records import Finding
from tallystick.storage.files import FileSystem, read_source
from tallystick.storage.source import (
    ByteSource,
    as_unreadable,
    logical_name,
    open_source,
    read_head,
    read_part,
    unreadable,
)
from tallystick.storage.zeros import is_zero
from tallystick.systems.findings import UNREADABLE, FindingBuilder
from tallystick.systems.tally.codes import CODES
from tallystick.systems.tally.format import layout
from tallystick.systems.tally.format.headers import (
    UNFINISHED_BACKUP,
    Control,
    SegmentHeader,
    decode_control,
    decode_segment_header,
)
from tallystick.systems.tally.format.index import is_index_of

_MISSING_MAX = 100_000
"""Numbers of missing segments that are listed: a hostile control block may claim any range."""
_LISTINGS_MAX = 10
"""Times that a folder is listed while its files go."""
_REPORTED_MAX = 100
"""Missing segments with a finding of their own."""


# -- access to files ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FileAccess:
    """How to read files: ``head(path, size)``, ``part(path, offset, size)`` and ``open(path)``.

    All raise `LogUnreadableError`.
    """

    head: Callable[[str, int], bytes] = read_head
    part: Callable[[str, int, int], bytes] = read_part
    open: Callable[[str], ByteSource] = open_source


def access_through(fs: FileSystem) -> FileAccess:
    """Return access to the files of a file system of `tallystick.storage`."""

    def part(path: str, offset: int, size: int) -> bytes:
        try:
            file = fs.open(path, write=False)
        except OSError as error:
            raise unreadable(path, error) from error
        with contextlib.closing(file):
            try:
                return file.pread(size, offset)
            except OSError as error:
                raise unreadable(path, error) from error

    def head(path: str, size: int) -> bytes:
        return part(path, 0, size)

    return FileAccess(head, part, partial(read_source, fs))


# -- the catalog --------------------------------------------------------------------------


class FileStatus(StrEnum):
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
    """A segment file by its head.

    Attributes:
        path: the file.
        status: what it is to the log.
        header: its header; made up for `FileStatus.DAMAGED`, None for spares.
        damaged_copy: offset of the copy of the header that is not whole.
        durable_lsn: every record up to here was durable, as other files prove.
        stated_end: offset where it ended, as its successor states.
    """

    path: str
    status: FileStatus
    header: SegmentHeader | None
    damaged_copy: int | None = None
    durable_lsn: int = 0
    stated_end: int | None = None


@dataclass(slots=True)
class Catalog:
    """A log by the heads of its files.

    Attributes:
        folder: the folder of the log.
        control: the control block, None if it is missing or damaged.
        control_path: the control file.
        control_damage: offset of the copy of the control block that is not whole.
        unfinished: true if the folder holds a backup that was not finished.
        unused: true if there is no control file, and nothing was written to any segment: an empty
            folder, or an interrupted creation. Opening makes the log anew.
        segments: live and damaged segments, by ascending number.
        others: freed, spare and foreign files.
        missing: numbers of segments that must exist and do not.
        archive: what the folder's segments are if they have left their log.
        findings: what is wrong with the heads.
    """

    folder: str
    control: Control | None = None
    control_path: str | None = None
    control_damage: int | None = None
    unfinished: bool = False
    unused: bool = False
    segments: list[SegmentFile] = field(default_factory=list)
    others: list[SegmentFile] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)
    archive: Archive | None = None
    findings: list[Finding] = field(default_factory=list)

    @property
    def identity(self) -> bytes | None:
        """The identity of the log."""
        if self.control is not None:
            return self.control.identity
        return next((one.header.identity for one in self.segments if one.header), None)

    @property
    def live(self) -> list[SegmentFile]:
        """The live segments."""
        return [one for one in self.segments if one.status is FileStatus.LIVE]

    @property
    def live_headers(self) -> list[SegmentHeader]:
        """The headers of the live segments, by ascending number."""
        return [one.header for one in self.live if one.header is not None]

    def live_segment(self, number: int) -> SegmentFile | None:
        """Return the live segment of a number; None if it is not there."""
        return next((one for one in self.live if _number(one) == number), None)

    @property
    def finding(self) -> FindingBuilder:
        """The builder of findings of this log."""
        return FindingBuilder(layout.SYSTEM_NAME, self.folder, CODES)

    def report(self, code: str, message: str, **details: Any) -> None:
        """Add a finding; ``details`` are those of `FindingBuilder`."""
        self.findings.append(self.finding(code, message, **details))


class Archive(StrEnum):
    """Why segments without a control block are taken for archived ones."""

    NAMED = "named"
    """Their names say of which log they are, as disposers give them."""
    SEALED = "sealed"
    """Each ends with its index: of a log itself the last one would not."""


class _Head(NamedTuple):
    path: str
    header: SegmentHeader | None
    """The newer of two copies that differ."""
    damaged: int | None
    """Offset of a copy that is not whole."""


def read_catalog(
    folder: str,
    paths: Iterable[str],
    access: FileAccess | None = None,
    *,
    archives: bool = True,
) -> Catalog:
    """Return the catalog of the files at ``paths``.

    Args:
        folder: the folder of the log.
        paths: its files.
        access: how they are read.
        archives: True if segments without a control block may be archived ones; to the log itself
            its control block is missing.

    Raises:
        UnsupportedFormatError: a file is of a later format version.
    """
    catalog, access = Catalog(folder), access or FileAccess()
    heads: list[_Head] = []
    for path, head in _heads(catalog, paths, access):
        if logical_name(path) == layout.CONTROL_NAME:
            _take_control(catalog, path, head)
        else:
            heads.append(_segment_head(path, head))
    identity = catalog.identity or _common_identity(heads)
    for one in heads:
        _take_segment(catalog, one, identity)
    catalog.segments.sort(key=_number)
    if archives and catalog.control_path is None:
        catalog.archive = _archive(catalog, access)
    catalog.unused = _is_unused(catalog, access)
    _require_control(catalog)
    _complete(catalog)
    return catalog


def read_folder(fs: FileSystem, folder: str) -> tuple[Catalog, FileAccess]:
    """Return the catalog of the log in ``folder``, and the access to its files through ``fs``.

    The log may be written meanwhile: a spare segment that has got another name since the folder was
    listed is none of it. Where no log is, archived segments, not packed, are what is left of one.

    Raises:
        UnsupportedFormatError: a file is of a later format version.
    """
    access = access_through(fs)
    catalog = read_catalog(folder, _members(fs, folder), access, archives=False)
    renamed = {one for one in _gone(fs, catalog) if _is_spare(one)}
    catalog.findings = [
        one for one in catalog.findings if one.code != UNREADABLE.code or one.file not in renamed
    ]
    return catalog, access


def _members(fs: FileSystem, folder: str) -> list[str]:
    with as_unreadable(folder):
        names = fs.list(folder)
    own = [name for name in names if is_own(name)] or filter(is_member, names)
    return [posixpath.join(folder, name) for name in own]


def _gone(fs: FileSystem, catalog: Catalog) -> set[str]:
    """Return the files of a catalog that could not be read and are not listed any more."""
    unreadable = {one.file or "" for one in catalog.findings if one.code == UNREADABLE.code}
    return unreadable.difference(_members(fs, catalog.folder)) if unreadable else unreadable


def _is_spare(path: str) -> bool:
    return posixpath.basename(path).startswith(layout.SPARE_PREFIX)


def readable_folder(fs: FileSystem, folder: str) -> tuple[Catalog, FileAccess]:
    """Return what `read_folder` does, if every file of it could be read.

    A file that cannot be read now, for want of a descriptor or a permission, may hold anything: it
    is neither missing nor unused. If segments go while they are read, the folder is listed again.

    Raises:
        LogUnreadableError: a file could not be read.
        UnsupportedFormatError: a file is of a later format version.
    """
    catalog, access = read_folder(fs, folder)
    before: Control | None = None
    for _ in range(_LISTINGS_MAX - 1):
        # The control block is read after the folder was listed: a checkpoint may have come in
        # between, and given up all that was. A log that rests is listed once more at most.
        passed = _lacks_first(catalog) and catalog.control != before
        if not (_gone(fs, catalog) or passed):
            break
        before = catalog.control
        catalog, access = read_folder(fs, folder)
    _require_readable(catalog.findings)
    return catalog, access


def _lacks_first(catalog: Catalog) -> bool:
    return catalog.control is not None and catalog.control.first_segment in catalog.missing


def _require_readable(findings: Iterable[Finding]) -> None:
    for finding in findings:
        if finding.code == UNREADABLE.code:
            raise LogUnreadableError(
                f"a file of the log cannot be read: {finding.message}",
                file=finding.file,
                advice="Nothing was changed. Try again once the file can be read",
            )


def control_in(fs: FileSystem, folder: str) -> Control | None:
    """Return the control block of a folder by its file alone; None without a whole one.

    Other processes may be writing there.

    Raises:
        LogUnreadableError: it could not be read.
    """
    path = posixpath.join(folder, layout.CONTROL_NAME)
    if not fs.exists(path):
        return None
    catalog = Catalog(folder)
    _take_control(catalog, path, access_through(fs).head(path, layout.DATA_OFFSET))
    return catalog.control


def is_member(name: str) -> bool:
    """Return True for the name of a file that belongs, or has belonged, to a native log."""
    return name.endswith(layout.SUFFIX) or name.startswith(layout.SPARE_PREFIX)


def is_own(name: str) -> bool:
    """Return True for the name of a file of the log in its folder; archived ones are not."""
    return is_member(name) and layout.archived_as(name) is None


def _heads(
    catalog: Catalog, paths: Iterable[str], access: FileAccess
) -> Iterator[tuple[str, bytes]]:
    for path in sorted(paths):
        if not is_member(logical_name(path)):
            continue
        try:
            yield path, access.head(path, layout.DATA_OFFSET)
        except LogUnreadableError as error:
            catalog.report(UNREADABLE.code, str(error), file=path, advice=error.advice)


def _take_control(catalog: Catalog, path: str, head: bytes) -> None:
    catalog.control_path = path
    copies = [decode_control(head, 0), decode_control(head, layout.COPY_OFFSET)]
    whole = [copy for copy in copies if copy is not None]
    if not whole:
        catalog.unfinished = head == UNFINISHED_BACKUP
        return
    catalog.control = max(whole, key=lambda one: one.generation)
    if len(whole) == 1:
        catalog.control_damage = layout.COPY_OFFSET if copies[0] is not None else 0
        catalog.report(
            "control-repaired",
            "one copy of the control block is damaged; the other one is used",
            file=path,
            offset=catalog.control_damage,
        )


def _common_identity(heads: Iterable[_Head]) -> bytes | None:
    """Return the identity that the newest segment has."""
    found = [one.header for one in heads if one.header is not None]
    return max(found, key=lambda header: header.number).identity if found else None


def _segment_head(path: str, head: bytes) -> _Head:
    copies = [decode_segment_header(head, 0), decode_segment_header(head, layout.COPY_OFFSET)]
    whole = [copy for copy in copies if copy is not None]
    if not whole:
        return _Head(path, None, None)
    # A crash while a file is recycled leaves one copy of the old number.
    newest = max(whole, key=lambda one: one.number)
    bad = [
        place for place, copy in zip((0, layout.COPY_OFFSET), copies, strict=True) if copy != newest
    ]
    return _Head(path, newest, bad[0] if bad else None)


def _take_segment(catalog: Catalog, head: _Head, identity: bytes | None) -> None:
    path, header, damaged = head
    one = SegmentFile(path, FileStatus.LIVE, header, damaged)
    if logical_name(path).startswith(layout.SPARE_PREFIX):
        one.status = FileStatus.SPARE
        catalog.others.append(one)
    elif header is None:
        _take_headless(catalog, one)
    elif header.identity != identity:
        one.status = FileStatus.FOREIGN
        catalog.others.append(one)
        catalog.report("foreign-segment", "a segment of another log", file=path)
    elif catalog.control is not None and header.number < catalog.control.first_segment:
        one.status = FileStatus.FREED
        catalog.others.append(one)
    else:
        catalog.segments.append(one)


def _take_headless(catalog: Catalog, one: SegmentFile) -> None:
    name = logical_name(one.path)
    if layout.archived_as(name) is not None:
        one.status = FileStatus.DAMAGED
        catalog.others.append(one)
        _report_headless(catalog, one)
        return
    number = layout.segment_number(name)
    control = catalog.control
    if control is None or number is None or not _must_exist(control, number):
        one.status = FileStatus.SPARE
        catalog.others.append(one)
        return
    one.status = FileStatus.DAMAGED
    one.header = SegmentHeader(
        control.identity, number, layout.LSN_FIRST, control.segment_size, control.sector_size
    )
    catalog.segments.append(one)
    _report_headless(catalog, one)


def _report_headless(catalog: Catalog, one: SegmentFile) -> None:
    catalog.report(
        "corrupt-segment-header",
        "both copies of a segment's header are damaged",
        file=one.path,
        offset=0,
    )


def _must_exist(control: Control, number: int) -> bool:
    return control.first_segment <= number <= control.last_segment


def _number(one: SegmentFile) -> int:
    return one.header.number if one.header else 0


def _is_unused(catalog: Catalog, access: FileAccess) -> bool:
    """Return whether no file is the control block, a later segment, or holds anything."""
    every = [*catalog.segments, *catalog.others]
    later = any(one.header is not None and one.header.number != 1 for one in every)
    if catalog.control_path is not None or later:
        return False
    try:
        blank = all(_is_blank(one.path, access) for one in every)
    except LogUnreadableError as error:
        catalog.report(UNREADABLE.code, str(error), file=error.file, advice=error.advice)
        return False
    return blank and all(one.code != UNREADABLE.code for one in catalog.findings)


def _is_blank(path: str, access: FileAccess) -> bool:
    """Return whether nothing was ever written to a segment after its headers."""
    with access.open(path) as source:
        return is_zero(source.data, layout.DATA_OFFSET, source.size)


def _require_control(catalog: Catalog) -> None:
    if catalog.unfinished:
        catalog.report(
            "unfinished-backup", "this backup was never finished", file=catalog.control_path
        )
    elif catalog.control is None and catalog.segments and not (catalog.archive or catalog.unused):
        catalog.report(
            "corrupt-control",
            "the control block is missing, or both of its copies are damaged",
            file=catalog.control_path or posixpath.join(catalog.folder, layout.CONTROL_NAME),
        )


def _complete(catalog: Catalog) -> None:
    """Find gaps, double numbers and repairs; note for each segment what its successors prove."""
    control = catalog.control
    durable = control.durable_lsn if control else 0
    # From the newest back: each header says up to where everything before its segment was durable.
    for one in reversed(catalog.segments):
        one.durable_lsn = durable
        if one.header is not None and one.status is FileStatus.LIVE:
            durable = max(durable, one.header.previous_lsn)
    for before, after in zip(catalog.segments, catalog.segments[1:], strict=False):
        header = after.header
        if header and after.status is FileStatus.LIVE and header.previous == _number(before):
            before.stated_end = header.previous_end
    for one in catalog.segments:
        if one.damaged_copy is not None:
            catalog.report(
                "header-repaired",
                "one copy of a segment's header is damaged; the other one is used",
                file=one.path,
                offset=one.damaged_copy,
                advice="Opening the log writes both anew",
            )
    _find_missing(catalog)


def _find_missing(catalog: Catalog) -> None:
    numbers = [_number(one) for one in catalog.segments]
    control = catalog.control
    first = control.first_segment if control else min(numbers, default=1)
    last = max([control.last_segment if control else 0, *numbers])
    present = set(numbers)
    catalog.missing = [
        number
        for number in range(first, min(last, first + _MISSING_MAX) + 1)
        if number not in present and catalog.archive is None
    ]
    if catalog.archive is not None:
        _report_gaps(catalog, numbers)
    for number in catalog.missing[:_REPORTED_MAX]:
        catalog.report(
            "missing-segment",
            f"segment {number} must be there and is missing",
            file=posixpath.join(catalog.folder, layout.segment_name(number)),
        )
    if len(numbers) != len(present):
        catalog.report("double-segment", "two files claim to be the same segment")


def _report_gaps(catalog: Catalog, numbers: list[int]) -> None:
    """Report where archived segments do not follow each other."""
    for before, after in itertools.pairwise(numbers):
        if after > before + 1:
            catalog.report(
                "archive-gap",
                f"segments {before + 1} to {after - 1} are not among the archived ones",
                file=posixpath.join(catalog.folder, layout.segment_name(before + 1)),
            )


def _archive(catalog: Catalog, access: FileAccess) -> Archive | None:
    """Return why the segments, of which no control block is there, are archived ones."""
    segments = catalog.segments
    if segments and all(layout.archived_as(logical_name(one.path)) for one in segments):
        return Archive.NAMED
    if segments and all(_ends_with_index(one, access) for one in segments):
        return Archive.SEALED
    return None


def _ends_with_index(one: SegmentFile, access: FileAccess) -> bool:
    header = one.header
    if header is None:
        return False
    tail = access.part(one.path, header.size - layout.HEADER_SIZE, layout.HEADER_SIZE)
    index = layout.decode_group_header(tail, 0)
    return index is not None and is_index_of(index, header)
