"""Read-only bytes of one file, local or remote, plain or compressed.

In: a path (local, or a URL that fsspec knows). Out: a `ByteSource` whose ``data`` is a
read-only memoryview of the unpacked bytes. Reading changes nothing: files are opened
without updating the access time where the system allows it.

Files up to `READ_WHOLE_MAX` are read into memory at once; larger ones are mapped, because memory
for a copy of them would cost more time than most of what is done with the bytes. Where a mapped
file shrinks meanwhile, zeros are read, and `require_whole` says so. ``.gz`` and ``.zst`` are
unpacked to an unnamed temporary file in pieces, never more than `UNPACKED_MAX` bytes (or what the
environment variable ``TALLYSTICK_UNPACKED_MAX`` says), nor more than there is space for. Of a
packed file that is cut or damaged, what can be unpacked is given; `ByteSource.damage` says so.
"""

from __future__ import annotations

import contextlib
import errno
import math
import mmap
import os
import shutil
import stat
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import IO, Any, NamedTuple, Self

from tallystick.errors import (
    FileShrankError,
    LogUnreadableError,
    MissingExtraError,
    TallystickError,
)
from tallystick.posix import O_NOATIME, O_NONBLOCK, O_PLAIN, pread
from tallystick.storage.fork import Uncopied
from tallystick.storage.mapped import lost_pages, map_file
from tallystick.storage.pace import from_disk, read_through
from tallystick.storage.scheduling import time
from tallystick.storage.zeros import last_nonzero_end

