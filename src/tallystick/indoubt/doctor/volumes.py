"""The file system below the directory of a coordinator, and whether it keeps what is synced.

In: a folder. Out: the type of its file system, and why decisions should not stand on it. The types
are those that Linux lists; elsewhere nothing is said.
"""

from __future__ import annotations

import re
from pathlib import Path

from tallystick.indoubt.doctor.checks import Check, Level, judged
from tallystick.printable import shell_quoted

MOUNTS = Path("/proc/self/mountinfo")
_ESCAPED = re.compile(r"\\([0-7]{3})")
_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"})
_LAYERS = frozenset({"overlay", "overlayfs", "aufs", "unionfs", "fuse.fuse-overlayfs"})
_NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "ceph", "9p", "lustre", "gpfs"}
    | {"glusterfs", "beegfs", "ocfs2", "gfs2", "orangefs", "virtiofs"}
)
_LOCAL_FUSE = frozenset({"fuseblk", "fuse.ntfs-3g", "fuse.ext2"})
_ELSEWHERE = "mount a disk there, close the coordinator, and copy its directory to it"


def check_volume(folder: Path, name: str) -> Check:
    """Return a warning if what the folder holds does not outlive the machine, or may not.

    Args:
        folder: the directory of the coordinator.
        name: its node id.
    """
    kind = file_system(folder)
    text = f"the file system is {kind}" if kind else "its type is not known here"
    bad = None if kind is None else _reason(kind)
    bad = bad and f"{text}: {bad}"
    return judged(
        name,
        "volume",
        text,
        bad,
        f"df -T {shell_quoted(str(folder))}  # {_ELSEWHERE}",
        Level.WARNING,
    )


def file_system(path: Path) -> str | None:
    """Return the type of the file system that a path is on; None where it cannot be known."""
    try:
        lines = MOUNTS.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return None
    place = path.resolve()
    best, kind = -1, None
    for line in lines:
        fields, _, rest = line.partition(" - ")
        point = Path(_unescaped(fields.split()[4]))
        depth = len(point.parts)
        if depth >= best and place.is_relative_to(point):  # the later mount hides the earlier one
            best, kind = depth, rest.split()[0]
    return kind


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), text)


def _reason(kind: str) -> str | None:
    if kind in _MEMORY:
        return "it is in memory, and the decisions are gone when the machine or container ends"
    if kind in _LAYERS:
        return "it is a layer of a container, and the decisions are gone when that is removed"
    if kind in _NETWORK or (kind.startswith("fuse") and kind not in _LOCAL_FUSE):
        return "locks and syncs are those of another machine or program, and may not hold"
    return None
