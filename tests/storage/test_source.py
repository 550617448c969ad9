"""`storage.source`: bytes of a file, plain or packed, local or remote, and nothing changed."""

from __future__ import annotations

import gzip
import os
import random
import shutil
import tempfile
import tracemalloc
import zlib
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any, ClassVar

import fsspec
import pytest
import zstandard
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tallystick.errors import LogUnreadableError
from tallystick.posix import pread
from tallystick.reading.discovery import discover
from tallystick.storage import source
from tallystick.storage.source import (
    WrittenEnds,
    folder_above,
    logical_name,
    open_source,
    packing_damage,
    read_head,
    read_part,
    same_place,
    settled_stamp,
)

CONTENT = bytes(range(256)) * 1000


def _write(path: Path) -> Path:
    packed = {
        ".gz": gzip.compress(CONTENT),
        ".zst": zstandard.ZstdCompressor().compress(CONTENT),
    }
    path.write_bytes(packed.get(path.suffix, CONTENT))
    return path


@pytest.mark.parametrize("name", ["log.dat", "log.dat.gz", "log.dat.zst"])
@pytest.mark.parametrize("whole_max", [0, source.READ_WHOLE_MAX])
def test_bytes_are_the_unpacked_ones(
    tmp_path: Path, name: str, whole_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "READ_WHOLE_MAX", whole_max)
    path = _write(tmp_path / name)
    with open_source(str(path)) as opened:
        assert bytes(opened.data) == CONTENT
        assert opened.size == len(CONTENT)
        assert opened.name == "log.dat"
        assert opened.data.readonly


def test_empty_file_has_no_bytes(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with open_source(str(tmp_path / "empty")) as opened:
        assert opened.size == 0


@pytest.mark.parametrize("name", ["log.dat", "log.dat.gz", "log.dat.zst"])
def test_head_is_bounded(tmp_path: Path, name: str) -> None:
    assert read_head(str(_write(tmp_path / name)), 10) == CONTENT[:10]


def test_the_head_of_packed_zeros_takes_no_megabytes(tmp_path: Path) -> None:
    (tmp_path / "log.gz").write_bytes(gzip.compress(bytes(8 << 20)))
    read_head(str(tmp_path / "log.gz"), 64)
    tracemalloc.start()
    try:
        assert read_head(str(tmp_path / "log.gz"), 64) == bytes(64)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["log.dat", "log.dat.gz", "log.dat.zst"])
def test_size_is_that_of_the_unpacked_bytes(tmp_path: Path, name: str) -> None:
    assert source.source_size(str(_write(tmp_path / name))) == len(CONTENT)
    with pytest.raises(LogUnreadableError, match="vanished"):
        source.source_size(str(tmp_path / f"gone-{name}"))


def test_a_url_is_read_through_its_file_system() -> None:
    import fsspec

    with fsspec.open("memory://logs/a.dat", "wb") as stream:
        stream.write(CONTENT)
    with open_source("memory://logs/a.dat") as opened:
        assert bytes(opened.data) == CONTENT
    assert source.source_size("memory://logs/a.dat") == len(CONTENT)


class NoCredentialsError(Exception):
    """As libraries of object stores have it: an error of their own, and none of the system."""


