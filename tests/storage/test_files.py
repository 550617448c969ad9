"""`storage.files`: one contract for the real, the memory and the faulty file system."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.errors import LogClosedError, LogLockedError
from tallystick.storage.files import FileSystem, read_file, read_source, write_all, write_whole
from tallystick.storage.local import LOCAL, LocalFileSystem
from tallystick.testing import FaultyFileSystem, MemoryFileSystem


@pytest.fixture(params=["local", "memory", "short writes"])
def fs(request: pytest.FixtureRequest) -> FileSystem:
    if request.param == "local":
        return LOCAL
    memory = MemoryFileSystem()
    return memory if request.param == "memory" else FaultyFileSystem(memory, short_writes=True)


@pytest.fixture
def folder(tmp_path: Path, fs: FileSystem) -> str:
    path = f"{tmp_path}/logs/deep"
    fs.mkdir(path)
    fs.mkdir(path)
    return path


def test_what_is_written_is_read(fs: FileSystem, folder: str) -> None:
    path = f"{folder}/a"
    file = fs.create(path)
    assert file.size() == 0
    file.pwrite(b"hello", 3)
    file.pwritev([b"J", memoryview(b"ell"), bytearray(b"y")], 3)
    file.datasync()
    assert file.path == path
    assert file.pread(100, 0) == b"\0\0\0Jelly"
    assert file.pread(2, 4) == b"el"
    assert file.pread(2, 100) == b""
    file.close()
    file.close()
    assert read_file(fs, path) == b"\0\0\0Jelly"
    source = read_source(fs, path)
    assert (source.name, bytes(source.data)) == ("a", b"\0\0\0Jelly")


def _mode(path: str | Path) -> int:
    return Path(path).stat().st_mode & 0o777


@pytest.mark.parametrize(
    ("local", "umask", "file_mode", "folder_mode"),
    [
        (LOCAL, 0o022, 0o600, 0o700),
        (LOCAL, 0, 0o600, 0o700),
        (LocalFileSystem(0o660, 0o770), 0o007, 0o660, 0o770),
        (LocalFileSystem(0o660, 0o770), 0o027, 0o640, 0o750),
    ],
)
def test_what_is_made_is_the_owners_alone_or_as_set(
    tmp_path: Path, local: FileSystem, umask: int, file_mode: int, folder_mode: int
) -> None:
    folder = f"{tmp_path}/a/b"
    before = os.umask(umask)
    try:
        local.mkdir(folder)
        local.create(f"{folder}/file").close()
        local.lock(f"{folder}/lock").release()
        write_whole(local, f"{folder}/whole", [b"x"])
    finally:
        os.umask(before)
    assert {_mode(f"{folder}/{name}") for name in local.list(folder)} == {file_mode}
    assert {_mode(folder), _mode(tmp_path / "a")} == {folder_mode}


@pytest.mark.parametrize("call", [LOCAL.open, LOCAL.create, LOCAL.lock])
def test_a_planted_link_is_not_followed(tmp_path: Path, call: Callable[[str], object]) -> None:
    (tmp_path / "target").write_bytes(b"precious")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    (tmp_path / "dangling").symlink_to(tmp_path / "elsewhere")
    for name in ("link", "dangling"):
        with pytest.raises(OSError, match=name):
            call(f"{tmp_path}/{name}")
    assert (tmp_path / "target").read_bytes() == b"precious"
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("write", [True, False])
def test_a_planted_pipe_is_not_waited_for(tmp_path: Path, write: bool) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="seek"):
        LOCAL.open(f"{tmp_path}/pipe", write=write).pread(1, 0)


def test_reading_follows_links(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    assert read_file(LOCAL, f"{tmp_path}/link") == b"x"


@pytest.mark.parametrize("content", [b"precious", b"1" * 21, b"12 of ours", b"1\n2\n"])
def test_a_lock_file_that_is_not_ours_stays_as_it_is(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "lock").write_bytes(content)
    with pytest.raises(LogLockedError, match="left as it is"):
        LOCAL.lock(f"{tmp_path}/lock")
    assert (tmp_path / "lock").read_bytes() == content


@pytest.mark.parametrize("content", [b"", b"123\n", b"\0\0\0\0"])
def test_the_lock_file_of_an_owner_that_is_gone_is_taken(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "lock").write_bytes(content)
    LOCAL.lock(f"{tmp_path}/lock").release()
    assert (tmp_path / "lock").read_bytes() == b"%d\n" % os.getpid()


def test_many_buffers_are_written_one_after_the_other(fs: FileSystem, folder: str) -> None:
    buffers = [bytes([number % 251]) * (number % 7) for number in range(3000)]
    file = fs.create(f"{folder}/a")
    file.pwritev(buffers, 5)
    assert file.pread(1 << 20, 5) == b"".join(buffers)


def test_allocate_grows_with_zeros_and_keeps_what_is_there(fs: FileSystem, folder: str) -> None:
    file = fs.create(f"{folder}/a")
    file.pwrite(b"head", 0)
    file.allocate(3_000_000)
    file.allocate(10)
    assert file.size() == 3_000_000
    assert file.pread(4_000_000, 0) == b"head".ljust(3_000_000, b"\0")
    file.truncate(2)
    assert file.pread(10, 0) == b"he"


def test_allocated_bytes_are_no_holes(tmp_path: Path) -> None:
    LOCAL.create(f"{tmp_path}/a").allocate(1 << 20)
    assert (tmp_path / "a").stat().st_blocks * 512 >= 1 << 20


def test_names_are_made_changed_and_removed(fs: FileSystem, folder: str) -> None:
    first, second = f"{folder}/a", f"{folder}/b"
    file = fs.create(first)
    file.pwrite(b"1", 0)
    fs.create(second).pwrite(b"22", 0)
    assert fs.list(folder) == ["a", "b"]
    assert fs.exists(first)
    assert fs.exists(folder)
    fs.rename(first, second)
    fs.sync_dir(folder)
    assert fs.list(folder) == ["b"]
    assert fs.size(second) == 1
    file.pwrite(b"3", 0)
    assert read_file(fs, second) == b"3"
    fs.remove(second)
    assert not fs.exists(second)
    assert file.pread(1, 0) == b"3"


def test_missing_and_present_names_are_distinguished(fs: FileSystem, folder: str) -> None:
    fs.create(f"{folder}/a").close()
    with pytest.raises(FileExistsError):
        fs.create(f"{folder}/a")
    calls: list[Callable[[], object]] = [
        lambda: fs.open(f"{folder}/b"),
        lambda: fs.open(f"{folder}/b", write=False),
        lambda: fs.size(f"{folder}/b"),
        lambda: fs.remove(f"{folder}/b"),
        lambda: fs.rename(f"{folder}/b", f"{folder}/c"),
    ]
    for call in calls:
        with pytest.raises(FileNotFoundError):
            call()
    assert fs.list(f"{folder}/none") == []


def test_a_file_opened_for_reading_refuses_writes(fs: FileSystem, folder: str) -> None:
    fs.create(f"{folder}/a").close()
    with pytest.raises(OSError):
        fs.open(f"{folder}/a", write=False).pwrite(b"x", 0)


def test_a_closed_file_refuses_everything(fs: FileSystem, folder: str) -> None:
    file = fs.create(f"{folder}/a")
    file.close()
    for call in (lambda: file.pwrite(b"x", 0), lambda: file.pread(1, 0), file.datasync):
        with pytest.raises(LogClosedError):
            call()


# -- writes that take several calls ---------------------------------------------------------


def test_short_and_interrupted_writes_are_continued() -> None:
    data = bytes(range(200))
    disk = bytearray(210)
    calls = 0

    def write_some(rest: bytes | bytearray | memoryview, offset: int) -> int:
        nonlocal calls
        calls += 1
        if calls % 2:
            raise InterruptedError(errno.EINTR, "interrupted")
        disk[offset : offset + 7] = rest[:7]
        return len(rest[:7])

    write_all(write_some, data, 10)
    assert disk[10:] == data
    assert calls == 2 * 29


def test_a_write_that_makes_no_progress_is_an_error() -> None:
    with pytest.raises(OSError, match="wrote nothing"):
        write_all(lambda _rest, _offset: 0, b"x", 0)


@pytest.mark.parametrize("vector", [False, True])
def test_the_real_file_survives_short_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vector: bool
) -> None:
    pwrite, pwritev = os.pwrite, os.pwritev
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[:100], at))
    monkeypatch.setattr(os, "pwritev", lambda fd, some, at: pwritev(fd, [some[0], some[1][:5]], at))
    data = os.urandom(1000)
    file = LOCAL.create(f"{tmp_path}/a")
    if vector:
        file.pwritev([data[:300], data[300:500], data[500:]], 0)
    else:
        file.pwrite(data, 0)
    assert file.pread(2000, 0) == data


def test_a_full_disk_is_an_os_error() -> None:
    with pytest.raises(OSError) as caught:
        LOCAL.open("/dev/full").pwrite(b"x" * 8192, 0)
    assert caught.value.errno == errno.ENOSPC


def test_signals_during_writes_and_syncs_change_nothing(tmp_path: Path) -> None:
    count = 0

    def handle(_number: int, _frame: object) -> None:
        nonlocal count
        count += 1

    data = os.urandom(4 << 20)
    file = LOCAL.create(f"{tmp_path}/a")
    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
    try:
        for number in range(8):
            file.pwrite(data, number * len(data))
            file.datasync()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert count > 0
    assert file.pread(64 << 20, 0) == data * 8


_CALLS = st.one_of(
    st.tuples(st.just("pwrite"), st.integers(0, 2000), st.integers(0, 2000)),
    st.tuples(st.just("truncate"), st.integers(0, 3000), st.just(0)),
    st.tuples(st.just("allocate"), st.integers(0, 3000), st.just(0)),
    st.tuples(st.just("rename"), st.just(0), st.just(0)),
    st.tuples(st.just("reopen"), st.just(0), st.just(0)),
)


@given(st.lists(_CALLS, max_size=12))
def test_the_memory_file_system_does_what_the_real_one_does(
    calls: list[tuple[str, int, int]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert _contents(LOCAL, folder, calls) == _contents(MemoryFileSystem(), folder, calls)


def _contents(fs: FileSystem, folder: str, calls: list[tuple[str, int, int]]) -> list[object]:
    names = [f"{folder}/a", f"{folder}/b"]
    file = fs.create(names[0])
    for number, (call, one, two) in enumerate(calls):
        if call == "pwrite":
            file.pwrite(bytes([number + 1]) * two, one)
        elif call == "rename":
            fs.rename(*names)
            names.reverse()
        elif call == "reopen":
            file.close()
            file = fs.open(names[0])
        else:
            getattr(file, call)(one)
    file.close()
    return [fs.list(folder), fs.size(names[0]), read_file(fs, names[0])]


# -- locks ------------------------------------------------------------------------------------


def test_a_second_owner_is_refused_until_the_first_lets_go(fs: FileSystem, folder: str) -> None:
    path = f"{folder}/lock"
    lock = fs.lock(path)
    for _ in range(3):
        with pytest.raises(LogLockedError, match="open already"):
            fs.lock(path)
    lock.release()
    again = fs.lock(path)
    lock.release()
    with pytest.raises(LogLockedError):
        fs.lock(path)
    again.release()


def test_the_refusal_names_the_owner(tmp_path: Path) -> None:
    lock = LOCAL.lock(f"{tmp_path}/lock")
    with pytest.raises(LogLockedError, match=f"owner process {os.getpid()}"):
        LOCAL.lock(f"{tmp_path}/lock")
    lock.release()


def test_ranges_of_a_file_are_locked_apart(fs: FileSystem, folder: str) -> None:
    first, second = fs.create(f"{folder}/a"), fs.open(f"{folder}/a")
    lock = first.lock_range(0, 4)
    with pytest.raises(LogLockedError):
        second.lock_range(3, 1)
    second.lock_range(4, 4).release()
    lock.release()
    lock.release()
    held = second.lock_range(0, 4)
    second.close()
    first.lock_range(0, 4)
    held.release()


_HOLDER = """
import sys, time
from tallystick.storage.local import LOCAL
lock = LOCAL.lock(sys.argv[1] + "/lock")
range_lock = LOCAL.create(sys.argv[1] + "/part").lock_range(0, 4)
print("held", flush=True)
time.sleep(60)
"""


def test_the_locks_of_a_killed_process_are_free(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(LogLockedError, match=f"owner process {holder.pid}"):
            LOCAL.lock(f"{tmp_path}/lock")
        with pytest.raises(LogLockedError):
            LOCAL.open(f"{tmp_path}/part").lock_range(0, 4)
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    LOCAL.lock(f"{tmp_path}/lock").release()
    LOCAL.open(f"{tmp_path}/part").lock_range(0, 4).release()


_POSIX_LOCK = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 4, 0)
    except OSError:
        sys.exit(7)
"""


