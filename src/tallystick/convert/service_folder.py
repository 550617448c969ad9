"""The folder of the service that opens a converted log.

In: the folder that is being made, the role of its log and the reading of the source. Out: where in
it the log has to lie, and, once it does, what the service keeps beside it: the node id of a
coordinator, the identity of a write-behind service, and what the service of the source knows.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from tallystick.convert.roles import ConversionReport
from tallystick.errors import TransactionUsageError
from tallystick.roles import Role
from tallystick.roles.coordinator_files import NODE_FILE
from tallystick.services.journal.outcomes import FILE as OUTCOMES_FILE
from tallystick.services.transactions.coordinator_dir import (
    BESIDE_LOG,
    open_coordinator_dir,
    read_node,
)
from tallystick.services.transactions.xids import check_node, node_of
from tallystick.services.write_behind.service_dir import new_identity
from tallystick.storage.local import LOCAL, write_anew
from tallystick.systems.folders import CALLS
from tallystick.systems.protocol import LogReading
from tallystick.systems.registry import system


def log_folder(folder: Path, role: Role) -> Path:
    """Return where the service of this role looks for its log in its folder."""
    return folder / CALLS[role][0]


def complete(
    folder: Path, reading: LogReading, report: ConversionReport, key: bytes | None, node: str | None
) -> None:
    """Write what the service keeps beside its new log, by its own code.

    Args:
        folder: that of the service, with the log in it.
        reading: the source; what its service keeps is carried.
        report: says what the log is.
        key: that of the log.
        node: the node id of a coordinator; None for the one that the source tells.

    Raises:
        TransactionUsageError: the source does not tell the node, or tells another one.
        CorruptLogError: decisions of the log belong to another node.
    """
    role, source = Role(report.role), Path(reading.source.path)
    if role is Role.RECORD_JOURNAL:
        _carry(source, folder, (OUTCOMES_FILE,))
        return
    at, to = log_folder(folder, role), report.target_system
    with closing(system(to).reopen(str(at), role, None, key)) as log:
        if role is Role.PERSIST_LOG:
            new_identity(str(folder), LOCAL, to, log)
            return
        home = next((one for one in (source, source.parent) if (one / NODE_FILE).is_file()), None)
        if home is not None:
            _carry(home, folder, BESIDE_LOG)
        open_coordinator_dir(folder, _node(home, reading, node), log).close()


def _carry(source: Path, folder: Path, names: Iterable[str]) -> None:
    for name in names:
        if (source / name).is_file():
            with (source / name).open("rb") as file, write_anew(folder / name) as new:
                shutil.copyfileobj(file, new)
                new.flush()
                os.fsync(new.fileno())


def _node(home: Path | None, reading: LogReading, wanted: str | None) -> str:
    """Return the node id: of the source's coordinator, else as asked for, else that of all gtrids.

    Without the right one nobody would roll back the branches that it has prepared and not decided.
    """
    if home is not None:
        known = {read_node(str(home / NODE_FILE))}
    else:
        gtrids = {one.gtrid for one in reading.transactions() if one.gtrid}
        known = {name for one in gtrids if (name := node_of(one))}
    if wanted is not None and (home is None or known == {wanted}):
        return wanted
    if wanted is None and len(known) == 1:
        return check_node(known.pop())
    raise TransactionUsageError(
        "the node that the decisions belong to is not told by the log"
        if wanted is None
        else f"the decisions belong to another node than {wanted!r}",
        file=reading.source.path,
        found=", ".join(sorted(known)[:3]) or "no decisions",
        advice="Name the node (--node): the server id of Bitronix"
        if wanted is None
        else "Leave out the node",
    )
