"""What can be read is written as something that loads, and what cannot be is counted."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tallystick
from tallystick.errors import LogUnreadableError, LogWriteError, TallystickError
from tallystick.investigate.asof import Moment, asof
from tallystick.pipeline.typed import table_of
from tallystick.printable import counted_kind
from tallystick.records import Kind
from tallystick.rescue import repair, salvage
from tallystick.systems import registry as systems
from tallystick.systems.protocol import Column
from tests.fixtures import fixture_dir
from tests.rescue.kit import case, change, content, limited_file_size, names, unpacked

ESTATE = fixture_dir("estate") / "mid-phase-two"


def test_a_script_has_every_table_and_what_is_in_doubt_is_left(tmp_path: Path) -> None:
    found = salvage(ESTATE / "h2", tmp_path / "all.sql", "h2-script")
    lines = (tmp_path / "all.sql").read_text("utf-8").splitlines()
    tables = [line for line in lines if line.startswith("CREATE TABLE")]
    rows = [line for line in lines if line.startswith("INSERT INTO")]
    assert len(tables) == len(found.brought) > 1
    assert len(rows) == found.brought.total()
    assert len(tables) + len(rows) == len(lines)
    assert found.left["changes in doubt"] > 0
    assert found.exit_code == 1
    assert not any("INFORMATION_SCHEMA" in line for line in tables)


def test_a_folder_for_derby_has_a_file_for_each_table_and_what_imports_it(tmp_path: Path) -> None:
    found = salvage(ESTATE / "derby", tmp_path / "out", "derby-import")
    files = names(tmp_path / "out")
    assert files[-2:] == ["import.sql", "schema.sql"]
    assert len(files) == len(found.brought) + 2
    calls = (tmp_path / "out/import.sql").read_text().splitlines()
    assert [call.split("'")[5] for call in calls] == files[:-2]
    rows = [len((tmp_path / "out" / name).read_text().splitlines()) for name in files[:-2]]
    assert sum(rows) == found.brought.total() > 0


@pytest.mark.parametrize("system", ["derby", "h2"])
def test_a_folder_of_parquet_has_each_table_with_its_rows_in_its_types(
    system: str, tmp_path: Path
) -> None:
    found = salvage(ESTATE / system, tmp_path / "out", "parquet")
    files = {name.partition("-")[2]: name for name in names(tmp_path / "out")}
    assert len(files) == len(found.brought)
    for name in found.brought:
        table = pq.read_table(tmp_path / "out" / files[f"{name.partition('.')[2]}.parquet"])
        assert table.num_rows == found.brought[name]
        then = [one.values or {} for one in asof(ESTATE / system, Moment(lsn=1 << 62), name)]
        expected = [{column: str(one.get(column)) for column in table.column_names} for one in then]
        rows = [{name: str(value) for name, value in row.items()} for row in table.to_pylist()]
        assert sorted(map(str, rows)) == sorted(map(str, expected))
        assert table.schema.field("ID").type in (pa.int32(), pa.int64())


def test_a_value_that_no_column_of_parquet_holds_is_counted_and_null() -> None:
    made, odd = table_of(
        [{"A": "12", "B": "00ff"}, {"A": "x", "B": None}], [("A", "int"), ("B", "binary")]
    )
    assert made.to_pylist() == [{"A": 12, "B": b"\x00\xff"}, {"A": None, "B": None}]
    assert odd == [{}, {"A": "x"}]


def test_what_a_mend_brings_back_can_be_salvaged_after_it(tmp_path: Path) -> None:
    log = case("h2", "committed-2048", tmp_path / "log")
    salvage(log, tmp_path / "before.sql", "h2-script")
    change(log / "db.h2.db", 48, bytes(4))
    with pytest.raises(LogUnreadableError, match="no table can be read: impossible page") as error:
        salvage(log, tmp_path / "none.sql", "h2-script")
    assert f"first: tallystick repair {log} --to COPY" in str(error.value)
    repair(log, tmp_path / "copy")
    salvage(tmp_path / "copy", tmp_path / "after.sql", "h2-script")
    assert (tmp_path / "after.sql").read_bytes() == (tmp_path / "before.sql").read_bytes()
    assert not (tmp_path / "none.sql").exists()


@pytest.mark.parametrize("tables", [True, False])
def test_a_control_file_that_is_gone_is_said_with_what_mends_it(
    tables: bool, tmp_path: Path
) -> None:
    log = (
        case("derby", "halted", tmp_path / "log")
        if tables
        else case("derby_databases", "cut-in-group-with-internal-commit", tmp_path / "log")
    )
    (log / "log/log.ctrl").unlink()
    command = f"tallystick repair {log} --to COPY"
    if tables:
        assert command in "".join(salvage(log, tmp_path / "out", "derby-import").notes)
        return
    with pytest.raises(LogUnreadableError, match="ctrl is missing") as error:
        salvage(log, tmp_path / "out", "derby-import")
    assert command in str(error.value)
    assert "journal" not in str(error.value)


def test_what_nothing_mends_is_said_without_a_circle(tmp_path: Path) -> None:
    log = case("h2", "committed-2048", tmp_path / "log")
    change(log / "db.h2.db", 48, bytes(4))
    change(log / "db.h2.db", 2048, bytes(4096))
    with pytest.raises(LogUnreadableError, match="Nothing here proves a mend") as error:
        salvage(log, tmp_path / "out", "h2-script")
    assert "journal" not in str(error.value)
    with pytest.raises(LogUnreadableError, match="Take --as journal"):
        salvage(case("bitronix", "rollover-1", tmp_path / "btm"), tmp_path / "out", "h2-script")


@pytest.mark.parametrize(
    ("form", "schema", "made"),
    [
        ("h2-script", "PUBLIC", ""), ("h2-script", "APP", 'CREATE SCHEMA "APP";'),
        ("derby-import", "APP", ""), ("derby-import", "PUBLIC", 'CREATE SCHEMA "PUBLIC";'),
    ],
)  # fmt: skip
def test_a_schema_is_made_where_the_engine_that_loads_it_has_none(
    tmp_path: Path, form: str, schema: str, made: str
) -> None:
    salvage(ESTATE / {"PUBLIC": "h2", "APP": "derby"}[schema], tmp_path / "out", form)
    script = tmp_path / ("out/schema.sql" if form == "derby-import" else "out")
    first = script.read_text("utf-8").splitlines()[0]
    assert first == made if made else first.startswith("CREATE TABLE")


@pytest.mark.parametrize("form", ["h2-script", "derby-import"])
def test_messages_are_no_tables_of_a_database(tmp_path: Path, form: str) -> None:
    """Their columns have no types of SQL: the script failed before its first table."""
    found = salvage(ESTATE, tmp_path / "out", form)
    assert found.left["logs of jboss, without tables"] == 1
    assert {name.partition(".")[0] for name in found.brought} == {"APP", "PUBLIC"}
    with pytest.raises(LogUnreadableError, match="Take --as journal"):
        salvage(ESTATE / "artemis", tmp_path / "alone", form)
    assert "references" in salvage(ESTATE, tmp_path / "folder", "parquet").brought


def test_of_a_damaged_database_every_row_that_is_brought_is_counted(tmp_path: Path) -> None:
    log = case("h2", "corrupt-checksum-2048", tmp_path / "log")
    found = salvage(log, tmp_path / "all.sql", "h2-script")
    inserts = (tmp_path / "all.sql").read_text("utf-8").count("INSERT INTO")
    assert inserts == found.brought.total()


@pytest.mark.parametrize(
    ("system", "file", "form"),
    [
        ("derby", "log/log1.dat", "h2-script"), ("derby", "log/log1.dat", "parquet"),
        ("h2", "bank.h2.db", "derby-import"), ("artemis", "activemq-data-1.amq", "parquet"),
    ],
)  # fmt: skip
def test_changes_that_damage_may_hide_are_left(
    system: str, file: str, form: str, tmp_path: Path
) -> None:
    """What stands after it in the log is in no table, and nothing was said of it."""
    log = unpacked(ESTATE / system, tmp_path / "log")
    adds = [one.offset + one.length - 3 for one in tallystick.scan(log) if one.kind is Kind.ADD]
    whole = salvage(log, tmp_path / "whole", form)
    change(log / file, adds[len(adds) * 7 // 8])
    found = salvage(log, tmp_path / "out", form)
    assert found.brought.total() <= whole.brought.total()
    assert any("damage, after which changes may be missing" in one for one in found.left)
    assert not any("damage" in one for one in whole.left)
    assert found.exit_code == 1


def test_logs_with_the_same_table_are_named_and_no_others(tmp_path: Path) -> None:
    for name in ("one", "two"):
        unpacked(ESTATE / "h2", tmp_path / "logs" / name)
    unpacked(ESTATE / "derby", tmp_path / "logs/derby")
    with pytest.raises(LogUnreadableError, match="2 logs have a table PUBLIC") as error:
        salvage(tmp_path / "logs", tmp_path / "out", "parquet")
    text = str(error.value).replace(str(tmp_path), "")
    assert text.endswith(": /logs/one, /logs/two. Name one log")


def test_one_of_a_kind_is_one() -> None:
    kinds = ("damaged pieces of the source", "databases, of which only the log is here")
    assert [counted_kind(1, one).split(" of ")[0] for one in kinds] == [
        "1 damaged piece", "1 database,",
    ]  # fmt: skip
    assert counted_kind(2, kinds[1]).startswith("2 databases, of which")


@pytest.mark.parametrize(
    ("system", "name"), [("bitronix", "damaged-crc-flip"), ("cloudtran", "damaged-payload")]
)
def test_a_journal_has_all_that_can_be_believed(system: str, name: str, tmp_path: Path) -> None:
    log = case(system, name, tmp_path / "log")
    before = content(log)
    found = salvage(log, tmp_path / "new", "journal")
    assert found.brought.total() > 0
    assert found.left["damaged pieces of the source"] > 0
    (verdict,) = tallystick.explain(tmp_path / "new").logs
    assert (verdict.system, verdict.judgement.words) == (system, "SAFE")
    assert content(log) == before


@pytest.mark.parametrize(
    ("origin", "target", "form", "error", "said"),
    [
        ("log", "log/all.sql", "h2-script", LogWriteError, "among the logs"),
        ("log", "way/all.sql", "h2-script", LogWriteError, "among the logs"),
        ("log", "log/out", "derby-import", LogWriteError, "among the logs"),
        ("log", "full", "derby-import", LogWriteError, "exists already"),
        ("log", "empty", "derby-import", LogWriteError, "exists already"),
        ("log", "other.h2.db", "h2-script", LogWriteError, "exists already"),
        ("log", "other.h2.db", "journal", LogWriteError, "exists already"),
        ("log", "dangling", "h2-script", LogWriteError, "exists already"),
        ("log", "all.sql", "paper", ValueError, "unknown form"),
        ("gone", "all.sql", "h2-script", LogUnreadableError, "No such file"),
        ("full", "all.sql", "h2-script", LogUnreadableError, "no log"),
        ("log", "all.sql", "journal", TallystickError, "no counterpart"),
    ],
)
def test_a_wrong_place_is_refused_and_nothing_is_written(
    tmp_path: Path, origin: str, target: str, form: str, error: type[Exception], said: str
) -> None:
    log = case("h2", "committed-2048", tmp_path / "log")
    (tmp_path / "way").symlink_to(log)
    (tmp_path / "dangling").symlink_to("gone")
    (tmp_path / "other.h2.db").write_bytes((log / "db.h2.db").read_bytes())
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full/notes.txt").write_text("notes")
    before = content(tmp_path)
    with pytest.raises(error, match=said):
        salvage(tmp_path / origin, tmp_path / target, form)
    assert content(tmp_path) == before


@pytest.mark.parametrize("form", ["h2-script", "derby-import"])
def test_a_disk_that_fills_leaves_nothing(form: str, tmp_path: Path) -> None:
    log = case("h2", "large-log-512", tmp_path / "log")
    with limited_file_size(4096), pytest.raises(OSError):
        salvage(log, tmp_path / "out", form)
    assert names(tmp_path) == ["log"]


@pytest.mark.parametrize(
    ("system", "form", "types", "notes"),
    [
        ("h2", "derby-import", {"INTEGER", "VARCHAR(30)", "VARCHAR(60)"}, ["INT is made INTEGER"]),
        ("derby", "h2-script", {"INTEGER", "VARCHAR(30)", "VARCHAR(60)"}, []),
    ],
)
def test_tables_of_another_engine_get_types_of_the_one_that_loads_them(
    tmp_path: Path, system: str, form: str, types: set[str], notes: list[str]
) -> None:
    found = salvage(ESTATE / system, tmp_path / "out", form)
    script = tmp_path / ("out/schema.sql" if form == "derby-import" else "out")
    lines = [one for one in script.read_text("utf-8").splitlines() if "CREATE TABLE" in one]
    assert {
        made for one in lines for made in re.findall(r'"\w+" ([A-Z].*?)(?:, |\);)', one)
    } == types
    assert [one for one in found.notes if " is made " in one] == notes


@pytest.mark.parametrize(
    ("system", "declared", "kind", "longest", "made"),
    [
        ("derby", "DECIMAL(31, 5)", "decimal(31,5)", 9, "DECIMAL(31,5)"),
        ("derby", "DECIMAL(32, 5)", "decimal(32,5)", 9, "VARCHAR(32672)"),
        ("derby", "TINYINT", "tinyint", 1, "SMALLINT"),
        ("derby", "TIME", "string", 8, "TIME"),
        ("derby", "TIME(9)", "string", 18, "VARCHAR(32672)"),
        ("derby", "TIME WITH TIME ZONE", "string", 8, "VARCHAR(32672)"),
        ("derby", "CLOB", "string", 32_673, "CLOB"),
        ("derby", "VARCHAR(32672)", "string", 9, "VARCHAR(32672)"),
        ("derby", "VARCHAR(32673)", "string", 9, "VARCHAR(32672)"),
        ("derby", "VARCHAR_IGNORECASE(9)", "string", 9, "VARCHAR(32672)"),
        ("h2", "VARCHAR(9)", "string", 9, "VARCHAR(9)"),
        ("derby", "BLOB", "binary", 32_672, "VARCHAR(32672) FOR BIT DATA"),
        ("derby", "BLOB", "binary", 32_673, "BLOB"),
        ("h2", "CHAR(5)", "string", 5, "VARCHAR"),
        ("h2", "XML", "string", (1 << 20) + 1, "CLOB"),
        ("h2", "TIMESTAMP", "timestamp_ntz", 29, "TIMESTAMP(9)"),
        ("h2", "CHAR (4) FOR BIT DATA", "binary", 4, "VARBINARY"),
    ],
)
def test_a_type_is_one_in_which_the_values_stand(
    system: str, declared: str, kind: str, longest: int, made: str
) -> None:
    dialect = systems.system(system).dialect
    assert dialect is not None
    assert dialect.declared(Column("A", declared, kind), longest) == made


@pytest.mark.parametrize(
    ("kind", "value", "holds"),
    [
        ("double", "NaN", False), ("float", float("inf"), False), ("double", "1.5", True),
        ("date", "9999-12-31", True), ("date", "10000-01-01", False), ("date", "-1-01-01", False),
        ("timestamp_ntz", "0000-12-31 00:00:00", False), ("string", "NaN", True),
    ],
)  # fmt: skip
def test_derby_has_no_infinite_number_and_no_year_of_five_digits(
    kind: str, value: object, holds: bool
) -> None:
    dialect = systems.system("derby").dialect
    assert dialect is not None
    assert dialect.holds(Column("A", "", kind), value) == holds