@pytest.mark.parametrize(
    "read",
    [
        open_source, partial(read_head, size=10), partial(read_part, offset=0, size=10),
        source.source_size, source.list_names, discover,
    ],
    ids=["bytes", "head", "part", "size", "names", "discovery"],
)  # fmt: skip
def test_what_a_store_says_of_its_own_is_that_it_cannot_be_read(
    read: Callable[[str], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    from fsspec.implementations.memory import MemoryFileSystem

    def refuse(*_: object, **__: object) -> None:
        raise NoCredentialsError("unable to locate credentials")

    for name in ("info", "ls", "_open"):
        monkeypatch.setattr(MemoryFileSystem, name, refuse)
    with pytest.raises(LogUnreadableError, match="cannot read: unable to locate credentials"):
        read("memory://logs/a.dat")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("noise.gz", b"\x1f\x8b" + bytes(range(100, 150))),
        ("not.gz", b"plain text"),
        ("cut.zst", b"\x28\xb5\x2f\xfd" + b"\xff" * 20),
        ("not.zst", b"plain text"),
    ],
    ids=["noise", "no gzip", "cut zstd", "no zstd"],
)
def test_damaged_packing_is_a_clear_error(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(LogUnreadableError, match="cannot read") as caught:
        open_source(str(path))
    assert caught.value.file == str(path)


def test_vanished_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(LogUnreadableError, match="vanished"):
        open_source(str(tmp_path / "gone"))


@pytest.mark.parametrize(
    "read", [open_source, partial(read_head, size=9), partial(read_part, offset=0, size=9)]
)
def test_what_is_no_regular_file_is_refused_at_once(
    tmp_path: Path, read: Callable[[str], object]
) -> None:
    """A pipe would wait for a writer, and a device has no end."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    for name in ("pipe", "device"):
        with pytest.raises(LogUnreadableError, match="no regular file"):
            read(str(tmp_path / name))


def test_unpacking_stops_at_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "UNPACKED_MAX", 1000)
    with pytest.raises(LogUnreadableError, match="more than 1000 bytes"):
        open_source(str(_write(tmp_path / "bomb.gz")))


@pytest.mark.skipif(not hasattr(os, "O_NOATIME"), reason="O_NOATIME is a Linux flag")
def test_reading_leaves_the_access_time(tmp_path: Path) -> None:
    path = _write(tmp_path / "log.dat")
    os.utime(path, ns=(1, 1))
    with open_source(str(path)) as opened:
        assert opened.size
    assert path.stat().st_atime_ns == 1


@pytest.mark.parametrize(
    ("path", "name"),
    [("a/b.log", "b.log"), ("b.log.gz", "b.log"), ("s3://x/b.zst", "b"), ("b.gz.old", "b.gz.old")],
)
def test_logical_name_drops_the_packing(path: str, name: str) -> None:
    assert logical_name(path) == name


def _packed(folder: Path, name: str, size: int) -> str:
    import zstandard

    content = bytes(size)
    pack = gzip.compress if name.endswith(".gz") else zstandard.ZstdCompressor().compress
    (folder / name).write_bytes(pack(content))
    return str(folder / name)


@pytest.mark.parametrize("name", ["a.gz", "a.zst"])
def test_unpacking_ends_at_a_limit_that_can_be_set(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _packed(tmp_path, name, 3 << 20)
    monkeypatch.setenv("TALLYSTICK_UNPACKED_MAX", str((3 << 20) - 1))
    with pytest.raises(LogUnreadableError, match="raise the limit"):
        open_source(path)
    monkeypatch.setenv("TALLYSTICK_UNPACKED_MAX", str(3 << 20))
    with open_source(path) as source:
        assert source.size == 3 << 20
    monkeypatch.setenv("TALLYSTICK_UNPACKED_MAX", "16GiB")
    with pytest.raises(LogUnreadableError, match="is '16GiB'; expected a number of bytes"):
        open_source(path)


@pytest.mark.parametrize("name", ["a.gz", "a.zst"])
def test_unpacking_never_takes_more_than_the_room_there_is(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _packed(tmp_path, name, 3 << 20)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1 << 20))
    with pytest.raises(LogUnreadableError, match=r"1048576 bytes that are free in .*TMPDIR"):
        open_source(path)


def test_a_gz_that_is_too_large_is_refused_before_anything_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _packed(tmp_path, "a.gz", 3 << 20)
    monkeypatch.setenv("TALLYSTICK_UNPACKED_MAX", str(1 << 20))
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: pytest.fail("unpacked"))
    with pytest.raises(LogUnreadableError, match="unpacks to more"):
        open_source(path)


NOISE = random.Random(5).randbytes(300_000)


@pytest.mark.parametrize("cut", [-1, -8, -9, -200, 150_000, 40])
def test_what_can_be_unpacked_of_a_cut_file_is_given_and_marked(
    tmp_path: Path, cut: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)  # its last bytes are no size now
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1 << 20))
    (tmp_path / "a.gz").write_bytes(gzip.compress(NOISE)[:cut])
    with open_source(str(tmp_path / "a.gz")) as source:
        assert NOISE.startswith(bytes(source.data))
        assert len(source.data) > (len(NOISE) if cut < 0 else cut) - 40_000
        assert "is cut" in source.damage
    assert read_head(str(tmp_path / "a.gz"), 16) == NOISE[:16]


def test_a_cut_zstandard_file_is_marked(tmp_path: Path) -> None:
    (tmp_path / "a.zst").write_bytes(zstandard.ZstdCompressor().compress(NOISE)[:-5_000])
    with open_source(str(tmp_path / "a.zst")) as source:
        assert len(source.data) > 100_000
        assert NOISE.startswith(bytes(source.data))
        assert "is cut" in source.damage
    assert packing_damage(str(tmp_path / "a.zst")) == source.damage


def test_bytes_before_a_damaged_place_are_given_and_marked(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(NOISE))
    packed[200_000:200_100] = bytes(100)
    (tmp_path / "a.gz").write_bytes(packed)
    with open_source(str(tmp_path / "a.gz")) as source:
        assert bytes(source.data[:190_000]) == NOISE[:190_000]
        assert "is damaged" in source.damage


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_several_members_and_zeros_after_them_are_whole(tmp_path: Path, suffix: str) -> None:
    pack = gzip.compress if suffix == ".gz" else zstandard.ZstdCompressor().compress
    path = tmp_path / f"a{suffix}"
    path.write_bytes(pack(NOISE[:70_000]) + pack(b"") + pack(NOISE[70_000:]) + bytes(1_000))
    with open_source(str(path)) as source:
        assert (bytes(source.data), source.damage) == (NOISE, "")
    path.write_bytes(b"")
    assert packing_damage(str(path)) == ""


@pytest.fixture
def unpacked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the files that are unpacked, as they are."""
    found: list[str] = []
    unpack = source._from_stream

    def counted(path: str, stream: IO[bytes]) -> source.ByteSource:
        found.append(path)
        return unpack(path, stream)

    monkeypatch.setattr(source, "_from_stream", counted)
    return found


def test_file_is_unpacked_once_until_it_changes(tmp_path: Path, unpacked: list[str]) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(CONTENT))
    open_source(str(path)).close()
    assert packing_damage(str(path)) == ""
    assert len(unpacked) == 1
    path.write_bytes(gzip.compress(CONTENT)[:-9])
    assert "is cut" in packing_damage(str(path))
    assert "is cut" in packing_damage(str(path))
    assert len(unpacked) == 2
    path.unlink()
    with pytest.raises(LogUnreadableError):
        packing_damage(str(path))


