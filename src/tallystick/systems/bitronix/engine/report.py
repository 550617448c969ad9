"""The engine's verdict in the words and keys of the oracle.

In: the bytes of part 1 and part 2 (None for a missing file). Out: per code line a dictionary
with ``part1``, ``part2``, ``open`` and ``openSkippingCorrupted``: headers, cursor events, the
file in use, the exception that ends the start, the dangling records.
"""

from __future__ import annotations

from typing import Any

from tallystick.systems.bitronix.engine.events import (
    Accepted,
    Event,
    JavaError,
    Refused,
    Stop,
    singles,
)
from tallystick.systems.bitronix.engine.opening import (
    CODE_LINES,
    CORRUPTED,
    NEGATIVE_POSITION,
    Opening,
    Parts,
    events_beside,
    open_pair,
)
from tallystick.systems.bitronix.format.layout import (
    FileHeader,
    signed32,
    split_gtrid,
    state_name,
    status_name,
)
from tallystick.systems.bitronix.format.record import TransactionLogRecord

HANGS = {"hangs": True}
LONG_RUN = 16
"""Complaints of one kind in a row, evenly spaced, that are told as one from here on."""


def engine_verdict(parts: Parts, events: list[list[Event]]) -> dict[str, Any]:
    """The verdict of every code line, by its name; ``events`` are those of the oldest."""
    oldest, newer = CODE_LINES
    told = list(map(_part, parts, events))
    first = _line_verdict(parts, events, told)
    theirs = events_beside(parts, newer, events)
    for number, part in enumerate(parts):
        if theirs[number] != events[number]:
            told[number] = _part(part, theirs[number])
    second = _line_verdict(parts, theirs, told)
    return {oldest: first, newer: _told_by_reference(second, first, oldest)}


def _line_verdict(
    parts: Parts, events: list[list[Event]], told: list[dict[str, Any]]
) -> dict[str, Any]:
    verdict: dict[str, Any] = {f"part{number}": one for number, one in enumerate(told, 1)}
    for key, skip in (("open", False), ("openSkippingCorrupted", True)):
        verdict[key] = _opening(open_pair(parts, events, skip_corrupted=skip), parts)
    if _same_opening(verdict["open"], verdict["openSkippingCorrupted"]):
        verdict["openSkippingCorrupted"] = "same as open"
    return verdict


