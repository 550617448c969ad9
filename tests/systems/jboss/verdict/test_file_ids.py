"""A journal of which no file is missing is safe: each file id that it gave out has an owner."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tallystick.records import Answer
from tallystick.systems.jboss.format.layout import Item
from tests.systems.jboss.build import add, add_tx, commit, delete, delete_tx, file_name, image, read

SIZE = 1024


def copies(count: int, compactions: int = 1) -> list[Item]:
    """Records that so many compactions have copied."""
    return [replace(add(one), compact_count=compactions) for one in range(1, count + 1)]


def put(folder: Path, name: int, file_id: int, items: list[Item], stale: bytes = b"") -> None:
    """One file; after its records stand those of an earlier life."""
    content = image("g3", file_id, items, SIZE, b"\0")
    if stale:
        content = content[: SIZE - len(stale) - 100] + stale + bytes(100)
    (folder / file_name("g3", name)).write_bytes(content)


def record(file_id: int, item: Item) -> bytes:
    header = len(image("g3", file_id, [], 0))
    return image("g3", file_id, [item], 0)[header:]


def judged(folder: Path) -> tuple[Answer, str]:
    judgement = read(folder).verdict().judgement
    return judgement.answer, judgement.reason


def compacted_twice(folder: Path) -> None:
    """File 1 was used again as 7, for a compaction that was to replace the files from id 1 on."""
    put(folder, 1, 1, copies(4, 2))
    put(folder, 6, 6, [add(20), delete(20)])
    put(folder, 2, 8, [])
    put(folder, 3, 9, [])
    put(folder, 5, 10, [])
    put(folder, 4, 11, [])


SAFE = (Answer.SAFE, "next-file")
ODD = (Answer.CANNOT_TELL, "odd-id")
MISSING = (Answer.CANNOT_TELL, "ids-missing")


def test_the_one_id_without_an_owner_is_that_of_the_file_of_a_compaction(tmp_path: Path) -> None:
    compacted_twice(tmp_path)
    assert judged(tmp_path) == SAFE


@pytest.mark.parametrize("gone", [1, 2, 3, 4, 5, 6])
def test_a_file_that_was_removed_leaves_an_id_without_an_owner(gone: int, tmp_path: Path) -> None:
    """But for the file opened last before its ids were known, of which another reason tells."""
    compacted_twice(tmp_path)
    (tmp_path / file_name("g3", gone)).unlink()
    assert judged(tmp_path) == MISSING


def test_a_file_that_a_compaction_may_have_created_owns_no_second_id(tmp_path: Path) -> None:
    """File 4 may have been created with the id under which it was opened; then 5 is lost.

    More than half of the file in use is full: a record may have gone to the next one.
    """
    put(tmp_path, 4, 1, copies(4))
    put(tmp_path, 3, 3, [add(20 + one, b"x" * 64) for one in range(7)])
    put(tmp_path, 6, 6, [])
    put(tmp_path, 1, 7, [])
    put(tmp_path, 2, 8, [])
    assert judged(tmp_path) == MISSING


def test_what_a_compaction_replaced_needs_no_owner(tmp_path: Path) -> None:
    """Ids 1 to 4 were deleted as reclaimed, or replaced; they hold nothing that counts."""
    put(tmp_path, 8, 5, copies(4))
    put(tmp_path, 7, 7, [add(20)])
    put(tmp_path, 9, 9, [])
    put(tmp_path, 6, 10, [])
    assert judged(tmp_path) == SAFE


def test_the_file_after_those_of_a_compaction_is_needed_though_they_are_half_free(
    tmp_path: Path,
) -> None:
    """The free file may have had ids from 2 on; a compaction begins with a file of its own."""
    put(tmp_path, 3, 1, copies(2))
    put(tmp_path, 2, 6, [])
    put(tmp_path, 1, 7, [])
    assert judged(tmp_path) == MISSING


@pytest.mark.parametrize(("item", "answer"), [(add(9), SAFE), (copies(1)[0], MISSING)])
def test_records_of_an_earlier_life_own_their_id_unless_a_compaction_copied_them(
    item: Item, answer: tuple[Answer, str], tmp_path: Path
) -> None:
    put(tmp_path, 1, 3, [add(20)], stale=record(2, item))
    put(tmp_path, 4, 4, [])
    assert judged(tmp_path) == answer


def test_a_huge_id_costs_no_memory(tmp_path: Path) -> None:
    put(tmp_path, 1, 1, [add(1)])
    put(tmp_path, 2, 1 << 47, [])
    assert judged(tmp_path)[0] is Answer.SAFE


@pytest.mark.parametrize(
    ("counts", "answer"), [((3, 2), SAFE), ((1, 1), (Answer.CANNOT_TELL, "room-left"))]
)
def test_a_compaction_leaves_room_only_after_records_that_were_copied_often(
    counts: tuple[int, int], answer: tuple[Answer, str], tmp_path: Path
) -> None:
    put(tmp_path, 1, 1, copies(3, counts[0]))
    put(tmp_path, 2, 2, [replace(one, record_id=7) for one in copies(1, counts[1])])
    put(tmp_path, 5, 5, [add(20)])
    put(tmp_path, 8, 8, [])
    put(tmp_path, 3, 9, [])
    put(tmp_path, 4, 10, [])
    assert judged(tmp_path) == answer


@pytest.mark.parametrize("file_id", [-1, -(1 << 40), 0, 1 << 48, 1 << 60])
def test_a_header_has_an_id_that_a_journal_gives(file_id: int, tmp_path: Path) -> None:
    put(tmp_path, 1, 1, [add(1)])
    put(tmp_path, 2, 2, [])
    assert judged(tmp_path) == SAFE
    put(tmp_path, 3, file_id, [])
    assert judged(tmp_path) == ODD


def test_an_empty_file_has_no_id_below_that_of_its_name(tmp_path: Path) -> None:
    """The headers of both files changed places: the records of the first one seem to be old."""
    put(tmp_path, 1, 1, [add(1)])
    put(tmp_path, 2, 2, [])
    first, second = ((tmp_path / file_name("g3", one)) for one in (1, 2))
    heads = first.read_bytes()[:16], second.read_bytes()[:16]
    first.write_bytes(heads[1] + first.read_bytes()[16:])
    second.write_bytes(heads[0] + second.read_bytes()[16:])
    assert judged(tmp_path) == ODD


@pytest.mark.parametrize(
    ("stale", "answer"),
    [(2, SAFE), (-5, ODD), (0x4A4A4A4A, ODD), (0x0106, ODD), (1, ODD), (3, ODD)],
)
def test_an_earlier_life_of_a_file_had_an_id_of_its_own_and_no_higher_one_than_the_newest(
    stale: int, answer: tuple[Answer, str], tmp_path: Path
) -> None:
    put(tmp_path, 1, 1, [add(10, bytes(900))])
    put(tmp_path, 3, 3, [add(20, bytes(900))])
    old = record(1, add(9))
    patched = old[:1] + stale.to_bytes(4, "big", signed=True) + old[5:]
    put(tmp_path, 2, 4, [add(30, bytes(200))], stale=patched)
    put(tmp_path, 5, 5, [])
    assert judged(tmp_path) == answer


def earlier(items: list[Item]) -> bytes:
    """A file that was used as 1, and has a new id since."""
    content = image("g3", 1, items, SIZE, b"\0")
    return content[:8] + (4).to_bytes(8, "big") + content[16:]


@pytest.mark.parametrize(
    ("before", "later", "answer"),
    [
        ([add(9)], [add(20)], ODD),
        ([add(9), delete(9)], [add(20)], SAFE),
        ([add(9)], [add(20), delete(9)], SAFE),
        ([add(9)], [add(20), delete_tx(7, 9), commit(7, 1)], SAFE),
        ([add(9)], [add(20), delete(8)], ODD),
        ([add_tx(7, 9)], [add(20)], SAFE),
    ],
)
def test_a_file_is_used_again_when_its_records_are_done_with(
    before: list[Item], later: list[Item], answer: tuple[Answer, str], tmp_path: Path
) -> None:
    put(tmp_path, 2, 2, later)
    put(tmp_path, 3, 3, [])
    (tmp_path / file_name("g3", 1)).write_bytes(earlier(before))
    assert judged(tmp_path) == answer


def test_the_delete_of_a_record_may_stand_in_an_earlier_life_of_a_later_file(
    tmp_path: Path,
) -> None:
    put(tmp_path, 3, 3, [add(20)])
    put(tmp_path, 5, 5, [])
    (tmp_path / file_name("g3", 1)).write_bytes(earlier([add(9)]))
    put(tmp_path, 2, 6, [], stale=record(2, delete(9)))
    assert judged(tmp_path) == SAFE
    put(tmp_path, 2, 6, [], stale=record(2, delete(8)))
    assert judged(tmp_path) == ODD


def test_a_load_gives_ids_in_a_row(tmp_path: Path) -> None:
    """It explains ids before the first file without records, not those between two of them."""
    put(tmp_path, 1, 1, [add(1)])
    put(tmp_path, 2, 7, [])
    put(tmp_path, 3, 8, [])
    assert judged(tmp_path) == SAFE
    put(tmp_path, 3, 9, [])
    assert judged(tmp_path) == MISSING


def test_a_file_that_was_created_after_every_load_explains_no_id_before_it(tmp_path: Path) -> None:
    """File 8 has the id with which it was created: 7 is a lost file's, here of a compaction."""
    put(tmp_path, 6, 1, copies(4))
    put(tmp_path, 1, 5, [add(20)])
    put(tmp_path, 8, 8, [])
    for name, file_id in ((3, 9), (2, 10), (4, 11)):
        put(tmp_path, name, file_id, [], stale=record(name, add(40 + name)))
    assert judged(tmp_path) == MISSING