def test_bytes_of_a_packed_file_are_kept_while_it_rests_and_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unpacked: list[str]
) -> None:
    path = tmp_path / "a.gz"

    def is_read(content: bytes, times: int) -> None:
        with open_source(str(path)) as opened:
            assert bytes(opened.data) == content
        assert len(unpacked) == times

    path.write_bytes(gzip.compress(CONTENT))
    is_read(CONTENT, 1)
    is_read(CONTENT, 2)  # it may have changed within one tick
    monkeypatch.setattr(source, "SETTLED_NS", 0)
    is_read(CONTENT, 3)
    is_read(CONTENT, 3)
    os.utime(path, (1, 1))
    is_read(CONTENT, 4)
    path.write_bytes(gzip.compress(CONTENT[1:]))
    is_read(CONTENT[1:], 5)
    is_read(CONTENT[1:], 5)
    before = path.stat()
    with path.open("r+b") as file:  # as copying in place does: size and time are what they were
        file.write(path.read_bytes()[:9])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    is_read(CONTENT[1:], 6)
    monkeypatch.setattr(source, "_KEPT_MAX", len(CONTENT) - 2)  # a larger one is not kept
    path.write_bytes(gzip.compress(CONTENT))
    is_read(CONTENT, 7)
    is_read(CONTENT, 8)
    path.unlink()
    with pytest.raises(LogUnreadableError):
        open_source(str(path))


