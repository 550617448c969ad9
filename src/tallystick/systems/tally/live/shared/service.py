"""What the leader of a shared native log does with what its members hand over.

In: an epoch that was claimed, batches and calls. Out: the log recovered, the batches in it, one
write and one sync for all of them, and answers.

Numbers of transactions name their member, so that what a process leaves open when it dies is
rolled back, and nothing of a living one:

    epoch 23 bits, number of the block 16, number in the block 16, member 8
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from tallystick.errors import LogWriteError, TallystickError
from tallystick.records import Finding
from tallystick.roles.record_ids import IdChange, RecordIds, TransactionIds, note_change
from tallystick.storage.files import HeldFolder
from tallystick.storage.fork import Uncopied
from tallystick.storage.group.answers import Answer
from tallystick.storage.opening import start_thread
from tallystick.storage.scheduling import threading
from tallystick.storage.shared import epochs
from tallystick.storage.shared.epochs import Epoch
from tallystick.storage.shared.fence import FencedFileSystem
from tallystick.storage.shared.leader import (
    DAMAGED,
    Batch,
    Heart,
    Leader,
    deposed_error,
)
from tallystick.storage.shared.mailbox import Sealing
from tallystick.storage.shared.members import MEMBERS_MAX, Membership
from tallystick.systems.tally.format.columns import UnplacedRecord
from tallystick.systems.tally.format.headers import encode_control
from tallystick.systems.tally.format.kinds import Code
from tallystick.systems.tally.format.sealing import KeyProvider
from tallystick.systems.tally.live.compaction import compact, compaction_due
from tallystick.systems.tally.live.items import Bundle, Item, UnplacedEnding
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.opening import Term
from tallystick.systems.tally.live.settings import Settings
from tallystick.systems.tally.live.shared.batches import (
    REFUSED,
    decode_call,
    decode_items,
    encode_error,
    encode_lsns,
    encode_refusal,
    judgement_fields,
)
from tallystick.systems.tally.live.shared.state_copy import StateCopies, last_copy
from tallystick.systems.tally.read.claim import ANYONES, Claim
from tallystick.systems.tally.read.state import Element, LogState

EPOCH_BITS: Final = 40
"""Bits of a transaction's number below the epoch."""
_BLOCK_BITS: Final = 24
MEMBER_BITS: Final = 8
BLOCK: Final = 1 << (_BLOCK_BITS - MEMBER_BITS)
"""Numbers in a block."""
_BLOCKS_MAX: Final = 1 << (EPOCH_BITS - _BLOCK_BITS)
_CHANGES: Final[dict[int, IdChange]] = {
    Code.ADD.value: IdChange.ADD,
    Code.UPDATE.value: IdChange.UPDATE,
    Code.DELETE.value: IdChange.DELETE,
}


def lead(
    epoch: Epoch,
    membership: Membership,
    settings: Settings,
    key: KeyProvider | None,
    fs: HeldFolder,
    before: Callable[[str], None] | None = None,
    claim: Claim = ANYONES,
    *,
    sealing: Sealing | None = None,
) -> Leader:
    """Recover the log and lead an epoch; raises as `TallyLog` does.

    ``sealing`` opens what the members of an encrypted log hand over.
    ``before`` is called with the name of each change of a file, once it was found that this
    process leads: tests stop or kill it there.
    """
    heart = Heart(epoch)
    try:
        service = TallyService(epoch, membership, settings, key, fs, before, claim)
        leader = Leader(epoch, service, heart, sealing)
        try:
            leader.start()
        except BaseException:
            service.abandon()
            raise
    except BaseException:
        heart.stop()
        raise
    return leader


