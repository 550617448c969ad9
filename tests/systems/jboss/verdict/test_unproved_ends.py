"""A journal is safe only where no crash, no copy and no cut could have left it otherwise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tallystick.records import Answer, Judgement
from tests.systems.jboss.build import add, image, read, write

SIZE = 2048
SECTOR = 512
HEADER = len(image("g3", 1, [], 0))
RECORD = len(image("g3", 1, [add(1, b"x" * 64)], 0)) - HEADER
FULL = (SIZE - HEADER) // RECORD


def journal(folder: Path, *counts: int) -> None:
    """Files from id 1 on, with so many records of one size."""
    number, files = 0, {}
    for file_id, count in enumerate(counts, 1):
        items = [add(number + one, b"x" * 64) for one in range(count)]
        files[file_id] = image("g3", file_id, items, SIZE)
        number += count
    write(folder, "g3", files)


def judged(folder: Path) -> Judgement:
    return read(folder).verdict().judgement


def path_of(folder: Path, number: int) -> Path:
    return folder / f"activemq-data-{number}.amq"


def end_of(content: bytes) -> int:
    return len(content.rstrip(b"J"))


def test_full_files_and_one_to_come_are_safe(tmp_path: Path) -> None:
    journal(tmp_path, FULL, 7, 0)
    assert (judged(tmp_path).answer, judged(tmp_path).reason) == (Answer.SAFE, "next-file")


def earlier_state(folder: Path) -> None:
    content = path_of(folder, 1).read_bytes()
    place = HEADER + RECORD * (FULL - 2)
    path_of(folder, 1).write_bytes(content[:place] + b"J" * (SIZE - place))


def emptied(number: int) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path_of(folder, number).write_bytes(b"")

    return change


def cut(number: int, by: int) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path_of(folder, number).write_bytes(path_of(folder, number).read_bytes()[:-by])

    return change


def without(number: int) -> Callable[[Path], None]:
    return lambda folder: path_of(folder, number).unlink()


def torn(at: int) -> Callable[[Path], None]:
    """The last record that begins before ``at`` ends there, followed by fill."""

    def change(folder: Path) -> None:
        content = path_of(folder, 2).read_bytes()
        assert content[at - 1] == ord("x")
        assert end_of(content) > at
        path_of(folder, 2).write_bytes(content[:at] + b"J" * (SIZE - at))

    return change


def erased_after_a_head(folder: Path) -> None:
    """From the length of the last record on the file holds what an erased disk does."""
    content = path_of(folder, 2).read_bytes()
    place = end_of(content) - RECORD + 14
    path_of(folder, 2).write_bytes(content[:place] + b"\xff" * (SIZE - place))


def zeroed_end(folder: Path) -> None:
    content = path_of(folder, 2).read_bytes()
    place = HEADER + RECORD * 3
    path_of(folder, 2).write_bytes(content[:place] + bytes(SIZE - place))


def no_records(folder: Path) -> None:
    content = path_of(folder, 2).read_bytes()
    path_of(folder, 2).write_bytes(content[:HEADER] + b"J" * (SIZE - HEADER))


def no_first_records(folder: Path) -> None:
    content = path_of(folder, 1).read_bytes()
    path_of(folder, 1).write_bytes(content[:HEADER] + b"J" * (SIZE - HEADER))


def reused_before_use(folder: Path) -> None:
    """The third file is the second one, opened again by a restart."""
    path_of(folder, 2).write_bytes(path_of(folder, 3).read_bytes())
    path_of(folder, 3).unlink()


def without_both(folder: Path) -> None:
    without(1)(folder)
    without(2)(folder)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (earlier_state, "room-left"),
        (emptied(2), "ids-missing"),
        (cut(2, 1), "odd-end"),
        (cut(3, 1000), "odd-end"),
        (torn(SECTOR - 20), "odd-end"),
        (erased_after_a_head, "odd-end"),
        (zeroed_end, "odd-end"),
        (no_records, "empty-after-full"),
        (no_first_records, "room-left"),
        (reused_before_use, "empty-after-full"),
        (without(1), "ids-missing"),
        (without_both, "ids-missing"),
    ],
)
def test_what_only_damage_leaves_is_not_safe(
    change: Callable[[Path], None], reason: str, tmp_path: Path
) -> None:
    journal(tmp_path, FULL, 7, 0)
    change(tmp_path)
    assert (judged(tmp_path).answer, judged(tmp_path).reason) == (Answer.CANNOT_TELL, reason)


def test_the_size_of_files_may_have_been_changed_between_two_starts(tmp_path: Path) -> None:
    """Artemis 2.40 reads those of the size before, and gives the new one to those that follow."""
    journal(tmp_path, FULL, FULL, 7, 0)
    for number in (3, 4):
        path = path_of(tmp_path, number)
        path.write_bytes(path.read_bytes() + b"J" * SIZE)
    assert judged(tmp_path).answer is Answer.SAFE
    cut(4, SIZE)(tmp_path)
    assert judged(tmp_path).reason == "odd-end"


@pytest.mark.parametrize("kept", [3, 7])
def test_a_journal_of_one_file_that_ends_with_a_record_was_cut(kept: int, tmp_path: Path) -> None:
    """Artemis 2.40 loads it, without the records behind. The file that waits has its old size."""
    fill, items = b"\0", [add(one, b"x" * 64) for one in range(7)]
    whole = image("g3", 1, items, LARGE, fill)
    write(tmp_path, "g3", {1: whole, 2: image("g3", 2, [], LARGE, fill)})
    assert judged(tmp_path).answer is Answer.SAFE
    path_of(tmp_path, 1).write_bytes(whole[: HEADER + kept * RECORD])
    assert (judged(tmp_path).answer, judged(tmp_path).reason) == (Answer.CANNOT_TELL, "odd-end")
    path_of(tmp_path, 1).write_bytes(whole[: SECTOR * 2])
    assert judged(tmp_path).answer is Answer.SAFE


def test_one_file_of_a_new_size_is_enough(tmp_path: Path) -> None:
    """Artemis 2.40 uses up the files of the size before, and has needed one of the new size."""
    journal(tmp_path, FULL, FULL, 7)
    path = path_of(tmp_path, 3)
    path.write_bytes(path.read_bytes() + b"J" * SIZE)
    assert judged(tmp_path).answer is Answer.SAFE
    cut(2, SECTOR)(tmp_path)
    assert judged(tmp_path).reason == "odd-end"


def test_a_file_older_than_others_is_not_being_created(tmp_path: Path) -> None:
    """It was emptied: a file that a crash leaves so has the highest number."""
    write(
        tmp_path,
        "g3",
        {2: image("g3", 2, [add(0)], SIZE, b"\0"), 3: image("g3", 3, [], SIZE, b"\0")},
    )
    assert judged(tmp_path).answer is Answer.SAFE
    path_of(tmp_path, 1).write_bytes(b"")
    assert judged(tmp_path).reason == "odd-end"


@pytest.mark.parametrize(("number", "size"), [(3, 0), (3, 8), (4, 0)])
def test_a_file_that_was_created_and_not_filled_is_what_a_crash_of_artemis_leaves(
    number: int, size: int, tmp_path: Path
) -> None:
    """It deletes the file and starts with every record. HornetQ, which fills with J, does not."""
    journal(tmp_path, FULL, 7, 0)
    path_of(tmp_path, number).write_bytes(bytes(size))
    assert (judged(tmp_path).answer, judged(tmp_path).reason) == (Answer.CANNOT_TELL, "odd-end")
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes().replace(b"J", b"\0"))
    assert (judged(tmp_path).answer, judged(tmp_path).reason) == (Answer.SAFE, "next-file")


def test_a_record_that_ends_with_a_sector_was_torn_by_a_crash(tmp_path: Path) -> None:
    journal(tmp_path, FULL, 7, 0)
    torn(SECTOR)(tmp_path)
    assert (judged(tmp_path).answer, judged(tmp_path).reason) == (Answer.SAFE, "next-file")


def test_a_restart_opens_the_next_file_under_a_new_id(tmp_path: Path) -> None:
    journal(tmp_path, FULL - 2, 0, 0)
    reused_before_use(tmp_path)
    assert (judged(tmp_path).answer, judged(tmp_path).reason) == (Answer.SAFE, "next-file")


LARGE = 16384


@pytest.mark.parametrize("fill", [b"\0", b"J"])
@pytest.mark.parametrize(
    ("records", "size", "expected"),
    [
        (0, 4097, Answer.SAFE),
        (0, 12288, Answer.SAFE),
        (0, LARGE + 4096, Answer.SAFE),
        (0, 4096, Answer.CANNOT_TELL),  # a first record may have stood after a first block
        (0, HEADER, Answer.CANNOT_TELL),
        (1, 12288, Answer.CANNOT_TELL),
    ],
)
def test_a_file_that_was_never_used_may_have_any_size(
    records: int, size: int, expected: Answer, fill: bytes, tmp_path: Path
) -> None:
    """Artemis 2.40 deletes it at a load, and has every record."""
    items = [add(one, b"x" * 64) for one in range(1, 30)]
    last = [add(30 + one, b"x" * 64) for one in range(records)]
    whole = [*items[:-1], add(29, b"x" * (LARGE - 3500))]
    full = image("g3", 1, whole, LARGE, fill)
    write(tmp_path, "g3", {1: full, 2: image("g3", 2, last, LARGE, fill)})
    path = path_of(tmp_path, 2)
    path.write_bytes(path.read_bytes()[:size] + fill * (size - LARGE))
    assert judged(tmp_path).answer is expected
