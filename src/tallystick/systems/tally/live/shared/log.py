"""A native log that processes share: the calls of `TallyLog`, in each of them.

In: items from threads and tasks of this process. Out: tickets. All that wait in this process make
one batch, all batches of all processes make one group, and one sync serves them all.
"""

from __future__ import annotations

import contextlib
import json
import posixpath
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import astuple
from functools import partial
from typing import Any, Final, cast

from tallystick.arguments import bytes_of, integer, secret_of
from tallystick.errors import (
    LogFullError,
    LogWriteError,
    TallystickError,
    UnsupportedFormatError,
)
from tallystick.roles.record_ids import id_error
from tallystick.storage.files import FileSystem, absolute
from tallystick.storage.fork import Uncopied, register_in_child
from tallystick.storage.group.answers import Answer, lsns_of
from tallystick.storage.group.counters import GroupCounters
from tallystick.storage.group.owned_lock import OwnedLock, nested_call_error
from tallystick.storage.group.ticket import GroupTicket
from tallystick.storage.group.writer import GroupWriter
from tallystick.storage.local import LOCAL, LocalFileSystem
from tallystick.storage.opening import Closing, closes, opens_log
from tallystick.storage.scheduling import simulated, threading, time
from tallystick.storage.shared.client import Client, Cut
from tallystick.storage.shared.epochs import Epoch
from tallystick.storage.shared.fence import FencedFileSystem
from tallystick.storage.shared.leader import Leader
from tallystick.storage.shared.members import Membership
from tallystick.storage.signals import uninterrupted
from tallystick.systems.tally.format.columns import UnplacedRecord
from tallystick.systems.tally.format.headers import decode_control
from tallystick.systems.tally.format.layout import CONTROL_NAME, LOCK_NAME, NUMBER_MAX
from tallystick.systems.tally.format.sealing import BatchSealing, KeyProvider, require_packages
from tallystick.systems.tally.live.appender import EPOCH_SHIFT
from tallystick.systems.tally.live.backup import Moment, Progress, copy_log
from tallystick.systems.tally.live.groups.refusals import Refusals
from tallystick.systems.tally.live.items import (
    RECORD_BYTES,
    Action,
    Item,
    checked,
    size_of,
    too_large,
)
from tallystick.systems.tally.live.log import PLAIN_RECORD_BYTES, TallyLog
from tallystick.systems.tally.live.settings import Settings, capacity
from tallystick.systems.tally.live.shared.batches import (
    ITEMS_MAX,
    REFUSED,
    decode_error,
    decode_lsns,
    decode_refusal,
    encode_call,
    encode_items,
    judgement_of_fields,
)
from tallystick.systems.tally.live.shared.replica import Replica
from tallystick.systems.tally.live.shared.service import BLOCK, MEMBER_BITS, lead
from tallystick.systems.tally.read.claim import ANYONES, Claim
from tallystick.systems.tally.read.files import control_in
from tallystick.systems.tally.read.state import LogState

_COMPACTION_POLL_S: Final = 0.02


class SharedTicket(Uncopied):
    """The promise that an item is durable, or that its refusal is known."""

    __slots__ = ("_item", "_log", "_ticket", "done", "start_flush")

    def __init__(self, log: SharedTallyLog, ticket: GroupTicket[Item], item: Item = b"") -> None:
        self._log = log
        self._item = item
        self._ticket = ticket
        self.done, self.start_flush = ticket.done, ticket.start_flush

    def wait(self, timeout: float | None = None) -> int:
        """Block until the item is durable; see `GroupTicket.wait`.

        Raises:
            RecordIdError: the rules of `tallystick.roles.record_ids` refuse it.
            LogWriteError: the thread that leads the log asks.
        """
        self._log.refuse_leader()
        return self._log.accepted(self._ticket.wait(timeout), self._item)

    def __await__(self) -> Generator[object, None, int]:
        """Wait like `wait` does, without blocking the event loop."""
        lsn = yield from self._ticket.__await__()
        return self._log.accepted(lsn, self._item)


