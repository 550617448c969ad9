"""How the comparison with the originals counts; no original is needed for that."""

from __future__ import annotations

import math
import random
import shutil
import struct
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tallystick.systems.bitronix.format.layout import COMMITTING
from tallystick.systems.bitronix.format.record import TransactionLogRecord
from tallystick.systems.derby.read.containers import Conglomerate
from tallystick.systems.jboss.format.layout import Item
from tallystick.systems.jboss.format.messages import PAGE_TRANSACTION
from tests.fixtures import fixture_dir
from tests.interop.differential import around, cases
from tests.interop.differential.around import DERBY, NARAYANA, Damage, damage_beside
from tests.interop.differential.cases import (
    ALTERED,
    EARLIER,
    FIRST_START_MS,
    SET_UP_ALIKE,
    Case,
    Named,
    _named_in,
    calm,
    come_and_go,
    crash_alike,
    fewest_first,
    is_earlier,
    kinds_of,
    nothing_names,
    set_up_alike,
    table,
    unseen_damage,
    unseen_mixture,
)
from tests.interop.differential.damage import HEAD_SIZE, IN_HEADS, damage, damage_head
from tests.interop.differential.originals import ORIGINALS, OTHERS, Database, Whole, states_of
from tests.systems.bitronix.logs import file_bytes, record, write_pair
from tests.systems.derby.logs import reading, redone_pages
from tests.systems.h2.kit import opened
from tests.systems.h2.verdict.test_damage import base
from tests.systems.jboss.build import add, image, update, write
from tests.systems.jboss.format.test_pages import WRITTEN, entry

HORNETQ = ORIGINALS["hornetq"]


def case(answer: str, *, opened: bool = True, lost: int = 0, unseen: str = "") -> Case:
    return Case("artemis", 1, 2, "bit", answer, opened, 9, lost, 0, "", "", unseen)


@pytest.mark.parametrize(
    ("one", "wrong"),
    [
        (case("safe"), False),
        (case("safe", lost=1), True),
        (case("safe", opened=False), True),
        (case("safe", lost=1, unseen=EARLIER), False),
        (case("refuses", opened=False), False),
        (case("refuses"), True),
        (case("refuses", lost=1), True),
        (case("cannot-tell", lost=1), False),
        (case("loses"), False),
    ],
)
def test_only_what_the_original_disproves_is_a_contradiction(one: Case, wrong: bool) -> None:
    assert one.contradicts is wrong
    assert f"| artemis | {one.damage}" in table([one])


def test_answers_over_what_was_not_damaged_are_counted_apart() -> None:
    doubt = case("cannot-tell")
    doubt.said, doubt.damage = "room-left: a file ends early", "none"
    whole = case("safe")
    whole.damage = "none"
    counts = {"safe": 2, "cannot-tell (room-left)": 1}
    assert calm([whole, whole, doubt, case("safe")]) == {"artemis": counts}


