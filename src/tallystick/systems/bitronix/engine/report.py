"""The engine's verdict in the words and keys of the oracle.

In: the bytes of part 1 and part 2 (None for a missing file). Out: per code line a dictionary
with ``part1``, ``part2``, ``open`` and ``openSkippingCorrupted``: headers, cursor events, the
file in use, the exception that ends the start, the dangling records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
    collect,
    header_of,
    open_pair,
)
from tallystick.systems.bitronix.format.layout import (
    COMMITTING,
    FileHeader,
    signed32,
    split_gtrid,
    state_name,
    status_name,
)
from tallystick.systems.bitronix.read.open_decisions import OpenDecisions

HANGS = {"hangs": True}
LONG_RUN = 16
"""Number of equal refusals in a row, evenly spaced, from which on they are one row."""


Events = list[list[Event]]
"""What the cursor of one code line says about part 1 and part 2."""


def engine_verdict(parts: Parts) -> dict[str, Any]:
    """Return the verdict of both code lines by their names."""
    oldest, newest = CODE_LINES
    events = [list(_events_of(part, oldest)) for part in parts]
    newer_events = [
        list(_shared(_events_of(part, newest), known))
        for part, known in zip(parts, events, strict=True)
    ]
    parts_json = list(map(_part, parts, events))
    first = _line_verdict(parts, events, parts_json)
    for number, part in enumerate(parts):
        if newer_events[number] != events[number]:
            parts_json[number] = _part(part, newer_events[number])
    second = _line_verdict(parts, newer_events, parts_json)
    return {oldest: first, newest: _with_references(second, first, oldest)}


def _events_of(part: memoryview | None, line: str) -> Iterator[Event]:
    """Return the events of the cursor of that code line; none for a missing file."""
    return iter(()) if part is None else CODE_LINES[line](part).events()


def _shared(events: Iterable[Event], known: Iterable[Event]) -> Iterator[Event]:
    """Yield events, those that are known as the same objects: the lists are long and agree."""
    rest = iter(known)
    for event in events:
        other = next(rest, None)
        yield other if other is not None and other == event else event


def _line_verdict(parts: Parts, events: Events, parts_json: list[dict[str, Any]]) -> dict[str, Any]:
    verdict: dict[str, Any] = {f"part{number}": one for number, one in enumerate(parts_json, 1)}
    starts = open_pair(parts, lambda active: collect(events[active], active))
    verdict["open"] = _opening(starts.without, parts)
    verdict["openSkippingCorrupted"] = _opening(starts.skipping, parts)
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
    """Return events in file order; a long run of equal refusals as its first and its last."""
    rows: list[dict[str, Any]] = []
    place = 0
    while place < len(events):
        end = _run_end(events, place)
        run = events[place:end]
        times = sum(event.times for event in run if isinstance(event, Refused))
        if times >= LONG_RUN:
            rows.append(_repeated(run[0], run[-1], times))
        else:
            rows += [_event(one) for one in singles(run)]
        place = end
    return rows


def _run_end(events: list[Event], place: int) -> int:
    """Return the end of the run of refusals of one kind and stride that begins at ``place``."""
    kind = _refusal_kind(events[place])
    end = place + 1
    if kind is not None:
        while end < len(events) and _refusal_kind(events[end]) == kind:
            end += 1
    return end


def _refusal_kind(event: Event) -> tuple[int, str] | None:
    """Return stride and text of a refusal that states nothing but its offset, else None."""
    if not isinstance(event, Refused) or not event.detail.startswith(" ("):
        return None
    return (event.stride, event.detail)


def _repeated(first: Event, last: Event, times: int) -> dict[str, Any]:
    """Return many refusals as the first of them, their number and the last."""
    assert isinstance(first, Refused)  # nothing else repeats
    assert isinstance(last, Refused)
    last = last.single(last.times - 1)
    run = {"times": times, "stride": first.stride, "last": _event(last)}
    return _event(first) | {"repeated": run}


def _event(event: Event) -> dict[str, Any]:
    if isinstance(event, Refused):
        error = {"class": CORRUPTED, "message": event.message}
        return {"offset": event.offset, "error": error, "nextOffset": event.next_offset}
    assert isinstance(event, Accepted)  # the caller handles a Stop
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
    result: dict[str, Any] = {"skipCorruptedLogs": opening.skip_corrupted}
    if opening.error is not None:
        return result | {"openException": _error(opening.error)}
    failed = opening.collect_error is not None
    return result | {
        "openException": None,
        "active": "part1" if opening.active == 0 else "part2",
        "collectException": _error(opening.collect_error) if opening.collect_error else None,
        "dangling": None if failed else dangling_json(opening.decisions),
        "headersAfterClose": _headers_after_close(parts),
    }


def _headers_after_close(parts: Parts) -> dict[str, Any]:
    """Return the headers after a close, which sets both states to clean and nothing else."""
    clean = {"state": 0, "stateName": state_name(0)}
    return {
        f"part{number}": _header(header_of(part)) | clean for number, part in enumerate(parts, 1)
    }


def dangling_json(decisions: OpenDecisions) -> list[dict[str, Any]]:
    """Return open decisions by ascending gtrid, in the oracle's keys."""
    return [
        {**_gtrid(gtrid), "status": COMMITTING, "uniqueNames": list(decisions[gtrid])}
        for gtrid in sorted(decisions)
    ]


def _error(error: JavaError) -> dict[str, Any]:
    return {"class": error.java_class, "message": error.message}


# -- the newer line, by its differences ---------------------------------------------------------


def _with_references(verdict: dict[str, Any], other: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the verdict with ``same as`` where the other line has the same value."""
    same = f"same as {name}"
    result = {}
    for key, value in verdict.items():
        if value == other[key] and value != "same as open":
            result[key] = same
        elif key.startswith("part"):
            result[key] = value | {"cursor": _shared_events(value, other[key], name)}
        else:
            result[key] = value
    return result


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