class SharedTallyLog(Closing):
    """A native log open in several processes; safe for threads and tasks.

    Args:
        path: the folder of the log; made if it does not exist.
        settings: how the log is written, the same in all processes.
        key: provides the secret of an encrypted log, the same in all processes.
        fs: the file system; the machine's own, as processes share it.
        before: is called before each change that this process makes as the leader; for tests.
        claim: what the log is taken for.

    Raises:
        LogLockedError: a process has the log open alone.
        UnsupportedFormatError: the other processes have other settings, or another version.
        BusyError: there are too many processes.
        TallystickError: as `TallyLog` does.

    Attributes:
        judgement: the answer about the log as the process that leads found it.
    """

    @opens_log
    def __init__(
        self,
        path: str,
        *,
        settings: Settings | None = None,
        key: KeyProvider | None = None,
        fs: FileSystem = LOCAL,
        before: Callable[[str], None] | None = None,
        claim: Claim = ANYONES,
    ) -> None:
        if not isinstance(fs, LocalFileSystem) and not simulated():
            raise UnsupportedFormatError("only the files of this machine can be shared", file=path)
        self.path = absolute(path)
        self.settings = settings or Settings()
        self.key = secret_of(key, "key")
        self._provider, self._before, self._claim = key, before, claim
        self._leader: Leader | None = None
        self._closed = False
        self._numbers_lock = OwnedLock(partial(nested_call_error, self.path))
        self._free_numbers = self._more_numbers = range(0)
        """For transactions; more are asked for while the first are used."""
        require_packages(self.settings.compression, self.key)
        claim.require_folder(fs, self.path, self.key)
        fs.mkdir(self.path)
        self.fs = fs.hold(self.path)
        try:
            self._members = self._join()
        except BaseException:
            self.fs.close()
            raise
        self.member = self._members.number
        self._sealing = BatchSealing(self.key) if self.key is not None else None
        self._client = Client(self._members, self._lead, self._first_epoch, self._sealing)
        self._replica = Replica(self.fs, self.path, self.key)
        self._state_lock = threading.Lock()
        self.refusals = Refusals(self._exchange)
        self._writer: GroupWriter[Item] = GroupWriter(
            self._hand_over, _nothing, name=self.path, group_bytes=self.settings.group_bytes
        )
        try:
            self.judgement = judgement_of_fields(self._call("hello"))
            self._learn()
        except BaseException:
            self.close()
            raise
        register_in_child(self)

    def _join(self) -> Membership:
        """Become one of the processes that have the log open."""
        agreed = repr(astuple(self.settings)).encode()
        return Membership(
            self.path,
            LOCK_NAME,
            b"%d:" % len(agreed) + agreed + (self.key or b""),
            self._create,
            place=self.fs.through(self.path),
        )

    def _learn(self) -> None:
        """Read what the log has been made with."""
        control = control_in(self.fs, self.path)
        assert control is not None
        self.identity = control.identity
        self.owner = control.owner.decode("utf-8", "replace")
        self.capacity = capacity(control.segment_size, control.sector_size)
        self.group_bytes = min(self.settings.group_bytes, self.capacity)

    # -- leading ------------------------------------------------------------------------

    def _create(self) -> None:
        """Make the log, if there is none; no other process has it open."""
        if not self.fs.exists(posixpath.join(self.path, CONTROL_NAME)):
            # Its lock file is locked already.
            fs = FencedFileSystem(self.fs, _allow)
            TallyLog(
                self.path, settings=self.settings, key=self._provider, fs=fs, claim=self._claim
            ).close()

    def _first_epoch(self) -> int:
        control = control_in(self.fs, self.path)
        return 1 + (control.generation >> EPOCH_SHIFT if control else 0)

    def _lead(self, epoch: Epoch) -> None:
        self._leader = lead(
            epoch, self._members, self.settings, self._provider, self.fs, self._before,
            self._claim, sealing=self._sealing,
        )  # fmt: skip

    @property
    def leads(self) -> bool:
        """True if this process leads, as far as it knows."""
        return self._leader is not None and self._leader.leads

    # -- writing ------------------------------------------------------------------------

    def append(self, body: bytes) -> SharedTicket:
        """Append a plain record; see `TallyLog.append`."""
        body = bytes_of(body)
        size = len(body)
        self.check_size(size)
        return SharedTicket(self, self._writer.submit(body, size + PLAIN_RECORD_BYTES))

    def append_durably(self, body: bytes) -> int:
        """Append a plain record; return its LSN when it is durable."""
        body = bytes_of(body)
        size = len(body)
        self.check_size(size)
        return self.accepted(self._writer.commit(body, size + PLAIN_RECORD_BYTES))

    def check_size(self, size: int) -> None:
        """Check that a plain record with a body of ``size`` bytes fits in a segment.

        Raises:
            RecordTooLargeError: it does not.
            LogWriteError: the thread that leads the log asks.
        """
        self.refuse_leader()
        if size + RECORD_BYTES > self.capacity:
            raise too_large(self.path, self.capacity, size)

    def refuse_leader(self) -> None:
        """Raise `LogWriteError` in the thread that leads the log: it would wait for itself.

        It runs finalizers as any thread does, and with it all processes would wait.
        """
        if self._leader is not None and self._leader.is_here:
            raise nested_call_error(self.path)

    def reserve_ahead(self, size: int) -> None:
        """Do nothing: the leader makes segments ahead of need by itself."""

    def submit(self, item: Item, *, sync: bool = True) -> SharedTicket:
        """Submit an item; see `TallyLog.submit`."""
        item = checked(item)
        size = size_of(item)
        self.check_size(size - RECORD_BYTES)
        return SharedTicket(self, self._writer.submit(item, size, sync=sync), item)

    def flush(self) -> None:
        """Make everything that this process has submitted so far durable.

        Raises:
            LogWriteError: a part of it was refused, or the thread that leads the log asks.
        """
        self.refuse_leader()
        self._writer.flush()
        if self.refusals.owes:
            self._writer.submit(Action(self.refusals.require_paid)).wait()

    def accepted(self, lsn: int, item: Item = b"") -> int:
        """Return the LSN of an item, or raise what stands in its place."""
        if lsn > 0:
            return lsn
        refusal, place = decode_refusal(lsn)
        record_id = item.key if isinstance(item, UnplacedRecord) else None
        raise id_error(refusal, record_id or 0, self.path, place=place)

    def _hand_over(self, items: list[Item]) -> Sequence[int]:
        """Have the leader write a group of this process; return LSNs, negative for a refusal."""
        self._renew_numbers()
        if self.refusals.active:
            return lsns_of(self.refusals.write(items))
        answers = self._exchange(items)
        if type(answers) is list and any(isinstance(one, TallystickError) for one in answers):
            self.refusals.note(items, answers)
            return lsns_of(answers)
        return cast(Sequence[int], answers)

    def _exchange(self, items: list[Item]) -> Sequence[Answer]:
        """Have the leader write items; return its answers, with an error for what it refused.

        What comes after an item for which there was no room is refused, too, but for actions.
        """
        if all(type(item) is bytes for item in items):
            return self._ask(items)
        answers: list[Answer] = []
        error: Answer | None = None
        for some in _pieces(items):
            if type(some[0]) is Action:
                answers += self._act(some[0])
            elif error is None:
                found = self._ask(some)
                answers += found
                error = next((one for one in found if isinstance(one, TallystickError)), None)
            else:
                answers += [error] * len(some)
        return answers

    def _act(self, action: Action) -> Sequence[Answer]:
        try:
            action.run()
        except LogWriteError as error:
            return (error,)
        return (self.next_lsn,)

    def _ask(self, items: list[Item]) -> Sequence[Answer]:
        answers: list[Answer] = []
        while items:
            try:
                answer = self._client.ask(encode_items(items))
            except LogWriteError as error:  # nothing of these was handed over
                return [*answers, *[error] * len(items)]
            if isinstance(answer, bytes):
                rest = self._answers(answer, len(items))
                return [*answers, *rest] if answers else rest
            written = _written(answer)
            answers += self._with_errors(written)
            items = items[len(written) :]
        return answers

    def _answers(self, answer: bytes, count: int) -> Sequence[Answer]:
        try:
            lsns = decode_lsns(answer, self.path)
        except LogWriteError as error:
            return [error] * count
        return self._with_errors(lsns)

    def _with_errors(self, lsns: Sequence[int]) -> Sequence[Answer]:
        """Return the answers for items, with an error for what there was no room for."""
        if type(lsns) is range or REFUSED not in lsns:
            return lsns
        full = LogFullError(
            "no space for a part of what was handed over together",
            file=self.path,
            advice="Free space, then try again; the log is unharmed",
        )
        return [full if lsn == REFUSED else lsn for lsn in lsns]

    def _call(self, name: str, **arguments: int) -> Any:
        self.refuse_leader()
        request = encode_call(name, **arguments)
        while isinstance(answer := self._client.ask(request), Cut):
            pass
        if answer[:1] != b"J":
            raise decode_error(answer, self.path)
        return json.loads(answer[1:])

    # -- state --------------------------------------------------------------------------

    @contextlib.contextmanager
    def state(self) -> Iterator[LogState]:
        """Give the state after everything that this process has submitted, and others before."""
        with contextlib.suppress(LogWriteError):
            self.flush()
        # An answer comes after what others, dead ones too, had handed over before the call.
        durable = int(self._call("durable"))
        with uninterrupted, self._state_lock:
            with self._members.hold(self.first_segment):
                state = self._replica.read(durable)
            yield state

    def left_open(self) -> list[int]:
        """Return nothing: the leader rolls back what dead processes left open."""
        return []

    def new_transaction(self) -> int:
        """Return a number for a transaction that no process has used."""
        with uninterrupted, self._numbers_lock:
            if not self._free_numbers:
                self._free_numbers, self._more_numbers = self._more_numbers, range(0)
            free = self._free_numbers or uninterrupted.interruptible(self._block_of_numbers)
            self._free_numbers = free[1:]
            return free[0]

    def reserve_transactions(self) -> None:
        """Have numbers ready, so that `new_transaction` need not ask the leader for them."""
        with uninterrupted, self._numbers_lock:
            self._free_numbers = self._free_numbers or uninterrupted.interruptible(
                self._block_of_numbers
            )

    def _block_of_numbers(self) -> range:
        first, step = int(self._call("numbers")), 1 << MEMBER_BITS
        return range(first, first + BLOCK * step, step)

    def _renew_numbers(self) -> None:
        """Ask for more numbers before there are none; called where the leader is asked anyway."""
        if 0 < len(self._free_numbers) < BLOCK // 2 and not self._more_numbers:
            with contextlib.suppress(TallystickError):  # who needs them asks again
                self._more_numbers = self._block_of_numbers()

    def lives_since(self, member: int) -> int | None:
        """Return when a member opened the log, in ms since 1970; None if it does not live."""
        return self._members.lives_since(member)

    @property
    def start_ms(self) -> int:
        """When this process opened the log, in milliseconds since 1970."""
        return self._members.start_ms

    def _seen(self) -> Epoch:
        return self._client.seen() or self._client.current()

    @property
    def next_lsn(self) -> int:
        """LSN of the next record that will be written."""
        return self._seen().next_lsn

    @property
    def durable_lsn(self) -> int:
        """Every record up to this LSN is durable."""
        return self._seen().durable_lsn

    @property
    def first_segment(self) -> int:
        """Number of the oldest segment."""
        return self._seen().first_segment

    @property
    def written(self) -> None:
        """None: another process may write the last segment."""

    @property
    def last_segment(self) -> int:
        """Number of the segment that is written to."""
        return self._seen().last_segment

    @property
    def checkpoint_lsn(self) -> int:
        """Plain records below this LSN were given up."""
        return self._seen().checkpoint_lsn

    @property
    def counters(self) -> GroupCounters:
        """Batches of this process, their records and bytes; a sync is one batch handed over."""
        return self._writer.counters

    @property
    def syncs(self) -> int:
        """Groups that the present leader has written and synced for all processes."""
        return self._seen().syncs

    # -- segments -----------------------------------------------------------------------

    def reclaim(self, checkpoint_lsn: int = 0) -> int:
        """Have the leader free segments that are not needed; return how many."""
        checkpoint_lsn = integer(checkpoint_lsn, "lsn", 0, NUMBER_MAX)
        self.flush()
        return int(self._call("reclaim", checkpoint_lsn=checkpoint_lsn))

    def reclaim_soon(self) -> None:
        """Do nothing: the leader reclaims by itself after it has gone on in a new segment."""

    def roll(self) -> None:
        """Go on in a new segment."""
        self._call("roll")

    def compact(self, *, force: bool = False) -> int:
        """Have the leader compact the log; return the number of segments freed."""
        self.flush()
        self._call("compact", force=int(bool(force)))
        while (freed := self._call("compacted")) is None:
            time.sleep(_COMPACTION_POLL_S)
        return int(freed)

    def hold(self, number: int) -> contextlib.AbstractContextManager[None]:
        """Keep the files of this segment and of all later ones while the context is open."""
        return self._members.hold(number)

    def backup(self, target: str, progress: Progress | None = None) -> None:
        """Copy the log as of now to a new folder, while all go on; see `TallyLog.backup`."""
        self.flush()
        with self.hold(self.first_segment):
            block, segment, end, next_lsn = self._call("moment")
            control = decode_control(bytes.fromhex(block))
            assert control is not None
            moment = Moment(control, segment, end, next_lsn)
            copy_log(self.fs, self.path, target, moment, progress)

    # -- end ----------------------------------------------------------------------------

    @closes
    def close(self) -> None:
        """Make durable what this process has submitted, and leave the log to the others.

        The last process notes in the log that all of it is durable. A second call does nothing.
        """
        if self._closed:
            return
        self.refuse_leader()
        self._closed = True
        try:
            self._writer.close()
        finally:
            self._client.close()
            if self._leader is not None:
                self._leader.close()
            self._members.close()
            self.fs.close()

    def forked(self) -> None:
        """Give up in a forked child: the log is its parent's."""
        self._closed = True
        self._leader = None
        self._numbers_lock = OwnedLock(partial(nested_call_error, self.path))


def _written(cut: Cut) -> Sequence[int]:
    """Return the answers for the first items of a request: those that hold for good.

    A refusal does if something after it was written, and so all before it: it may have been for the
    sake of a record that was to be written with it, and was not.
    """
    if cut.staged is None or cut.staged[:1] == b"E":
        return ()
    lsns = decode_lsns(cut.staged)
    return lsns[: max((place for place, lsn in enumerate(lsns, 1) if 0 < lsn < cut.end), default=0)]


def _pieces(items: list[Item]) -> Iterator[list[Item]]:
    """Yield items that are handed over together, and each action by itself."""
    piece: list[Item] = []
    for item in items:
        if piece and (type(item) is Action or type(piece[0]) is Action or len(piece) == ITEMS_MAX):
            yield piece
            piece = []
        piece.append(item)
    if piece:
        yield piece


def _allow(_: str) -> None:
    """Allow a change: no other process has the log open."""


def _nothing() -> None:
    """Sync nothing: the leader has."""