def test_a_stamp_is_relied_on_once_it_is_old_enough_to_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"one")
    assert settled_stamp(str(path)) is None
    assert settled_stamp(str(tmp_path / "none")) is None
    monkeypatch.setattr(source, "SETTLED_NS", 0)
    before = settled_stamp(str(path))
    assert before is not None
    assert settled_stamp(f"file://{path}") == before
    os.utime(path, (1, 1))
    assert settled_stamp(str(path)) != before


# -- files of which the beginning is written -------------------------------------------------------

ROOM = 3 * source._ZEROS_MIN


@given(
    st.lists(st.tuples(st.integers(0, ROOM - 1), st.binary(min_size=1, max_size=300)), max_size=4),
    st.sampled_from([0, source.READ_WHOLE_MAX]),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_where_zeros_begin_is_known_of_every_layout_and_all_bytes_are_the_files(
    tmp_path: Path, writes: list[tuple[int, bytes]], whole_max: int
) -> None:
    content = bytearray(ROOM)
    for offset, body in writes:
        content[offset : offset + len(body)] = body
    path = tmp_path / "segment"
    path.write_bytes(content)
    ends = WrittenEnds()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "SETTLED_NS", NEVER)
        patch.setattr(source, "READ_WHOLE_MAX", whole_max)
        for _ in range(2):
            with ends.open(str(path)) as opened:
                assert bytes(opened.data) == content
                assert opened.written == len(content.rstrip(b"\0"))
                assert opened.data.readonly