class TallyService:
    """The log of one epoch, and what its members ask of it; see `lead`."""

    def __init__(
        self,
        epoch: Epoch,
        membership: Membership,
        settings: Settings,
        key: KeyProvider | None,
        fs: HeldFolder,
        before: Callable[[str], None] | None,
        claim: Claim,
    ) -> None:
        self._epoch = epoch
        self._members = membership
        self._settings = settings
        self._before = before
        self._blocks = 0
        self._compacting: _Compaction | None = None
        gone, ends = epochs.depose(membership.place, epoch.number)
        # Freed files are kept until no member reads them, see `keep_house`.
        self.log = TallyLog(
            membership.folder,
            settings=replace(settings, recycle=False),
            key=key,
            fs=FencedFileSystem(fs, self._check),
            term=Term(epoch.number, not gone, partial(last_copy, membership.place)),
            claim=claim,
        )
        self._last_segment = self.log.first_segment  # an earlier leader may have left more
        self._ids = RecordIds(_LiveIds({}))
        self._copies = StateCopies(self.log, epoch.path, self._check, self.log.first_segment)
        try:
            epoch.set_ends([*ends, (epoch.number, self.log.next_lsn)])
            self.roll_back(self._is_left)
            self._learn_ids()
            self.publish()
            self._check("ready")
            epochs.remove_before(membership.place, epoch.number)
        except BaseException:
            self.log.abandon()
            raise

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What recovery found."""
        return self.log.findings

    def _check(self, change: str) -> None:
        if self._epoch.deposed:
            raise deposed_error(self._epoch, change)
        if self._before is not None:
            self._before(change)

    # -- records ------------------------------------------------------------------------------

    def write(self, batches: Sequence[Batch], stage: Callable[[Sequence[bytes]], None]) -> None:
        """Write the records of all batches and make them durable; see `Service.write`."""
        given = [decode_items(data) for _, data in batches]
        refusals = self._refusals(given)
        items: list[Item] = []
        for some, refused in zip(given, refusals, strict=True):
            if refused:
                items += [item for place, item in enumerate(some) if place not in refused]
            else:
                items += some
        staged: list[int] = []

        def before(first: int) -> None:
            answers = []
            for some, refused in zip(given, refusals, strict=True):
                lsns = _numbered(some, refused, first)
                written = [lsn for lsn in lsns if lsn > 0] if refused else lsns
                staged.extend(written)
                first = written[-1] + 1 if written else first
                answers.append(encode_lsns(lsns))
            stage(answers)

        if not items:
            before(self.log.next_lsn)
            return
        answers = self.log.write_through(items, before)
        if list(answers) != staged:
            self._learn_ids()  # not all of what was let pass has happened
            stage(_refused(answers, staged, given, refusals))

    def _refusals(self, given: Sequence[Sequence[Item]]) -> list[dict[int, int]]:
        """Return what the rules of record ids refuse of each batch, by place."""
        if all(type(items[0]) is bytes for items in given):
            return [{} for _ in given]
        with self.log.state() as state:
            self._ids.live = _LiveIds(state.live)
            opened = _OpenIds(state)
            return [
                {
                    place: refusal
                    for place, item in enumerate(items)
                    if (refusal := self._refusal(item, opened)) is not None
                }
                for items in given
            ]

    def _refusal(self, item: Item, opened: _OpenIds) -> int | None:
        """Return what stands in place of an item's LSN; if nothing does, note its changes."""
        if type(item) is UnplacedEnding:
            return self._refusal_of_end(item, opened)
        if type(item) is not UnplacedRecord:
            return None
        number, change = item.transaction, _CHANGES.get(item.code)
        if number is not None:
            if item.code == Code.ROLLBACK:
                self._ids.end(number, commit=False)
            opened.note(number, item)
        elif change is not None and item.key is not None:
            refusal = self._ids.refusal(change, item.key)
            if refusal is not None:
                return encode_refusal(refusal)
            self._ids.make(change, item.key)
        return None

    def _refusal_of_end(self, item: UnplacedEnding, opened: _OpenIds) -> int | None:
        ids, number, commit = self._ids, item.transaction, item.code == Code.COMMIT
        if number not in ids.prepared:
            touched = opened.ids(number)
            found = ids.first_refusal(touched)
            if found is not None:
                place, refusal = found
                return encode_refusal(refusal, place)
            ids.prepare(number, touched)
        if commit:
            ids.end(number, commit=True)
        return None

    def _learn_ids(self) -> None:
        """Learn from the log which transactions are prepared, and what they hold."""
        with self.log.state() as state:
            self._ids = RecordIds(_LiveIds(state.live))
            for number, one in state.open.items():
                if one.ending is not None:
                    self._ids.prepare(number, _touched(one.elements))

    # -- calls --------------------------------------------------------------------------------

    def call(self, member: int, request: bytes) -> bytes:
        """Carry out a call; the answer is JSON, or an error."""
        if request == DAMAGED:
            return encode_error(
                LogWriteError(
                    "what was handed over was damaged in shared memory; nothing of it was written",
                    file=self.log.path,
                    advice="Try again; if it comes back, look at the memory of this machine",
                )
            )
        name, arguments = decode_call(request)
        action, takes = _CALLS.get(name, (None, {}))
        if action is None or {one: type(arguments[one]) for one in arguments} != takes:
            return encode_error(LogWriteError(f"no such call: {name[:40]!r}; nothing was done"))
        try:
            answer = action(self, member, **arguments)
            self.publish()
            return b"J" + json.dumps(answer).encode()
        except LogWriteError as error:
            return encode_error(error)
        except OSError as error:
            return encode_error(LogWriteError(f"{name} has failed: {error}", file=self.log.path))

    def _call_hello(self, member: int) -> list[object]:
        """Roll back what an earlier process with this member's number has left open.

        Returns:
            The answer about the log as this leader found it.
        """
        self.roll_back(lambda number: number % MEMBERS_MAX == member)
        return judgement_fields(self.log.judgement)

    def _call_durable(self, member: int) -> int:
        """Return the LSN up to which the log is durable."""
        del member
        return self.log.durable_lsn

    def _call_moment(self, member: int) -> tuple[str, int, int, int]:
        """Return where the log ends: control block, segment, offset, next LSN."""
        del member
        now = self.log.moment()
        return encode_control(now.control).hex(), now.segment, now.end, now.next_lsn

    def _call_numbers(self, member: int) -> int:
        """Return the first number of a block for this member's transactions."""
        if self._blocks >= _BLOCKS_MAX:
            raise LogWriteError(
                "there are no more numbers for transactions",
                file=self.log.path,
                advice="Close the log in the process that leads, so that another one does",
            )
        self._blocks += 1
        block = self._blocks - 1
        return (self._epoch.number << EPOCH_BITS) | (block << _BLOCK_BITS) | member

    def _call_reclaim(self, member: int, checkpoint_lsn: int) -> int:
        """Free segments that are not needed; return how many."""
        del member
        freed = len(self.log.reclaim(checkpoint_lsn))
        self._retire()
        return freed

    def _call_roll(self, member: int) -> None:
        """Go on in a new segment."""
        del member
        self.log.roll()

    def _call_compact(self, member: int, force: int) -> None:
        """Begin to compact the log, if it is due or ``force`` is set."""
        del member
        if self._compacting is None and (force or compaction_due(self.log)):
            self._compacting = _Compaction(self.log)

    def _call_compacted(self, member: int) -> int | None:
        """Return how many segments compaction has freed; None while it runs."""
        del member
        running = self._compacting
        if running is None:
            return 0
        if running.is_alive():
            return None
        self._compacting = None
        self._retire()
        if running.error is not None:
            raise LogWriteError(f"compaction has failed: {running.error}", file=self.log.path)
        return running.freed

    # -- housekeeping -------------------------------------------------------------------------

    def publish(self) -> None:
        """Store in the epoch where the log stands."""
        epoch, log = self._epoch, self.log
        epoch.first_segment, epoch.last_segment = log.first_segment, log.last_segment
        epoch.checkpoint_lsn = log.checkpoint_lsn
        epoch.durable_lsn = log.durable_lsn
        epoch.next_lsn = log.next_lsn  # last: until it is there, nothing is; see `Epoch.was_ready`

    def keep_house(self) -> None:
        """Roll back what dead processes left open; free and recycle segments."""
        self.roll_back(self._is_left)
        for chore in (self._reclaim_after_roll, self._retire, self._copies.make_if_due):
            # Without room for it now, it is done the next time.
            with contextlib.suppress(LogWriteError):
                chore()

    def _reclaim_after_roll(self) -> None:
        last = self.log.last_segment
        if last != self._last_segment:
            self.log.reclaim_soon()
            self.log.flush()
            self._last_segment = last

    def roll_back(self, chosen: Callable[[int], bool]) -> None:
        """Roll back open transactions by their number, unless they are prepared."""
        with self.log.state() as state:
            left = [
                number
                for number, one in state.open.items()
                if one.ending is None and chosen(number)
            ]
        if left:
            records: list[Item] = [UnplacedRecord(Code.ROLLBACK, b"", one) for one in left]
            self.log.write_through(records, _ignore)

    def _is_left(self, number: int) -> bool:
        return not self._members.is_alive(number % MEMBERS_MAX)

    def _retire(self) -> None:
        """Recycle the files of segments that were given up, and that no member reads."""
        if self._settings.recycle:
            self.log.retire_freed(self._members.first_held())

    # -- the end ------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the log, with everything in it durable."""
        if self._compacting is not None:
            self._compacting.join()
        self._copies.close()
        # Without room for the note that all is durable: it is, and the next leader finds it.
        with contextlib.suppress(LogWriteError):
            self.log.close()

    def abandon(self) -> None:
        """Close the files of the log; nothing is written."""
        self._copies.close()
        self.log.abandon()


