"""What takes a transaction back, or brings it in again: statements, warnings, what is not told."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tallystick import Journal, scan
from tallystick.errors import TransactionUsageError, UnsupportedFormatError
from tallystick.investigate import undo as undoing
from tallystick.investigate.rows import rows
from tallystick.investigate.statements import CannotTellError, Table, comparable
from tallystick.investigate.steps import Course, Image, Step
from tallystick.investigate.undo import Reversal, redo, undo
from tallystick.records import Fate, Kind
from tallystick.storage.local import LOCAL
from tallystick.systems.h2.reader import H2Reading
from tallystick.systems.protocol import LOST, Collection, Column, Dialect
from tallystick.systems.registry import system
from tallystick.systems.tally.format.bodies import encode_row
from tallystick.systems.tally.format.columns import UnplacedRecord
from tallystick.systems.tally.format.kinds import Code
from tallystick.systems.tally.live.items import UnplacedEnding
from tallystick.systems.tally.live.log import TallyLog
from tests.fixtures import fixture_dir
from tests.indoubt.estates import EXAMPLES
from tests.rescue.kit import change, unpacked

ORPHAN = EXAMPLES / "orphan"
OF_ALL = "62616e6b2d3100000000004eca9800000003"
"""A global transaction with branches in each of four logs."""


def dialect(name: str) -> Dialect:
    found = system(name).dialect
    assert found is not None
    return found


def texts(found: list[Reversal]) -> dict[str, list[str]]:
    return {one.system: [act.text for act in one.acts] for one in found}


def test_a_global_transaction_is_taken_back_in_each_of_its_logs() -> None:
    assert texts(undo(ORPHAN, OF_ALL)) == {
        "bitronix": [
            f"roll back {OF_ALL} at {one}"
            for one in ("jms/ledger", "jdbc/branch-b", "jdbc/branch-a")
        ],
        "derby": [
            'DELETE FROM "APP"."TRANSFERS" WHERE "ID" = 30001',
            'UPDATE "APP"."ACCOUNTS" SET "BALANCE" = 130 WHERE "ID" = 301',
        ],
        "h2": [
            'DELETE FROM "PUBLIC"."TRANSFERS_3" WHERE "ID" = 30001',
            'UPDATE "PUBLIC"."ACCOUNTS_3" SET "BALANCE" = 426 WHERE "ID" = 355',
        ],
        "jboss": ["delete references 106:7", "delete record 106"],
    }


def test_what_brings_it_in_again_is_the_same_the_other_way() -> None:
    found = redo(ORPHAN, OF_ALL.upper())
    assert texts(found)["h2"] == [
        'UPDATE "PUBLIC"."ACCOUNTS_3" SET "BALANCE" = 350 WHERE "ID" = 355',
        (
            'INSERT INTO "PUBLIC"."TRANSFERS_3" ("ID", "ACCOUNT", "AMOUNT", "NOTE") '
            "VALUES (30001, 355, -76, 'transfer 30001')"
        ),
    ]
    assert texts(found)["bitronix"][0] == f"commit {OF_ALL} at jdbc/branch-a"
    assert all("-- It is committed here" in one.text for one in found)


def test_later_changes_of_a_row_are_warned_of_and_old_rows_are_counted() -> None:
    (of_h2,) = undo(ORPHAN / "h2", "5@1")
    warned = {act.key: act.warnings for act in of_h2.acts}
    assert warned == {
        "30001": (),
        "355": (
            "changed later (update) by transaction 6@15",
            "changed later (update) by transaction 4@29",
        ),
    }
    assert of_h2.sources == {"log": 0, "database": 1, "cannot_tell": 0}
    assert of_h2.exit_code == 0
    assert of_h2.acts[1].row == {"ID": "355"}
    assert of_h2.to_dict()["acts"][1]["warnings"] == list(warned["355"])


def test_a_row_that_was_changed_twice_is_warned_of_once(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal") as journal:
        journal.add(1, b"one")
        with journal.transaction() as twice:
            twice.update(1, b"two")
            twice.update(1, b"three")
        journal.update(1, b"four")
    changed = next(one.change for one in rows(tmp_path) if one.change.after == b"two")
    (found,) = undo(tmp_path, str(changed.transaction))
    assert [bool(act.warnings) for act in found.acts] == [True, True]
    assert found.text.count("-- WARNING: 1 was changed later (update)") == 1


def test_an_old_row_that_nothing_tells_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(H2Reading, "rows_before", lambda *_: iter(()))
    (found,) = undo(ORPHAN / "h2", "5@1")
    assert [bool(act.cannot_tell) for act in found.acts] == [False, True]
    assert found.sources == {"log": 0, "database": 0, "cannot_tell": 1}
    assert found.exit_code == 1
    (line,) = (line for line in found.text.splitlines() if "CANNOT" in line)
    assert line.startswith("-- CANNOT TELL: PUBLIC.ACCOUNTS_3 355: its old row is neither in")


@pytest.mark.parametrize(
    ("make", "path", "called", "said"),
    [
        (
            undo,
            "derby",
            "351",
            "waits for its coordinator. See tallystick indoubt list",
        ),
        (redo, "derby", "351", "prepared and waits"),
        (undo, "artemis", "121", "it was rolled back, or has not ended"),
        (undo, "derby", "9", "no transaction here is called '9'"),
        (undo, "h2", "5@99", r"no transaction here is called '5@99'. Did you mean 5@\d+, 5@"),
        (undo, "h2", "5", r"\d+ transactions are called '5'. Did you mean 5@.*@ stands the commit"),
        (undo, "", "62616e", "33 global transactions begin with '62616e'. Give more of it"),
        (redo, "", "ffff-no-id", "no global transaction here begins with 'ffff-no-id'"),
        (undo, "", "' OR 1 --\n", "no global transaction here begins with"),
    ],
)
def test_what_is_no_such_transaction_is_an_error(
    make: Callable[[Path, str], object], path: str, called: str, said: str
) -> None:
    with pytest.raises(TransactionUsageError, match=said) as raised:
        make(ORPHAN / path, called)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("system", "number"), [("derby", "218"), ("artemis", "102"), ("h2", "5@1"), ("tally", "")]
)
def test_damage_that_may_hide_later_changes_is_in_the_script(
    system: str, number: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    if system == "tally":
        with Journal(log) as journal:
            for key in range(3):
                with journal.transaction() as transaction:
                    transaction.add(key, b"body %d" % key)
        number = str(next(rows(log)).change.transaction)
    else:
        unpacked(ORPHAN / system, log)
    (whole,) = undo(log, number)
    assert "may hide" not in whole.text
    assert whole.damage == ()
    records = [one for one in scan(log) if one.kind in (Kind.ADD, Kind.COMMIT)]
    last = records[len(records) * 7 // 8]
    change(Path(last.file), last.offset + last.length - 3)
    (found,) = undo(log, number)
    assert f"-- WARNING: damage in {last.file} offset " in found.text
    assert "may hide later changes: " in found.text
    assert found.exit_code == 1
    (told, *_) = found.to_dict()["damage"]
    assert told["severity"] in ("damage", "loss")


def test_what_no_id_tells_apart_is_said(tmp_path: Path) -> None:
    """Each was the candidate for the other, and named it again."""
    log = unpacked(ORPHAN / "h2", tmp_path / "log")
    for place in range(120_900, 120_908):
        change(log / "bank.h2.db", place)
    with pytest.raises(TransactionUsageError, match="2 transactions are called") as error:
        redo(log, "4@0")  # a session of the database, which lost two commits
    assert "No id tells them apart" in str(error.value)
    assert "Did you mean" not in str(error.value)


def test_what_was_rolled_back_or_is_lost_can_be_brought_in() -> None:
    (undone,) = redo(ORPHAN / "artemis", "121")
    assert undone.fate is Fate.UNDONE
    assert undone.acts[0].text.startswith("add record 122 type 100 7b227472616e73666572")
    (lost,) = redo(fixture_dir("h2") / "corrupt-checksum-2048", "3@0", problems=[])
    assert lost.fate is Fate.LOST
    assert """ VALUES (1, 'row1-hwmarn')""" in lost.acts[0].text
    with pytest.raises(TransactionUsageError, match="a restart drops it"):
        undo(fixture_dir("h2") / "corrupt-checksum-2048", "3@0", problems=[])


def test_records_of_a_journal_get_their_bytes_back(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal") as journal:
        journal.add(1, b"one")
        with journal.transaction() as both:
            both.update(1, b"other")
            both.add(2, b"two")
        with journal.transaction() as last:
            last.delete(1)
    numbers = {}
    for number in range(1, 9):
        try:
            (found,) = undo(tmp_path / "journal", str(number))
        except TransactionUsageError:
            continue
        numbers[number] = [act.text.split(" ", 1)[1] for act in found.acts]
    bodies = sorted(line for lines in numbers.values() for line in lines)
    assert any(b"one".hex() in line for line in bodies)
    assert any(b"other".hex() in line for line in bodies)


H2, DERBY, LONG = "h2", "derby", "a" * 10_000
LITERALS = [
    (H2, "INT", "int", "-5", "-5"),
    (H2, "BIGINT", "bigint", str(-(2**63)), "CAST('-9223372036854775808' AS BIGINT)"),
    (H2, "VARCHAR(30)", "string", str(-(2**63)), "'-9223372036854775808'"),
    (H2, "DECIMAL(60, 2)", "string", "1" * 50 + ".25", "1" * 50 + ".25"),
    (H2, "DOUBLE", "double", "NaN", "CAST('NaN' AS DOUBLE)"),
    (H2, "VARCHAR(9)", "string", "it's\n\0", "'it''s\n\0'"),
    (H2, "BLOB", "binary", "00ff", "X'00ff'"),
    (H2, "TIMESTAMP(9)", "timestamp_ntz", "0001-01-01 00:00:00", "TIMESTAMP '0001-01-01 00:00:00'"),
    (H2, "DATE", "date", "-0044-03-15", "DATE '-0044-03-15'"),
    (H2, "ENUM('a', 'b''c')", "string", "b'c", "'b''c'"),
    (H2, "JSON", "string", '"x"', "JSON '\"x\"'"),
    (H2, "UUID", "string", "0-0", "CAST('0-0' AS UUID)"),
    (H2, "BOOLEAN", "boolean", "TRUE", "TRUE"),
    (DERBY, "INTEGER", "int", -5, "-5"),
    (DERBY, "BOOLEAN", "boolean", True, "TRUE"),
    (DERBY, "REAL", "float", 0.10000000149011612, "CAST(0.10000000149011612E0 AS REAL)"),
    (DERBY, "DOUBLE", "double", -1.79769e308, "-1.79769E+308"),
    (DERBY, "DECIMAL(31,31)", "decimal(31,31)", "-0." + "9" * 31, "-." + "9" * 31),
    (DERBY, "CHAR(4) FOR BIT DATA", "binary", "00ff2020", "X'00ff2020'"),
    (DERBY, "BLOB(9)", "binary", "00", "CAST(X'00' AS BLOB)"),
    (DERBY, "LONG VARCHAR", "string", "it's", "CAST('it''s' AS LONG VARCHAR)"),
    (DERBY, "CLOB(99)", "string", LONG + "b", f"CAST('{LONG}' AS CLOB) || CAST('b' AS CLOB)"),
    (DERBY, "VARCHAR(20000)", "string", LONG + "b", f"CAST('{LONG}' || 'b' AS VARCHAR(20000))"),
    (DERBY, "TIME", "string", "23:59:59", "TIME('23:59:59')"),
    (DERBY, "TIMESTAMP", "timestamp_ntz", "2000-01-01 0:00", "TIMESTAMP('2000-01-01 0:00')"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "declared", "kind", "value", "text"), LITERALS)
def test_values_stand_in_statements_exactly(
    name: str, declared: str, kind: str, value: object, text: str
) -> None:
    column = Column("C", declared, kind)
    assert dialect(name).literal(column, value) == text
    assert dialect(name).literal(column, None) == "NULL"


@pytest.mark.parametrize("name", [H2, DERBY])
@pytest.mark.parametrize(("declared", "value"), [("ARRAY", "(1, 2)"), ("VARCHAR(9)", "a\ufffd")])
def test_a_value_that_no_literal_stands_for_is_refused(
    name: str, declared: str, value: str
) -> None:
    with pytest.raises(UnsupportedFormatError):
        dialect(name).literal(Column("C", declared), value)


KEYED = Collection(
    'S."T\n',
    (Column('k"', "VARCHAR(9)", "string", 1), Column("N", "INT", "int", 2), Column("V", "CHAR(9)")),
    quoted='"S"."""T\n"',
)
BARE = replace(KEYED, columns=tuple(replace(one, key_position=None) for one in KEYED.columns))
UNCOMPARED = replace(BARE, columns=(Column("C", "CLOB", "string"),))
ROW = {'k"': "it's\n", "N": "1", "V": None}


