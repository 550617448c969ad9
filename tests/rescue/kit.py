"""Plain copies of packed logs for the tests to damage."""

from __future__ import annotations

import gzip
import resource
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.fixtures import fixture_dir
from tests.systems.derby.databases import killed

CONTROL, MIRROR, SETTINGS = "log.ctrl", "logmirror.ctrl", "service.properties"
_ORACLE = shutil.ignore_patterns("manifest.json", "*.jsonl.gz")


def unpacked(origin: Path, target: Path) -> Path:
    """Copy a folder without what its original says of it, and unpack its files."""
    shutil.copytree(origin, target, ignore=_ORACLE)
    for packed in target.rglob("*.gz"):
        packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
        packed.unlink()
    return target


def case(system: str, name: str, target: Path) -> Path:
    """Copy a case of the fixtures of a system, unpacked."""
    return unpacked(fixture_dir(system) / name, target)


def change(path: Path, offset: int, data: bytes | None = None) -> None:
    """Write bytes into a file, by default the one that is there with all bits turned."""
    content = bytearray(path.read_bytes())
    data = data or bytes((content[offset] ^ 0xFF,))
    content[offset : offset + len(data)] = data
    path.write_bytes(bytes(content))


def content(path: Path) -> dict[str, bytes]:
    """Return every file below a folder, or the file itself."""
    files = [path] if path.is_file() else sorted(path.rglob("*"))
    return {str(one.relative_to(path)): one.read_bytes() for one in files if one.is_file()}


def names(folder: Path) -> list[str]:
    """Return what lies in a folder."""
    return sorted(one.name for one in folder.iterdir())


@contextmanager
def temporary(origin: Path, name: str) -> Iterator[Path]:
    """Give a file of a packed folder, in a folder that is removed at the end of the block."""
    with tempfile.TemporaryDirectory() as folder:
        yield unpacked(origin, Path(folder, "log")) / name


@contextmanager
def limited_file_size(most: int) -> Iterator[None]:
    """Fail writes past that many bytes of a file in the block, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Python keeps what it could write of a compiled module, and cannot import it from there.
    compiles, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        sys.dont_write_bytecode = compiles


def on_device(tmp_path: Path, device: Path, name: str = "ld") -> Path:
    """Return a database whose log is moved to a device, and has an empty control file."""
    database = tmp_path / name
    killed(tmp_path).rename(database)
    device.mkdir(parents=True)
    shutil.move(database / "log", device / "log")
    (device / "log" / CONTROL).write_bytes(b"")
    name_device(database / SETTINGS, device)
    return database


def name_device(settings: Path, device: Path) -> None:
    """Write the place of the log into the middle of a file of properties."""
    lines = settings.read_bytes().splitlines(keepends=True)
    lines[3:3] = [f"logDevice={device}\n".encode()]
    settings.write_bytes(b"".join(lines))
