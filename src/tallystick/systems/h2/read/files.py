"""A page store file as far as its headers and its log can be read.

In: the bytes of a file and the reader's options. Out: an `OpenedFile`, which is complete for any
input: what cannot be read is None, and `problem` says why.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from tallystick.errors import CorruptLogError, LogFormatError
from tallystick.storage.source import ByteSource, open_source
from tallystick.systems.h2.format import layout
from tallystick.systems.h2.format.layout import VariableHeader, is_encrypted
from tallystick.systems.h2.format.secure import decrypted
from tallystick.systems.h2.format.values.datetime import Zone, zone_named
from tallystick.systems.h2.read.stream import LogStream, PageFile, open_stream
from tallystick.systems.h2.read.surroundings import joined_parts
from tallystick.systems.protocol import LogSource, ReadOptions

CALENDAR_SETTING = "h2.calendar"
JULIAN = "julian"
"""Reads dates before 1582-10-15 as H2 1.2 and 1.3 do; the default is 1.4.200's way."""


_FIRST_TRUNK = bytes((layout.EMPTY, layout.EMPTY, layout.STREAM_TRUNK))
"""Types of the pages after the headers once the first page of a log is written."""


@dataclass(slots=True)
class OpenedFile:
    """One file before recovery.

    Attributes:
        zone: the time zone of the writing process.
        size: bytes of the file.
        pages: None: there is no page store header.
        header: the variable header in force; None: both copies are damaged.
        stream: the log; None: it cannot be followed.
        other: where the header in force names no log: the one that the second copy names.
        problem: what kept the file header, or the chain of trunk pages, from being read.
        password_given: a file password was given; it does not open what is encrypted still.
    """

    zone: Zone
    size: int
    pages: PageFile | None = None
    header: VariableHeader | None = None
    stream: LogStream | None = None
    other: LogStream | None = None
    problem: LogFormatError | None = None
    password_given: bool = False

    @property
    def used_copy(self) -> int:
        """Page of the header copy that the engine uses; 0: both are damaged."""
        copies = () if self.pages is None else self.pages.headers()
        return next(
            (at for at, copy in enumerate(copies, layout.VARIABLE_HEADER_PAGES[0]) if copy), 0
        )

    @property
    def in_first_life(self) -> bool:
        """True where the header is that of a new database, before its first checkpoint.

        The engine writes it without a log, then with the first pages as its log. The free list and
        the page index come with the first checkpoint; that moves the beginning of the log, and
        closing and opening give the log a later key. Source: ``PageStore.openNew``.
        """
        header = self.header
        return header is not None and (
            header.log_key,
            header.first_trunk,
            header.first_data,
        ) in ((0, 0, 0), layout.FIRST_LOG)

    @property
    def being_created(self) -> bool:
        """True where a database was being made when its process ended: it never had a log."""
        pages = self.pages
        if pages is None or not self.in_first_life or (self.header and self.header.log_key):
            return False
        written = pages.types()[layout.FREE_LIST_ROOT :].rstrip(bytes((layout.EMPTY,)))
        return written in (b"", _FIRST_TRUNK)

    @property
    def header_only(self) -> bool:
        """True where the file has as much of page 0 as a crash leaves while it is first written."""
        if self.pages is None:
            return self.size in range(0, layout.PAGE_SIZE_OFFSET + 1, layout.MAGIC_SIZE)
        return self.pages.data == layout.encode_static_header(self.pages.static)

    @property
    def encrypted(self) -> bool:
        """True where the file is encrypted, and was not decrypted: its pages cannot be read."""
        return self.pages is not None and self.pages.static.encrypted

    @property
    def why_encrypted(self) -> str:
        """Why the pages cannot be read; one sentence without its end."""
        if self.password_given:
            return (
                "the file does not open with the file password that was given: it is encrypted "
                "with another one, or its third header line is damaged"
            )
        return (
            "the file is encrypted and no file password was given, or its third header line is "
            "damaged"
        )


def open_bytes(source: LogSource, options: ReadOptions) -> ByteSource:
    """Return the bytes of a database: its parts one after the other, decrypted with its password.

    Parts after a missing part are left out: the engine does not open them either. Where the
    password opens the file with neither cipher, the bytes stay encrypted.

    Raises:
        LogUnreadableError: a file cannot be read.
        MissingExtraError: a package for ciphers is not installed.
    """
    paths = joined_parts(source)
    first = open_source(paths[0]) if paths else ByteSource(source.files[0], memoryview(b""))
    if len(paths) > 1:
        with first, ExitStack() as opened:
            rest = [opened.enter_context(open_source(path)) for path in paths[1:]]
            # Before the parts are closed: joined, only this says that one of them could not be
            # unpacked whole.
            damage = next((one.damage for one in (first, *rest) if one.damage), "")
            whole = b"".join(one.data for one in (first, *rest))
        first = ByteSource(first.path, memoryview(whole), damage)
    head = bytes(first.data[: layout.STATIC_HEADER.size])
    if options.boot_password is not None and is_encrypted(head):
        clear = decrypted(first.data, options.boot_password)
        if clear is not None:
            path = first.path
            first.close()
            first = ByteSource(path, memoryview(clear))
    return first


def zone_of(options: ReadOptions) -> Zone:
    """Return the time zone of the writing process.

    Raises:
        UnsupportedFormatError: the name of the zone is not known.
    """
    return zone_named(options.timezone, julian=options.settings.get(CALENDAR_SETTING, "") == JULIAN)


def open_file(source: ByteSource, options: ReadOptions) -> OpenedFile:
    """Read the headers and follow the log.

    Raises:
        UnsupportedFormatError: the name of the time zone is not known.
    """
    given = options.boot_password is not None
    opened = OpenedFile(zone_of(options), source.size, password_given=given)
    try:
        static = layout.decode_static_header(source.data[: layout.STATIC_HEADER.size], source.path)
        opened.pages = pages = PageFile(source.path, source.data, static)
        # The first copy with a right CRC, as the engine does, even if the second one is newer.
        opened.header = next((header for header in pages.headers() if header), None)
        if not static.encrypted and opened.header is not None:
            opened.stream = open_stream(pages, opened.header)
            if opened.stream.misnamed:
                opened.other = _second_log(pages, opened.header)
    except LogFormatError as error:
        opened.problem = error
    return opened


def _second_log(pages: PageFile, header: VariableHeader) -> LogStream | None:
    """Return the log that another copy of the header names, if it names one."""
    for copy in pages.headers():
        if copy is None or copy == header or not copy.first_trunk:
            continue
        try:
            stream = open_stream(pages, copy)
        except CorruptLogError:
            continue
        if not stream.misnamed:
            return stream
    return None
