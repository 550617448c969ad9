"""Names of the files in which Narayana's stores of files keep one state each.

`ShadowNoFileLockStore` (the default), `ShadowingStore` and `ActionStore` write the state of a type,
such as ``StateManager/BasicAction/TwoPhaseCoordinator/AtomicAction``, to ``TYPE/UID`` below the
root of the store; `HashedStore` and `HashedActionStore` to ``TYPE/#HASH#/UID``. UID has ``_`` for
``:``. ``UID!`` is a shadow, which was never made the state, and ``#`` at the end of either hides
it. `Expired` below a type holds what recovery has given up. The file is the state alone. Recovery
asks for exactly these names, so a copy under another one, or below folders whose letters have
another case, is none to it. `ShadowingStore` alone locks states: by ``UID_lock`` beside one, and by
``UID_lock.lock`` while it changes that. A kill leaves both, and no restart removes them.

In: a path. Out: the `ObjectFile` that it names; None if it is not the file of a state. Source:
FileSystemStore, ShadowingStore, HashedStore, FileLock, ExpiredEntryMonitor and Uid of Narayana
7.0.2.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from tallystick.storage.source import logical_name
from tallystick.systems.jboss.format.bodies import PACKED_MAGIC
from tallystick.systems.jboss.format.participants import ACTION, MARK, TRANSACTION

_UID = r"-?[0-9a-f]{1,16}(?:_-?[0-9a-f]{1,16}){4}"
_NAME = re.compile(rf"({_UID})(!?)(#?)(?:\.gz|\.zst)?")
_WITHIN = re.compile(
    rf"(?<![0-9a-f])(?<![0-9a-f]_){_UID}(?![0-9a-f])(?!_[0-9a-f]+(?:[^a-z]|$))", re.IGNORECASE
)
"""A Uid in a name that is not one; Narayana reads letters of either case, and writes small ones."""
_HASHED = re.compile(r"#(\d+)#")
HASH_FOLDERS = 255
"""Folders of a type in a store by hash, by default."""
_FIRST = frozenset({"CosTransactions", "EISNAME", "Recovery", "StateManager"})
"""What the types that Narayana itself stores begin with."""
_EXPIRED = "Expired"
LOCK, LOCK_OF_LOCK = "_lock", "_lock.lock"
"""What follows the name of a state in those of its locks."""
_LOCK_LENGTH = 8
_EXCLUSIVE = 1
_FOLDERS = {one.lower(): one for one in TRANSACTION.split("/") if one}
"""The folders of a transaction's type by their names in small letters."""


@dataclass(frozen=True, slots=True)
class ObjectFile:
    """One state's file.

    Attributes:
        store: the folder of the store; that of the file where its type is none of Narayana's own.
        type_name: the type of the state, as Narayana names it; empty where the folders do not tell.
        uid: the Uid of the object, as Narayana prints it; empty where the name has none, which
            counts in the folders of a store by hash alone.
        shadow: it was written beside the state, and never took its place.
        hidden: recovery does not see it until it is revealed.
        expired: recovery has given it up and moved it here.
        misnamed: Narayana does not write such a name, or one of such folders.
    """

    store: str
    type_name: str
    uid: str
    shadow: bool
    hidden: bool
    expired: bool
    misnamed: bool = False
    hash_folder: int | None = field(default=None, compare=False)
    """The number of its folder in a store by hash; None where it is in none."""

    @property
    def in_use(self) -> bool:
        """True if recovery reads it."""
        return not (self.shadow or self.hidden or self.expired or self.misnamed)


def object_file(path: str) -> ObjectFile | None:
    """Return what a path names."""
    *folders, name = path.split("/")
    hashed = _HASHED.fullmatch(folders[-1]) if folders else None
    number = int(hashed[1]) if hashed else None
    own = len(folders) - bool(hashed)
    expired = bool(own) and folders[own - 1] == _EXPIRED
    own -= expired
    # The last one: what a folder above the store is called is for people to choose.
    first = next((at for at in reversed(range(own)) if _begins_type(folders[at])), own)
    named = folders[first:own]
    usual = [_FOLDERS.get(one.lower(), one) for one in named]
    type_name = "".join(f"/{one}" for one in usual)
    store = "/".join(folders[:first]) or ("/" if path.startswith("/") else ".")
    found = _NAME.fullmatch(name)
    if found is not None:
        uid, shadow, hidden = found.groups()
        uid = uid.replace("_", ":")
        misnamed = named != usual
        marks = bool(shadow), bool(hidden), expired, misnamed
        return ObjectFile(store, type_name, uid, *marks, number)
    within = _WITHIN.search(name)
    if not type_name.startswith(ACTION) or (within is None and number is None):
        return None
    uid = within[0].lower().replace("_", ":") if within else ""
    return ObjectFile(store, type_name, uid, False, False, expired, True, number)


def keeps_readers_out(lock: bytes) -> bool:
    """Return whether what is in the lock of a state is not that of readers: mode and number."""
    return len(lock) < _LOCK_LENGTH or int.from_bytes(lock[:4], "big") == _EXCLUSIVE


def _begins_type(folder: str) -> bool:
    return _FOLDERS.get(folder.lower(), folder) in _FIRST


def folder_by_hash(path: str) -> str:
    """Return the folder of a store by hash that a path goes through; empty if it does not."""
    folders = path.split("/")[:-1]
    at = next((at for at, one in enumerate(folders) if _HASHED.fullmatch(one)), None)
    return "" if at is None else "/".join(folders[: at + 1])


def hash_folder_of(uid: str) -> int:
    """Return the number of the folder of a Uid, as Narayana prints it, in a store by hash."""
    high, low, process, second, other = (int(one, 16) for one in uid.split(":"))
    code = (high ^ low ^ process ^ second ^ other) & 0xFFFFFFFF
    # Java's remainder has the sign of what is divided.
    return (code if code < 1 << 31 else (1 << 32) - code) % HASH_FOLDERS


def ends_recovery(paths: Iterable[str]) -> list[str]:
    """Return the files, or folders, at which recovery of a store by hash ends with an error.

    `HashedStore` takes each name in a folder for a Uid. Where it is none, and is not that of a
    hidden state alone, it goes on with no Uid at all, and fails.
    """
    folders: dict[str, dict[str, str]] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        named = object_file(path)
        if _HASHED.fullmatch(folder.rpartition("/")[2]) and named and not named.expired:
            folders.setdefault(folder, {})[logical_name(name)] = path
    return [
        path
        for names in folders.values()
        for name, path in sorted(names.items())
        if _WITHIN.fullmatch(name) is None and _revealed(name) in names
    ]


def _revealed(name: str) -> str:
    """Return the name of a hidden state, or of a shadow, without its mark."""
    return name.partition("#")[0] if "#" in name else name.partition("!")[0]


def begins_state(head: bytes) -> bool:
    """Return whether a file begins as states do: newer ones all alike, older ones of actions."""
    return head.startswith((PACKED_MAGIC, MARK))