def test_a_ledger_tells_what_must_and_what_may_be_there(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    first = "+ T table\n+ T/1 a\n?\n!\n"
    ledger.write_text(first)
    assert states_of(ledger) == [{"T": "table", "T/1": "a"}]
    ledger.write_text(first + "- T/1\n?\n")
    assert states_of(ledger) == [{"T": "table", "T/1": "a"}, {"T": "table"}]
    ledger.write_text(first + "- T/1\n?\n-- T\n?\n!\n+ U table\n")
    assert states_of(ledger) == [{}]


@pytest.fixture
def whole(tmp_path: Path) -> Whole:
    """A journal of two files and one to come; earlier it had one record less."""
    files = {1: image("g3", 1, [add(1), add(2)]), 2: image("g3", 2, [add(3), add(4)])}
    for name, last in (("whole", [add(3), add(4)]), ("older", [add(3)])):
        (tmp_path / name).mkdir()
        write(tmp_path / name, "g3", files | {2: image("g3", 2, last), 3: image("g3", 3, [])})
    return Whole(tmp_path / "whole", tmp_path / "older", [])


def changed(whole: Whole, number: int, begin: int, content: bytes) -> Path:
    """A copy of the journal with other bytes at ``begin`` of one file."""
    copy = whole.folder.with_name("copy")
    shutil.copytree(whole.folder, copy)
    path = copy / f"activemq-data-{number}.amq"
    data = bytearray(path.read_bytes())
    data[begin : begin + len(content)] = content
    path.write_bytes(data)
    return copy


RECORD = len(image("g3", 1, [add(1)], 0)) - 16


@pytest.mark.parametrize(
    ("number", "begin", "content", "why"),
    [
        (2, 16 + RECORD, b"J" * 100, EARLIER),  # the last record was not written yet
        (1, 16 + RECORD, b"J" * 100, ""),  # in a file that is not the last one
        (2, 16 + RECORD - 1, b"J" * 100, ""),  # inside a record
        (1, 16 + RECORD - 6, b"\7", ALTERED),  # a body
        (1, 16 + RECORD - 1, b"\7", ""),  # a check
    ],
)
def test_damage_is_unseen_only_where_no_byte_could_show_it(
    whole: Whole, number: int, begin: int, content: bytes, why: str
) -> None:
    assert unseen_damage(HORNETQ, whole, changed(whole, number, begin, content)) == why


@pytest.mark.parametrize(("size", "why"), [(150, ALTERED), (250, "")])
def test_only_bytes_of_records_count_as_altered(size: int, why: str, tmp_path: Path) -> None:
    """Beside bytes of a body all of a file without records differs."""
    long = add(2, b"x" * 300)
    folder, copy = tmp_path / "whole", tmp_path / "copy"
    (tmp_path / "older").mkdir()
    for one, fill in ((folder, b"J"), (copy, b"K")):
        one.mkdir()
        write(one, "g3", {1: image("g3", 1, [long]), 2: image("g3", 2, [])})
        path = one / "activemq-data-2.amq"
        path.write_bytes(path.read_bytes().replace(b"J", fill))
    path = copy / "activemq-data-1.amq"
    path.write_bytes(path.read_bytes().replace(b"x" * size, b"y" * size, 1))
    whole = Whole(folder, tmp_path / "older", [])
    assert unseen_damage(HORNETQ, whole, copy) == why


@pytest.mark.parametrize(("begin", "why"), [(512, EARLIER), (500, "")])
def test_a_last_write_of_which_whole_sectors_are_missing_is_an_earlier_state(
    begin: int, why: str, tmp_path: Path
) -> None:
    for name in ("whole", "older"):
        (tmp_path / name).mkdir()
        write(tmp_path / name, "g3", {1: (file := image("g3", 1, [add(1, b"x" * 800)]))})
    whole = Whole(tmp_path / "whole", tmp_path / "older", [])
    copy = changed(whole, 1, begin, b"J" * (len(file) - begin))
    assert unseen_damage(HORNETQ, whole, copy) == why


def test_an_earlier_state_that_is_put_back_is_unseen(whole: Whole) -> None:
    assert unseen_damage(HORNETQ, whole, whole.older) == EARLIER


def test_a_last_file_as_it_was_before_it_was_used_again_is_unseen(whole: Whole) -> None:
    name, stale = "activemq-data-2.amq", image("g3", 1, [add(8), add(9)])[16:]
    earlier = image("g3", 2, [], 0) + stale
    (whole.older / name).write_bytes(earlier)
    copy = changed(whole, 2, 16, stale)
    assert unseen_damage(HORNETQ, whole, copy) == EARLIER
    (whole.older / name).write_bytes(earlier[:-1] + b"x")
    assert unseen_damage(HORNETQ, whole, copy) == ""


def test_a_seed_gives_the_same_damage(whole: Whole, tmp_path: Path) -> None:
    def damaged(seed: int) -> tuple[str, list[bytes]]:
        copy = Path(shutil.copytree(whole.folder, tmp_path / "copy", dirs_exist_ok=True))
        for path in set(copy.iterdir()) - {copy / one.name for one in whole.folder.iterdir()}:
            path.unlink()
        done = damage(HORNETQ.files(copy), whole.older, random.Random(seed))
        return done, [path.read_bytes() for path in sorted(copy.iterdir())]

    found = [damaged(seed) for seed in range(60)]
    assert found == [damaged(seed) for seed in range(60)]
    assert len({done for done, _ in found}) > 8


def test_damage_to_heads_is_within_heads(whole: Whole, tmp_path: Path) -> None:
    begins = {16, 16 + RECORD}
    done = set()
    for seed in range(40):
        copy = Path(shutil.copytree(whole.folder, tmp_path / "copy", dirs_exist_ok=True))
        done.add(damage_head(copy, random.Random(seed)))
        for one in whole.folder.iterdir():
            pairs = zip(one.read_bytes(), (copy / one.name).read_bytes(), strict=True)
            changed = [at for at, (before, after) in enumerate(pairs) if before != after]
            assert all(any(0 <= at - one < HEAD_SIZE + 3 for one in begins) for at in changed)
    assert done == set(IN_HEADS)


def test_there_is_no_head_where_there_is_no_record(tmp_path: Path) -> None:
    assert damage_head(tmp_path, random.Random(1)) == "none"


def copied(number: int) -> Item:
    return replace(add(number), compact_count=1)


@pytest.mark.parametrize(
    ("later", "keep", "alike"),
    [
        (add(9), 0, True),  # the last file of the compaction: nothing was left for it
        (add(9), 1, True),  # its end
        (add(9), 2, False),  # nothing is changed
        (update(4), 0, False),  # that record was there
        (update(4), 1, False),
        (update(3), 1, True),
    ],
)
def test_a_compaction_that_copied_less_leaves_the_same_bytes(
    later: Item, keep: int, alike: bool, tmp_path: Path
) -> None:
    last = [copied(3), copied(4)]
    for name, items in (("whole", last), ("copy", last[:keep])):
        (tmp_path / name).mkdir()
        files = {6: image("g3", 1, [copied(1), copied(2)], fill=b"\0")}
        files |= {4: image("g3", 4, [later]), 5: image("g3", 5, [])}
        files |= {7: image("g3", 2, items, fill=b"\0")} if items else {}
        write(tmp_path / name, "g3", files)
    whole = Whole(tmp_path / "whole", tmp_path / "older", [])
    assert crash_alike(HORNETQ, whole, tmp_path / "copy") is alike


@pytest.mark.parametrize("begin", [0, 5, 30])
def test_a_compaction_that_copied_less_ends_with_a_record(begin: int, tmp_path: Path) -> None:
    for name in ("whole", "copy"):
        (tmp_path / name).mkdir()
        data = bytearray(image("g3", 1, [copied(3), copied(4)], fill=b"\0"))
        if name == "copy":
            data[16 + begin :] = bytes(len(data) - 16 - begin)
        write(tmp_path / name, "g3", {3: bytes(data), 2: image("g3", 2, [add(9)])})
    whole = Whole(tmp_path / "whole", tmp_path / "older", [])
    assert not crash_alike(HORNETQ, whole, tmp_path / "copy")


H2 = ORIGINALS["h2-1.4.200"]


@pytest.mark.parametrize(
    ("first", "last", "fill", "alike"),
    [
        (-1, None, b"\0", True),  # the last page of the log was not written yet
        (-3, None, b"\0", True),
        (-3, -1, b"\0", False),  # a page after them was
        (-1, None, b"\1", False),  # the engine writes something else
        (0, 0, b"\0", False),  # nothing is changed
    ],
)
def test_what_a_crash_leaves_too_is_told_by_the_one_that_damages(
    first: int, last: int | None, fill: bytes, alike: bool, tmp_path: Path
) -> None:
    data, folder, copy = base("large-log-512"), tmp_path / "whole", tmp_path / "copy"
    stream = opened(bytes(data)).stream
    assert stream is not None
    for one in (folder, copy):
        one.mkdir()
        (one / "db.h2.db").write_bytes(data)
        for page in stream.data_pages[first:last]:
            data[page * 512 : (page + 1) * 512] = fill * 512
    assert crash_alike(H2, Whole(folder, tmp_path / "older", []), copy) is alike


# -- what lies beside a log -----------------------------------------------------------------------


def derby(folder: Path) -> Whole:
    """A database with two containers; earlier one of them was another."""
    for name, content in (
        ("log/log1.dat", b"log"),
        ("seg0/c10.dat", b"new"),
        ("seg0/c20.dat", b"2"),
    ):
        (folder / "db" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "db" / name).write_bytes(content)
    (folder / "db/service.properties").write_text("derby.serviceProtocol=x\n")
    shutil.copytree(folder / "db/seg0", folder / "older-seg0")
    (folder / "older-seg0/c10.dat").write_bytes(b"old")
    shutil.copytree(folder / "db/log", folder / "older")
    return Whole(folder / "db", folder / "older", [])


@pytest.mark.parametrize("kind", DERBY)
def test_damage_beside_a_log_of_derby_changes_something_or_says_that_it_did_not(
    kind: str, tmp_path: Path
) -> None:
    whole, other = derby(tmp_path / "one"), derby(tmp_path / "two")
    (other.folder / "seg0/c10.dat").write_bytes(b"of another")
    (other.folder / "log/log1.dat").write_bytes(b"of another")
    copy = Path(shutil.copytree(whole.folder, tmp_path / "copy"))
    changed = DERBY[kind](copy, whole, other.folder, random.Random(3))
    assert changed is (files_of(copy) != files_of(whole.folder))


def test_a_kind_without_anything_to_damage_leaves_its_turn_and_changes_no_other(
    tmp_path: Path,
) -> None:
    drawn: dict[str, list[float]] = {"a": [], "b": []}

    def draws(kind: str, *, damages: bool) -> Damage:
        def damage(_: Path, __: Whole, ___: Path, rng: random.Random) -> bool:
            drawn[kind].append(rng.random())
            return damages

        return damage

    whole = derby(tmp_path / "one")
    both = {"a": draws("a", damages=False), "b": draws("b", damages=True)}
    for kinds in (both, {"b": both["b"]}):
        assert damage_beside(kinds, tmp_path, whole, tmp_path, "derby 1 2") == "b"
    nothing = damage_beside({"a": both["a"]}, tmp_path, whole, tmp_path, "derby 1 3")
    assert nothing == around.UNDAMAGED
    assert len(set(drawn["a"])) == 2
    assert len(drawn["b"]) == 2
    assert len({*drawn["b"], *drawn["a"]}) == 3


def test_kinds_of_the_fewest_cases_come_first_each_once_before_any_comes_again() -> None:
    cells, own = Counter({"a": 3, "c": 1, "d": 3}), Counter({"b": 1})
    assert fewest_first("abcd", cells, own) == ["c", "a", "d", "b"]


@pytest.mark.parametrize("kind", NARAYANA)
def test_damage_to_a_store_of_states_is_known_where_a_coordinator_leaves_it(
    kind: str, tmp_path: Path
) -> None:
    """States come and go whole; no recovery leaves one cut, or under another name."""
    place = "store/StateManager/BasicAction/TwoPhaseCoordinator/AtomicAction"
    for name in ("whole", "older", "other"):
        (tmp_path / name / place).mkdir(parents=True)
        for last in (1, 2):
            (tmp_path / name / place / f"0_0_0_0_{last}").write_bytes(f"{name} {last}".encode())
    whole, narayana = Whole(tmp_path / "whole", tmp_path / "older", []), OTHERS["narayana"]
    copy = Path(shutil.copytree(whole.folder, tmp_path / "copy"))
    assert NARAYANA[kind](copy, whole, tmp_path / "other", random.Random(4))
    assert files_of(copy) != files_of(whole.folder)
    legal = kind.endswith(("missing", "of yesterday", "of another node"))
    assert come_and_go(narayana, copy, whole, tmp_path / "other") is legal


@pytest.mark.parametrize(
    ("taken", "unseen"),
    [
        (["c490.dat"], True),  # a table without an index
        (["c4a0.dat"], False),  # its index is still of this time
        (["c4a0.dat", "c4b1.dat"], True),
        (["c490.dat", "c4c0.dat"], False),  # the log names it
        (["c490.dat", "c10.dat"], False),
    ],
)
@pytest.mark.parametrize(
    ("content", "is_theirs"),
    [
        (b"o" * 8192, True),
        (b"o" * 4096 + b"t" * 4096, True),  # one page of it
        (b"o" * 4096 + b"x" * 4096, False),
        (b"o" * 4096, False),
    ],
)
def test_a_whole_table_of_which_the_log_tells_nothing_may_be_of_another_database(
    taken: list[str],
    unseen: bool,
    content: bytes,
    is_theirs: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listed = {b"a": [0x490], b"b": [0x4A0, 0x4B1], b"c": [0x4C0]}
    found = listing(listed, monkeypatch)
    monkeypatch.setattr(cases, "_named_in", lambda _: Named({0x4C0}, math.inf))
    whole, other = derby(tmp_path / "one"), derby(tmp_path / "two")
    for place, text in ((whole, b"t" * 8192), (other, b"o" * 8192)):
        for one in found:
            (place.folder / f"seg0/c{one.number:x}.dat").write_bytes(text)
    (whole.folder / "db.lck").touch()
    copy = Path(shutil.copytree(whole.folder, tmp_path / "copy"))
    for name in taken:
        (copy / "seg0" / name).write_bytes(content)
    told = nothing_names(ORIGINALS["derby"], copy, whole, other.folder)
    assert told is (unseen and is_theirs)


def listing(tables: dict[bytes, list[int]], monkeypatch: pytest.MonkeyPatch) -> list[Conglomerate]:
    """Let the catalogue list these tables with their indexes."""
    found = [
        Conglomerate(number, number & 1 == 0, table)
        for table, numbers in tables.items()
        for number in numbers
    ]
    monkeypatch.setattr(cases, "conglomerates", lambda _: iter(found))
    return found


ALL_OF_ANOTHER: dict[str, tuple[set[int], float, list[str], bool]] = {
    # Containers that only one of the two has come and go.
    "the log holds nothing": (set(), math.inf, [], True),
    "the log names what stays": ({0x20}, math.inf, [], True),
    "the log names what differs": ({0x490}, math.inf, [], False),
    "the log names what goes": ({0x4D0}, math.inf, [], False),
    "the log names what comes": ({0x4E0}, math.inf, [], False),
    "the log creates an older one": ({0x4C0}, 0x4C0, [], False),
    "the log creates a newer one": ({0x4F0}, 0x4F0, [], True),
    "one of this database stays": (set(), math.inf, ["c4d0.dat"], False),
    "one of this database differs": (set(), math.inf, ["c490.dat"], False),
}


@pytest.mark.parametrize("case", ALL_OF_ANOTHER)
def test_all_containers_of_which_the_log_tells_nothing_may_be_of_another_database(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers, last, kept, unseen = ALL_OF_ANOTHER[case]
    listing({b"a": [0x490], b"b": [0x4E0]}, monkeypatch)
    monkeypatch.setattr(cases, "_named_in", lambda _: Named(numbers, last))
    whole, other = derby(tmp_path / "one"), derby(tmp_path / "two")
    for place, names in ((whole, ("c490", "c4d0")), (other, ("c490", "c4e0", "d4d0"))):
        for name in names:
            (place.folder / f"seg0/{name}.dat").write_bytes(place.folder.parent.name.encode())
    copy = Path(shutil.copytree(whole.folder, tmp_path / "copy"))
    assert DERBY["data of another database"](copy, whole, other.folder, random.Random(1))
    for name in kept:
        shutil.copyfile(whole.folder / "seg0" / name, copy / "seg0" / name)
    assert nothing_names(ORIGINALS["derby"], copy, whole, other.folder) is unseen


def test_a_table_that_is_gone_is_named_by_the_catalogue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing({b"a": [0x20]}, monkeypatch)
    monkeypatch.setattr(cases, "_named_in", lambda _: Named(set(), math.inf))
    whole, other = derby(tmp_path / "one"), derby(tmp_path / "two")
    copy = Path(shutil.copytree(whole.folder, tmp_path / "copy"))
    (copy / "seg0/c20.dat").unlink()
    (other.folder / "seg0/c20.dat").unlink()
    (other.folder / "seg0/c10.dat").write_bytes(b"of another")
    assert not nothing_names(ORIGINALS["derby"], copy, whole, other.folder)


def test_a_log_names_containers_by_pages_and_by_themselves() -> None:
    named = _named_in(fixture_dir("derby") / "ddl")
    created = reading("ddl").recovery.containers
    assert {one.number for one in created} <= named.numbers
    assert named.last_created == max(one.number for one in created)
    assert named.numbers & {one.page.container for one in redone_pages(reading("ddl").recovery)}


SMALL, SENT_IN_ONE = (struct.pack(">qB", one, 0) + bytes(40) for one in (-1, 7))
IN_NONE, IN_ONE = entry(SMALL) * 3, entry(SMALL) + entry(SENT_IN_ONE)
IN_OPEN = entry(SMALL) + entry(struct.pack(">qB", 8, 0) + bytes(40))
"""With a message of a transaction that did not commit, of which the journal tells nothing."""
BRIEF = entry(WRITTEN[:36] + b"\0" + WRITTEN[37:])
"""With a large message that is not durable: its file tells nothing."""


@pytest.mark.parametrize(
    ("pages", "left", "legal"),
    [
        ([IN_NONE, IN_NONE, IN_NONE], [None, IN_NONE, IN_NONE], True),
        ([IN_NONE, IN_NONE, IN_NONE], [IN_NONE, None, None], True),
        ([IN_NONE, IN_NONE], [None, None], True),
        ([IN_NONE, IN_NONE], [IN_NONE, entry(SMALL) * 2], True),
        ([IN_NONE, IN_NONE], [IN_NONE, IN_NONE[:-1]], False),
        ([IN_NONE, IN_NONE], [entry(SMALL) * 2, IN_NONE], False),
        ([IN_NONE, IN_NONE, IN_NONE], [IN_NONE, None, IN_NONE], False),
        ([IN_ONE, IN_NONE], [None, IN_NONE], False),
        ([IN_NONE, BRIEF], [IN_NONE, None], True),
        ([IN_NONE, IN_OPEN], [IN_NONE, None], True),
        ([IN_NONE, entry(WRITTEN)], [IN_NONE, None], False),
        ([IN_NONE], [IN_NONE], False),
    ],
)
def test_pages_come_and_go_at_both_ends_where_nothing_else_tells_of_them(
    pages: list[bytes], left: list[bytes | None], legal: bool, tmp_path: Path
) -> None:
    whole = Whole(tmp_path / "whole", tmp_path, [])
    paged = add(10, struct.pack(">qi", 7, 1), PAGE_TRANSACTION)
    for folder, contents in ((whole.folder, pages), (tmp_path / "copy", left)):
        (folder / "paging/one").mkdir(parents=True)
        (folder / "journal").mkdir()
        write(folder / "journal", "g3", {1: image("g3", 1, [paged])})
        for number, content in enumerate(contents, 1):
            if content is not None:
                (folder / f"paging/one/{number:09}.page").write_bytes(content)
    broker = OTHERS["artemis-broker"]
    assert come_and_go(broker, tmp_path / "copy", whole, tmp_path) is legal


def files_of(folder: Path) -> dict[str, bytes]:
    paths = [one for one in folder.rglob("*") if one.is_file()]
    return {str(one.relative_to(folder)): one.read_bytes() for one in paths}


def test_all_that_a_restart_opens_of_an_earlier_time_is_an_earlier_state(tmp_path: Path) -> None:
    whole = derby(tmp_path)
    copy = Path(shutil.copytree(whole.folder, tmp_path / "copy"))
    assert not is_earlier(ORIGINALS["derby"], whole, copy)
    shutil.copy(tmp_path / "older-seg0/c10.dat", copy / "seg0")
    assert is_earlier(ORIGINALS["derby"], whole, copy)


FULL, LATER = ([record(COMMITTING, one, "a")] for one in (1, 2))
MADE, USED, CHANGED = 1_000_000, 1_000_110, 1_000_900


@pytest.mark.parametrize(
    ("one", "two", "earlier"),
    [
        pytest.param((FULL, USED, 0), (LATER, CHANGED, 0), True, id="closed"),
        pytest.param((FULL, USED, -1), (LATER, CHANGED, -1), True, id="started"),
        pytest.param((FULL, USED + 1, 0), (LATER, CHANGED, 0), False, id="another time"),
        pytest.param((FULL, USED, 0), (FULL, CHANGED, 0), False, id="other records"),
        pytest.param((FULL, USED, -1), ([], MADE - 400, 0), True, id="unused, older"),
        pytest.param((FULL, USED, -1), ([], MADE + 1, 0), False, id="unused, younger"),
        pytest.param((FULL, USED, -1), ([], MADE - FIRST_START_MS, 0), False, id="much older"),
        pytest.param((FULL, USED - 400, -1), ([], MADE, 0), False, id="used, older"),
    ],
)
def test_what_a_start_or_a_close_writes_anew_tells_no_time_of_a_pair(
    one: tuple[list[TransactionLogRecord], int, int],
    two: tuple[list[TransactionLogRecord], int, int],
    earlier: bool,
    tmp_path: Path,
) -> None:
    """Of a full file beside the other one as it was once, and of one of another journal."""
    whole = Whole(tmp_path / "journal", tmp_path / "older", [])
    write_pair(tmp_path / "day-0", file_bytes(FULL[:0], USED, state=-1), file_bytes([], MADE))
    write_pair(whole.older, file_bytes(FULL, USED, state=-1), file_bytes(LATER, CHANGED))
    write_pair(whole.folder, file_bytes(FULL, USED), file_bytes(LATER * 2, CHANGED))
    copy = tmp_path / "copy"
    write_pair(copy, *(file_bytes(has, at, state=state) for has, at, state in (one, two)))
    assert is_earlier(ORIGINALS["bitronix-3.0"], whole, copy) is earlier


def test_a_log_on_a_device_is_beside_its_copy_when_it_is_judged(tmp_path: Path) -> None:
    whole = derby(tmp_path / "work")
    (whole.folder / "service.properties").write_text("a=1\nlogDevice=/then\nb=2\n")
    copy = Path(shutil.copytree(whole.folder, tmp_path / "copy"))
    system = OTHERS["derby-device"]
    assert isinstance(system, Database)
    assert set(kinds_of(system)) == DERBY.keys() - {"log on a device", "device missing"}
    system.place(copy)
    assert (tmp_path / "device/log/log1.dat").read_bytes() == b"log"
    assert not (copy / "log").exists()
    text = f"a=1\nlogDevice={tmp_path / 'device'}\nb=2\n"
    assert (copy / "service.properties").read_text() == text


@pytest.mark.parametrize(
    ("kind", "source"), [("yesterday", "older"), ("another database", "other")]
)
def test_a_part_comes_from_another_time_where_the_two_differ(
    kind: str, source: str, tmp_path: Path
) -> None:
    whole = Whole(tmp_path / "whole", tmp_path / "older", [])
    for folder in (whole.folder, whole.older, tmp_path / "other"):
        folder.mkdir()
        for number in range(1, 50):
            (folder / f"db.h2.db.{number}.part").write_bytes(bytes(9))
        (folder / "db.h2.db").write_text(folder.name)
    (tmp_path / source / "db.h2.db.7.part").unlink()
    damage = around.SPLIT[f"part of {kind}"]
    copy = Path(shutil.copytree(whole.folder, tmp_path / "copy"))
    assert damage(copy, whole, tmp_path / "other", random.Random(1))
    assert files_of(copy) == files_of(whole.folder) | {"db.h2.db": source.encode()}
    same = Whole(whole.folder, copy, [])
    assert not damage(copy, same, copy, random.Random(1))


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("h2-1.3.176", around.H2),
        ("h2-1.2.147-to-1.3.176-lobs", around.LOBS),
        ("h2-1.3.176-split-aes", around.SPLIT | around.H2),
    ],
)
def test_what_may_happen_to_a_database_depends_on_its_forms(
    name: str, kinds: dict[str, Damage]
) -> None:
    assert kinds_of((ORIGINALS | OTHERS)[name]) == kinds


@pytest.mark.parametrize(
    ("answer", "lost", "stake", "wrong"),
    [
        ("loses", 0, 3, True),
        ("loses", 4, 3, True),
        ("loses", 4, None, False),
        ("loses", 3, 3, False),
    ],
)
def test_a_loss_that_is_none_or_more_than_what_is_at_stake_is_wrong(
    answer: str, lost: int, stake: int | None, wrong: bool
) -> None:
    one = case(answer, lost=lost)
    one.stake = stake
    assert one.is_wrong is wrong


def test_no_stake_counts_what_no_file_tells_of_another_broker() -> None:
    one = case("loses", lost=4, unseen=SET_UP_ALIKE)
    one.stake = 3
    assert not one.is_wrong


def test_brokers_of_the_same_queues_are_set_up_alike(tmp_path: Path) -> None:
    whole, other, judged = (tmp_path / one for one in ("whole", "other", "judged"))
    for number, broker in enumerate((whole, other)):
        shutil.copytree(fixture_dir("brokers") / "whole", broker)
        for folder in ("journal", "bindings"):
            (broker / folder / "note").write_text(str(number))
    shutil.copytree(whole, judged)
    assert not set_up_alike(judged, whole, other)
    shutil.copy(other / "journal" / "note", judged / "journal" / "note")
    assert set_up_alike(judged, whole, other)
    for path in (other / "bindings").glob("*.bindings"):
        names = ("orders".encode("utf-16-le"), "claims".encode("utf-16-le"))
        path.write_bytes(path.read_bytes().replace(*names))
    assert not set_up_alike(judged, whole, other)


@pytest.mark.parametrize(
    ("found", "timeless", "why"),
    [
        ({"T/1": "a", "T/2": "b"}, True, EARLIER),
        ({"T/1": "a", "T/2": "new", "TX/7": "x"}, True, ALTERED),  # a page of today
        ({"T/1": "a", "T/2": "new"}, False, ""),  # pages that tell how old they are
        ({"T/1": "a", "T/2": "odd"}, True, ""),  # of no time
        ({"T/1": "a", "T/3": "c"}, True, ""),
        ({"T/1": "a"}, True, ""),
        ({"T/1": "a", "T/2": "b", "U": "table"}, True, EARLIER),  # it is not dropped yet
        ({"T/1": "a", "T/2": "b", "U": "table", "U/1": "c"}, True, ""),
    ],
)
def test_a_mixture_of_two_times_is_unseen_where_rows_were_only_updated_since(
    found: dict[str, str], timeless: bool, why: str
) -> None:
    today = {"T/1": "a", "T/2": "new", "T/3": "c"}
    first = {"T/1": "a", "T/2": "b", "U": "table", "U/1": "c", "U/2": "d"}
    history = [first, {"T/1": "a", "T/2": "b"}, today]
    assert unseen_mixture(history, found, today if timeless else {}) == why
