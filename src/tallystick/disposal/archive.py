"""Copy log files to an archive, on any file system that fsspec knows.

In: the path of a redundant log file, and a URL such as ``s3://bucket/logs`` or a folder. Out: the
file is in the archive, read back and compared, and gone from the log directory.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from tallystick.disposal.disposers import digest, make_durable, require_away
from tallystick.errors import LogFormatError, MissingExtraError
from tallystick.storage.files import absolute
from tallystick.storage.local import FILE_MODE, LOCAL

_PIECE = 1 << 20


class ArchiveDisposer:
    """Copies the file into the folder ``url``, reads it back, compares, and only then deletes it.

    A file of that name in the archive counts as archived if it is identical. What is uploaded has
    another name until it is whole, where the file system can rename; object stores show an object
    only once it is whole.

    Args:
        url: A folder, or a URL that fsspec knows.
        options: Arguments for fsspec (credentials, endpoints).
    """

    def __init__(self, url: str, *, options: Mapping[str, Any] | None = None) -> None:
        self.url = url if "://" in url else absolute(url)
        self._options = dict(options or {})
        self._system: Any = None
        self._root = ""

    def places(self) -> Sequence[str]:
        """Return the folder, if it is a local one."""
        protocol, _, rest = self.url.rpartition("://")
        return (absolute(rest),) if protocol.rpartition("::")[2] in ("", "file", "local") else ()

    def dispose(self, path: str) -> None:
        """Archive the file at ``path``; see `dispose_as`."""
        self.dispose_as(path, posixpath.basename(path))

    def dispose_as(self, path: str, name: str) -> None:
        """Archive the file at ``path`` as ``name``.

        Raises:
            FileExistsError: The archive has another file of that name, or the file itself.
            LogFormatError: The archive returned other bytes than it was given.
            MissingExtraError: fsspec is not installed.
        """
        for place in self.places():
            require_away(path, place)
        system = self._connect()
        target = posixpath.join(self._root, name)
        wanted = digest(path)
        if not system.exists(target):
            self._upload(system, path, target, wanted)
        elif self._digest(system, target) != wanted:
            raise FileExistsError(f"{target} in {self.url} differs from {path}")
        if _is_local(system):
            make_durable(Path(target))
        Path(path).unlink()

    def _connect(self) -> Any:
        if self._system is None:
            try:
                import fsspec
            except ImportError as error:
                raise MissingExtraError("fsspec", "remote") from error
            self._system, self._root = fsspec.core.url_to_fs(self.url, **self._options)
        if _is_local(self._system):
            LOCAL.mkdir(self._root)
        else:
            self._system.makedirs(self._root, exist_ok=True)
        self._system.invalidate_cache()
        return self._system

    def _upload(self, system: Any, path: str, target: str, wanted: str) -> None:
        # always the same name for what is not whole yet: a killed run leaves one at most
        direct = _is_object_store(system)
        name = target if direct else f"{target}.part"
        system.put_file(path, name)
        found = self._digest(system, name)
        if found != wanted:
            system.rm_file(name)
            raise LogFormatError(
                "the archive gave back other bytes than it was given",
                file=name,
                expected=wanted,
                found=found,
            )
        if _is_local(system):
            Path(name).chmod(FILE_MODE)
            make_durable(Path(name))
        if not direct:
            system.mv(name, target)

    @staticmethod
    def _digest(system: Any, path: str) -> str:
        total = sha256()
        with system.open(path, "rb") as file:
            while piece := file.read(_PIECE):
                total.update(piece)
        return total.hexdigest()


def _is_object_store(system: Any) -> bool:
    """Return True if an object appears whole, and a rename would be a copy."""
    return not {"file", "local", "memory", "sftp", "ssh", "smb", "hdfs"} & _protocols(system)


def _is_local(system: Any) -> bool:
    """Return True if the caller has to sync what it writes."""
    return bool({"file", "local"} & _protocols(system))


def _protocols(system: Any) -> set[str]:
    return {system.protocol} if isinstance(system.protocol, str) else set(system.protocol)