def test_a_statement_finds_its_row_by_the_key_or_by_all_values() -> None:
    keyed, bare = (Table(one, dialect(H2), {}) for one in (KEYED, BARE))
    new = ROW | {"V": "x"}
    assert keyed.statement("1", ROW, new) == (
        'UPDATE "S"."""T\n" SET "V" = \'x\' WHERE "k""" = \'it\'\'s\n\' AND "N" = 1'
    )
    assert keyed.statement("1", None, ROW) == (
        'INSERT INTO "S"."""T\n" ("k""", "N", "V") VALUES (\'it\'\'s\n\', 1, NULL)'
    )
    assert bare.statement("1", ROW, None) == (
        'DELETE FROM "S"."""T\n" WHERE "k""" = \'it\'\'s\n\' AND "N" = 1 AND "V" IS NULL LIMIT 1'
    )
    assert keyed.statement("1", ROW, dict(ROW)) == ""


@pytest.mark.parametrize(
    ("collection", "old", "new", "said"),
    [
        (BARE, ROW, None, "another row is equal to it"),
        (KEYED, None, {"k": 1}, "the columns of its table have changed since"),
        (KEYED, {"V": "x"}, None, "not there any more, or is not known"),
        (KEYED, None, ROW | {"V": {LOST: "no bytes"}}, "V cannot be had: no bytes"),
        (
            replace(BARE, columns=(Column("C", "CLOB", "string"),)),
            {"C": "x"},
            None,
            "no column that",
        ),
    ],
)
def test_a_row_that_no_statement_can_name_is_not_told(
    collection: Collection,
    old: dict[str, object] | None,
    new: dict[str, object] | None,
    said: str,
) -> None:
    same: tuple[str, ...] = ('"it\'s\\n"', "'1'", "None")
    twins = {same: {("1", ""), ("2", "")}}
    with pytest.raises(CannotTellError, match=said):
        Table(collection, dialect(DERBY), twins).statement("1", old, new)


