"""SQL databases as targets, through SQLAlchemy: PostgreSQL, MariaDB, MySQL, SQLite.

In: entries whose operations are rows (see `rows`), or any others with a function that applies them.
Out: one database transaction per batch. The numbers applied are kept in a table of the database,
written in the same transaction: so each entry takes effect exactly once, whatever crashes.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from tallystick.callables import checked
from tallystick.errors import TallystickError
from tallystick.printable import logger, shell_quoted
from tallystick.roles import PersistEntry
from tallystick.services.driver_errors import is_down, is_of_driver
from tallystick.services.write_behind.targets.contact import NO_TOKEN, KnownTarget
from tallystick.services.write_behind.targets.statements import TAKES_DOCUMENTS, quoted, statements
from tallystick.services.write_behind.targets.target import TargetAheadError, TargetDownError
from tallystick.storage.fork import Uncopied
from tallystick.storage.scheduling import threading, time

APPLIED_TABLE = "tallystick_applied"
_LOG_ID_SIZE = 36
_NUMBER_MAX = (1 << 63) - 1
NOTED_EACH_S = 1.0
"""Seconds between two notes of what was applied, each synced."""

_log = logger("tallystick.write_behind")


class SqlTarget(Uncopied):
    """A database as a target.

    Args:
        engine: Its engine; the target does not dispose of it.
        apply: Called as ``apply(connection, entry)`` in the database transaction, instead of the
            mapping of rows to tables.
        applied_table: The table of applied numbers, created if missing. None: no numbers are kept,
            and applying has to be idempotent.
        batch_max: Most entries in one database transaction.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        apply: Callable[[Connection, PersistEntry], object] | None = None,
        applied_table: str | None = APPLIED_TABLE,
        batch_max: int = 5_000,
    ) -> None:
        self.batch_max = batch_max
        self._engine = engine
        self._apply = checked(apply, "apply of a SqlTarget")
        self._log_id = ""
        self._known_max = -1
        self._given: int | None = None
        self._known: KnownTarget | None = None
        self._token = 0
        self._preparing = threading.Lock()
        self._noting = threading.Lock()
        self._applied = 0
        self._next_note = 0.0
        self._latest: dict[int, int] = {}
        """By thread the greatest number of the last batch of this opening."""
        self._forgotten = 0
        """Numbers below this one may be deleted."""
        self._numbers = None if applied_table is None else _numbers_table(applied_table)

    @property
    def place(self) -> Hashable | None:
        """The table of numbers, in its database."""
        if self._numbers is None:
            return None
        return (
            self._engine.url, id(self._engine) if self._in_memory else 0, self._numbers.name
        )  # fmt: skip

    @property
    def _in_memory(self) -> bool:
        url = self._engine.url
        return url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:")

    def given(self, last_number: int) -> None:
        """Note the greatest number of the log so far."""
        self._given = last_number

    def known(self, known: KnownTarget) -> None:
        """Note what the service knows of this database from earlier openings.

        A database in memory is new, and empty, at each opening: nothing is noted of it.
        """
        self._known = None if self._in_memory else known

    def open(self, log_id: str) -> None:
        """Note the log's id. The first batch is what connects: the database may be down now."""
        self._log_id = log_id
        self._known_max = -1
        self._applied = self._forgotten = 0
        self._latest.clear()

    def apply(self, entries: Sequence[PersistEntry]) -> None:
        """Apply the entries that the database does not hold yet, in one transaction."""
        at_once = self._engine.dialect.name == "postgresql" and self._apply is None
        try:
            self._attempt(entries, at_once=at_once)
        except (sa.exc.ProgrammingError, sa.exc.DataError, sa.exc.IntegrityError):
            if not at_once:
                raise
            # a document is written by another statement: find out whether a row is at fault
            self._attempt(entries, at_once=False)

    def _attempt(self, entries: Sequence[PersistEntry], *, at_once: bool) -> None:
        try:
            self._prepare()
            with self._engine.begin() as connection:
                fresh = self._claim(connection, entries)
                if self._apply is None:
                    self._apply_rows(connection, fresh, at_once=at_once)
                else:
                    for entry in fresh:
                        self._apply(connection, entry)
            if entries:
                greatest = max(one.number for one in entries)
                self._latest[threading.get_ident()] = _signed(greatest)
                self._note_applied(greatest)
        except BaseException as error:
            self._recheck(entries)
            if is_of_driver(error) and is_down(error):
                raise TargetDownError(str(getattr(error, "orig", error))) from error
            raise

    def _apply_rows(
        self, connection: Connection, entries: Sequence[PersistEntry], *, at_once: bool
    ) -> None:
        operations = (one for entry in entries for one in entry.operations)
        known: dict[str, bool] = {}

        def takes_documents(table: str) -> bool:
            if at_once and table not in known:
                # queried for each batch: the table may have been altered since the last one
                name = {"name": quoted(table)}
                known[table] = bool(connection.execute(TAKES_DOCUMENTS, name).scalar())
            return at_once and known[table]

        for statement, parameters in statements(
            connection.dialect.name, operations, takes_documents
        ):
            connection.execute(statement, parameters)

    def _recheck(self, entries: Sequence[PersistEntry]) -> None:
        """Look these numbers up next time: a commit that failed may have taken place."""
        if self._known_max >= 0:
            greatest = max((_signed(one.number) for one in entries), default=0)
            self._known_max = max(self._known_max, greatest)

    def settled(self, below: int) -> None:
        """Delete numbers that cannot come again."""
        numbers = self._numbers
        if numbers is None or self._known_max < 0:
            return
        own = numbers.c.log == self._log_id
        last = sa.select(sa.func.max(numbers.c.number)).where(own)
        try:
            with self._engine.begin() as connection:
                # The greatest shows that this is the database that has applied it.
                kept = min(_signed(below), connection.execute(last).scalar() or 0)
                self._forgotten = max(self._forgotten, kept)
                connection.execute(
                    sa.delete(numbers).where(own, numbers.c.number.between(0, kept - 1))
                )
        except sa.exc.DBAPIError as error:
            if not is_down(error):
                raise

    def close(self) -> None:
        """Note what was applied; the engine belongs to the application."""
        self._next_note = 0.0
        self._note_applied(0)

    def _note_applied(self, number: int) -> None:
        """Note the greatest number that was applied, once in `NOTED_EACH_S`."""
        if self._known is None or self._numbers is None:
            return
        with self._noting:
            self._applied = max(self._applied, number)
            now = time.monotonic()
            if now < self._next_note or self._applied <= self._known.contact.applied:
                return
            self._next_note = now + NOTED_EACH_S
            try:
                self._known.applied(self._applied)
            except (OSError, TallystickError) as error:
                # A backup in the place of the database may not be told from it then.
                _log.warning("%s: what was applied is not noted: %s", self._numbers.name, error)

    def _prepare(self) -> None:
        """Create the table of numbers, once, read the greatest number, and take the table over."""
        numbers = self._numbers
        with self._preparing:
            if self._known_max >= 0:
                return
            greatest = 0
            if numbers is not None:
                numbers.metadata.create_all(self._engine)
                with self._engine.begin() as connection:
                    self._take_over(connection, numbers)
                    last = sa.select(sa.func.max(numbers.c.number))
                    query = last.where(numbers.c.log == self._log_id)
                    greatest = max(connection.execute(query).scalar() or 0, 0)
                    self._require_not_ahead(numbers, greatest)
                    self._require_not_behind(numbers, greatest)
                with self._engine.begin() as connection:
                    self._delete_others(connection, numbers)
                if self._known is not None:
                    with _keeping():
                        self._known.answered(self._token)
            self._known_max = greatest

    def _require_not_ahead(self, numbers: sa.Table, greatest: int) -> None:
        """Refuse a target with numbers that the log had not when the target last answered."""
        since = None if self._known is None else self._known.contact.since
        given = self._given if since is None else since
        if given is not None and greatest > _signed(given):
            raise _ahead(numbers, self._log_id, greatest, given)

    def _require_not_behind(self, numbers: sa.Table, greatest: int) -> None:
        """Refuse a target that lacks what it has applied, and does not get again."""
        if self._known is None:
            return
        applied = self._known.contact.applied
        if _signed(applied) > greatest:
            found = f"no greater one than {greatest}"
            raise _behind(numbers, self._known.file, applied, found)

    def _take_over(self, connection: Connection, numbers: sa.Table) -> None:
        """Put a token of this opening in the place of that of the last one.

        A batch of another opening, which works with a copy of the log, holds the lock of its token:
        it is over when this returns, and is the last one of it.

        Raises:
            TargetAheadError: the token is not that of an opening of this folder.
        """
        tokens = (numbers.c.log == self._log_id, numbers.c.number < 0)
        # A read that locks: what is read after it is not of a moment before it has waited.
        query = sa.select(numbers.c.number).where(*tokens).with_for_update()
        found = set(connection.execute(query).scalars()) or {NO_TOKEN}
        self._token = -1 - secrets.randbits(62)
        if self._known is not None:
            expected = self._known.contact.tokens
            if expected and not found <= set(expected):
                raise _of_another_moment(numbers, self._known.file, found)
            with _keeping():
                self._known.expect([self._token, *found])
        connection.execute(sa.delete(numbers).where(*tokens))
        connection.execute(sa.insert(numbers), {"log": self._log_id, "number": self._token})

    def _delete_others(self, connection: Connection, numbers: sa.Table) -> None:
        """Delete the token of an opening that has taken over at the same moment, unseen."""
        others = (numbers.c.number < 0, numbers.c.number != self._token)
        connection.execute(sa.delete(numbers).where(numbers.c.log == self._log_id, *others))

    def _hold_token(self, connection: Connection, numbers: sa.Table) -> None:
        """Lock the token of this opening; batches of its other workers may do so, too.

        Raises:
            TargetAheadError: another opening has taken its place.
        """
        own = (numbers.c.log == self._log_id, numbers.c.number == self._token)
        if connection.dialect.name == "sqlite":
            kept = sa.update(numbers).where(*own).values(number=self._token)
            held = connection.execute(kept).rowcount > 0
        else:
            query = sa.select(numbers.c.number).where(*own).with_for_update(read=True)
            held = connection.execute(query).first() is not None
        if not held:
            raise TargetAheadError(
                "another service applies a copy of this log to the same target",
                found=f"the token of another opening in {numbers.name}",
                advice="Let one of them work. What is pending here was not applied; a copy that is "
                "to go on beside the other needs a database of its own",
            )

    def _require_latest(self, connection: Connection, numbers: sa.Table) -> None:
        """Refuse a database that lacks the last batches of this opening; asked on new connections.

        Another server may have taken the place of the one that had them: a standby that lagged.

        Raises:
            TargetAheadError: a number of theirs is not there, and was not forgotten.
        """
        asked = ("tallystick", self._token)
        if self._known is None or asked in connection.info:
            return
        own = numbers.c.log == self._log_id
        latest = [one for one in list(self._latest.values()) if one >= self._forgotten]
        if latest:
            query = sa.select(numbers.c.number).where(own, numbers.c.number.in_(latest))
            held = connection.execute(query).scalars()
            missing = set(latest).difference(held)
            if late := {one for one in missing if one >= self._forgotten}:
                raise _behind(numbers, self._known.file, min(late), "it is not there")
        connection.info[asked] = None

    def _claim(self, connection: Connection, entries: Sequence[PersistEntry]) -> list[PersistEntry]:
        """Insert the numbers of entries that are not applied yet; return these entries."""
        numbers = self._numbers
        if numbers is None:
            return list(entries)
        self._hold_token(connection, numbers)
        self._require_latest(connection, numbers)
        maybe_held = [one.number for one in entries if _signed(one.number) <= self._known_max]
        held: set[int] = set()
        if maybe_held:
            query = sa.select(numbers.c.number).where(
                numbers.c.log == self._log_id, numbers.c.number.in_(map(_signed, maybe_held))
            )
            held = set(connection.execute(query).scalars())
        fresh = [one for one in entries if _signed(one.number) not in held]
        if fresh:
            self._insert_numbers(connection, numbers, [_signed(one.number) for one in fresh])
        return fresh

    def _insert_numbers(
        self, connection: Connection, table: sa.Table, numbers: Sequence[int]
    ) -> None:
        if connection.dialect.name == "postgresql":
            text = sa.bindparam("numbers", "{" + ",".join(map(str, numbers)) + "}", type_=sa.Text)
            each = sa.func.unnest(sa.cast(text, sa.ARRAY(sa.BigInteger)))
            log = sa.bindparam("log", self._log_id, type_=sa.Text)
            connection.execute(
                sa.insert(table).from_select(["log", "number"], sa.select(log, each))
            )
        else:
            rows = [{"log": self._log_id, "number": one} for one in numbers]
            connection.execute(sa.insert(table), rows)