def _same_opening(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one != HANGS and one | {"skipCorruptedLogs": None} == other | {"skipCorruptedLogs": None}


def _part(data: memoryview | None, events: list[Event]) -> dict[str, Any]:
    if data is None:
        return {"header": None, "cursor": None}
    return {"header": _header_of(data), "cursor": _cursor(events)}


def _header_of(data: memoryview) -> dict[str, Any] | None:
    header = FileHeader.decode(data)
    if header is None:
        return None
    if header.position < 0:
        return {"exception": _error(NEGATIVE_POSITION)}
    return _header(header)


def _header(header: FileHeader) -> dict[str, Any]:
    return {
        "formatId": header.format_id,
        "timestamp": header.timestamp,
        "state": header.state,
        "stateName": state_name(header.state),
        "position": header.position,
    }


def _cursor(events: list[Event]) -> dict[str, Any]:
    stop = events[-1]
    assert isinstance(stop, Stop)  # every cursor ends with one
    cursor: dict[str, Any] = {"events": _events(events[:-1]), "stop": "end"}
    if stop.hangs:
        cursor["stop"] = HANGS
    elif stop.error is not None:
        place = {} if stop.offset is None else {"offset": stop.offset}
        cursor["stop"] = {"exception": _error(stop.error)} | place
    if stop.end_offset is not None:
        cursor["endOffset"] = stop.end_offset
    return cursor


def _events(events: list[Event]) -> list[dict[str, Any]]:
    """Events in file order; a long run of complaints as its first and its last."""
    told: list[dict[str, Any]] = []
    place = 0
    while place < len(events):
        behind = _run_end(events, place)
        run = events[place:behind]
        times = sum(event.times for event in run if isinstance(event, Refused))
        if times >= LONG_RUN:
            told.append(_repeated(run[0], run[-1], times))
        else:
            told += [_event(one) for one in singles(run)]
        place = behind
    return told


def _run_end(events: list[Event], place: int) -> int:
    """Behind the complaints of one kind and one stride that stand in a row from ``place`` on."""
    kind = _complaint(events[place])
    behind = place + 1
    if kind is not None:
        while behind < len(events) and _complaint(events[behind]) == kind:
            behind += 1
    return behind


def _complaint(event: Event) -> tuple[int, str] | None:
    """Stride and text of a complaint that names nothing but its place."""
    if not isinstance(event, Refused) or not event.detail.startswith(" ("):
        return None
    return (event.stride, event.detail)


def _repeated(first: Event, last: Event, times: int) -> dict[str, Any]:
    """Many complaints as the first of them, their number and the last."""
    assert isinstance(first, Refused)  # nothing else repeats
    assert isinstance(last, Refused)
    last = last.single(last.times - 1)
    run = {"times": times, "stride": first.stride, "last": _event(last)}
    return _event(first) | {"repeated": run}


def _event(event: Event) -> dict[str, Any]:
    if isinstance(event, Refused):
        error = {"class": CORRUPTED, "message": event.message}
        return {"offset": event.offset, "error": error, "nextOffset": event.next_offset}
    assert isinstance(event, Accepted)  # a Stop is told apart
    record = event.record
    return {
        "offset": event.offset,
        "status": record.status,
        "statusName": status_name(record.status),
        "recordLength": record.record_length,
        "headerLength": record.header_length,
        "time": record.time,
        "sequenceNumber": record.sequence_number,
        "crc32": signed32(record.crc32),
        **_gtrid(record.gtrid),
        "uniqueNames": list(record.unique_names),
        "endRecord": record.end_record,
    }


def _gtrid(gtrid: bytes) -> dict[str, Any]:
    parts = split_gtrid(gtrid)
    return {
        "gtrid": gtrid.hex().upper(),
        "gtridServerId": parts.server_id,
        "gtridTimestamp": parts.time,
        "gtridSequence": parts.sequence,
    }


def _opening(opening: Opening, parts: Parts) -> dict[str, Any]:
    if opening.hangs:
        return dict(HANGS)
    told: dict[str, Any] = {"skipCorruptedLogs": opening.skip_corrupted}
    if opening.error is not None:
        return told | {"openException": _error(opening.error)}
    failed = opening.collect_error is not None
    return told | {
        "openException": None,
        "active": "part1" if opening.active == 0 else "part2",
        "collectException": _error(opening.collect_error) if opening.collect_error else None,
        "dangling": None if failed else [dangling_json(record) for record in opening.dangling],
        "headersAfterClose": _headers_after_close(parts),
    }


def _headers_after_close(parts: Parts) -> dict[str, Any]:
    """Closing sets both states to clean and touches nothing else."""
    told = {}
    for number, part in enumerate(parts, 1):
        header = None if part is None else FileHeader.decode(part)
        assert header is not None  # a pair that was opened has both
        told[f"part{number}"] = _header(header) | {"state": 0, "stateName": state_name(0)}
    return told


def dangling_json(record: TransactionLogRecord) -> dict[str, Any]:
    return {
        **_gtrid(record.gtrid),
        "status": record.status,
        "uniqueNames": list(record.unique_names),
    }


def _error(error: JavaError) -> dict[str, Any]:
    return {"class": error.java_class, "message": error.message}


# -- the newer line, told by what differs ------------------------------------------------------


def _told_by_reference(verdict: dict[str, Any], other: dict[str, Any], name: str) -> dict[str, Any]:
    """The verdict with ``same as`` where the other line says the same."""
    same = f"same as {name}"
    told = {}
    for key, value in verdict.items():
        if value == other[key] and value != "same as open":
            told[key] = same
        elif key.startswith("part"):
            told[key] = value | {"cursor": _shared_events(value, other[key], name)}
        else:
            told[key] = value
    return told


def _shared_events(part: dict[str, Any], other: dict[str, Any], name: str) -> Any:
    if part["cursor"] is None or other["cursor"] is None:
        return part["cursor"]
    known = {event["offset"]: event for event in other["cursor"]["events"]}
    events = [
        {"offset": event["offset"], "sameAs": name}
        if event == known.get(event["offset"])
        else event
        for event in part["cursor"]["events"]
    ]
    return part["cursor"] | {"events": events}