@pytest.mark.parametrize(
    ("name", "declared", "kind", "one", "other"),
    [
        (DERBY, "VARCHAR(9)", "string", "a", "a "),
        (DERBY, "CHAR(2)", "string", "", "  "),
        (DERBY, "VARCHAR(4) FOR BIT DATA", "binary", "12", "122020"),
        (H2, "VARCHAR_IGNORECASE(9)", "string", "Straße", "STRASSE"),
        (H2, "DECIMAL(9, 2)", "decimal(9,2)", "1.50", "1.5"),
        (H2, "NUMERIC(60, 2)", "string", "100", "1E+2"),
        (
            H2, "TIMESTAMP WITH TIME ZONE", "string",
            "2020-01-01 10:00:00.123456789+01", "2020-01-01 09:00:00.123456789+00",
        ),
        (H2, "TIME(6) WITH TIME ZONE", "string", "10:00:00+01", "09:00:00+00"),
    ],
)  # fmt: skip
def test_what_a_database_takes_for_equal_names_no_row(
    name: str, declared: str, kind: str, one: str, other: str
) -> None:
    """It would delete the other row, too, or instead."""
    of, column = dialect(name), Column("C", declared, kind)
    collection = replace(BARE, columns=(column,))
    twins = {
        comparable([column], of, {"C": value}): {("1", repr([one])), ("2", repr([other]))}
        for value in (one, other)
    }
    assert len(twins) == 1
    with pytest.raises(CannotTellError, match="another row is equal to it"):
        Table(collection, of, twins).statement("1", {"C": one}, None)


