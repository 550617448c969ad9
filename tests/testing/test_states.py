"""`testing.disk` and `testing.states`: exactly the legal states, no more and no fewer."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.testing import SECTOR, MemoryFileSystem, RecordingFileSystem
from tallystick.testing.states import disk_states, is_exhaustive

A, B, C = (bytes([letter]) * SECTOR for letter in b"ABC")
ZERO = bytes(SECTOR)
Script = Callable[[MemoryFileSystem], object]


def _states(script: Script, *, start: dict[str, bytes], limit: int = 10_000) -> set[object]:
    """Return every state of the disk after the script, as frozensets of (name, content)."""
    fs = MemoryFileSystem(start)
    script(fs)
    assert is_exhaustive(fs.disk, limit)
    found = [
        frozenset((path, bytes(content)) for path, content in state.contents(fs.disk).items())
        for state in disk_states(fs.disk, limit, random.Random(0))
    ]
    return set(found)


def _one_file(script: Script, start: bytes) -> set[bytes]:
    states = _states(script, start={"/a": start})
    contents = set()
    for state in states:
        assert isinstance(state, frozenset)
        ((path, content),) = state
        assert path == "/a"
        contents.add(content)
    return contents


def _write(data: bytes, offset: int) -> Script:
    return lambda fs: fs.open("/a").pwrite(data, offset)


@pytest.mark.parametrize(
    ("script", "start", "legal"),
    [
        pytest.param(lambda _fs: None, A, {A}, id="nothing unsynced"),
        pytest.param(_write(B, 0), A, {A, B}, id="one sector: old or new"),
        pytest.param(_write(A, 0), A, {A}, id="the same bytes again"),
        pytest.param(_write(B + B, 0), A + A, {A + A, A + B, B + A, B + B}, id="two sectors: each"),
        pytest.param(
            _write(b"B" * 600, 100),
            A + A,
            {
                first + second
                for first in (A, A[:100] + B[:412])
                for second in (A, B[:188] + A[:324])
            },
            id="an unaligned write is torn at its sectors",
        ),
        pytest.param(
            lambda fs: (_write(B, 0)(fs), _write(C, 0)(fs)),
            A,
            {A, B, C},
            id="each version of a sector",
        ),
        pytest.param(
            lambda fs: (_write(b"x", 0)(fs), _write(b"y", 1)(fs)),
            b"ab",
            {b"ab", b"xb", b"xy"},
            id="a sector holds its writes in order",
        ),
        pytest.param(_write(b"new", 0), b"", {b"", b"\0\0\0", b"new"}, id="size without data"),
        pytest.param(
            _write(A + B, 0),
            b"",
            {
                b"",
                *(one + two for one in (ZERO, A) for two in (b"", ZERO, B)),
            },
            id="size at each sector, data or zeros",
        ),
        pytest.param(
            lambda fs: fs.open("/a").truncate(1), A, {A, b"A", b"A" + ZERO[1:]}, id="truncate"
        ),
        pytest.param(lambda fs: (_write(B, 0)(fs), fs.open("/a").datasync()), A, {B}, id="synced"),
        pytest.param(
            lambda fs: (_write(B, 0)(fs), fs.open("/a").datasync(), _write(C, 0)(fs)),
            A,
            {B, C},
            id="nothing before the sync comes back",
        ),
    ],
)
def test_a_file_has_exactly_its_legal_contents(
    script: Script, start: bytes, legal: set[bytes]
) -> None:
    assert _one_file(script, start) == legal


def _named(*pairs: tuple[str, bytes]) -> frozenset[tuple[str, bytes]]:
    return frozenset(pairs)


@pytest.mark.parametrize(
    ("script", "legal"),
    [
        pytest.param(
            lambda fs: fs.create("/l/b"),
            {_named(("/l/a", A)), _named(("/l/a", A), ("/l/b", b""))},
            id="a created name may be missing",
        ),
        pytest.param(
            lambda fs: (fs.create("/l/b"), fs.sync_dir("/l")),
            {_named(("/l/a", A), ("/l/b", b""))},
            id="but not after the folder was synced",
        ),
        pytest.param(
            lambda fs: (fs.create("/l/b"), fs.sync_dir("/other")),
            {_named(("/l/a", A)), _named(("/l/a", A), ("/l/b", b""))},
            id="another folder's sync does not help",
        ),
        pytest.param(
            lambda fs: fs.rename("/l/a", "/l/b"),
            {_named(("/l/a", A)), _named(("/l/b", A))},
            id="a rename is old or new",
        ),
        pytest.param(
            lambda fs: (fs.rename("/l/a", "/m/a"), fs.sync_dir("/l")),
            {_named(("/l/a", A)), _named(("/m/a", A))},
            id="a rename over two folders needs both synced",
        ),
        pytest.param(
            lambda fs: (fs.rename("/l/a", "/m/a"), fs.sync_dir("/l"), fs.sync_dir("/m")),
            {_named(("/m/a", A))},
            id="and is durable then",
        ),
        pytest.param(
            lambda fs: (fs.remove("/l/a"), fs.create("/l/a").pwrite(b"x", 0)),
            {
                _named(),
                _named(("/l/a", A)),
                _named(("/l/a", b"")),
                _named(("/l/a", b"\0")),
                _named(("/l/a", b"x")),
            },
            id="replaced by a new file",
        ),
    ],
)
def test_names_have_exactly_their_legal_states(script: Script, legal: set[object]) -> None:
    assert _states(script, start={"/l/a": A}) == legal


def test_too_many_states_are_sampled_by_seed_and_the_telling_ones_are_in() -> None:
    fs = RecordingFileSystem({"/a": bytes(40 * SECTOR)})
    file = fs.open("/a")
    for number in range(20):
        file.pwrite(bytes([number + 1]) * SECTOR * 2, number * SECTOR * 2)

    def last(seed: int) -> list[bytes]:
        states = fs.crash_states(limit=300, seed=seed)
        return [state.fs().contents()["/a"] for state in states if state.point == 20]

    assert fs.sampled_points(limit=300) == 16
    assert last(1) == last(1)
    assert last(1) != last(2)
    assert 150 <= len(last(1)) <= 300, "some were states of earlier points"
    assert len(set(last(1))) == len(last(1))
    everything = fs.contents()["/a"]
    assert everything in last(1)
    assert bytes(40 * SECTOR) not in last(1), "it was a state of an earlier point already"


def test_many_unsynced_names_are_sampled() -> None:
    fs = RecordingFileSystem()
    for number in range(9):
        fs.create(f"/l/{number}")
    names = [frozenset(state.fs().list("/l")) for state in fs.crash_states() if state.point == 9]
    assert frozenset("012345678") in names
    assert frozenset("12345678") in names
    assert fs.sampled_points() == 4


def test_states_are_not_repeated_unless_more_was_acknowledged() -> None:
    fs = RecordingFileSystem({"/a": A})
    file = fs.open("/a")
    fs.submitted(1)
    file.pwrite(B, 0)
    file.datasync()
    fs.acknowledged(1)
    file.pwrite(B, 0)
    found = [(s.fs().contents()["/a"], s.acknowledged) for s in fs.crash_states()]
    assert found == [(A, ()), (B, ()), (B, (1,))]


def test_a_state_describes_what_it_is_made_of() -> None:
    fs = RecordingFileSystem({"/a": A})
    fs.open("/a").pwrite(B, SECTOR)
    texts = [state.describe() for state in fs.crash_states() if state.point == 1]
    assert (
        "crash at call 1, state 3: files ['/a']; "
        "/a size 1024 as of write 1; /a sector 1 as of write 1"
    ) in texts


# -- against a second, naive model ----------------------------------------------------------


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("write"), st.integers(0, 3), st.integers(1, 3)),
            st.tuples(st.just("sync"), st.just(0), st.just(0)),
        ),
        max_size=6,
    )
)
def test_states_of_aligned_writes_agree_with_a_naive_model(
    calls: list[tuple[str, int, int]],
) -> None:
    """Compare with a naive model: for each sector, the set of its contents since the last sync."""
    fs = MemoryFileSystem({"/a": bytes(6 * SECTOR)})
    file = fs.open("/a")
    now = [0] * 6
    possible = [{0} for _ in range(6)]
    for clock, (call, sector, count) in enumerate(calls, start=1):
        if call == "sync":
            file.datasync()
            possible = [{value} for value in now]
            continue
        count = min(count, 6 - sector)
        file.pwrite(bytes([clock]) * SECTOR * count, sector * SECTOR)
        for place in range(sector, sector + count):
            now[place] = clock
            possible[place].add(clock)
    found = set()
    for state in disk_states(fs.disk, 100_000, random.Random(0)):
        content = state.contents(fs.disk)["/a"]
        found.add(tuple(content[place * SECTOR] for place in range(6)))
    expected = 1
    for values in possible:
        expected *= len(values)
    assert len(found) == expected
    assert all(value in possible[place] for state in found for place, value in enumerate(state))


def test_a_written_copy_is_what_the_state_holds(tmp_path: Path) -> None:
    MemoryFileSystem({"/logs/a": A, "/logs/deep/b": B}).write_to(tmp_path)
    assert (tmp_path / "logs/a").read_bytes() == A
    assert (tmp_path / "logs/deep/b").read_bytes() == B