@pytest.mark.parametrize("room", [len(CONTENT), len(CONTENT) - 1])
def test_a_preallocated_file_is_read_through_once_and_what_is_written_as_often_as_it_must(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    path = tmp_path / "segment"
    path.write_bytes(CONTENT.ljust(1 << 22, b"\0"))
    reads = _counted(monkeypatch)
    monkeypatch.setattr(source, "SETTLED_NS", NEVER)
    ends = WrittenEnds(_room=room)
    ends.open(str(path)).close()
    assert sum(reads) <= (1 << 22) + (1 << 17) + len(CONTENT)
    assert max(reads) == len(CONTENT)
    reads.clear()
    for _ in range(2):
        with ends.open(str(path)) as opened:
            assert bytes(opened.data) == path.read_bytes()
    assert reads == ([] if room == len(CONTENT) else 2 * [len(CONTENT)])
    with path.open("r+b") as file:
        file.seek(1 << 21)
        file.write(b"more")
    with ends.open(str(path)) as opened:
        assert opened.written == (1 << 21) + 4
        assert bytes(opened.data) == path.read_bytes()


def test_a_file_that_is_being_written_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end and its beginning may not be of one moment."""
    path = tmp_path / "segment"
    path.write_bytes(CONTENT.ljust(1 << 22, b"\0"))
    reads, ends = _counted(monkeypatch), WrittenEnds()
    with ends.open(str(path)) as opened:
        assert opened.written == opened.size
    assert reads == [1 << 22]

    def written_meanwhile(descriptor: int, size: int) -> int:
        found = looked(descriptor, size)
        with path.open("r+b") as file:
            file.seek(found)
            file.write(b"more")
        os.utime(path, ns=(0, 0))
        return found

    looked = source._written_end
    monkeypatch.setattr(source, "SETTLED_NS", NEVER)
    monkeypatch.setattr(source, "_written_end", written_meanwhile)
    with ends.open(str(path)) as opened:
        assert opened.written == opened.size
        assert bytes(opened.data[: len(CONTENT) + 4]) == CONTENT + b"more"


NEVER = -(1 << 62)
"""Every file is taken for one that nobody has changed for long."""


def _counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the list of what is read from now on, in bytes."""
    reads: list[int] = []

    def counted(descriptor: int, size: int, offset: int) -> bytes:
        reads.append(size)
        return pread(descriptor, size, offset)

    monkeypatch.setattr(source, "pread", counted)
    return reads


@pytest.mark.parametrize(
    ("path", "above"),
    [
        ("/a/b", "/a"),
        ("/a/b/", "/a"),
        ("a", "."),
        ("a/b", "a"),
        (".", ".."),
        ("./", ".."),
        ("a/.", "a/.."),
        ("..", "../.."),
        ("a/..", "a/../.."),
        ("./.", ".."),
        ("./..", "../.."),
        ("./a", "."),
        ("/a", "/"),
        ("/", "/"),
        ("s3://bucket/a/b", "s3://bucket/a"),
    ],
)
def test_the_folder_above_a_path_holds_it(path: str, above: str) -> None:
    assert folder_above(path) == above


def test_paths_of_one_place_are_the_same_however_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to("a")
    monkeypatch.chdir(tmp_path / "a")
    for one in (".", "../a", f"{tmp_path}/a", "./", "../link"):
        assert same_place(one, str(tmp_path / "a"))
    assert not same_place("..", ".")
    assert same_place("s3://bucket/a/", "s3://bucket/a")
    assert not same_place("s3://bucket/a", "s3://bucket/b")


def test_files_may_be_unpacked_in_several_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: dict[str, object] = {}

    class Counted:
        """What is known of a file; as it is looked at another thread adds one."""

        @property
        def data(self) -> None:
            known[f"another {len(known)}"] = source._Unpacked((), "", None)

    known |= {"one": Counted(), "two": Counted()}
    monkeypatch.setattr(source, "_unpacked_before", known)
    with open_source(str(_write(tmp_path / "log.gz"))) as opened:
        assert opened.data == CONTENT


class _Store(MemoryFileSystem):  # type: ignore[misc]
    """Objects with versions; counts the bytes that are brought of each."""

    protocol = "versions"
    cachable = False
    brought: ClassVar[Counter[str]] = Counter()

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        opened = super()._open(path, mode, **options)
        if mode == "rb":
            opened.details = {"ETag": str(zlib.crc32(opened.getvalue()))}
            read = opened.read

            def counted(size: int = -1) -> bytes:
                found: bytes = read(size)
                self.brought[path.rpartition("/")[2]] += len(found)
                return found

            opened.read = counted
        return opened


@pytest.fixture
def put(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, bytes], str]:
    """Return a function that puts an object into a store of the test's own; it returns its URL."""
    fsspec.register_implementation("versions", _Store, clobber=True)
    monkeypatch.setattr(_Store, "brought", Counter())
    monkeypatch.setattr(_Store, "store", {})
    monkeypatch.setattr(source, "_brought_before", {})

    def made(name: str, content: bytes) -> str:
        with fsspec.open(f"versions://b/{name}", "wb") as stream:
            stream.write(content)
        return f"versions://b/{name}"

    return made


def test_an_object_is_brought_once_while_it_has_one_version(
    put: Callable[[str, bytes], str],
) -> None:
    urls = {put("log", CONTENT): CONTENT, put("log.gz", gzip.compress(CONTENT)): CONTENT}
    urls[put("nothing", b"")] = b""
    for _ in range(3):
        for url, content in urls.items():
            with open_source(url) as opened:
                assert opened.data == content
    assert _Store.brought["log"] == len(CONTENT)
    assert _Store.brought["log.gz"] == len(gzip.compress(CONTENT))
    url = put("log", CONTENT[::-1])
    with open_source(url) as opened:
        assert opened.data == CONTENT[::-1]
    assert _Store.brought["log"] == 2 * len(CONTENT)


def test_of_objects_no_more_is_kept_than_there_is_room_for(
    put: Callable[[str, bytes], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "_BROUGHT_MAX", 2 * len(CONTENT))
    held = open_source(put("0", CONTENT))
    for number in range(4):
        with open_source(put(str(number), CONTENT)) as opened:
            assert opened.data == CONTENT
    kept = ["versions://b/2", "versions://b/3"]
    assert [*source._brought_before] == kept
    with open_source(put("large", 3 * CONTENT)) as opened:
        assert opened.data == 3 * CONTENT
    assert [*source._brought_before] == kept
    assert held.data == CONTENT
    held.close()
