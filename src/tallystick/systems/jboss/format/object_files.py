"""Names of the files in which Narayana's stores of files keep one state each.

`ShadowNoFileLockStore` (the default), `ShadowingStore` and `ActionStore` write the state of a type,
such as ``StateManager/BasicAction/TwoPhaseCoordinator/AtomicAction``, to ``TYPE/UID`` below the
root of the store; `HashedStore` and `HashedActionStore` to ``TYPE/#HASH#/UID``. UID has ``_`` for
``:``. ``UID!`` is a shadow, which was never made the state, and ``#`` at the end of either hides
it. `Expired` below a type holds what recovery has given up. The file is the state alone.

In: a path. Out: what it names, None where that is no state's. Source: FileSystemStore,
ShadowingStore, HashedStore, ExpiredEntryMonitor and Uid of Narayana 7.0.2.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tallystick.systems.jboss.format.bodies import PACKED_MAGIC
from tallystick.systems.jboss.format.participants import MARK

_UID = r"-?[0-9a-f]{1,16}(?:_-?[0-9a-f]{1,16}){4}"
_NAME = re.compile(rf"({_UID})(!?)(#?)(?:\.gz|\.zst)?")
_HASHED = re.compile(r"#\d+#")
_FIRST = frozenset({"CosTransactions", "EISNAME", "Recovery", "StateManager"})
"""What the types that Narayana itself stores begin with."""
_EXPIRED = "Expired"


@dataclass(frozen=True, slots=True)
class ObjectFile:
    """One state's file.

    Attributes:
        store: the folder of the store; that of the file where its type is none of Narayana's own.
        type_name: the type of the state, as Narayana names it; empty where the folders do not tell.
        uid: the Uid of the object, as Narayana prints it.
        shadow: it was written beside the state, and never took its place.
        hidden: recovery does not see it until it is revealed.
        expired: recovery has given it up and moved it here.
    """

    store: str
    type_name: str
    uid: str
    shadow: bool
    hidden: bool
    expired: bool

    @property
    def in_use(self) -> bool:
        """True if recovery reads it."""
        return not (self.shadow or self.hidden or self.expired)


def object_file(path: str) -> ObjectFile | None:
    """Return what a path names."""
    *folders, name = path.split("/")
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    own = len(folders)
    if own and _HASHED.fullmatch(folders[own - 1]):
        own -= 1
    expired = bool(own) and folders[own - 1] == _EXPIRED
    own -= expired
    first = next((at for at in range(own) if folders[at] in _FIRST), own)
    type_name = "".join(f"/{one}" for one in folders[first:own])
    uid, shadow, hidden = found.groups()
    store = "/".join(folders[:first]) or ("/" if path.startswith("/") else ".")
    uid = uid.replace("_", ":")
    return ObjectFile(store, type_name, uid, bool(shadow), bool(hidden), expired)


def begins_state(head: bytes) -> bool:
    """Return whether a file begins as states do: newer ones all alike, older ones of actions."""
    return head.startswith((PACKED_MAGIC, MARK))
