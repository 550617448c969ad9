"""The relay of an outbox: delivers its messages at least once, in order, and deletes them.

In: an `Outbox` and a function that delivers one message. Out: deliveries; a row is deleted after
its delivery has returned, so a stop between the two repeats the delivery and loses none.

One relay of a consumer works at a time: it holds a lease, a row of the table ``tallystick_relays``,
by the clock of the database; others stand by. No transaction is open during a delivery.
"""

from __future__ import annotations

import json
import random
import secrets
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol, Self

from tallystick.arguments import bytes_of, integer, seconds
from tallystick.callables import require_done, require_plain, require_plain_calls
from tallystick.errors import LogClosedError, TransactionUsageError
from tallystick.printable import logger, printable
from tallystick.services.transactions.messaging.outbox import Message, Outbox
from tallystick.services.transactions.messaging.retry import doubled
from tallystick.services.transactions.messaging.statements import (
    MYSQL,
    POSTGRES,
    SQLITE,
    Table,
    ThreadAsk,
    dialect_of,
)
from tallystick.storage.fork import Uncopied, register_in_child
from tallystick.storage.opening import (
    closes,
    is_running,
    join_thread,
    require_outside,
    start_thread,
)
from tallystick.storage.scheduling import threading, time
from tallystick.storage.signals import interrupt_in, starts_unchecked, uninterrupted

_log = logger("tallystick.transactions.relay")

RELAYS = Table(
    "tallystick_relays",
    {
        POSTGRES: (
            (
                "CREATE TABLE IF NOT EXISTS {table} (consumer text PRIMARY KEY, owner text, "
                "until double precision NOT NULL)"
            ),
        ),
        MYSQL: (
            (
                "CREATE TABLE IF NOT EXISTS {table} (consumer VARCHAR(255) PRIMARY KEY, "
                "owner VARCHAR(64), until DOUBLE NOT NULL) "
                "ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
            ),
        ),
        SQLITE: (
            (
                "CREATE TABLE IF NOT EXISTS {table} (consumer TEXT PRIMARY KEY, owner TEXT, "
                "until REAL NOT NULL)"
            ),
        ),
    },
)
_NEW = {
    POSTGRES: "INSERT INTO {} VALUES (%s, '', 0) ON CONFLICT DO NOTHING",
    MYSQL: "INSERT IGNORE INTO {} VALUES (%s, '', 0)",
    SQLITE: "INSERT OR IGNORE INTO {} VALUES (?, '', 0)",
}
_NOW = {
    POSTGRES: "extract(epoch FROM clock_timestamp())",
    MYSQL: "UNIX_TIMESTAMP(NOW(6))",
    SQLITE: "((julianday('now') - 2440587.5) * 86400.0)",
}
_COUNT_MAX = (1 << 31) - 1
"""As much as each database takes for a LIMIT."""
_FORGOTTEN_AT_ONCE = 1000
"""Messages that one statement deletes: each database limits its parameters."""
_POLL_S = 0.01
_ERROR_MAX = 1000
"""Characters of an error that are kept with a message."""


class _Appendable(Protocol):
    """A `Journal`."""

    def append(self, body: bytes) -> int:
        """Append a record."""
        ...


