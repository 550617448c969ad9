"""Copies of the state of a shared log, so that a new leader reads only what came after.

In: the state between two groups, from time to time. Out: a file ``shared.<epoch>.state`` beside the
log, and at the next change of leaders the state again, with the place up to which it goes.

A copy is lines of JSON; the last line is the checksum of those before. It is never synced, and
holds for one boot: it is for processes that go on while the leader changes, and whoever opens the
log alone removes it. One that is not whole, or of another boot or log, is as good as none: then the
whole log is read.

A copy of a leader that was deposed is as true as any. It is taken first, and then the leader looks
whether it was deposed: if not, each of its records was written before that, so that every later
recovery has found them (`tallystick.storage.shared.epochs`, E3).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final

from tallystick.printable import logger
from tallystick.records import Xid
from tallystick.storage.crc import crc32
from tallystick.storage.fork import Uncopied
from tallystick.storage.opening import start_thread
from tallystick.storage.scheduling import threading, time
from tallystick.storage.shared import kernel
from tallystick.storage.shared.members import PREFIX
from tallystick.systems.tally.format.bodies import Ending
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.opening import Known
from tallystick.systems.tally.read.state import (
    Element,
    LogState,
    OpenDecision,
    OpenEntry,
    OpenTransaction,
)

_VERSION: Final = 3
_SUFFIX: Final = ".state"
_SEGMENTS: Final = 2
"""Segments that are begun between two copies, at least."""
_PAUSES: Final = 20
"""Time between two copies, in durations of the last one."""
_AT_ONCE: Final = 1000
"""Ids in a line: the interpreter lock is held while a line is made."""

_log = logger("tallystick.tally")


class StateCopies(Uncopied):
    """The copies that one leader makes.

    Args:
        log: The log that it leads.
        path: The file of its epoch.
        check: Raises if the leader was deposed.
        segment: The segment from which on the leader has read the log.
    """

    def __init__(
        self, log: TallyLog, path: str, check: Callable[[str], None], segment: int
    ) -> None:
        self._log = log
        self._path = path + _SUFFIX
        self._check = check
        self._segment = segment
        self._next = 0.0
        self._thread: threading.Thread | None = None

    def make_if_due(self) -> None:
        """Copy the state if enough was written since the last copy; a thread writes the file."""
        log = self._log
        if (
            log.key is not None  # a copy would hold in plain text what the log encrypts
            or log.last_segment - self._segment < _SEGMENTS
            or time.monotonic() < self._next
            or (self._thread is not None and self._thread.is_alive())
        ):
            return
        lines, live, self._segment = log.between_groups(_taken)
        self._check("copy of the state")
        thread = threading.Thread(
            target=self._write, args=(lines, live), name=f"copy of {self._path}", daemon=True
        )
        with contextlib.suppress(OSError):  # no thread to be had: the next time
            start_thread(thread)
            self._thread = thread  # only now: one that never ran cannot be joined

    def _write(self, lines: list[Any], live: dict[int, tuple[Element, ...]]) -> None:
        began, part = time.monotonic(), self._path + ".part"
        try:
            kernel.write_anew(part, _summed(_encoded(self._log, lines, live)))
            kernel.rename(part, self._path)
        except OSError as error:  # the next leader reads the whole log
            _log.warning("the state of a shared log was not copied: %s", error)
            with contextlib.suppress(OSError):
                kernel.remove(part)
        ended = time.monotonic()
        self._next = ended + _PAUSES * (ended - began)

    def close(self) -> None:
        """Wait until nothing is written any more."""
        if self._thread is not None:
            self._thread.join()


def _summed(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines, and then their checksum as one more."""
    crc = 0
    for line in lines:
        crc = crc32(line, crc)
        yield line
    yield b"%d\n" % crc


# -- to bytes -----------------------------------------------------------------------------------


