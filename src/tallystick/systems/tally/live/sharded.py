"""Use several native logs as one, each on a disk of its own, say, with one order over all.

In: a folder per shard. Out: records in the order (time, LSN, shard). Within a shard that is the
order of the log, because times never decrease in it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from zlib import crc32

from tallystick.errors import UnsupportedFormatError
from tallystick.records import Outcome, Record
from tallystick.roles import Role
from tallystick.storage.files import FileSystem
from tallystick.storage.group.ticket import GroupTicket
from tallystick.storage.local import LOCAL
from tallystick.storage.opening import Closing
from tallystick.systems.tally.format.sealing import KeyProvider
from tallystick.systems.tally.live.items import Item
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.settings import Settings
from tallystick.systems.tally.read.claim import Claim
from tallystick.systems.tally.read.files import control_in
from tallystick.systems.tally.reader import TallyReading


class ShardedLog(Closing):
    """Open logs in ``folders``, in the order of their shard numbers.

    Raises `UnsupportedFormatError` for another order, and as `TallyLog` does;
    logs that were opened before the error are closed again.
    """

    def __init__(
        self,
        folders: Sequence[str],
        *,
        settings: Settings | None = None,
        key: KeyProvider | None = None,
        fs: FileSystem = LOCAL,
    ) -> None:
        self.shards: list[TallyLog] = []
        common = settings or Settings()
        for number, folder in enumerate(folders):
            _require_shard(fs, folder, number, len(folders))
        try:
            for number, folder in enumerate(folders):
                own = replace(common, shard=number, shards=len(folders))
                log = TallyLog(folder, settings=own, key=key, fs=fs, claim=Claim(Role.JOURNAL))
                self.shards.append(log)
        except BaseException:
            self.close()
            raise

    def shard_of(self, key: bytes) -> TallyLog:
        """Return the log that holds all records of a key: the same one on every machine."""
        return self.shards[crc32(key) % len(self.shards)]

    def append(self, key: bytes, body: bytes) -> GroupTicket[Item]:
        """Append a plain record to the shard of its key."""
        return self.shard_of(key).append(body)

    def close(self) -> None:
        """Close all shards, even if one of them fails; raise the first error."""
        # The last one is closed first, so that what the first one raises comes out of the stack.
        with ExitStack() as stack:
            for shard in self.shards:
                stack.callback(shard.close)


def _require_shard(fs: FileSystem, folder: str, number: int, count: int) -> None:
    """Require that the log in a folder, if there is one, is this shard of so many."""
    control = control_in(fs, folder)
    if control is not None and (control.shard, control.shards) != (number, count):
        raise UnsupportedFormatError(
            "this log is another shard, or one of another number of them",
            file=folder,
            expected=f"shard {number} of {count}",
            found=f"shard {control.shard} of {control.shards}",
            advice="Nothing was changed. Give the folders of all shards, in their order",
        )


def merged(readings: Iterable[TallyReading]) -> Iterator[Record]:
    """Yield the records of several shards in one order; memory does not grow with the logs."""
    return heapq.merge(*map(_numbered, readings), key=_place)


def _numbered(reading: TallyReading) -> Iterator[Record]:
    control = reading.catalog.control
    shard = control.shard if control else 0
    for record in reading.records():
        if record.outcome is Outcome.VALID:
            record.attributes["shard"] = shard
            yield record


def _place(record: Record) -> tuple[int, int, int]:
    return record.time or 0, record.sequence or 0, int(record.attributes["shard"])
