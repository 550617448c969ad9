"""Everything known of one file before anybody asks: pages, headers, the log, what recovery does.

In: the bytes of a file and the reader's options. Out: a `LogState`, which is complete for any
input: what cannot be read is None, and `problem` says why.
"""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.errors import CorruptLogError, LogFormatError
from tallystick.storage.source import ByteSource
from tallystick.systems.h2.engine.opening import Opening, failed, header_failure, open_log
from tallystick.systems.h2.engine.recovery import Recovery, recover
from tallystick.systems.h2.engine.tables import FILE_CORRUPTED, GENERAL_ERROR
from tallystick.systems.h2.format import layout
from tallystick.systems.h2.format.layout import VariableHeader
from tallystick.systems.h2.format.values.datetime import Zone, zone_named
from tallystick.systems.h2.read.page_chain import PageFile
from tallystick.systems.h2.read.stream import LogStream, open_stream
from tallystick.systems.protocol import ReadOptions

CALENDAR_SETTING = "h2.calendar"
JULIAN = "julian"
"""Reads dates before 1582-10-15 as H2 1.2 and 1.3 do; the default is 1.4.200's way."""


@dataclass(slots=True)
class LogState:
    """One file: its pages (None: no page store header), the header in force (None: both are
    damaged), the log (None: it cannot be followed), recovery and opening."""

    zone: Zone
    size: int
    opening: Opening
    pages: PageFile | None = None
    header: VariableHeader | None = None
    stream: LogStream | None = None
    recovery: Recovery | None = None
    problem: LogFormatError | None = None
    refused: bool = False
    """The headers alone decide `opening`."""


def zone_of(options: ReadOptions) -> Zone:
    """The zone of the writing process."""
    return zone_named(options.timezone, julian=options.settings.get(CALENDAR_SETTING, "") == JULIAN)


def load(source: ByteSource, options: ReadOptions) -> LogState:
    """The state of a file before recovery: headers and log stream, `recovery` still None.
    Raises `UnsupportedFormatError` for an unknown time zone only."""
    state = LogState(zone_of(options), source.size, Opening())
    try:
        static = layout.decode_static_header(source.data[: layout.STATIC_HEADER.size], source.path)
    except LogFormatError as error:
        state.problem = error
        state.opening = _without_header(error)
        return state
    state.pages = PageFile(source.path, source.data, static)
    state.header = next((header for header in state.pages.headers() if header), None)
    refused = header_failure(state.pages)
    if refused is not None:
        state.opening, state.refused = refused, True
    if not static.encrypted and state.header is not None:
        _open(state, state.pages, state.header)
    return state


def _without_header(error: LogFormatError) -> Opening:
    if isinstance(error, CorruptLogError):
        return failed(FILE_CORRUPTED, error.message)
    return Opening(replaced=True)


def _open(state: LogState, pages: PageFile, header: VariableHeader) -> None:
    try:
        state.stream = open_stream(pages, header)
    except CorruptLogError as error:
        state.problem = error
        if not state.refused:
            state.opening = failed(GENERAL_ERROR, error.message, 0)


def judge(state: LogState) -> LogState:
    """The same state with recovery played through and the engine's opening decided."""
    if state.stream is not None:
        state.recovery = recover(state.stream, state.zone)
        if not state.refused:
            state.opening = open_log(state.stream, state.recovery, state.zone)
    return state