def _taken(
    state: LogState, segment: int, next_lsn: int
) -> tuple[list[Any], dict[int, tuple[Element, ...]], int]:
    """Return what changes as values of JSON, and the live elements, which do not change."""
    numbers = [segment, next_lsn, state.first_segment, state.checkpoint_lsn]
    numbers += [state.next_transaction, state.next_key]
    lines: list[Any] = [numbers, list(state.plain_lsns.items()), list(state.incomplete.items())]
    lines.append(list(state.early_deletes))
    lines.append([[number, *_transaction(one)] for number, one in state.open.items()])
    lines.append(
        [
            [gtrid.hex(), one.segment, one.time_us, sorted(one.resources)]
            for gtrid, one in state.decisions.items()
        ]
    )
    lines.append(
        [[gtrid.hex(), at, sorted(names)] for gtrid, (at, names) in state.heuristics.items()]
    )
    lines.append(
        [
            [number, one.segment, one.time_us, one.body.hex(), one.targets, sorted(one.remaining)]
            for number, one in state.pending.items()
        ]
    )
    return lines, dict(state.live), segment


def _transaction(one: OpenTransaction) -> list[Any]:
    elements = [_element(element) for element in one.elements]
    ending = one.ending
    if ending is None:
        return [one.first_segment, elements, list(one.counts.items()), None]
    xid = ending.xid and [ending.xid.format_id, ending.xid.gtrid.hex(), ending.xid.bqual.hex()]
    counts = list(one.counts.items())
    return [one.first_segment, elements, counts, [ending.pairs, xid, ending.extra.hex()]]


def _element(one: Element) -> list[Any]:
    return [one.code, one.key, one.lsn, one.segment, one.size]


def _encoded(
    log: TallyLog, lines: list[Any], live: dict[int, tuple[Element, ...]]
) -> Iterator[bytes]:
    yield _line([_VERSION, kernel.boot_id().hex(), log.identity.hex()])
    yield from map(_line, lines)
    every = iter(live.values())
    while some := list(islice(every, _AT_ONCE)):
        yield _line([_element(one) for elements in some for one in elements])


def _line(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


# -- and back -----------------------------------------------------------------------------------


def last_copy(folder: str, identity: bytes | None) -> Known | None:
    """Return the state of the newest copy that is whole, of this boot and of this log; or None."""
    found = {}
    for name in kernel.names(folder):
        number = name.removeprefix(PREFIX).removesuffix(_SUFFIX)
        if name == f"{PREFIX}{number}{_SUFFIX}" and number.isascii() and number.isdecimal():
            found[int(number)] = name
    for epoch in sorted(found, reverse=True):
        with contextlib.suppress(OSError, ValueError, TypeError, LookupError, RecursionError):
            return _known(kernel.read_file(f"{folder}/{found[epoch]}"), identity)
    return None


def _known(data: bytes, identity: bytes | None) -> Known:
    whole, _, checksum = data.removesuffix(b"\n").rpartition(b"\n")
    if crc32(whole + b"\n") != int(checksum):
        raise ValueError("a copy that is not whole")
    lines = map(json.loads, whole.split(b"\n"))
    if next(lines) != [_VERSION, kernel.boot_id().hex(), identity and identity.hex()]:
        raise ValueError("a copy of another boot or log")
    segment, lsn, first_segment, checkpoint_lsn, next_transaction, next_key = next(lines)
    state = LogState(first_segment, checkpoint_lsn)
    state.next_transaction, state.next_key = next_transaction, next_key
    state.plain_lsns, state.incomplete = dict(next(lines)), {}
    state.incomplete.update((lsn, (number, holes)) for lsn, (number, holes) in next(lines))
    state.early_deletes = {(delete, last) for delete, last in next(lines)}
    for number, first, elements, counts, ending in next(lines):
        state.open[number] = OpenTransaction(
            first, [Element(*one) for one in elements], dict(counts), ending and _ending(*ending)
        )
    for gtrid, at, since, resources in next(lines):
        state.decisions[bytes.fromhex(gtrid)] = OpenDecision(at, since, frozenset(resources))
    for gtrid, at, names in next(lines):
        state.heuristics[bytes.fromhex(gtrid)] = (at, frozenset(names))
    for key, at, since, body, targets, remaining in next(lines):
        entry = OpenEntry(at, since, bytes.fromhex(body), tuple(targets), frozenset(remaining))
        state.pending[key] = entry
    for some in lines:
        for one in some:
            state.take(Element(*one))
    return Known(state, segment, lsn)


def _ending(pairs: list[list[int]], xid: list[Any] | None, extra: str) -> Ending:
    branch = xid and Xid(xid[0], bytes.fromhex(xid[1]), bytes.fromhex(xid[2]))
    return Ending(tuple((one, count) for one, count in pairs), branch or None, bytes.fromhex(extra))
