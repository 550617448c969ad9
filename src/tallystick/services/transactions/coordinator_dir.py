"""The directory of a coordinator: its node id and its decision log.

In: a path, and perhaps a node id and a log of another kind. Out: a `CoordinatorDirectory` with
both, locked by the log for this process. The node id is written once and never changed: no
coordinator would recover branches prepared under another id.
"""

from __future__ import annotations

import json
import os
import posixpath
import secrets
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from tallystick.errors import CorruptLogError, LogClosedError, TransactionUsageError
from tallystick.printable import logger
from tallystick.roles import DecisionLog, DecisionOutcome
from tallystick.roles.coordinator_files import (
    CLOSED_FILE,
    DECIDES,
    IDENTITIES,
    LOG_FOLDER,
    LOST_FILE,
    NODE_FILE,
    RESOURCES,
    TextsFile,
    last_resources,
    note_files,
    noted,
)
from tallystick.roles.recovered import found_by_opening
from tallystick.services.transactions.xids import check_node, node_of
from tallystick.storage.files import File, FileSystem, HeldFolder, read_file, write_whole
from tallystick.storage.fork import Uncopied
from tallystick.storage.local import LOCAL, LocalFileSystem, open_to_append
from tallystick.storage.opening import opening_log
from tallystick.storage.scheduling import threading, time
from tallystick.storage.signals import uninterrupted
from tallystick.systems.folders import is_vacant, require_no_other
from tallystick.systems.registry import (
    open_decision_log,
    open_shared_decision_log,
)

CLOSED_FILE_SIZE = 64 << 20
"""Bytes of each of two files: half a million transactions and more are remembered."""
TRACES_FILE = "traces"
TRACES_FILE_SIZE = 4 << 20
"""Bytes of each of two files: some ten thousand sampled transactions."""

BESIDE_LOG = (
    IDENTITIES.name,
    RESOURCES.name,
    *(name for one in (CLOSED_FILE, TRACES_FILE) for name in (one, f"{one}.old")),
    LOST_FILE,
)
"""What a coordinator keeps beside its log, except its node id."""

_OWNER = "node "
"""The owner of a decision log is named so, with the node id."""
_log = logger("tallystick.transactions")


_MOMENT_DIGITS = 18
"""Of milliseconds since 1970: more would not be a time, and long numbers are slow to read."""


@contextmanager
def _one_process_at_a_time(fs: FileSystem, folder: Path) -> Iterator[None]:
    """Keep the other processes of the coordinator from changing its small files.

    Another file system than the real one is that of one process.
    """
    with fs.locked_folder(str(folder)) if isinstance(fs, LocalFileSystem) else nullcontext():
        yield


