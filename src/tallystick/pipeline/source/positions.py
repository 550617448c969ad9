"""How far logs were read: what a stream keeps between its steps.

In: positions. Out: where to go on in a log, and proof that it still holds what was read. A position
has one entry per log, whatever files the log had: it does not grow with time, and what is gone for
a while, or for ever, stays known. Positions of earlier versions had an entry per file:
`tallystick.pipeline.source.earlier_positions` reads them on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any, NotRequired, TypeAlias, TypedDict, cast
from urllib.parse import quote

from tallystick.disposal.retention import ReaderOffset
from tallystick.errors import TallystickError
from tallystick.pipeline.change_feed import DATED_SECONDS
from tallystick.pipeline.options import OptionError, SourceOptions, folder_of
from tallystick.pipeline.planning import RecordsLostError, find
from tallystick.pipeline.typed import catalogue_of
from tallystick.reading.names import log_name
from tallystick.storage.source import read_part
from tallystick.systems.protocol import LogSource, Missing, Reached


class LogPosition(TypedDict):
    """How far one log was read, as JSON holds it.

    Attributes:
        file: path of the file that holds the last record that was handed on; empty without any.
        number: its number in the log (`Ordered.number`), -1 without any. All files with lower
            numbers were read to their ends.
        identity: what tells the log from another one at its path (`Ordered.log_identity`).
        offset: where the last record ends in the file, in bytes.
        place: the place of that record (`ChangesBetween`); None where it is not known.
        digests: digests of the last blocks before the offset.
        known: files up to this number hold no other record that counts; at least ``number``.
        rewrites: how often the log was read anew because its history was rewritten.
        losses: how often the stream went on without records that are gone or damaged.
        loss: the last of these, in words.
        since: number of the newest file at the first look at the log.
        begun: number of the file that has the first record of the step that ends here.
        resumed: the place before the first record after the last hole; None if there is none.
        lost: the place up to which changes may be lost, so that rows are known from there on; not
            there where none are.
        table: what of the log was handed on; not there in positions of earlier versions.
        collection: the one whose changes were handed on alone; not there where it was none.
        last_version, last_time: the end of the stream, by version or in microseconds since 1970,
            after which rows may have been passed over; not there where it had none.
    """

    file: str
    number: int
    identity: int | None
    offset: int
    place: int | None
    digests: str
    known: int
    rewrites: int
    losses: int
    loss: str
    since: int
    begun: int
    resumed: int | None
    lost: NotRequired[int]
    table: NotRequired[str]
    collection: NotRequired[str]
    last_version: NotRequired[int]
    last_time: NotRequired[int]


Position: TypeAlias = dict[str, LogPosition]
"""By `key_of` a log."""

UNREAD = LogPosition(
    file="", number=-1, identity=None, offset=0, place=None, digests="", known=-1,
    rewrites=0, losses=0, loss="", since=-1, begun=-1, resumed=None,
)  # fmt: skip
"""The entry of a log of which nothing was handed on."""

BLOCK_BYTES = 8 << 10
BLOCKS = 8
"""Bytes of a block, and the number of blocks before an offset whose digests stand for a history."""

_DIGEST_BYTES = 4


class HistoryRewrittenError(TallystickError):
    """What a stream has handed on is not in the log any more."""


def key_of(source: LogSource) -> str:
    """Return the name of a log in a position: the same whatever other systems lie beside it."""
    return f"{source.system} {source.path if source.name == source.system else log_name(source)}"


def lost(missing: Missing, source: LogSource) -> RecordsLostError:
    """Make the error of records that a log has no more."""
    were = "were" if missing.certain else "may have been"
    return RecordsLostError(
        f"records {were} given up before they were read",
        file=source.path,
        expected=missing.expected,
        found=missing.found,
        advice=ADVICE,
    )


def replaced(source: LogSource, identity: int) -> RecordsLostError:
    """Make the error of a log that another one has taken the place of."""
    return RecordsLostError(
        "another log stands in the place of the one that was read: what that one had besides is "
        "lost",
        file=source.path,
        found=f"a log with the identity {identity:014x}",
        advice="Put the log back; or read the new one from its start: onRewrite=restart does so, "
        "and failOnDataLoss=false counts it as a loss",
    )


ADVICE = (
    "Compare the output with the log; failOnDataLoss=false goes on without what is lost, and "
    "onRewrite=restart with a log that was put back. Hold files back from now on: holdFolder"
)


def reached(entry: LogPosition, *, there: bool) -> Reached | None:
    """Return how far a log is known, for `Ordered.missing`; None if nothing of it is."""
    if entry["number"] < 0:
        return None
    return Reached(entry["known"], entry["place"], there, entry["since"])


def require_below(position: Mapping[str, Any], paths: Iterable[str]) -> None:
    """Check that a position is that of logs below some paths.

    Raises:
        OptionError: all of its logs are elsewhere: the checkpoint belongs to another stream.
    """
    logs = [
        key if isinstance(one, list) else key.partition(" ")[2] for key, one in position.items()
    ]
    wanted = tuple(f"{folder_of(path).rstrip('/')}/" for path in paths)
    if logs and not any(f"{log}/".startswith(wanted) or _holds(log, wanted) for log in logs):
        raise OptionError(
            "the checkpoint is that of a stream over other paths",
            expected=f"logs below {', '.join(paths)}",
            found=logs[0],
            advice="Use a checkpoint of its own for each stream",
        )


def require_same_stream(position: Mapping[str, Any], options: SourceOptions) -> None:
    """Check that a position is that of a stream of the table, collection and end of the options.

    A collection that is not in the logs any more was renamed, and goes on under its new name. An
    end may come earlier than it did.

    Raises:
        OptionError: it is that of another one: what came before it would never be handed on.
    """
    entries = [entry for entry in position.values() if isinstance(entry, dict)]
    table, collection = _handed_on(options), options.collection
    for entry in entries:
        if entry.get("table", table) != table:
            raise _of_another("table", table, entry["table"])
        for name, end in _ends(options).items():
            kept = entry.get(name)
            if kept is not None and (end is None or kept < end):
                raise _ended_earlier(name, kept)
    others = {entry["collection"] for entry in entries if entry.get("collection")} - {collection}
    if collection is None or not others:
        return
    there = {name for _, name in catalogue_of(find(options.paths).logs, options.reading)}
    for other in others & there:
        raise _of_another("collection", collection, other)


def _of_another(what: str, wanted: str, found: str) -> OptionError:
    return OptionError(
        f"the checkpoint is that of a stream of another {what}",
        expected=wanted,
        found=found,
        advice="Use a checkpoint of its own for each stream",
    )


def _ended_earlier(name: str, end: int) -> OptionError:
    option = {"last_version": "endingVersion", "last_time": "endingTimestamp"}[name]
    shown = str(end)
    if name == "last_time" and end // 1_000_000 in DATED_SECONDS:
        shown = (datetime.fromtimestamp(0, UTC) + timedelta(microseconds=end)).isoformat()
    return OptionError(
        "the checkpoint is that of a stream with an earlier end: what came after was passed over",
        expected=f"{option} {shown}, or an earlier one",
        found="a later one, or none",
        advice="Begin another stream after that end (startingVersion, startingTimestamp), with a "
        "checkpoint of its own",
    )


def with_options(start: Position, position: Position, options: SourceOptions) -> Position:
    """Return a position whose entries that moved since ``start`` say what was handed on."""
    noted = {"table": _handed_on(options), "collection": options.collection, **_ends(options)}
    return {
        key: entry if entry == start.get(key) else _noted(entry, noted)
        for key, entry in position.items()
    }


def _noted(entry: LogPosition, options: Mapping[str, Any]) -> LogPosition:
    """Return an entry with the options that matter; a version that was not reached does not."""
    place, last = entry["place"], options["last_version"]
    reached_end = last is None or place is None or place > last
    given = {
        name: value
        for name, value in options.items()
        if value is not None and (reached_end or name != "last_version")
    }
    return cast(LogPosition, {**entry, **given})


def _ends(options: SourceOptions) -> dict[str, int | None]:
    bounds = options.bounds
    return {"last_version": bounds.last_version, "last_time": bounds.last_time}


def _handed_on(options: SourceOptions) -> str:
    table = options.table
    return table if options.collection is None else f"{table} of one collection"


def _holds(log: str, paths: Iterable[str]) -> bool:
    """Return True if one of the paths is that of a file of the log."""
    return any(path.startswith(f"{log}/") for path in paths)


def capped(start: Position, position: Mapping[str, Any], target: Position) -> Position:
    """Return the position after ``start`` without what was written after ``target`` was taken."""
    found: Position = {}
    for key, entry in position.items():
        before = start.get(key)
        if isinstance(entry, dict) and key in target:
            found[key] = _capped(before or UNREAD, cast(LogPosition, entry), target[key])
        elif before is not None:
            found[key] = before
    return found


def _capped(before: LogPosition, entry: LogPosition, target: LogPosition) -> LogPosition:
    last = max(target, before, key=order_of)
    if order_of(entry) <= order_of(last):
        return entry
    return {
        **entry,
        "file": last["file"],
        "number": last["number"],
        "offset": last["offset"],
        "place": last["place"],
        "digests": last["digests"],
        "known": last["known"],
    }


def order_of(entry: LogPosition) -> tuple[int, int]:
    """Return what grows along a log: the number of a file, and an offset in it."""
    return entry["number"], entry["offset"]


def is_at(entry: LogPosition, other: LogPosition) -> bool:
    """Return whether two entries are one place.

    Another file of the same number may have records up to the same offset: its bytes tell it.
    """
    return (order_of(entry), entry["digests"]) == (order_of(other), other["digests"])


def reader_offset(hold_folder: str, log_folder: str) -> ReaderOffset:
    """Return how far a stream with this ``holdFolder`` has read a log, for `KeepForReader`."""
    return ReaderOffset(hold_folder, quote(log_folder, safe=""))


def digests(path: str, first: int, end: int) -> str:
    """Return the digests of the last blocks before ``end``, of bytes from ``first`` on."""
    return "".join(text for _, text in _blocks(path, first, end))


def require_unchanged(path: str, first: int, end: int, known: str) -> None:
    """Check that the bytes before ``end`` are those that gave the digests ``known``.

    Raises:
        HistoryRewrittenError: they are not; its offset is where they first differ, or the first
            byte that is still known where all of them do.
    """
    length = 2 * _DIGEST_BYTES
    wanted = [known[at : at + length] for at in range(0, len(known), length)]
    first = min(first, end - 1)  # of what was read, no record may be left
    for (begin, now), was in zip(_blocks(path, first, end), wanted, strict=True):
        if now != was:
            raise rewritten(
                "the file was rewritten",
                path,
                begin,
                f"the bytes up to {end} that were read",
                f"others in the {BLOCK_BYTES} bytes from {begin} on",
            )


def rewritten(
    what: str, path: str, offset: int, expected: str, found: str
) -> HistoryRewrittenError:
    """Make the error of a log whose history is not the one that was read."""
    return HistoryRewrittenError(
        f"records that the stream has handed on were taken back: {what}",
        file=path,
        offset=offset,
        expected=expected,
        found=found,
        advice="Put the log back as it was; or read the log again, as a new one, with "
        "the option onRewrite=restart, and drop from the output what was taken back",
    )


def _blocks(path: str, first: int, end: int) -> Iterator[tuple[int, str]]:
    """Yield the offsets and digests of the last blocks; bytes that are gone count as none."""
    start = max((max(end - 1, 0) // BLOCK_BYTES - BLOCKS + 1) * BLOCK_BYTES, first)
    data = read_part(path, start, end - start) if start < end else b""
    begin = start
    while begin < end:
        after = min((begin // BLOCK_BYTES + 1) * BLOCK_BYTES, end)
        block = data[begin - start : after - start]
        yield begin, blake2b(block, digest_size=_DIGEST_BYTES).hexdigest()
        begin = after
