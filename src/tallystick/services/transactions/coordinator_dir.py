"""The directory of a coordinator: its node id and its decision log.

In: a path, and perhaps a node id and a log of another kind. Out: a `CoordinatorDirectory` with
both, locked by the log for this process. The node id is written once and never changed: no
coordinator would recover branches prepared under another id.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
from collections.abc import Collection, Iterator, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from tallystick.errors import CorruptLogError, TransactionUsageError
from tallystick.printable import logger
from tallystick.roles import DecisionLog
from tallystick.services.transactions.xids import check_node
from tallystick.storage.files import write_whole
from tallystick.storage.local import LOCAL
from tallystick.systems.registry import open_decision_log

NODE_FILE = "node"
LOG_FOLDER = "decisions"
IDENTITIES_FILE = "identities.json"
CLOSED_FILE = "closed"
CLOSED_FILE_SIZE = 64 << 20
"""Bytes of each of two files: half a million transactions and more are remembered."""

_log = logger("tallystick.transactions")


class Identities(MutableMapping[str, str]):
    """Identities of databases by resource name, in a file; a change is durable at once.

    Raises:
        CorruptLogError: the file cannot be read.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known: dict[str, str] = {}
        if file.exists():
            try:
                self._known = {str(k): str(v) for k, v in json.loads(file.read_bytes()).items()}
            except (ValueError, AttributeError) as error:
                raise CorruptLogError(
                    f"the identities of the databases cannot be read: {error}",
                    file=str(file),
                    advice="Remove the file once you have checked the addresses of the resources",
                ) from error

    def __getitem__(self, name: str) -> str:
        return self._known[name]

    def __setitem__(self, name: str, identity: str) -> None:
        self._write(self._known | {name: identity})

    def __delitem__(self, name: str) -> None:
        self._write({known: one for known, one in self._known.items() if known != name})

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def _write(self, identities: dict[str, str]) -> None:
        text = json.dumps(identities, indent=1, sort_keys=True)
        write_whole(LOCAL, str(self._file.absolute()), [f"{text}\n".encode()])
        self._known = identities


class ClosedDecisions:
    """Global ids of decisions that are closed, in two files; the older one is replaced when full.

    The log forgets a closed decision. A database that was restored from a backup may list its
    branch again, which must not be taken for one that was never decided. A line, the id in
    lower-case hex, outlives the process as soon as it is written; `sync` and `close` force it to
    disk.
    """

    def __init__(self, folder: Path) -> None:
        self._files = folder / CLOSED_FILE, folder / f"{CLOSED_FILE}.old"
        self._lock = threading.Lock()
        self._descriptor: int | None = None
        self._size = 0

    def add(self, gtrid: bytes) -> None:
        """Note a decision that is closed; a disk that refuses is logged."""
        line = f"{gtrid.hex()}\n".encode()
        try:
            with self._lock:
                if self._descriptor is None:
                    self._open()
                elif self._size > CLOSED_FILE_SIZE:
                    self._replace_older()
                self._size += os.write(cast(int, self._descriptor), line)
        except OSError as error:
            _log.warning("a closed decision cannot be noted: %s", error)

    def among(self, gtrids: Collection[bytes]) -> set[bytes]:
        """Return those that were decided and closed."""
        wanted = {gtrid.hex().encode(): gtrid for gtrid in gtrids}
        found: set[bytes] = set()
        for file in self._files:
            if wanted and file.exists():
                with file.open("rb") as lines:
                    found.update(wanted[text] for line in lines if (text := line.strip()) in wanted)
        return found

    def sync(self) -> None:
        """Force what was noted to disk."""
        with self._lock:
            if self._descriptor is not None:
                os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Force what was noted to disk, and close the file."""
        self.sync()
        with self._lock:
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None

    def _open(self) -> None:
        self._descriptor = os.open(self._files[0], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._size = os.fstat(self._descriptor).st_size
        if self._size:
            os.write(self._descriptor, b"\n")  # the last line may have been cut

    def _replace_older(self) -> None:
        descriptor = cast(int, self._descriptor)
        os.fdatasync(descriptor)
        os.close(descriptor)
        self._descriptor = None
        self._files[0].replace(self._files[1])
        self._open()


@dataclass(frozen=True, slots=True)
class CoordinatorDirectory:
    """An open directory: the node id in it, its decision log, and the databases known to it."""

    node: str
    decisions: DecisionLog
    identities: Identities
    closed: ClosedDecisions

    def close(self) -> None:
        """Close the log, which gives up the lock."""
        self.closed.close()
        self.decisions.close()


def open_coordinator_dir(
    path: str | os.PathLike[str], node: str | None, log: DecisionLog | None
) -> CoordinatorDirectory:
    """Open or create the directory.

    Args:
        path: the directory.
        node: the node id it must have, or gets if it is new; None for any, or a random one.
        log: the decision log; None for the native one in the directory.

    Raises:
        LogLockedError: another process has it open.
        TransactionUsageError: it belongs to a node of another name.
    """
    folder = Path(path)
    LOCAL.mkdir(str(folder.absolute()))
    decisions = open_decision_log(folder / LOG_FOLDER) if log is None else log
    try:
        identities = Identities(folder / IDENTITIES_FILE)
        return CoordinatorDirectory(
            _node(folder, node), decisions, identities, ClosedDecisions(folder)
        )
    except BaseException:
        decisions.close()
        raise


def check_coordinator_dir(path: str | os.PathLike[str]) -> None:
    """Raise `TransactionUsageError` unless the directory is a coordinator's: opening makes one."""
    if not (Path(path) / NODE_FILE).is_file():
        raise TransactionUsageError(
            "this is not the directory of a coordinator",
            file=str(path),
            expected=f"a file {NODE_FILE!r} in it",
            advice="Look for the path that the node was opened with",
        )


def _node(folder: Path, wanted: str | None) -> str:
    file = folder / NODE_FILE
    if file.exists():
        node = check_node(file.read_text("ascii", "replace").strip())
        if wanted not in (None, node):
            raise TransactionUsageError(
                f"the directory belongs to node {node!r}, not {wanted!r}",
                file=str(file),
                advice="Branches in doubt are found by the node id; use another directory",
            )
        return node
    node = check_node(wanted or f"tally-{secrets.token_hex(4)}")
    write_whole(LOCAL, str(file.absolute()), [f"{node}\n".encode("ascii")])
    return node