@pytest.mark.parametrize(
    ("name", "declared", "kind", "one", "other"),
    [
        (DERBY, "VARCHAR(9)", "string", "a", " a"),
        (DERBY, "VARCHAR(4) FOR BIT DATA", "binary", "1220", "1202"),
        (H2, "VARCHAR(9)", "string", "a", "A"),
        (H2, "VARCHAR(9)", "string", "a", "a "),
        (H2, "TIMESTAMP WITH TIME ZONE", "string", "-4000-01-01 10:00:00+01", "2020-01-01"),
    ],
)
def test_what_a_database_tells_apart_names_its_row(
    name: str, declared: str, kind: str, one: str, other: str
) -> None:
    of, column = dialect(name), Column("C", declared, kind)
    assert len({comparable([column], of, {"C": value}) for value in (one, other, None)}) == 3


def test_of_rows_that_are_the_same_any_may_go() -> None:
    twins = {comparable(BARE.columns, dialect(H2), ROW): {("2", repr([*ROW.values()]))}}
    bare = Table(BARE, dialect(H2), twins)
    assert bare.statement("1", ROW, None).endswith(" LIMIT 1")


def test_a_value_that_is_computed_is_in_no_statement_but_to_find_its_row() -> None:
    columns = Column("A", "INTEGER", "int"), Column("B", "INTEGER", "int", computed=True)
    table = Table(Collection("T", columns, quoted='"T"'), dialect(DERBY), {})
    rows = {"A": 1, "B": 2}, {"A": 2, "B": 4}
    assert table.statement("1", None, rows[0]) == 'INSERT INTO "T" ("A") VALUES (1)'
    changed = 'UPDATE "T" SET "A" = 2 WHERE "A" = 1 AND "B" = 2'
    assert table.statement("1", *rows) == changed


