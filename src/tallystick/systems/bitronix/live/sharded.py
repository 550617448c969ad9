"""Several dual pairs as one journal: "multiple dual log file pairs".

In: records. Out: each goes to the pair that its gtrid selects, so that a decision and the records
that close it stay together; when read, the pairs merge by time, sequence number and pair.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

from tallystick.storage.crc import crc32
from tallystick.storage.fork import Uncopied
from tallystick.storage.group.ticket import GroupTicket
from tallystick.systems.bitronix.format.layout import DEFAULT_NAMES
from tallystick.systems.bitronix.format.record import TransactionLogRecord
from tallystick.systems.bitronix.live.encoder import Entry
from tallystick.systems.bitronix.live.log import DiskJournal


class ShardedJournal(Uncopied):
    """``pairs`` journals in one folder with the methods of one; options are `DiskJournal`'s.

    The first pair has the usual names, so that a journal of one pair is what the original has.
    """

    def __init__(self, path: str, pairs: int, **options: Any) -> None:
        self.path = path
        self.journals: list[DiskJournal] = []
        try:
            for number in range(pairs):
                self.journals.append(DiskJournal(path, names=pair_names(number), **options))
        except BaseException:
            self.close()
            raise

    def journal_of(self, gtrid: bytes) -> DiskJournal:
        """Return the pair that holds this gtrid."""
        return self.journals[crc32(gtrid) % len(self.journals)]

    def log(self, status: int, gtrid: bytes, unique_names: Collection[str]) -> None:
        """Store a status, unforced; see `DiskJournal.log`."""
        self.journal_of(gtrid).log(status, gtrid, unique_names)

    def log_forced(
        self, status: int, gtrid: bytes, unique_names: Collection[str]
    ) -> GroupTicket[Entry]:
        """Store a status and return a ticket for its durability; see `DiskJournal.log_forced`."""
        return self.journal_of(gtrid).log_forced(status, gtrid, unique_names)

    def settle(self, gtrid: bytes) -> GroupTicket[Entry]:
        """Close a heuristic outcome; see `DiskJournal.settle`."""
        return self.journal_of(gtrid).settle(gtrid)

    def force(self) -> None:
        """Wait until everything stored so far is durable in every pair."""
        for journal in self.journals:
            journal.force()

    def collect_dangling_records(self) -> Mapping[bytes, TransactionLogRecord]:
        """Return the open decisions of all pairs, by gtrid."""
        return _merged(journal.collect_dangling_records() for journal in self.journals)

    def dangling_record(self, gtrid: bytes) -> TransactionLogRecord | None:
        """Return the open decision of one gtrid; None if there is none."""
        return self.journal_of(gtrid).dangling_record(gtrid)

    def heuristic_records(self) -> Mapping[bytes, TransactionLogRecord]:
        """Return the heuristic outcomes of all pairs that are not settled, by gtrid."""
        return _merged(journal.heuristic_records() for journal in self.journals)

    def unsafe_read_records(
        self, *, include_invalid: bool = False
    ) -> Iterator[TransactionLogRecord]:
        """Yield the records of all files in use, ordered by time, sequence number and pair."""
        streams = (
            journal.unsafe_read_records(include_invalid=include_invalid)
            for journal in self.journals
        )
        return heapq.merge(*streams, key=lambda record: (record.time, record.sequence_number))

    def close(self) -> None:
        """Close every pair, also where one fails."""
        with ExitStack() as stack:
            for journal in self.journals:
                stack.callback(journal.close)


def open_journal(path: str, *, pairs: int = 1, **options: Any) -> DiskJournal | ShardedJournal:
    """Open a journal in the folder ``path``, of one pair of files or of several."""
    return DiskJournal(path, **options) if pairs == 1 else ShardedJournal(path, pairs, **options)


def pair_names(number: int) -> tuple[str, str]:
    """Return the file names of a pair, counted from 0."""
    if number == 0:
        return DEFAULT_NAMES
    return (f"btm-pair{number + 1}-1.tlog", f"btm-pair{number + 1}-2.tlog")


def _merged(
    parts: Iterator[Mapping[bytes, TransactionLogRecord]],
) -> dict[bytes, TransactionLogRecord]:
    return {gtrid: record for part in parts for gtrid, record in part.items()}