class _Compaction(threading.Thread, Uncopied):
    """A thread that compacts the log while members go on."""

    def __init__(self, log: TallyLog) -> None:
        super().__init__(name=f"compaction of {log.path}", daemon=True)
        self._log = log
        self.freed = 0
        self.error: Exception | None = None
        start_thread(self)

    def run(self) -> None:
        """Compact."""
        try:
            self.freed = len(compact(self._log))
        except (TallystickError, OSError) as error:
            self.error = error


_CALLS: Final[dict[str, tuple[Callable[..., object], dict[str, type]]]] = {
    "hello": (TallyService._call_hello, {}),
    "durable": (TallyService._call_durable, {}),
    "moment": (TallyService._call_moment, {}),
    "numbers": (TallyService._call_numbers, {}),
    "reclaim": (TallyService._call_reclaim, {"checkpoint_lsn": int}),
    "roll": (TallyService._call_roll, {}),
    "compact": (TallyService._call_compact, {"force": int}),
    "compacted": (TallyService._call_compacted, {}),
}
"""Every call there is, with its arguments: what stands in shared memory names nothing else."""


class _LiveIds:
    """The ids of live records as they are once what is being written has been."""

    def __init__(self, written: Mapping[int, object]) -> None:
        self._written = written
        self._changed: dict[int, bool] = {}

    def __contains__(self, record_id: object) -> bool:
        changed = self._changed.get(record_id)  # type: ignore[call-overload]
        return record_id in self._written if changed is None else changed

    def add(self, record_id: int) -> None:
        self._changed[record_id] = True

    def discard(self, record_id: int) -> None:
        self._changed[record_id] = False