READ_WHOLE_MAX = 32 << 20
"""Most bytes of a file that is read rather than mapped."""
UNPACKED_MAX = 16 << 30
"""Most bytes that a packed file may unpack to, if the environment does not say otherwise."""
UNPACKED_MAX_SETTING = "TALLYSTICK_UNPACKED_MAX"
"""Name of the environment variable with another limit, in bytes."""
_PIECE = 1 << 20
_PACKED_PIECE = 1 << 12
"""Most bytes that are unpacked at once: of zstd at most 32,768 times as many in memory."""
_PACKED_PIECE_MIN = 1 << 8
"""Fewest of them: who asks for a head alone waits for no megabytes of zeros."""
_GZIP_BITS = 31
"""Of zlib: a window of 32 KiB, with the header and the end of gzip."""
_GZIP_RATIO_MAX = 1032
"""Most bytes that one byte of gzip unpacks to."""
PACKINGS = (".gz", ".zst")
"""Suffixes of packed files."""
_ARCHIVES = (
    (0, b"\x1f\x8b\x08", "packed with gzip"),
    (0, b"\x28\xb5\x2f\xfd", "packed with zstd"),
    (0, b"\xfd7zXZ\0", "packed with xz"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (4, b"1AY&SY", "packed with bzip2"),
    (0, b"PK\x03\x04", "a zip archive"),
    (257, b"ustar", "a tar archive"),
)
"""Offset and bytes that tell a packed file or archive, whatever its name."""
_REMEMBERED_MAX = 4096


def archive_name(head: bytes) -> str | None:
    """Return what kind of packed file or archive begins so, of those that are never read."""
    for offset, magic, name in _ARCHIVES:
        if head.startswith(magic, offset):
            return name
    return None


def logical_name(path: str) -> str:
    """Return the file's name without folders and without a packing suffix."""
    name = path.rstrip("/").rpartition("/")[2]
    for suffix in PACKINGS:
        name = name.removesuffix(suffix)
    return name


def is_remote(path: str) -> bool:
    """Return True for a URL such as ``s3://bucket/key``, not for ``file://``."""
    return "://" in path and not path.startswith("file://")


def folder_above(path: str) -> str:
    """Return the folder that a file or folder lies in, of ``.`` and ``..`` too.

    Nothing is looked up, so what is a link is not followed.
    """
    path = path.rstrip("/") or "/"
    above, _, name = path.rpartition("/")
    if name == "..":
        return f"{path}/..".removeprefix("./")
    if name == ".":
        return f"{above}/..".removeprefix("./") if above else ".."
    return above or ("/" if path.startswith("/") else ".")


def same_place(one: str, other: str) -> bool:
    """Return whether two paths name one place, links followed."""
    if is_remote(one) or is_remote(other):
        return one.rstrip("/") == other.rstrip("/")
    return Path(one).resolve() == Path(other).resolve()


def link_to_nothing(path: str) -> str:
    """Return where a link leads that leads to nothing; empty for all else."""
    if is_remote(path) or not Path(path).is_symlink() or Path(path).exists():
        return ""
    return str(Path(path).readlink())


FOLDER = "a folder"


def in_the_way(path: str) -> str:
    """Return what stands where a start writes a file, and keeps it from that; empty if nothing.

    A link to nothing is written through where the folder is there that it leads to. Rights are not
    looked at: a start may have those of another user.
    """
    if is_remote(path):
        return ""
    try:
        mode = Path(path).stat().st_mode
    except FileNotFoundError:
        nowhere = link_to_nothing(path)
        made = not nowhere or Path(path).resolve().parent.is_dir()
        return "" if made else f"a link to {nowhere}, which is not there"
    except OSError as error:
        return "a link that leads to itself" if error.errno == errno.ELOOP else ""
    if stat.S_ISREG(mode):
        return ""
    return FOLDER if stat.S_ISDIR(mode) else "no regular file"


def link_target(path: str) -> str:
    """Return where a file is that a link leads to, all links followed; empty for all else."""
    if is_remote(path) or not Path(path).is_symlink():
        return ""
    return slashed(str(Path(path).resolve()))


def slashed(path: str, separator: str = os.sep) -> str:
    """Return a path with ``/`` between its names: all that reads logs splits and joins paths so.

    Every operating system takes it; a URL stays as it is.
    """
    return path if separator == "/" or is_remote(path) else path.replace(separator, "/")


@dataclass(slots=True)
class ByteSource(Uncopied):
    """The unpacked bytes of one file; a context manager.

    ``path`` is as given to `open_source`, ``data`` the bytes. ``damage`` says why they are not all
    that were packed; empty where they are. ``zeros_from`` is where the zeros begin that end the
    file, if somebody looked (`WrittenEnds`).
    """

    path: str
    data: memoryview
    damage: str = ""
    _map: mmap.mmap | None = field(default=None, repr=False)
    zeros_from: int | None = None

    @property
    def name(self) -> str:
        """Return the name without folders and packing suffix."""
        return logical_name(self.path)

    @property
    def size(self) -> int:
        """Return the size in bytes, unpacked."""
        return len(self.data)

    @property
    def written(self) -> int:
        """Return the offset from which on all bytes are known to be zero; at most the size."""
        return self.size if self.zeros_from is None else self.zeros_from

    def close(self) -> None:
        """Release the bytes; views taken from ``data`` must be released before."""
        with contextlib.suppress(BufferError):
            self.data.release()
            if self._map is not None:
                self._map.close()
                self._map = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_source(path: str, ends: WrittenEnds | None = None) -> ByteSource:
    """Open a file and unpack it; ``ends`` knows of files that are mostly zeros.

    Raises:
        LogUnreadableError: The bytes cannot be read or unpacked.
        MissingExtraError: A package for this kind of URL or packing is not installed.
    """
    with as_unreadable(path):
        if is_remote(path):
            with _open_remote(path) as stream:
                return _downloaded(path, stream)
        with _open_local(path) as stream:
            read_through(path, stream.fileno())
            if path.endswith(PACKINGS):
                return _unpacked(path, stream)
            return (_from_descriptor if ends is None else ends.read)(path, stream.fileno())


def read_head(path: str, size: int) -> bytes:
    """Read at most ``size`` first bytes, unpacked. Raises as `open_source` does."""
    with as_unreadable(path), _opened(path) as stream:
        if not is_remote(path):
            from_disk(path, stream.fileno(), size)
        head: bytes = _unpacking(path, stream).read(size)
        return head


def read_part(path: str, offset: int, size: int) -> bytes:
    """Read at most ``size`` unpacked bytes at ``offset``. Raises as `open_source` does."""
    if path.endswith(PACKINGS):
        with open_source(path) as source:
            return bytes(source.data[offset : offset + size])
    with as_unreadable(path), _opened(path) as stream:
        if not is_remote(path):
            from_disk(path, stream.fileno(), size)
        stream.seek(offset)
        part = b""
        while len(part) < size and (piece := stream.read(size - len(part))):
            part += piece
        return part


def source_size(path: str) -> int:
    """Return how many unpacked bytes a file has; only packed ones are read to tell.

    Raises as `open_source` does.
    """
    if path.endswith(PACKINGS):
        with open_source(path) as source:
            return source.size
    with as_unreadable(path), _opened(path) as stream:
        return stream.seek(0, os.SEEK_END)


def list_names(folder: str) -> frozenset[str]:
    """Return the names of the files and folders in a folder, as they are stored.

    Raises:
        LogUnreadableError: it is not there, is no folder, or cannot be read.
        MissingExtraError: A package for this kind of URL is not installed.
    """
    with as_unreadable(folder):
        if not is_remote(folder):
            return frozenset(os.listdir(folder.removeprefix("file://")))  # noqa: PTH208 - or a URL
        system, start = remote_folder(folder)
        return frozenset(PurePath(one).name for one in system.ls(start, detail=False))


def packing_damage(path: str) -> str:
    """Return why the bytes of a packed file are not all that were packed; empty if they are.

    Unpacks the file, unless `open_source` did before and it is the same file still. Raises as
    `open_source` does.
    """
    if not path.endswith(PACKINGS):
        return ""
    known = _unpacked_before.get(path)
    if known is not None:
        with contextlib.suppress(OSError):
            if known.stamp == _stamp(Path(path.removeprefix("file://")).stat()):
                return known.damage
    with open_source(path) as source:
        return source.damage


SETTLED_NS = 2_000_000_000
"""A file changed less than this ago may change again within one tick of the clock of its times."""


def settled_stamp(path: str) -> tuple[int, ...] | None:
    """Return what changes with a local file's content; None where that cannot be relied on.

    Take it before the file is read: while it is the same, so are the bytes.
    """
    try:
        return _settled(Path(path.removeprefix("file://")).stat())
    except OSError:
        return None


def _settled(found: os.stat_result) -> tuple[int, ...] | None:
    if time.time_ns() - max(found.st_mtime_ns, found.st_ctime_ns) < SETTLED_NS:
        return None
    return _stamp(found)


def _stamp(found: os.stat_result) -> tuple[int, ...]:
    """Return what changes with a local file's content, also where its time is set back."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


class _Unpacked(NamedTuple):
    """What a local packed file was when it was unpacked; ``data`` is None if it is not kept."""

    stamp: tuple[int, ...]
    damage: str
    data: bytes | None


_unpacked_before: dict[str, _Unpacked] = {}
"""By path; one question about a log opens its files up to ten times.

Bytes are kept of files that have settled, and of all together no more than `_KEPT_MAX`.
"""
_KEPT_MAX = 32 << 20


def _unpacked(path: str, stream: IO[bytes]) -> ByteSource:
    """Return the bytes of a local packed file; those of last time while it is the same file."""
    found = os.fstat(stream.fileno())
    known = _unpacked_before.get(path)
    if known is not None and known.data is not None and known.stamp == _stamp(found):
        return ByteSource(path, memoryview(known.data), known.damage)
    source = _from_stream(path, stream)
    data = bytes(source.data) if _settled(found) and source.size <= _KEPT_MAX else None
    # Of a list, as another thread may unpack a file at this moment.
    kept = sum(len(one.data or b"") for one in list(_unpacked_before.values()))
    if len(_unpacked_before) >= _REMEMBERED_MAX or kept + len(data or b"") > _KEPT_MAX:
        _unpacked_before.clear()
    _unpacked_before[path] = _Unpacked(_stamp(found), source.damage, data)
    return source


class _Object(NamedTuple):
    """What was brought of an object in a store."""

    version: tuple[str, str]
    data: memoryview
    damage: str


_brought_before: dict[str, _Object] = {}
"""By URL, the oldest first, in temporary files that have no names: all tables of a log in one task
read its files up to eight times, and a store wants money for each."""
_BROUGHT_MAX = 256 << 20
"""Most bytes of all these together."""
OBJECT_VERSIONS = ("ETag", "etag", "generation", "version_id")
"""What object stores call the version of an object, best first: no other bytes have it."""


def _downloaded(path: str, stream: IO[bytes]) -> ByteSource:
    """Return the bytes of an object; those of last time while the store has that version."""
    details = getattr(stream, "details", None)
    found = details if isinstance(details, dict) else {}
    version = next(((one, str(found[one])) for one in OBJECT_VERSIONS if found.get(one)), None)
    if version is None:
        return _from_stream(path, stream)
    known = _brought_before.get(path)
    if known is None or known.version != version:
        source = _from_stream(path, stream)
        known = _Object(version, source.data, source.damage)
        _brought_before.pop(path, None)
        if len(known.data) <= _BROUGHT_MAX:
            _brought_before[path] = known
        held = list(_brought_before.items())
        count, size = len(held), sum(len(kept.data) for _, kept in held)
        for one, kept in held:
            if size <= _BROUGHT_MAX and count <= _REMEMBERED_MAX:
                break
            count, size = count - 1, size - len(kept.data)
            _brought_before.pop(one, None)
    return ByteSource(path, known.data[:], known.damage)


def require_whole(paths: Iterable[str]) -> None:
    """Check that no mapped file lost bytes while it was read; call it after reading.

    Raises:
        FileShrankError: One did: zeros were read in place of what it had.
    """
    for path in lost_pages(paths):
        raise FileShrankError(
            "it became shorter, or its disk failed, while it was read",
            file=path,
            advice="What was read of it is not whole: read it again, or read a copy",
        )


@contextlib.contextmanager
def as_unreadable(path: str, doing: str = "read") -> Iterator[None]:
    """Have what fails while a path is read, or published to, be a `LogUnreadableError`."""
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        raise unreadable(path, error, doing) from error
    except TallystickError:
        raise
    except Exception as error:
        # What brings the bytes of a URL has errors of its own: no credentials, no such host.
        if not is_remote(path) or type(error).__module__ == "builtins":
            raise
        raise unreadable(path, error, doing) from error


def unreadable(path: str, error: Exception, doing: str = "read") -> LogUnreadableError:
    """Make the error for bytes that cannot be read, with advice by its cause."""
    advice_of: dict[type[Exception], str] = {
        PermissionError: "Read it as a user who may, or grant read permission",
        FileNotFoundError: "It vanished or was never there; look again",
    }
    advice = advice_of.get(type(error))
    if getattr(error, "errno", None) in (errno.EMFILE, errno.ENFILE):
        advice = "Raise the limit of open files (ulimit -n), or close some"
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return LogUnreadableError(f"cannot {doing}: {reason}", file=path or "''", advice=advice)


def _opened(path: str) -> IO[bytes]:
    return _open_remote(path) if is_remote(path) else _open_local(path)


def _open_local(path: str) -> IO[bytes]:
    # O_NOATIME is refused to anyone but the owner; the system then decides about the access time.
    # Opening a pipe would wait for a writer, and a device has no end.
    flags = os.O_RDONLY | O_NONBLOCK | O_PLAIN
    local = path.removeprefix("file://")
    try:
        descriptor = os.open(local, flags | O_NOATIME)
    except PermissionError:
        descriptor = os.open(local, flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file", local)
    return os.fdopen(descriptor, "rb", buffering=0)


def _open_remote(path: str) -> IO[bytes]:
    try:
        import fsspec
    except ImportError as error:
        raise MissingExtraError("fsspec", "remote") from error
    stream: IO[bytes] = fsspec.open(path, "rb").open()
    return stream


def remote_folder(path: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path there.

    Raises:
        LogUnreadableError: there is no access to the file system.
        MissingExtraError: A package for URLs is not installed.
    """
    try:
        import fsspec
    except ImportError as error:
        raise MissingExtraError("fsspec", "remote") from error
    try:
        system, start = fsspec.core.url_to_fs(path)
    except (ImportError, OSError, ValueError) as error:
        said = str(error).partition("\n")[0]  # of libraries that were sought some say all places
        raise LogUnreadableError(
            f"there is no access to this file system: {said}",
            file=path,
            advice="Install what fsspec needs for it, or mount it and give the local path",
        ) from error
    system.invalidate_cache()  # an old listing would hide new files
    return system, start


def _unpacking(path: str, stream: IO[bytes]) -> Any:
    if path.endswith(".gz"):
        return _Unpacking(stream, lambda: zlib.decompressobj(wbits=_GZIP_BITS), zlib.error)
    if path.endswith(".zst"):
        try:
            import zstandard
        except ImportError as error:
            raise MissingExtraError("zstandard", "zstd") from error
        new = zstandard.ZstdDecompressor().decompressobj
        return _Unpacking(stream, new, zstandard.ZstdError)
    return stream


class _Unpacking:
    """Reads the unpacked bytes of packed ones, as far as they can be unpacked.

    Args:
        stream: The packed bytes: members or frames, one after the other; zeros may follow.
        new: Returns a decoder for one of them.
        error: What the decoder raises.
    """

    def __init__(self, stream: IO[bytes], new: Callable[[], Any], error: type[Exception]) -> None:
        self._stream, self._new, self._error = stream, new, error
        self._decoder: Any = None
        self._rest = b""
        self._ready = bytearray()
        self._total = 0
        self.damage = ""
        """Why the bytes end where they do; empty at the true end."""

    def read(self, size: int) -> bytes:
        """Return at most ``size`` bytes, none at the end.

        Raises:
            OSError: Nothing at all can be unpacked.
        """
        while len(self._ready) < size and not self.damage and self._decode(size):
            pass
        piece = bytes(self._ready[:size])
        del self._ready[:size]
        if self.damage and not self._total:
            raise OSError(self.damage)
        return piece

    def _decode(self, size: int) -> bool:
        """Unpack one piece, by how many bytes are asked for; return False at the end."""
        piece = min(max(size >> 4, _PACKED_PIECE_MIN), _PACKED_PIECE)
        packed = self._rest or self._stream.read(piece)
        self._rest = b""
        if not packed:
            if self._decoder is not None:
                self.damage = "the packed data is cut: its end is missing"
            return False
        if self._decoder is None:
            packed = packed.lstrip(b"\0") if self._total else packed
            if not packed:
                return True
            self._decoder = self._new()
        self._take(packed)
        return True

    def _take(self, packed: bytes) -> None:
        # What a decoder made of a piece before it failed is lost: so it gets single bytes then.
        saved = self._decoder.copy() if hasattr(self._decoder, "copy") else None
        try:
            self._add(self._decoder.decompress(packed))
        except self._error as error:
            self.damage = f"the packed data is damaged: {error}"
            if saved is not None:
                with contextlib.suppress(self._error):
                    for at in range(len(packed)):
                        self._add(saved.decompress(packed[at : at + 1]))
            return
        if self._decoder.eof:
            self._rest, self._decoder = self._decoder.unused_data, None

    def _add(self, piece: bytes) -> None:
        self._ready += piece
        self._total += len(piece)


def _from_stream(path: str, stream: IO[bytes]) -> ByteSource:
    reader = _unpacking(path, stream)
    limit, folder = _unpacked_max(), tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    # Of a file that is cut these bytes are any: so nothing is concluded for the room there is.
    _require_room(path, _least_unpacked(path, stream), limit, math.inf, folder)
    with tempfile.TemporaryFile(dir=folder) as spool:
        total = 0
        while piece := reader.read(_PIECE):
            total += len(piece)
            _require_room(path, total, limit, free, folder)
            spool.write(piece)
        spool.flush()
        # It is a file already, so no bytes of it need be in memory.
        whole = mmap.mmap(spool.fileno(), total, access=mmap.ACCESS_READ) if total else None
        source = ByteSource(path, memoryview(whole or b""), _map=whole)
        source.damage = getattr(reader, "damage", "")
        return source


def _unpacked_max() -> int:
    text = os.environ.get(UNPACKED_MAX_SETTING, "")
    if text and not text.isdecimal():
        raise LogUnreadableError(f"{UNPACKED_MAX_SETTING} is {text!r}; expected a number of bytes")
    return int(text) if text else UNPACKED_MAX


def _least_unpacked(path: str, stream: IO[bytes]) -> int:
    """Return a number of bytes that a local ``.gz`` file unpacks to at least, by its last four."""
    if not path.endswith(".gz") or is_remote(path):
        return 0
    size = os.fstat(stream.fileno()).st_size
    stated = int.from_bytes(pread(stream.fileno(), 4, max(size - 4, 0)), "little")
    return stated if stated <= size * _GZIP_RATIO_MAX else 0


def _require_room(path: str, total: int, limit: int, free: float, folder: str) -> None:
    if total > limit:
        raise LogUnreadableError(
            f"unpacks to more than {limit} bytes",
            file=path,
            advice=f"If that is right, raise the limit ({UNPACKED_MAX_SETTING}), or unpack it",
        )
    if total > free:
        raise LogUnreadableError(
            f"unpacks to more than the {free} bytes that are free in {folder}",
            file=path,
            advice="Free space there, or set TMPDIR to a folder with more",
        )


def _from_descriptor(path: str, descriptor: int) -> ByteSource:
    size = os.fstat(descriptor).st_size
    if size > READ_WHOLE_MAX:
        try:
            mapped = map_file(path, descriptor, size)
        except ValueError:  # it shrank since it was measured
            return _from_descriptor(path, descriptor)
        return ByteSource(path, memoryview(mapped), _map=mapped)
    return ByteSource(path, memoryview(_read_whole(descriptor, size)))


def _read_whole(descriptor: int, size: int) -> bytes:
    pieces = []
    place = 0
    while place < size and (piece := pread(descriptor, size - place, place)):
        pieces.append(piece)
        place += len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


# -- files of which the beginning is written -------------------------------------------------------

_ZEROS_MIN = 1 << 18
"""Fewest bytes of zeros that are worth a look."""
_WRITTEN_MAX = 32 << 20
"""Most bytes that are written in all files of a log that are kept for the next pass."""
_WINDOW = 1 << 16
"""Bytes that are looked at together: so few that they stay in the cache of the processor."""


@dataclass(slots=True)
class WrittenEnds:
    """Opens preallocated files, and remembers where their zeros begin.

    A file that nobody changed for `SETTLED_NS` is looked at from its end on, and read, once; what
    is given has memory for what is written alone, and is kept where all that is written in the
    files of the log is no more than `_WRITTEN_MAX`. A file that changed, or changes meanwhile, is
    read whole, each time: what is looked at before the rest may not be of the same moment.
    """

    _known: dict[str, tuple[tuple[int, ...], int]] = field(default_factory=dict)
    _kept: dict[str, memoryview] = field(default_factory=dict)
    _room: int = _WRITTEN_MAX

    def open(self, path: str) -> ByteSource:
        """Open a file as `open_source` does, and raise what that raises."""
        return open_source(path, self)

    def read(self, path: str, descriptor: int) -> ByteSource:
        """Return the bytes of an open file that is not packed. Raises `OSError`."""
        stamp = _settled(os.fstat(descriptor))
        size = 0 if stamp is None else os.fstat(descriptor).st_size
        if stamp is None or size < _ZEROS_MIN:
            return _from_descriptor(path, descriptor)
        was, end = self._known.get(path, ((), 0))
        if was == stamp and path in self._kept:
            return ByteSource(path, self._kept[path][:], zeros_from=end)
        if was != stamp:
            end = _written_end(descriptor, size)
        if size > READ_WHOLE_MAX or size - end < _ZEROS_MIN:
            source = _from_descriptor(path, descriptor)
        else:
            source = with_zeros(path, _read_whole(descriptor, end), 0, size)
        if _settled(os.fstat(descriptor)) != stamp:
            source.close()
            return _from_descriptor(path, descriptor)
        self._known[path] = stamp, end
        source.zeros_from = end
        self._room -= end
        if self._room < 0:  # of so large a log none is there any more when it is asked for again
            self._kept.clear()
            return source
        self._kept[path] = source.data
        return ByteSource(path, source.data[:], zeros_from=end)


def _written_end(descriptor: int, size: int) -> int:
    """Return the offset after the last byte of a file that is not zero."""
    place = size
    while place > 0:
        start = max(0, place - _WINDOW)
        window = memoryview(pread(descriptor, place - start, start))
        if end := last_nonzero_end(window, 0, len(window)):
            return start + end
        place = start
    return 0


def with_zeros(path: str, part: bytes, begin: int, size: int, head: bytes = b"") -> ByteSource:
    """Return a part of a file at its place, with zeros around it that take no memory.

    ``head`` stands where the file begins.
    """
    # Longer than the file: so it is never taken for the mapped file, whose pages may be let go.
    room = mmap.mmap(-1, size + 1)
    room[: len(head)] = head
    room[begin : begin + len(part)] = part
    return ByteSource(path, memoryview(room).toreadonly()[:size], _map=room)
