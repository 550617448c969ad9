"""A journal of which no file is missing is safe: each file id that it gave out has an owner."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tallystick.records import Answer, AtStake
from tallystick.systems.jboss.format.layout import Item
from tallystick.systems.jboss.format.messages import IDS_GIVEN
from tallystick.systems.jboss.verdict.file_ids import ID_BATCH
from tests.systems.jboss.build import (
    add,
    add_tx,
    commit,
    delete,
    delete_tx,
    file_name,
    image,
    read,
    rollback,
    update,
)

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


def full(first: int) -> list[Item]:
    """As many records as a file holds, with ids from ``first`` on."""
    size = len(record(1, add(1, b"x")))
    return [add(first + one, b"x") for one in range((SIZE - 16) // size)]


def following(folder: Path, gone: range, *items: Item) -> None:
    """Files of which some are gone; what stands after them are these items."""
    for number in range(1, gone.start):
        put(folder, number, number, full(100 * number))
    put(folder, gone.stop, gone.stop, list(items))
    put(folder, gone.stop + 1, gone.stop + 1, [])


@pytest.mark.parametrize("gone", [range(1, 2), range(1, 9), range(2, 3), range(3, 7)])
@pytest.mark.parametrize(
    ("items", "answer"),
    [
        ([delete(899), add(900)], SAFE),
        ([delete(898), add(900)], SAFE),
        ([add_tx(899, 900), commit(899, 1)], MISSING),  # its number tells of no record
        ([delete(898), add_tx(899, 900), commit(899, 1)], SAFE),
        ([delete_tx(901, 899), add(900), commit(901, 1)], SAFE),
        ([update(899), delete(899), add(900)], SAFE),  # as brokers acknowledge
        ([delete_tx(901, 899), add(900)], MISSING),  # it never ended
        ([delete_tx(901, 899), add(900), rollback(901)], MISSING),
        ([delete_tx(898, 500), add_tx(899, 900), commit(899, 1), commit(898, 1)], MISSING),
        ([delete(897), add(900)], MISSING),
        ([add(900), delete(901)], MISSING),
        ([add(ID_BATCH + 7)], SAFE),
        ([delete(500)], SAFE),
    ],
)
def test_files_were_done_with_where_what_follows_them_goes_on_from_their_last_record(
    gone: range, items: list[Item], answer: tuple[Answer, str], tmp_path: Path
) -> None:
    """An original deletes such files. Ids rise: many that nothing names are those of lost ones."""
    following(tmp_path, gone, *items)
    assert judged(tmp_path) == answer


def waiting(first: int, taken: int, gone: int) -> list[Item]:
    """What follows a file of that id, of which the first few records are taken at once."""
    ids = range(first, first + 9)
    return [delete(100 * gone + 99), *map(add, ids), *map(delete, ids[:taken])]


@pytest.mark.parametrize(
    ("gone", "items", "answer"),
    [
        (range(2, 3), waiting(300, 0, 2), MISSING),
        (range(2, 3), waiting(300, 7, 2), MISSING),  # one that waits before the gap, one after it
        (range(1, 2), waiting(200, 0, 1), MISSING),
        (range(1, 2), waiting(200, 7, 1), SAFE),
        (range(2, 3), waiting(100 + len(full(100)), 0, 2), SAFE),  # no id is left for what is gone
        (range(2, 3), waiting(300, 0, 2)[:8], SAFE),  # it has just begun
    ],
)
def test_where_records_wait_on_both_sides_of_a_gap_others_waited_in_it(
    gone: range, items: list[Item], answer: tuple[Answer, str], tmp_path: Path
) -> None:
    """A file goes when all in it is taken, which is in the order in which it was sent."""
    following(tmp_path, gone, *items)
    assert judged(tmp_path) == answer


def kept(folder: Path) -> None:
    """A compaction of Artemis replaced three files, and all are kept for later."""
    put(folder, 2, 1, copies(4))
    put(folder, 7, 2, [replace(add(one), compact_count=1) for one in range(5, 9)])
    put(folder, 1, 5, [add(20), delete(20)])
    put(folder, 8, 8, [])
    for name, file_id in ((3, 9), (4, 10)):
        put(folder, name, file_id, [], record(name, add(1)))


@pytest.mark.parametrize(
    ("gone", "answer"), [(None, SAFE), (1, MISSING), (2, MISSING), (7, MISSING)]
)
def test_while_files_are_kept_for_later_none_is_deleted(
    gone: int | None, answer: tuple[Answer, str], tmp_path: Path
) -> None:
    """The next file was not used yet: what was there when the compaction ended is there now."""
    kept(tmp_path)
    if gone is not None:
        (tmp_path / file_name("g3", gone)).unlink()
    assert judged(tmp_path) == answer


def test_where_nothing_is_added_later_a_record_that_is_gone_is_deleted(tmp_path: Path) -> None:
    following(tmp_path, range(2, 3), delete(101))
    assert judged(tmp_path) == MISSING
    following(tmp_path, range(2, 3), delete(201))
    assert judged(tmp_path) == SAFE


def test_a_broker_gives_its_first_ids_to_what_is_no_message(tmp_path: Path) -> None:
    following(tmp_path, range(1, 2), add(16))
    assert judged(tmp_path) == SAFE


@pytest.mark.parametrize("gone", [5, 6, 7, 4])
def test_files_of_a_compaction_have_ids_in_a_row(gone: int, tmp_path: Path) -> None:
    """Theirs, their names, and that of the file which was current then, come one after another."""
    for number in (1, 2, 3):
        first = 50 * number
        items = [replace(one, compact_count=1) for one in full(first)]
        put(tmp_path, 4 + number, number, items)
    put(tmp_path, 4, 4, full(200))
    put(tmp_path, 8, 8, [delete(201), add(250)])
    put(tmp_path, 9, 9, [])
    assert judged(tmp_path) == SAFE
    (tmp_path / file_name("g3", gone)).unlink()
    assert judged(tmp_path) == MISSING


def test_files_of_a_compaction_of_which_all_records_are_deleted_are_no_loss(
    tmp_path: Path,
) -> None:
    first = [delete(one.record_id or 0) for one in full(50)]
    for gone, deleted, answer in ((5, first, SAFE), (5, first[:3], MISSING)):
        for number in (2, 3):
            items = [replace(one, compact_count=1) for one in full(50 * number)]
            put(tmp_path, 4 + number, number, items)
        put(tmp_path, gone - 1, gone - 1, full(200))
        put(tmp_path, 8, 8, [*deleted, add(200 + len(first))])
        put(tmp_path, 9, 9, [])
        assert judged(tmp_path) == answer


@pytest.mark.parametrize("first", [full(10), [add(10)]], ids=["full", "with room"])
def test_ids_right_after_the_current_file_are_those_of_a_compaction_that_used_files_again(
    first: list[Item], tmp_path: Path
) -> None:
    """Files 1 and 2 were opened as 9 and 10; what was there before 8 is replaced."""
    put(tmp_path, 1, 1, [replace(one, compact_count=4) for one in first])
    put(tmp_path, 2, 2, copies(2))
    put(tmp_path, 4, 8, [])
    put(tmp_path, 11, 11, [])
    put(tmp_path, 3, 12, [])
    assert judged(tmp_path) == SAFE
    (tmp_path / file_name("g3", 4)).unlink()
    assert judged(tmp_path) == MISSING


def test_what_a_compaction_replaced_needs_no_owner(tmp_path: Path) -> None:
    """Ids 1 to 4 were deleted as reclaimed, or replaced; they hold nothing that counts."""
    put(tmp_path, 8, 5, copies(4))
    put(tmp_path, 7, 7, [add(20)])
    put(tmp_path, 9, 9, [])
    put(tmp_path, 6, 10, [])
    assert judged(tmp_path) == SAFE


def test_the_file_that_was_current_for_a_compaction_may_be_lost(tmp_path: Path) -> None:
    """Or it was empty, and a load gave it another id: the bytes do not tell."""
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
    put(tmp_path, 2, 2, [replace(one, record_id=70) for one in copies(1, counts[1])])
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
    put(tmp_path, 2, 7, [], stale=record(2, delete(9)))
    put(tmp_path, 3, 8, [])
    assert judged(tmp_path) == SAFE
    put(tmp_path, 3, 9, [], stale=record(3, delete(9)))
    assert judged(tmp_path) == MISSING


def test_a_load_deletes_empty_files_that_the_pool_does_not_need(tmp_path: Path) -> None:
    """File 8 was created after that; another one had the id 7."""
    put(tmp_path, 1, 5, [add(9)])
    put(tmp_path, 8, 8, [])
    assert judged(tmp_path) == SAFE
    put(tmp_path, 1, 5, full(9))
    assert judged(tmp_path) == MISSING


def test_a_compaction_drops_the_delete_of_a_record_of_an_earlier_life(tmp_path: Path) -> None:
    put(tmp_path, 5, 2, copies(3))
    put(tmp_path, 4, 4, [add(20)])
    put(tmp_path, 6, 6, [])
    (tmp_path / file_name("g3", 1)).write_bytes(earlier([add(9)]))
    content = (tmp_path / file_name("g3", 1)).read_bytes()
    (tmp_path / file_name("g3", 1)).write_bytes(content[:8] + (7).to_bytes(8, "big") + content[16:])
    assert judged(tmp_path) == SAFE


def test_the_end_of_an_open_transaction_may_be_in_a_file_that_is_lost(tmp_path: Path) -> None:
    for items, answer in (([add(2)], SAFE), ([add_tx(9, 2)], MISSING)):
        put(tmp_path, 1, 1, [add(1), *items])
        put(tmp_path, 2, 5, [], stale=record(2, delete(9)))
        put(tmp_path, 3, 6, [], stale=record(3, delete(9)))
        assert judged(tmp_path) == answer


def test_the_end_of_an_open_transaction_is_in_no_file_before_which_all_is_named(
    tmp_path: Path,
) -> None:
    for first, answer in ((201, SAFE), (202, MISSING), (ID_BATCH, MISSING)):
        put(tmp_path, 1, 1, [*full(1)[:-2], add_tx(200, 199)])
        put(tmp_path, 4, 4, [add(first)])
        put(tmp_path, 5, 5, [])
        assert judged(tmp_path) == answer


@pytest.mark.parametrize(
    ("notes", "answer"),
    [
        ([(40, 1000)], SAFE),
        ([(40, 1000), (55, 55)], SAFE),
        ([(40, 1000), (49, 49)], MISSING),  # of an earlier day than the journal
        ([(60, 1000)], MISSING),
        ([(20, 1000), (60, 1000)], MISSING),
        ([(55, 55)], MISSING),
        ([], MISSING),
    ],
)
def test_a_compacted_file_is_current_where_ids_stand_in_it_that_were_given_after_the_last_start(
    notes: list[tuple[int, int]], answer: tuple[Answer, str], tmp_path: Path
) -> None:
    journal, bindings = tmp_path / "journal", tmp_path / "bindings"
    journal.mkdir()
    bindings.mkdir()
    put(journal, 3, 1, [*copies(2), add(50)])
    put(journal, 2, 6, [])
    put(journal, 1, 7, [])
    items = [add(one, limit.to_bytes(8, "big"), IDS_GIVEN) for one, limit in notes]
    for number, records in ((1, items), (2, [])):
        content = image("g3", number, records, SIZE, b"\0")
        (bindings / f"activemq-bindings-{number}.bindings").write_bytes(content)
    assert judged(journal) == answer


@pytest.mark.parametrize(("current", "answer"), [(None, MISSING), ([add(3)], SAFE), ([], SAFE)])
def test_the_file_before_the_one_that_waits_was_current_for_a_compaction(
    current: list[Item] | None, answer: tuple[Answer, str], tmp_path: Path
) -> None:
    """HornetQ: 4 waited when file 5 was made to replace 1 and 2; so 3 was current."""
    put(tmp_path, 5, 1, copies(2))
    put(tmp_path, 4, 4, [])
    if current is not None:
        put(tmp_path, 3, 3, current)
    assert judged(tmp_path) == answer


def test_a_file_before_one_with_records_is_not_empty(tmp_path: Path) -> None:
    """It is opened for a record that did not fit before; a lost one may be named nowhere."""
    put(tmp_path, 1, 1, full(10))
    put(tmp_path, 2, 2, [])
    put(tmp_path, 3, 3, [add_tx(53, 54), commit(53, 1)])
    put(tmp_path, 4, 4, [])
    assert judged(tmp_path) == (Answer.CANNOT_TELL, "room-left")


@pytest.mark.parametrize(
    ("names", "answer"),
    [
        ({2: 4, 1: 5}, SAFE),  # files that were done with: they got the next ids, and wait
        ({4: 4, 1: 5}, SAFE),
        ({5: 5}, SAFE),  # the file of a compaction has the id between
        ({2: 4, 5: 5}, (Answer.CANNOT_TELL, "empty-after-full")),
    ],
)
def test_files_that_wait_after_a_full_one_were_not_all_opened(
    names: dict[int, int], answer: tuple[Answer, str], tmp_path: Path
) -> None:
    if names == {5: 5}:
        put(tmp_path, 4, 1, copies(1))
    else:
        for number in {1, 2} - {*names}:
            put(tmp_path, number, number, full(100 * number))
    put(tmp_path, 3, 3, full(300))
    for name, file_id in names.items():
        put(tmp_path, name, file_id, [])
    assert judged(tmp_path) == answer


@pytest.mark.parametrize(("stale", "answer"), [(b"", SAFE), (record(2, delete(9)), MISSING)])
def test_a_file_that_never_held_a_record_shows_that_none_behind_it_did(
    stale: bytes, answer: tuple[Answer, str], tmp_path: Path
) -> None:
    """Files 1 and 2 got new ids at loads; file 2 was created before any that may be lost."""
    put(tmp_path, 1, 6, [add(90)])
    put(tmp_path, 2, 8, [], stale=stale)
    assert judged(tmp_path) == answer


def broker(kills: int, number: int) -> int:
    """An id that a broker gives after so many kills."""
    return kills * ID_BATCH + number


@pytest.mark.parametrize(
    ("before", "after", "gone", "answer"),
    [
        (broker(0, 90), broker(1, 90), 1, SAFE),
        (broker(0, 90), broker(2, 90), 2, SAFE),
        (broker(1, 90), broker(3, 90), 2, SAFE),
        (broker(0, 90), broker(1, 90), 2, MISSING),
        (broker(1, 90), broker(1, 290), 1, MISSING),
    ],
)
def test_a_load_takes_an_id_for_the_file_that_waits(
    before: int, after: int, gone: int, answer: tuple[Answer, str], tmp_path: Path
) -> None:
    """The first file was current through so many kills; a lost file would need an id more."""
    put(tmp_path, 1, 1, full(before))
    put(tmp_path, 2 + gone, 2 + gone, [add(after)])
    put(tmp_path, 3 + gone, 3 + gone, [])
    assert judged(tmp_path) == answer


@pytest.mark.parametrize(("name", "answer"), [(1, SAFE), (3, MISSING)])
def test_the_file_that_was_created_first_is_used_first(
    name: int, answer: tuple[Answer, str], tmp_path: Path
) -> None:
    """A load has given it the id 3; where another was created first, that one may be lost."""
    put(tmp_path, name, 3, [add(broker(1, 90))])
    put(tmp_path, 4, 4, [], stale=b"")
    assert judged(tmp_path) == answer


def hornetq(folder: Path, name: int, file_id: int, items: list[Item]) -> None:
    content = image("g3", file_id, items, SIZE)
    (folder / file_name("g3", name)).write_bytes(content)


@pytest.mark.parametrize(
    ("name", "files", "answer"),
    [
        (4, {1: full(10), 2: [add(70)]}, MISSING),
        (2, {1: [add(10)]}, SAFE),  # a load has given it the id 4
    ],
)
def test_no_load_of_hornetq_deletes_a_file(
    name: int, files: dict[int, list[Item]], answer: tuple[Answer, str], tmp_path: Path
) -> None:
    for number, items in files.items():
        hornetq(tmp_path, number, number, items)
    hornetq(tmp_path, name, 4, [])
    assert judged(tmp_path) == answer


@pytest.mark.parametrize(
    ("copied", "items", "answer"),
    [
        (full(10), [add(60)], SAFE),
        (full(10), [add(90)], MISSING),  # the last file is full, and 38 ids are named nowhere
        (full(10)[:-2], [add(90)], SAFE),
        (full(10)[:-2], [delete(60), add(90)], MISSING),  # it was copied to a file that is gone
        (full(10)[:-2], [delete(88), add(90)], SAFE),  # the last that was there: all are done with
    ],
)
def test_the_last_file_of_a_compaction_may_be_lost(
    copied: list[Item], items: list[Item], answer: tuple[Answer, str], tmp_path: Path
) -> None:
    put(tmp_path, 6, 1, [replace(one, compact_count=1) for one in copied])
    put(tmp_path, 5, 5, items)
    put(tmp_path, 7, 7, [])
    assert judged(tmp_path) == answer


@pytest.mark.parametrize(
    ("current", "waits", "answer"),
    [
        ([add(40), add_tx(42, 41)], 8, SAFE),  # it has room: no file was used after it
        (
            [*full(40)[:-2], add_tx(84, 83, b"long")],
            8,
            SAFE,
        ),  # the next was created beside the others
        ([*full(40)[:-2], add_tx(84, 83, b"long")], 10, MISSING),
    ],
)
def test_a_compaction_of_hornetq_has_replaced_what_was_created_before_its_files(
    current: list[Item], waits: int, answer: tuple[Answer, str], tmp_path: Path
) -> None:
    """An earlier compaction gave the id 6, or an end of the transaction is lost with it."""
    for name, number, count in ((7, 1, 4), (9, 2, 1)):
        hornetq(tmp_path, name, number, [replace(add(10 * number), compact_count=count)])
    hornetq(tmp_path, 5, 5, current)
    hornetq(tmp_path, waits, waits, [add(90)] if len(current) > 2 else [])
    if len(current) > 2:
        following = max(waits, 9) + 1
        hornetq(tmp_path, following, following, [])
    assert judged(tmp_path) == answer


@pytest.mark.parametrize("file_id", [0x201, 0x10001])
def test_a_record_of_an_earlier_life_under_an_id_far_above_all_others_is_odd_and_no_loss(
    file_id: int, tmp_path: Path
) -> None:
    """A bit of it was flipped; a load passes over it as before."""
    put(tmp_path, 2, 2, [add(20), delete(9)])
    put(tmp_path, 3, 3, [])
    content = bytearray(earlier([add(9), add(10)]))
    content[17:21] = file_id.to_bytes(4, "big")
    (tmp_path / file_name("g3", 1)).write_bytes(content)
    assert judged(tmp_path) == ODD


def test_a_file_that_a_compaction_of_hornetq_created_keeps_its_zeros(tmp_path: Path) -> None:
    """Such a file is used again; one in its first life with other fill is a foreign one."""
    hornetq(tmp_path, 1, 1, full(10))
    put(tmp_path, 2, 3, [add(10 + len(full(10)))])
    hornetq(tmp_path, 4, 4, [])
    assert judged(tmp_path)[1] != "odd-end"
    put(tmp_path, 2, 2, [add(10 + len(full(10)))])
    (tmp_path / file_name("g3", 4)).unlink()
    hornetq(tmp_path, 3, 3, [])
    assert judged(tmp_path) == (Answer.CANNOT_TELL, "odd-end")


def used_after_loads(folder: Path, second: int, items: list[Item], stale: bytes = b"") -> None:
    """File 1 is full, and file 2 got a new id at each load before it was used."""
    put(folder, 1, 1, full(1))
    put(folder, 2, second, items, stale)
    put(folder, second + 1, second + 2, [])


@pytest.mark.parametrize(
    "items",
    [[update(7)], [add(900)], [update(7), add(ID_BATCH - 1)]],
    ids=["nothing added", "added", "added later"],
)
@pytest.mark.parametrize("second", [3, 4, 9])
def test_loads_took_the_ids_before_a_file_that_is_used_for_the_first_time(
    second: int, items: list[Item], tmp_path: Path
) -> None:
    """Files are used in the order in which they were created: all before the second are there."""
    used_after_loads(tmp_path, second, items)
    assert judged(tmp_path) == SAFE


def test_a_file_that_was_used_before_does_not_tell_which_were_used_between(tmp_path: Path) -> None:
    used_after_loads(tmp_path, 4, [add(900)], record(2, add(300)))
    assert judged(tmp_path) == MISSING


@pytest.mark.parametrize(
    ("unnamed", "answer"), [(0, SAFE), (2, SAFE), (99, MISSING)], ids=["none", "few", "many"]
)
def test_a_full_file_may_have_been_used_before_if_ids_of_records_are_missing_before_it(
    unnamed: int, answer: tuple[Answer, str], tmp_path: Path
) -> None:
    """A transaction is open, and might have ended in a file that is lost."""
    first, opened = full(1), add_tx(88, 89, b"x")
    put(tmp_path, 1, 1, [opened, *first[:-2]])
    put(tmp_path, 2, 4, [update(7), *full(90 + unnamed)[:-2]])
    put(tmp_path, 5, 5, [add(500)])
    put(tmp_path, 6, 6, [])
    assert judged(tmp_path) == answer


def test_a_name_that_is_missing_may_be_that_of_a_lost_file(tmp_path: Path) -> None:
    put(tmp_path, 1, 1, full(1))
    put(tmp_path, 3, 5, [add(900)])
    put(tmp_path, 4, 6, [])
    assert judged(tmp_path) == MISSING


@pytest.mark.parametrize(
    ("before", "after", "answer"),
    [
        (0, 8, MISSING),  # the last before the gap wait, the first after it are taken
        (5, 8, SAFE),  # most of those before it are taken
        (0, 7, MISSING),  # others waited in the gap
        (5, 9, SAFE),
    ],
)
def test_what_waits_before_a_gap_was_taken_by_what_stood_there(
    before: int, after: int, answer: tuple[Answer, str], tmp_path: Path
) -> None:
    """Messages are taken in the order in which they were sent."""
    last = full(100)[-1].record_id or 0
    taken = [delete(last - one) for one in range(before)]
    following(tmp_path, range(2, 3), *waiting(300, after, 2), *taken)
    assert judged(tmp_path) == answer


def test_what_a_missing_file_held_is_not_counted_by_what_names_it(tmp_path: Path) -> None:
    put(tmp_path, 1, 1, [add(number) for number in range(1, 6)])
    put(tmp_path, 2, 2, [update(2)])
    put(tmp_path, 3, 3, [])
    (tmp_path / file_name("g3", 1)).unlink()
    judgement = read(tmp_path).verdict().judgement
    assert (judgement.answer, judgement.reason) == (Answer.LOSES, "file-missing")
    assert judgement.at_stake == AtStake()
    assert judgement.text.startswith("1 record or more")