def _posix_lock_refused(path: Path) -> bool:
    answer = subprocess.run([sys.executable, "-c", _POSIX_LOCK, str(path)], check=False)
    return answer.returncode == 7


def test_posix_locks_of_other_programs_see_a_range_lock(tmp_path: Path) -> None:
    file = LOCAL.create(f"{tmp_path}/part")
    lock = file.lock_range(0, 4)
    assert _posix_lock_refused(tmp_path / "part")
    # A POSIX lock would be lost here: any close of the file by its process drops it.
    read_file(LOCAL, f"{tmp_path}/part")
    assert _posix_lock_refused(tmp_path / "part")
    lock.release()
    assert not _posix_lock_refused(tmp_path / "part")


# -- forks ------------------------------------------------------------------------------------


def test_a_forked_child_can_neither_write_nor_release(tmp_path: Path) -> None:
    lock = LOCAL.lock(f"{tmp_path}/lock")
    file = LOCAL.create(f"{tmp_path}/a")
    range_lock = file.lock_range(0, 4)
    file.pwrite(b"parent", 0)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for call in (lambda: file.pwrite(b"child!", 0), file.datasync, file.size):
                with pytest.raises(LogClosedError, match="forked"):
                    call()
            lock.release()
            range_lock.release()
            file.close()
            with pytest.raises(LogLockedError):
                LOCAL.lock(f"{tmp_path}/lock")
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with pytest.raises(LogLockedError):
        LOCAL.lock(f"{tmp_path}/lock")
    assert _posix_lock_refused(tmp_path / "a")
    assert file.pread(10, 0) == b"parent"


def test_a_child_that_outlives_its_parent_keeps_no_lock(tmp_path: Path) -> None:
    program = f"""
import os, sys, time
from tallystick.storage.local import LOCAL
lock = LOCAL.lock({str(tmp_path / "lock")!r})
if os.fork() == 0:
    print("child", flush=True)
    time.sleep(60)
os.read(0, 1)
os._exit(0)
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert parent.stdout is not None
    try:
        assert parent.stdout.readline() == "child\n"
        parent.kill()
        parent.wait()
        LOCAL.lock(f"{tmp_path}/lock").release()
    finally:
        os.killpg(parent.pid, 9)
        parent.communicate()
