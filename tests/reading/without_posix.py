"""Reads fixtures in an interpreter without what Windows lacks: ``SYSTEM CASE...``, or ``write``.

Everything is taken away before Tallystick is imported, but after the libraries that are built for
one operating system. Prints what it found as JSON.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import io
import json
import mmap
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

MODULES = ("fcntl", "resource", "pwd", "grp", "termios")
FUNCTIONS = {
    os: (
        "pread", "preadv", "pwrite", "pwritev", "posix_fadvise", "posix_fallocate", "fdatasync",
        "register_at_fork", "fork", "forkpty", "getuid",
        "geteuid", "uname", "getppid", "killpg", "eventfd", "sendfile", "copy_file_range",
        "sched_getaffinity", "sched_setaffinity", "sched_yield", "sysconf", "mkfifo", "fchmod",
        "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_NOATIME",
        "POSIX_FADV_DONTNEED", "POSIX_FADV_SEQUENTIAL", "POSIX_FADV_WILLNEED",
    ),
    signal: (
        "pthread_kill", "pthread_sigmask", "sigwait", "setitimer", "SIGBUS", "SIGALRM", "SIGKILL",
    ),
    mmap: tuple(name for name in vars(mmap) if name.startswith(("MAP_", "PROT_", "MADV_"))),
}  # fmt: skip


def take_away() -> None:
    """Leave what an interpreter on Windows has of these modules, about."""
    for library in ("numpy", "pyarrow.parquet", "pyarrow.compute", "numba"):
        with contextlib.suppress(ImportError):
            importlib.import_module(library)
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    for module, names in FUNCTIONS.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)


def read(path: Path) -> dict[str, str]:
    """Return a digest of what each way of reading says about a path, or its error."""
    import tallystick
    from tallystick.investigate.export import export

    def exported(form: str) -> bytes:
        stream = io.BytesIO()
        export(path, form, stream, problems=[])
        return stream.getvalue()

    ways: dict[str, Callable[[], str | bytes]] = {
        "scan": lambda: "\n".join(repr(one) for one in tallystick.scan(path)),
        "triage": lambda: repr(tallystick.triage(path)),
        "explain": lambda: json.dumps(tallystick.explain(path).to_dict(), sort_keys=True),
        "export": lambda: exported("jsonl"),
        "parquet": lambda: exported("parquet"),
    }
    found = {}
    for name, way in ways.items():
        try:
            said = way()
        except tallystick.TallystickError as error:
            said = f"{type(error).__name__}: {error}"
        data = said if isinstance(said, bytes) else said.encode()
        found[name] = hashlib.sha256(data).hexdigest()
    return found


def write(folder: Path) -> dict[str, str]:
    """Return the error of each thing that writes."""
    import tallystick

    opened: dict[str, Callable[[], object]] = {
        "Journal": lambda: tallystick.Journal(folder / "journal"),
        "jboss": lambda: tallystick.Journal(folder / "jboss", system="jboss"),
        "shared": lambda: tallystick.Journal(folder / "shared", shared=True),
        "PageStore": lambda: tallystick.PageStore(folder / "store"),
        "WriteBehind": lambda: tallystick.WriteBehind(folder / "spool", {}),
        "TransactionManager": lambda: tallystick.TransactionManager(folder / "manager", {}),
    }
    found = {}
    for name, open_it in opened.items():
        try:
            open_it()
        except tallystick.LogWriteError as error:
            found[name] = str(error)
    return found


if __name__ == "__main__":
    take_away()
    if sys.argv[1] == "write":
        answer: object = write(Path(sys.argv[2]))
    else:
        answer = {path: read(Path(path)) for path in sys.argv[1:]}
    sys.stdout.write(json.dumps(answer))