class _OpenIds:
    """The ids of open transactions: of what is written, and of what is about to be."""

    def __init__(self, state: LogState) -> None:
        self._open = state.open
        self._more: dict[int, list[UnplacedRecord]] = {}

    def note(self, number: int, record: UnplacedRecord) -> None:
        """Note a record of a transaction that is about to be written."""
        self._more.setdefault(number, []).append(record)

    def ids(self, number: int) -> TransactionIds:
        """Return the ids that a transaction touches."""
        one = self._open.get(number)
        return _touched([*(one.elements if one else ()), *self._more.get(number, ())])


def _touched(elements: Iterable[Element | UnplacedRecord]) -> TransactionIds:
    ids: TransactionIds = {}
    for one in elements:
        change = _CHANGES.get(one.code)
        if change is not None and one.key is not None:
            note_change(ids, change, one.key)
    return ids


def _numbered(items: Sequence[Item], refused: dict[int, int], first: int) -> Sequence[int]:
    """Return the LSN that each item will have, or why it is refused."""
    if type(items[0]) is bytes:  # then all are
        return range(first, first + len(items))
    lsns = []
    for place, item in enumerate(items):
        if place in refused:
            lsns.append(refused[place])
        else:
            first += len(item.records) if isinstance(item, Bundle) else 1
            lsns.append(first - 1)
    return lsns


def _refused(
    answers: Sequence[Answer], staged: Sequence[int], given: Sequence[Sequence[Item]],
    refusals: Sequence[dict[int, int]],
) -> list[bytes]:  # fmt: skip
    """Return the answer for each batch if some of the items were refused by the log.

    A batch of which nothing was written gets the error itself, others `REFUSED` in its place.
    """
    for answer, lsn in zip(answers, staged, strict=True):
        if isinstance(answer, int) and answer != lsn:
            raise AssertionError("records were written under other numbers than announced")
    rest = iter(answers)
    batches = []
    for some, refused in zip(given, refusals, strict=True):
        found = [refused[place] if place in refused else next(rest) for place in range(len(some))]
        errors = [one for one in found if isinstance(one, TallystickError)]
        if errors and len(errors) == len(found):
            batches.append(encode_error(errors[0]))
        else:
            batches.append(encode_lsns([one if isinstance(one, int) else REFUSED for one in found]))
    return batches


def _ignore(_: int) -> None:
    """Announce nothing: no member waits for it."""