class Relay(Uncopied):
    """Delivers the messages of one consumer; a context manager that works in a thread.

    After a failed delivery it waits, twice as long each time, and begins with the same message.

    Args:
        outbox: where the messages are.
        deliver: is called with a `Message` and returns once it is safe with its receiver; an
            exception means that it may not be; in the thread of `start` so does `SystemExit` or
            another interrupt, which `run` and `run_once` raise. Or a `Journal`, see `to_journal`.
        consumer: whose messages.
        batch: messages that are read at once.
        idle: seconds between two looks into an empty outbox.
        first: seconds to wait after a failed delivery.
        most: the longest such wait, in seconds.
        give_up_after: failed deliveries after which a message is parked, so that others pass it;
            None for never, as order may matter.
        lease: seconds after which another relay takes over from one that has stopped. A delivery
            that takes longer may be repeated there.

    Raises:
        TransactionUsageError: there is no such consumer, or ``deliver`` has to be awaited.

    Attributes:
        delivered: the number of deliveries that returned.
        failed: the number of those that raised.
    """

    def __init__(
        self,
        outbox: Outbox,
        deliver: Callable[[Message], object] | _Appendable,
        *,
        consumer: str = "default",
        batch: int = 100,
        idle: float = 1.0,
        first: float = 0.1,
        most: float = 60.0,
        give_up_after: int | None = None,
        lease: float = 30.0,
    ) -> None:
        if not isinstance(outbox, Outbox):
            raise TypeError(f"outbox is of type {type(outbox).__name__}; expected an Outbox")
        if consumer not in outbox.consumers:
            raise TransactionUsageError(
                f"{consumer!r} is no consumer of the outbox",
                expected=f"one of {list(outbox.consumers)}",
            )
        self.consumer = consumer
        self.delivered = self.failed = 0
        self._outbox = outbox
        taken = deliver if callable(deliver) else to_journal(deliver)
        self._deliver = require_plain(taken, "deliver of a relay")
        self._batch = integer(batch, "batch", 1, _COUNT_MAX)
        self._idle, self._first = seconds(idle, "idle"), seconds(first, "first")
        self._most, self._lease = seconds(most, "most"), seconds(lease, "lease", positive=True)
        self._give_up_after = (
            None
            if give_up_after is None
            else integer(give_up_after, "give_up_after", 1, _COUNT_MAX)
        )
        self._owner = secrets.token_hex(16)
        self._dialect = dialect_of(outbox.database)
        self._leases = RELAYS.of(outbox.database)
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._own: int | None = None
        """The id of a thread of its own that delivers."""
        self._round: tuple[int, object] = (0, None)
        """The id of the thread whose turn it was last, and what tells its turn from others."""
        self._turn = threading.Lock()
        self._delivering: int | None = None
        """The id of the thread that is in ``deliver``."""
        register_in_child(self)

    def __repr__(self) -> str:
        return f"Relay({self._outbox!r}, consumer={self.consumer!r}, delivered={self.delivered})"

    def forked(self) -> None:
        """Forget whose turn it is in the parent; the manager refuses what is called in a child."""
        self._turn = threading.Lock()

    # -- one round --------------------------------------------------------------------------

    def run_once(self) -> float:
        """Deliver what is due, at most one batch; then any relay of the consumer may go on.

        A call of another thread, or the thread of `start`, ends its own batch first.

        Returns:
            Seconds to wait before the next call: 0 if there may be more.

        Raises:
            ResourceUnreachable: the database is away.
            LogClosedError: the transaction manager is closed.
            TransactionUsageError: ``deliver`` returned something that has to be awaited, or calls
                this.
        """
        self._require_no_delivery()
        with self._turn:
            try:
                return self._run_round(lambda: False)
            finally:
                self._release()

    def _require_no_delivery(self) -> None:
        if self._turn.locked() and self._delivering == threading.get_ident():
            raise TransactionUsageError(
                "a delivery of the relay called it: it would begin with the same message again",
                advice="Return from deliver; it is called with the next message then",
            )

    def _run_round(self, stopped: Callable[[], bool]) -> float:
        """Deliver at most one batch, less of it once it is stopped, and keep the lease."""
        self._round = threading.get_ident(), object()
        until = time.monotonic() + self._lease / 2
        messages = self._due()
        done: list[int] = []
        try:
            for message in messages:
                if stopped() or time.monotonic() > until:
                    break
                pause = self._try(message, done)
                if pause is not None:
                    return pause
        finally:
            self._forget(done)
        return 0.0 if messages else self._idle

    def _due(self) -> Sequence[Message]:
        """Take or renew the lease, and read a batch; nothing while another relay has the lease."""
        mark, now = self._outbox.mark, _NOW[self._dialect]
        take = (
            f"UPDATE {self._leases} SET owner = {mark}, until = {now} + {mark} "
            f"WHERE consumer = {mark} AND (owner = {mark} OR until < {now})"
        )
        query = (
            f"SELECT id, topic, body, headers, attempts FROM {self._outbox.table} "
            f"WHERE consumer = {mark} AND NOT parked ORDER BY id LIMIT {mark}"
        )
        with self._outbox.manager.begin(independent=True) as transaction:
            ask = ThreadAsk(transaction, self._outbox.resource)
            ask(_NEW[self._dialect].format(self._leases), self.consumer)
            if not ask(take, self._owner, self._lease, self.consumer, self._owner).changed:
                return []
            rows = ask(query, self.consumer, self._batch).rows
        return [
            Message(int(number), topic, bytes(body), json.loads(headers), attempts)
            for number, topic, body, headers, attempts in rows
        ]

    def _try(self, message: Message, done: list[int]) -> float | None:
        """Deliver a message; return the seconds to wait if it failed and has to be repeated."""
        handled = sys.exception()
        self._delivering = threading.get_ident()
        try:
            returned = self._deliver(message)
        except BaseException as error:  # whatever the application's client raises
            # In the relay's own thread an interrupt reaches no caller, it would end the thread.
            if threading.get_ident() != self._own and interrupt_in(error, handled) is not None:
                raise
            self.failed += 1
            return self._note_failure(message, error)
        finally:
            self._delivering = None
        require_done(returned, "deliver of a relay")
        self.delivered += 1
        done.append(message.offset)
        return None

    def _note_failure(self, message: Message, error: BaseException) -> float | None:
        failures = message.attempts + 1
        parked = self._give_up_after is not None and failures >= self._give_up_after
        text = printable(f"{type(error).__name__}: {error}")[:_ERROR_MAX]
        extra = {"offset": message.offset, "failures": failures, "error": text, "parked": parked}
        _log.warning("a message could not be delivered", extra=extra)
        mark = self._outbox.mark
        self._run(
            f"UPDATE {self._outbox.table} SET attempts = {mark}, error = {mark}, parked = {mark} "
            f"WHERE id = {mark}",
            *(failures, text, parked, message.offset),
        )
        if parked:
            return None
        wait = doubled(self._first, message.attempts, self._most)
        return wait * random.uniform(0.5, 1.0)

    def _forget(self, offsets: Sequence[int]) -> None:
        """Delete messages that were delivered."""
        for start in range(0, len(offsets), _FORGOTTEN_AT_ONCE):
            some = offsets[start : start + _FORGOTTEN_AT_ONCE]
            marks = ", ".join([self._outbox.mark] * len(some))
            self._run(f"DELETE FROM {self._outbox.table} WHERE id IN ({marks})", *some)

    def _run(self, text: str, *parameters: Any) -> None:
        with self._outbox.manager.begin(independent=True) as transaction:
            ThreadAsk(transaction, self._outbox.resource)(text, *parameters)

    # -- until it is stopped ------------------------------------------------------------------

    def run(self) -> None:
        """Deliver until `stop` is called or the manager is closed; then give up the lease.

        The lease is given up also when the call is interrupted. If `stop` was called before, the
        call returns at once.

        Raises:
            TransactionUsageError: a delivery of this relay calls it.
        """
        self._require_no_delivery()
        try:
            self._run_until_stopped()
        finally:
            self._release()

    def _run_until_stopped(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            try:
                with self._turn:
                    pause = self._run_round(self._stopping.is_set)
                failures = 0
            except LogClosedError:
                _log.info("the relay ends with its manager", extra={"consumer": self.consumer})
                return
            except TransactionUsageError:
                _log.exception("the relay stops", extra={"consumer": self.consumer})
                return
            except Exception:  # of any driver: the database may come back
                _log.warning("the outbox cannot be read", exc_info=True)
                pause = doubled(self._first, failures, self._most)
                failures += 1
            self._stopping.wait(pause)

    def _release(self) -> None:
        mark = self._outbox.mark
        try:
            self._run(f"UPDATE {self._leases} SET until = 0 WHERE owner = {mark}", self._owner)
        except Exception:  # of any driver: the lease ends by itself
            _log.info("the lease could not be given up", extra={"consumer": self.consumer})

    def start(self) -> None:
        """Begin to deliver in a thread; while it runs, a second call does nothing.

        Raises:
            OSError: no other thread can be started.
        """
        with uninterrupted:
            if self._thread is None or not is_running(self._thread):
                self._stopping.clear()
                thread = threading.Thread(target=self._work, name="tallystick-relay", daemon=True)
                self._thread = thread  # before it runs: its first delivery may call `stop`
                try:
                    start_thread(thread)
                except OSError:
                    self._thread = None
                    raise

    def _work(self) -> None:
        self._own = threading.get_ident()
        try:
            self.run()
        finally:
            self._own = None

    @closes
    def stop(self) -> None:
        """Stop after the delivery that is under way, and wait for it; a signal ends the wait.

        It ends `run` in other threads, too. Called within `run`, by a delivery or by the handler of
        a signal, it does not wait.

        Raises:
            TransactionUsageError: a delivery in the thread of the relay called it.
        """
        require_outside((self._thread,), "stop of a relay")
        self._stopping.set()
        if self._thread is not None:
            join_thread(self._thread)
            self._thread = None
        thread, _ = last = self._round
        if thread != threading.get_ident():
            while self._turn.locked() and self._round is last:
                uninterrupted.interruptible(time.sleep, _POLL_S)

    def __enter__(self) -> Self:
        self.start()
        return self

    @starts_unchecked
    def __exit__(self, *_: object) -> None:
        self.stop()


def to_journal(journal: _Appendable) -> Callable[[Message], object]:
    """Return a delivery that appends each message to a journal; `from_journal` reads it.

    Raises:
        TransactionUsageError: it is an `AsyncJournal`, or no journal.
    """
    if not hasattr(journal, "append"):
        raise TransactionUsageError(
            f"a relay cannot deliver to a {type(journal).__name__}",
            expected="a function of a message, or a Journal",
        )
    require_plain_calls(journal, ["append"], "the journal of a relay")

    def deliver(message: Message) -> None:
        head = {"offset": message.offset, "topic": message.topic, "headers": dict(message.headers)}
        journal.append(json.dumps(head).encode() + b"\n" + message.body)

    return deliver


def from_journal(body: bytes) -> Message:
    """Return the message in the body of a journal's record.

    Raises:
        ValueError: `to_journal` did not write it.
    """
    head, _, rest = bytes_of(body).partition(b"\n")
    try:
        values = json.loads(head)
        return Message(values["offset"], values["topic"], rest, values["headers"])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"no message of an outbox: {error!r}") from error
