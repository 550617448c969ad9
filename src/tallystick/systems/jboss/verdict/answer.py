"""What a load does with the records of a journal, and why that can be said.

In: an `Evidence`. Out: the `Ground`s of the answer. Records are appended end to end to files that
were filled before, and acknowledged after a sync; the next file is opened before the current one
is full. So the file after the last record's, and what stands after that record, prove the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, pairwise

from tallystick.printable import counted
from tallystick.records import AtStake, Severity, State
from tallystick.storage.source import logical_name
from tallystick.systems.answers import Ground
from tallystick.systems.jboss.format.file_names import TEMPORARY, number_of
from tallystick.systems.jboss.format.layout import FILL_J, RecordType
from tallystick.systems.jboss.read.analysis import Analysis
from tallystick.systems.jboss.read.file_facts import KnownFile
from tallystick.systems.jboss.read.files import JournalFiles
from tallystick.systems.jboss.read.spans import never_begun
from tallystick.systems.jboss.read.transactions import transactions
from tallystick.systems.jboss.verdict.differences import Evidence, differences
from tallystick.systems.jboss.verdict.earlier_lives import not_done_with
from tallystick.systems.jboss.verdict.ends import (
    block_size,
    cut_after_record,
    empty_before_used,
    fills,
    full_before_empty,
    never_left,
    rooms_left,
    sizes_given,
)
from tallystick.systems.jboss.verdict.file_ids import (
    in_first_lives,
    is_current,
    lost_ids,
    not_followed,
    odd_id,
)
from tallystick.systems.jboss.verdict.unfinished import undecided

IDS_MISSING = "ids-missing"
"""The reason that the ids which a broker has given may take away."""
_AGAIN = "deleted-and-added-again"
_PARTIAL = "partial-transaction"
_MISSING = (
    " or more: there are updates of these and no add. A file with a live record is never "
    "reclaimed, so one is missing."
)


def grounds(evidence: Evidence) -> Iterator[Ground]:
    """Yield what holds of the journal."""
    found = list(differences(evidence))
    for one in found:
        if one.refuses:
            yield Ground("load-refused", f"The loader {one.engine}.", AtStake(_ended(evidence)))
    losses = [one for one in found if one.severity is Severity.LOSS or one.what == _AGAIN]
    if losses:
        dropped = evidence.analysis.dropped
        numbers = {one.item.transaction for one in dropped} - {None}
        partial = sum(one.what == _PARTIAL for one in losses)
        again = len(evidence.lost_ids) if any(one.what == _AGAIN for one in losses) else 0
        stake = AtStake((partial + len(numbers)) or None, (len(dropped) + again) or None)
        yield Ground("records-lost", losses[0].meaning, stake)
    if orphans := evidence.analysis.orphan_updates:
        # No stake: the file held records, too, that nothing in the other files names.
        yield Ground("file-missing", f"{counted(len(orphans), 'record')}{_MISSING}")
    if doubtful := [one for one in found if one.what == _PARTIAL]:
        yield Ground("elements-missing", f"{doubtful[0].engine}: {doubtful[0].strict}.")
    undecided_ones = (one for one in evidence.coordinated if one.state is State.UNDECIDED)
    # Of other types no more is known than that they are those of transactions.
    if unread := [one for one in undecided_ones if "type" not in one.attributes]:
        text = f"The state of {counted(len(unread), 'transaction')} cannot be read, the first of "
        text += f"them {unread[0].key}: recovery does not finish what it cannot read."
        yield Ground("state-cut", text, AtStake(len(unread)))
    yield from _doubts(evidence)
    yield from _strays(evidence)
    yield from _odd_records(evidence.analysis)
    yield from _proof(evidence)


def _ended(evidence: Evidence) -> int:
    every = transactions(evidence.log, evidence.analysis)
    ended = sum(one.state in (State.COMMITTED, State.PREPARED) for one in every)
    return ended + evidence.analysis.closed[State.COMMITTED]


def _strays(evidence: Evidence) -> Iterator[Ground]:
    """Yield the commits that count elements in files which are there, and hold none of them."""
    for one in evidence.analysis.ended:
        if not one.known and one.open.holes and not one.again:
            item = one.end.item
            text = f"A {item.type.name} ends transaction {item.transaction}: {one.open.holes}."
            yield Ground("elements-missing", text)


def _odd_records(analysis: Analysis) -> Iterator[Ground]:
    """Yield the records that no journal appends: their bytes, or those of others, were changed."""
    for placed in analysis.added_twice[:1]:
        yield Ground("odd-record", f"Record {placed.item.record_id} is added while it is there.")
    first_lives = in_first_lives(analysis.readings)
    transactions_there = {one.transaction for one in analysis.open}
    for kind, number in analysis.of_nothing:
        deletes = kind is RecordType.DELETE
        # Applications take both numbers from one counter, and both records have the same fields.
        if first_lives or number in (transactions_there if deletes else analysis.live):
            text = f"A {kind.name} of {number} stands where nothing with that number was begun"
            yield Ground("odd-record", f"{text}.")
            return


def _doubts(evidence: Evidence) -> Iterator[Ground]:
    readings = evidence.analysis.readings
    for before, one in pairwise(readings):
        if before.file.file_id == one.file.file_id:
            text = f"{before.file.name} and {one.file.name} have the same id."
            yield Ground("same-file-id", text)
    if odd := odd_id(readings) or not_done_with(readings, evidence.analysis.live):
        yield Ground("odd-id", f"{odd}.")
    if gone := unexplained_ids(evidence):
        text = f"No file has the id {gone[0][0]}, and no reuse of a file explains that."
        yield Ground(IDS_MISSING, text)
    if text := undecided(evidence.journal):
        yield Ground("compaction-pending", f"{text}.")


def begun(evidence: Evidence) -> list[KnownFile]:
    """Return the files by ascending id, but those whose header was never written."""
    return [one for one in evidence.analysis.readings if not never_begun(one.file.head)]


def unexplained_ids(evidence: Evidence) -> list[range]:
    """Return the ranges of file ids without a file that no reuse of files explains."""
    unended = (one.elements for one in evidence.analysis.open if one.prepared is None)
    since = min(chain.from_iterable(unended), default=None)
    analysis = evidence.analysis
    return lost_ids(
        begun(evidence),
        analysis.unknown_deleted,
        open_since=since,
        given=evidence.given,
        live=analysis.live,
    )


def _proof(evidence: Evidence) -> Iterator[Ground]:
    """Yield the ground for safety: only what appends leave, and a file after the last record's."""
    readings = evidence.analysis.readings
    block = block_size(readings)
    if block is None:
        yield Ground("gap-between-records")
        return
    files = evidence.journal.files
    sizes = sizes_given(readings)
    for one in readings:
        if problem := never_left(one, block, sizes):
            yield Ground("odd-end", f"{one.file.name}: {problem}.")
            return
    if text := cut_after_record(readings, block):
        yield Ground("odd-end", f"{text}.")
    filled = fills(readings)
    if len(filled) > 1:
        yield Ground("odd-end", "Some files are filled with J, others with zeros.")
    if FILL_J in filled and (short := [file.name for file in files if file.header is None]):
        # Artemis fills with zeros, and deletes such a file.
        yield Ground("odd-end", f"{short[0]} is shorter than a header: HornetQ does not start.")
    newest = max((one.effective_id for one in readings), default=0)
    if old := [
        file.name for file in files if file.header is None and number_of(file.name) < newest
    ]:
        yield Ground(
            "odd-end", f"{old[0]} is shorter than a header, and not the newest: it was cut."
        )
    if full := full_before_empty(readings, block):
        yield Ground("empty-after-full", f"{full} is full, and two files were opened after it.")
    if empty := empty_before_used(readings):
        yield Ground("room-left", f"{empty} is empty, and files with records come after it.")
    rooms = rooms_left(readings, block)
    for text in not_followed(readings, rooms, evidence.analysis.unknown_deleted):
        yield Ground("room-left", f"{text}, and the next record would have fit.")
    if readings:
        opened = not readings[-1].has_records or _created(evidence.journal, readings[-1])
        unopened = "room-ahead" if is_current(readings) else "next-file-missing"
        yield Ground("next-file" if opened else unopened)


def _created(journal: JournalFiles, newest: KnownFile) -> bool:
    """Return whether a file was created after the newest one, and not filled before a crash."""
    names = [one.name for one in journal.files if one.header is None]
    names += [
        name for path in journal.leftovers if (name := logical_name(path)).endswith(TEMPORARY)
    ]
    return any(number_of(name) > newest.effective_id for name in names)
