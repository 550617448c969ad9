"""The directory of a coordinator: its node id and its decision log.

In: a path, and perhaps a node id and a log of another kind. Out: a `CoordinatorDirectory` with
both, locked by the log for this process. The node id is written once and never changed: no
coordinator would recover branches prepared under another id.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from pathlib import Path

from tallystick.errors import CorruptLogError, TransactionUsageError
from tallystick.roles import DecisionLog
from tallystick.services.transactions.xids import check_node
from tallystick.storage.files import write_whole
from tallystick.storage.local import LOCAL
from tallystick.systems.registry import open_decision_log

NODE_FILE = "node"
LOG_FOLDER = "decisions"
IDENTITIES_FILE = "identities.json"


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


@dataclass(frozen=True, slots=True)
class CoordinatorDirectory:
    """An open directory: the node id in it, its decision log, and the databases known to it."""

    node: str
    decisions: DecisionLog
    identities: Identities

    def close(self) -> None:
        """Close the log, which gives up the lock."""
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
        return CoordinatorDirectory(_node(folder, node), decisions, identities)
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