def _numbers_table(name: str) -> sa.Table:
    return sa.Table(
        name,
        sa.MetaData(),
        sa.Column("log", sa.String(_LOG_ID_SIZE), primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    )


@contextmanager
def _keeping() -> Iterator[None]:
    """Have a folder that cannot be written count as a target that cannot be reached."""
    try:
        yield
    except (OSError, TallystickError) as error:
        raise TargetDownError(f"what is known of the target cannot be kept: {error}") from error


def _of_another_moment(numbers: sa.Table, file: str, found: set[int]) -> TargetAheadError:
    which = "no token of this log" if found == {NO_TOKEN} else "the token of another opening"
    return TargetAheadError(
        "the target and the log are of two moments: one of both was restored from a backup, the "
        "target is another database, or another service has applied a copy of this log",
        found=f"{which} in {numbers.name}",
        advice="What is pending here was not applied. Bring both back from the same moment. If you "
        f"know that the target lacks nothing and no copy is at work: rm {shell_quoted(file)}",
    )


def _behind(numbers: sa.Table, file: str, applied: int, found: str) -> TargetAheadError:
    return TargetAheadError(
        "the target lacks transactions that it had applied: it was restored from a backup, is "
        "another database, or a standby that lagged",
        expected=f"number {applied} in {numbers.name}",
        found=found,
        advice="What is pending here was not applied. Bring both back from the same moment. If you "
        f"know what the target lacks, and have brought it in otherwise: rm {shell_quoted(file)}",
    )


def _ahead(numbers: sa.Table, log_id: str, greatest: int, given: int) -> TargetAheadError:
    return TargetAheadError(
        "the target holds transactions that the log never had: the log was lost, or is an old copy",
        expected=f"numbers up to {given}",
        found=f"{greatest} in {numbers.name}",
        advice="Restore the log. If it is lost for good, take a new folder for the service: its "
        f"numbers are new to the target, and those of {log_id} can be deleted",
    )


def _signed(number: int) -> int:
    """Return the number limited to the 63 bits of a BIGINT."""
    return min(number, _NUMBER_MAX)
