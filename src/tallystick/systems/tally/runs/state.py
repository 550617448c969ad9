"""The state of a log from its places: all of it for recovery, and what a verdict tells.

In: the places of the log. Out: a `LogState`. For a verdict, which asks for the ids of live records
alone, the whole transactions of a chunk are applied in columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystick.errors import CorruptLogError, UnsupportedFormatError
from tallystick.storage.files import Bytes
from tallystick.systems.tally.format.columns import PLAIN
from tallystick.systems.tally.format.kinds import Code
from tallystick.systems.tally.format.layout import AES_GCM, GroupHeader
from tallystick.systems.tally.format.sealing import payload_bytes
from tallystick.systems.tally.read.records import rows_of
from tallystick.systems.tally.read.scan import Step
from tallystick.systems.tally.read.state import Element, LogState
from tallystick.systems.tally.runs.pieces import chunk_of

if TYPE_CHECKING:
    from tallystick.systems.tally.runs.chunk import SortedChunk, Taken


def apply_step(state: LogState, step: Step, key: bytes | None, since: int = 0) -> None:
    """Apply the whole groups of a step that begin with the LSN ``since`` or a later one.

    Raises:
        CorruptLogError: a group cannot be decoded; names its place.
        UnsupportedFormatError: a group is of a later version, or its key is missing.
    """
    chunk, header = chunk_of(step.place), step.place.header
    assert header is not None
    place = header.offset
    try:
        if header.last_lsn < since:
            return
        if chunk is None:
            _apply_group(state, step.view.payload(header), header, key)
        elif chunk.plain:
            state.apply_plain(header.segment, header.last_lsn)
        else:
            for group, row in chunk.rows(header.segment):
                place = group
                if row.lsn >= since:
                    state.apply(row)
    except (CorruptLogError, UnsupportedFormatError) as error:
        error.file, error.offset = step.file.path, place
        raise


def _apply_group(state: LogState, payload: Bytes, header: GroupHeader, key: bytes | None) -> None:
    """Apply a group; plain records are not decoded. Raises as `rows_of` does."""
    if header.columns == PLAIN:
        if header.flags & AES_GCM:
            payload_bytes(payload, header, key)  # a wrong key is an error
        state.apply_plain(header.segment, header.last_lsn)
        return
    for row in rows_of(payload, header, key):
        state.apply(row)


class JudgedState(LogState):
    """A `LogState` without live records, for a verdict.

    Transactions that are whole within a chunk change nothing else, so they are not applied.

    Attributes:
        live_ids: the ids of the live records, in place of `live`; None where nobody asks for them.
    """

    def __init__(self, first_segment: int = 1, checkpoint_lsn: int = 0) -> None:
        super().__init__(first_segment, checkpoint_lsn)
        self.live_ids: set[int] | None = None
        self._lsn = 0
        self._taken: list[Taken] | None = None
        """What records of a chunk that are applied one by one have changed; None outside of one."""

    def take(self, one: Element) -> None:
        """Apply an element that is committed."""
        if self.live_ids is None or one.key is None or one.code == Code.APPEND:
            return
        if self._taken is not None:
            self._taken.append((self._lsn, one.key, one.code == Code.DELETE))
        elif one.code == Code.DELETE:
            self.live_ids.discard(one.key)
        else:
            self.live_ids.add(one.key)

    def apply_chunk(self, work: SortedChunk, file: str) -> None:
        """Apply the records of a chunk.

        Raises:
            CorruptLogError: a record cannot be decoded, and those after it are not applied; names
                the place of its group.
        """
        self._taken, end = [], None
        for group, row in work.other_rows():
            self._lsn = row.lsn
            try:
                self.apply(row)
            except CorruptLogError as error:
                error.file, error.offset = file, group
                end = error
                break
        if self.live_ids is not None:
            # Both kinds at once: a transaction of the chunk and a record that was applied one by
            # one may change the same id, and the later commit counts.
            live, deleted = work.last_of_ids(self._taken, None if end is None else self._lsn)
            self.live_ids.difference_update(deleted)
            self.live_ids.update(live)
        self._taken = None
        if end is not None:
            # After what stands before the damaged record was applied.
            raise end