def test_unique_values_that_rows_swapped_are_not_told_and_those_that_moved_on_are() -> None:
    columns = (Column("ID", "INTEGER", "int", 1), Column("A", "INTEGER", "int"))
    known = Collection("T", columns, quoted='"T"', unique=(("A",),))
    change = replace(next(rows(ORPHAN / "derby")).change, kind=Kind.UPDATE, collection="T")

    def told(*moved: tuple[int, int | None, int | None]) -> list[tuple[str, bool]]:
        steps = [
            Step(
                replace(change, key=f"1:{number}"),
                Image({"ID": number, "A": old}),
                Image({"ID": number, "A": new}),
            )
            for number, old, new in moved
        ]
        writer = undoing._Writer("undo", Course(steps, collections={"T": known}), dialect(DERBY))
        return [(step.place[1], bool(why)) for step, why in writer.ordered(steps)]

    assert told((1, 1, 2), (2, 2, 1)) == [("1:1", True), ("1:2", True)]
    assert told((3, 3, 4), (2, 2, 3), (1, 1, 2)) == [
        ("1:1", False),
        ("1:2", False),
        ("1:3", False),
    ]
    assert told((1, None, 2), (2, 2, None)) == [("1:1", False), ("1:2", False)]


@pytest.mark.parametrize(
    ("moved", "texts_of_undo"),
    [
        ([("1", "2"), ("2", "3"), ("3", "4")], ["1 WHERE 2", "2 WHERE 3", "3 WHERE 4"]),
        ([("3", "4"), ("2", "3"), ("1", "2")], ["1 WHERE 2", "2 WHERE 3", "3 WHERE 4"]),
        ([("1", "2"), ("2", "1"), ("5", "6")], ["5 WHERE 6", "", ""]),
    ],
)
def test_keys_that_moved_from_row_to_row_are_moved_back_one_after_the_other(
    moved: list[tuple[str, str]], texts_of_undo: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ``SET ID = ID + 1`` does; the database would refuse two rows with one key."""
    change = next(rows(ORPHAN / "derby")).change
    known = Collection("T", (Column("ID", "INTEGER", "int", 1),), quoted='"T"')
    steps = [
        Step(
            replace(change, kind=Kind.UPDATE, collection="T", key=f"1:{old}"),
            Image({"ID": old}),
            Image({"ID": new}),
        )
        for old, new in moved
    ]
    course = Course(steps, collections={"T": known})
    monkeypatch.setattr(undoing, "course_of", lambda *_: course)
    found = {make: make(ORPHAN / "derby", "218")[0].acts for make in (undo, redo)}
    short = [one.text.replace('UPDATE "T" SET "ID" = ', "") for one in found[undo]]
    assert [one.replace('"ID" = ', "") for one in short] == texts_of_undo
    keys = {old for old, _ in moved}
    for act in found[redo]:
        if act.text:
            new, old = re.findall(r" = (\d)", act.text)
            keys.remove(old)
            assert new not in keys
            keys.add(new)
        else:
            assert "which takes one UPDATE of them all" in act.cannot_tell
    assert len(found[redo]) == len(moved)


def test_a_hostile_name_does_not_leave_its_comment() -> None:
    (found,) = undo(ORPHAN / "h2", "5@1")
    act = replace(found.acts[0], key="1\nDROP TABLE T;", warnings=("w",))
    text = replace(found, acts=(act,), log="a\nDROP").text
    assert all(line.startswith(("--", "DELETE")) for line in text.splitlines())


def test_decisions_are_told_as_what_a_person_does_and_not_as_statements() -> None:
    (found,) = undo(ORPHAN / "bitronix", OF_ALL)
    lines = found.text.splitlines()
    assert all(line.startswith("-- ") for line in lines)
    assert lines[-1] == f"-- TO DO: roll back {OF_ALL} at jdbc/branch-a"
    assert "-- Nothing was run: decisions, for a person to carry out at each resource." in lines


def test_rows_of_a_table_that_is_made_anew_are_not_deleted(tmp_path: Path) -> None:
    """As by ALTER TABLE of Derby, which copies them: the deletes alone would empty the table."""
    log = TallyLog(str(tmp_path / "log"), fs=LOCAL)
    for one in (
        UnplacedRecord(Code.REDO_ADD, encode_row(3, b"old"), 10, 100),
        UnplacedEnding(Code.COMMIT, 10),
        UnplacedRecord(Code.TRUNCATE, encode_row(3), 11),
        UnplacedRecord(Code.REDO_ADD, encode_row(3, b"copied"), 11, 101),
        UnplacedRecord(Code.REDO_ADD, encode_row(4, b"another"), 11, 102),
        UnplacedEnding(Code.COMMIT, 11),
    ):
        log.submit(one).wait()
    log.close()
    for reverse, done in ((undo, "delete 4 102"), (redo, "add 4 102 616e6f74686572")):
        (found,) = reverse(tmp_path, "11")
        assert [one.text for one in found.acts if one.text] == [done]
        assert [one.collection for one in found.acts if one.cannot_tell] == ["3", "3"]