class Texts(MutableMapping[str, str]):
    """A small file of texts by the name of a resource; a change is durable at once.

    Args:
        file: which one it is.
        folder: the directory of the coordinator.
        fs: the file system.

    Raises:
        CorruptLogError: the file is damaged.
        LogUnreadableError: the disk refuses.
    """

    def __init__(self, file: TextsFile, folder: str, fs: FileSystem = LOCAL) -> None:
        self._file, self._folder, self._fs = file, folder, fs
        self.read()

    def read(self) -> dict[str, str]:
        """Read the file, which another process of the coordinator may have changed."""
        return self._file.read(self._fs, self._folder)

    def __getitem__(self, name: str) -> str:
        return self.read()[name]

    def __setitem__(self, name: str, text: str) -> None:
        self._change(lambda known: known.update({name: text}))

    def __delitem__(self, name: str) -> None:
        self._change(lambda known: known.pop(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self.read())

    def __len__(self) -> int:
        return len(self.read())

    def _change(self, change: Callable[[dict[str, str]], object]) -> None:
        """Have the texts changed, and nobody else change them meanwhile."""
        path = posixpath.join(self._folder, self._file.name)
        with opening_log(path), _one_process_at_a_time(self._fs, Path(self._folder)):
            known = self.read()
            change(known)
            text = json.dumps(known, indent=1, sort_keys=True)
            write_whole(self._fs, path, [f"{text}\n".encode()])


class Resources(Texts):
    """What each resource is that the coordinator was ever opened with."""

    def note(self, given: Mapping[str, str]) -> None:
        """Note resources, durably: a recovery without one of them knows what it lacks.

        One that has decided stays one that decides, also where its name is given to another.
        """
        known = self.read()
        if not {**given, **_deciding(known)}.items() <= known.items():
            self._change(lambda known: known.update({**given, **_deciding(known)}))


def _deciding(known: Mapping[str, str]) -> dict[str, str]:
    return dict.fromkeys(last_resources(known), DECIDES)


class Notes(Uncopied):
    """Notes on transactions, in two files; the older one is replaced when the other is full.

    A line, the global id in lower-case hex and a text perhaps, outlives the process as soon as it
    is written; `sync` and `close` force it to disk. A line is written on event loops, too: it waits
    for no sync, but for that of a full file.

    Args:
        folder: the directory of the coordinator.
        name: of the newer file.
        size: bytes of one file.
        fs: the file system.
    """

    def __init__(self, folder: Path, name: str, size: int, fs: FileSystem = LOCAL) -> None:
        self._folder = folder
        self._fs = fs
        self._newer, self._older = note_files(str(folder.absolute() / name))
        self._limit = size
        self._lock = threading.Lock()
        self._syncing = threading.Lock()
        """Held before ``_lock`` by whoever needs the file to stay open without that."""
        self._file: File | None = None
        self._size = 0
        self._is_named = True
        """False for a new file whose name may not be durable."""

    def add(self, gtrid: bytes, text: str = "") -> None:
        """Note a transaction, with a text in ASCII; a disk that refuses is logged."""
        self._write(f"{gtrid.hex()} {text}".rstrip().encode("ascii") + b"\n")

    def add_all(self, gtrids: Iterable[bytes]) -> None:
        """Note transactions as `add` does, without a text, by one write."""
        self._write("".join([f"{gtrid.hex()}\n" for gtrid in gtrids]).encode("ascii"))

    def _write(self, lines: bytes) -> None:
        try:
            with self._lock:
                if self._file is None:
                    self._file = self._opened()
                elif self._size > self._limit:
                    self._file = self._after_replacing_older(self._file)
                self._file.pwrite(lines, self._size)
                self._size += len(lines)
        except (OSError, LogClosedError) as error:  # closed: by a manager that waits no longer
            _log.warning("a transaction cannot be noted: %s", error)

    def texts(self, gtrids: Collection[bytes]) -> dict[bytes, str]:
        """Return those that were noted, with their texts.

        Raises:
            LogUnreadableError: the disk refuses.
        """
        return noted(self._fs, self._newer, gtrids)

    def sync(self) -> None:
        """Force what was noted to disk; a disk that refuses is logged."""
        try:
            with self._syncing:
                with self._lock:
                    file, named, self._is_named = self._file, self._is_named, True
                if not named:
                    self._sync_names()
                if file is not None:
                    file.datasync()
        except (OSError, LogClosedError) as error:  # closed: a full one, which was synced
            _log.warning("notes on transactions cannot be forced to disk: %s", error)

    def _sync_names(self) -> None:
        """Make the names of both files durable."""
        try:
            self._fs.sync_dir(posixpath.dirname(self._newer))
        except BaseException:
            self._is_named = False
            raise

    def close(self) -> None:
        """Force what was noted to disk, and close the file."""
        self.sync()
        with self._syncing, self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _opened(self) -> File:
        file = open_to_append(self._fs, self._newer)
        try:
            self._size = file.size()
            if self._size:
                file.pwrite(b"\n", self._size)  # the last line may have been cut
                self._size += 1
            else:
                self._is_named = False
        except BaseException:
            file.close()
            raise
        return file

    def _after_replacing_older(self, full: File) -> File:
        full.datasync()
        with _one_process_at_a_time(self._fs, self._folder):
            if self._fs.size(self._newer) > self._limit:  # or another process has replaced it
                self._fs.rename(self._newer, self._older)
            full.close()
            self._file = None
            return self._opened()


class ClosedDecisions(Notes):
    """Decisions that are closed, which the log forgets.

    A database that was restored from a backup may list its branch again, which must not be taken
    for one that was never decided.
    """

    def __init__(self, folder: Path, fs: FileSystem = LOCAL) -> None:
        super().__init__(folder, CLOSED_FILE, CLOSED_FILE_SIZE, fs)

    def among(self, gtrids: Collection[bytes]) -> set[bytes]:
        """Return those that were decided and closed."""
        return set(self.texts(gtrids))


class Traces(Notes):
    """Spans of transactions, to which recovery in another process links its own."""

    def __init__(self, folder: Path, fs: FileSystem = LOCAL) -> None:
        super().__init__(folder, TRACES_FILE, TRACES_FILE_SIZE, fs)


class CommittedEnds(Uncopied):
    """Records that transactions have ended as decided, those of many threads at once.

    A thread that finds another one at it leaves the record of its transaction to that one: a write
    gives up the interpreter lock, and threads that wait for each other's would stand in a queue.

    Args:
        closed: notes each transaction before the log records its end.
        decisions: records it, without forcing.
    """

    def __init__(self, closed: ClosedDecisions, decisions: DecisionLog) -> None:
        self._closed = closed
        self._decisions = decisions
        self._waiting: deque[tuple[bytes, Collection[str]]] = deque()
        self._recording = threading.Lock()

    def add(self, gtrid: bytes, resources: Collection[str]) -> None:
        """Record, now or in the thread that is at it, that these resources have committed.

        A log that cannot does not change that they have: the decision stays open, and recovery
        finds nothing left to do.
        """
        self._waiting.append((gtrid, resources))
        with uninterrupted:
            # Again after each release: another thread may have found the lock taken meanwhile.
            while self._waiting and self._recording.acquire(blocking=False):
                try:
                    self._record_waiting()
                finally:
                    self._recording.release()

    def record(self) -> None:
        """Return once the log has the end of every transaction that was added before."""
        if self._waiting:
            with self._recording:
                self._record_waiting()

    def _record_waiting(self) -> None:
        """Record what waits. Nothing is taken from the queue before: a signal may raise here."""
        ended = list(self._waiting)
        self._closed.add_all([gtrid for gtrid, _ in ended])
        for gtrid, resources in ended:
            try:
                self._decisions.finish(gtrid, resources, DecisionOutcome.COMMITTED)
            except Exception:  # of any log; the ends of others must be recorded
                log_unrecorded_end(gtrid, resources, DecisionOutcome.COMMITTED)
            self._waiting.popleft()


def log_unrecorded_end(gtrid: bytes, resources: Collection[str], outcome: DecisionOutcome) -> None:
    """Log that the log has refused to record an end, in the handler of its error."""
    _log.critical(
        "the log cannot record an end",
        exc_info=True,
        extra={"gtrid": gtrid.hex(), "resources": list(resources), "outcome": outcome.value},
    )


@dataclass(frozen=True, slots=True)
class CoordinatorDirectory(Uncopied):
    """An open directory: the node id in it, its decision log, and the databases known to it.

    Transactions begun before ``lost_before``, in milliseconds since 1970, may have been decided in
    a part of the log that an opening found damaged, and cut off; 0 if there was none.
    """

    path: str
    node: str
    decisions: DecisionLog
    identities: Texts
    resources: Resources
    closed: ClosedDecisions
    traces: Traces
    ends: CommittedEnds
    held: HeldFolder
    lost_before: int = 0

    def finish(self, gtrid: bytes, resources: Collection[str], outcome: DecisionOutcome) -> None:
        """Record how branches have ended; that they were decided outlives the log's own record.

        Only of a transaction that was decided: of others the log alone records heuristic outcomes.

        Args:
            gtrid: the global id.
            resources: the names of the branches.
            outcome: how they ended.
        """
        self.closed.add(gtrid)
        self.decisions.finish(gtrid, resources, outcome)

    def close(self) -> None:
        """Close the log, which gives up the lock."""
        logs = closing(self.decisions), closing(self.traces), closing(self.closed)
        with closing(self.held), logs[0], logs[1], logs[2]:
            self.ends.record()


def open_coordinator_dir(
    path: str | os.PathLike[str],
    node: str | None,
    log: DecisionLog | None,
    *,
    shared: bool = False,
    fs: FileSystem = LOCAL,
) -> CoordinatorDirectory:
    """Open or create the directory.

    Args:
        path: the directory.
        node: the node id it must have, or gets if it is new; None for any, or a random one.
        log: the decision log; None for the native one in the directory.
        shared: other processes may have it open, too.
        fs: the file system.

    Raises:
        CorruptLogError: its decisions are missing, or the id of the node that they belong to.
        LogLockedError: another process has it open.
        TransactionUsageError: it belongs to a node of another name, ``node`` can be none, or
            ``log`` cannot be shared, or is no decision log.
    """
    if shared and log is not None:
        raise TransactionUsageError(
            "only the native log in the directory can be shared", advice="Leave out log="
        )
    if log is not None and not callable(getattr(log, "open_decisions", None)):
        raise TransactionUsageError(
            f"a log of type {type(log).__name__}",
            expected="a decision log that is open, or None for the one in the directory",
        )
    if node is not None:
        check_node(node)  # before anything is made under it
    folder = Path(path).absolute()
    if log is None:
        require_no_other(folder, fs, LOG_FOLDER)
    recorded = _recorded_node(fs, str(folder / NODE_FILE), node)
    owner = recorded or ""
    if not recorded and not fs.list(str(folder / LOG_FOLDER)):
        # Processes that make a shared one together may each have another name in mind.
        node = node or (None if shared else _new_node())
        owner = node or ""
    owner = owner and f"{_OWNER}{owner}"
    fs.mkdir(str(folder))
    with ExitStack() as undo:
        held = undo.enter_context(closing(fs.hold(str(folder))))
        _require_decisions(held, folder, log)
        decisions = log or _open_log(folder / LOG_FOLDER, held, owner, shared=shared)
        undo.callback(decisions.close)
        identities = Texts(IDENTITIES, str(folder), held)
        resources = Resources(RESOURCES, str(folder), held)
        closed, traces = ClosedDecisions(folder, held), Traces(folder, held)
        with _one_process_at_a_time(held, folder):
            found = _node(held, str(folder / NODE_FILE), node, decisions)
            lost = _lost_before(held, str(folder / LOST_FILE), decisions)
        ends = CommittedEnds(closed, decisions)
        undo.pop_all()
    return CoordinatorDirectory(
        str(folder), found, decisions, identities, resources, closed, traces, ends, held, lost
    )


def _open_log(folder: Path, fs: FileSystem, owner: str, *, shared: bool) -> DecisionLog:
    if shared:
        return open_shared_decision_log(folder, owner=owner)
    return open_decision_log(folder, fs=fs, owner=owner)


def _lost_before(fs: FileSystem, file: str, log: DecisionLog) -> int:
    """Return the moment before which decisions may be lost; note it, for the log forgets it.

    Only a log that judges its own opening tells; what another one recovers is taken for all.
    """
    found = found_by_opening(file, log)
    if not found.sound:
        now = int(time.time() * 1000)
        write_whole(fs, file, [f"{now} {found.judgement.reason}\n".encode("ascii")])
        return now
    return lost_moment(read_file(fs, file), file) if fs.exists(file) else 0


def lost_moment(content: bytes, file: str) -> int:
    """Return the moment in a file of lost decisions, in milliseconds since 1970.

    Raises:
        CorruptLogError: it is none.
    """
    moment, *_ = [*content.split(), b""]
    if not moment.isdigit() or len(moment) > _MOMENT_DIGITS:
        raise CorruptLogError(
            "the moment before which decisions may be lost cannot be read",
            file=file,
            advice="Settle by hand what is in doubt, then remove the file",
        )
    return int(moment)


def check_coordinator_dir(path: str | os.PathLike[str], fs: FileSystem = LOCAL) -> None:
    """Raise `TransactionUsageError` unless the directory is a coordinator's: opening makes one."""
    if not fs.exists(str(Path(path).absolute() / NODE_FILE)):
        raise TransactionUsageError(
            "this is not the directory of a coordinator",
            file=str(path),
            expected=f"a file {NODE_FILE!r} in it",
            advice="Look for the path that the node was opened with",
        )


def _require_decisions(fs: FileSystem, folder: Path, other: DecisionLog | None) -> None:
    """Refuse a directory whose log is gone: its node id is written after the log was made."""
    log = str(folder / LOG_FOLDER)
    if other is None and fs.exists(str(folder / NODE_FILE)) and is_vacant(log, fs):
        raise CorruptLogError(
            "the decisions of this coordinator are missing: without them branches that were "
            "decided would be rolled back",
            file=log,
            advice="Bring its files back (is the volume mounted, are they packed?); if they are "
            "lost, settle every branch in doubt by hand, and start a coordinator in a new "
            "directory",
        )


def _new_node() -> str:
    return f"tally-{secrets.token_hex(4)}"


def read_node(file: str, fs: FileSystem = LOCAL) -> str:
    """Return the node id in a file. Raises `TransactionUsageError` if it can be none."""
    return check_node(read_file(fs, file).decode("ascii", "replace").strip())


def owning_node(owner: str) -> str:
    """Return the node id that a decision log names as its owner; empty if it names none."""
    return owner.removeprefix(_OWNER) if owner.startswith(_OWNER) else ""


def _recorded_node(fs: FileSystem, file: str, wanted: str | None) -> str | None:
    """Return the node id of the directory, None of a new one; refuse another than ``wanted``."""
    if not fs.exists(file):
        return None
    node = read_node(file, fs)
    if wanted not in (None, node):
        raise TransactionUsageError(
            f"the directory belongs to node {node!r}, not {wanted!r}",
            file=file,
            advice="Branches in doubt are found by the node id; use another directory",
        )
    return node


def _node(fs: FileSystem, file: str, wanted: str | None, decisions: DecisionLog) -> str:
    if fs.exists(file) and (node := _recorded_node(fs, file, wanted)) is not None:
        return node
    owner = owning_node(str(getattr(decisions, "owner", "")))
    decided = {node_of(gtrid) for gtrid in decisions.open_decisions()} - {None}
    node = check_node(wanted or ("" if decided else owner) or _new_node())
    for other in (decided | {owner}) - {node, ""}:
        raise CorruptLogError(
            f"the node id is lost; decisions in the log belong to node {other!r}",
            file=file,
            advice=f"Open it with the id that it had: node={other!r}",
        )
    write_whole(fs, file, [f"{node}\n".encode("ascii")])
    return node
