"""SQL over logs: views, conditions that are handed down, and what a query must not reach."""

from __future__ import annotations

import gc
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tallystick
from tallystick.errors import LogUnreadableError
from tallystick.investigate import sql_views as module
from tallystick.investigate.rows import rows
from tallystick.investigate.sql import sql
from tallystick.investigate.sql_views import LogTable
from tallystick.pipeline.change_feed import SOURCE_TABLES
from tallystick.pipeline.options import parse
from tallystick.pipeline.planning import Plan, Task, find, tasks
from tallystick.pipeline.task import execute
from tallystick.reading.tables import TABLES
from tallystick.records import Finding
from tallystick.storage.local import LOCAL
from tallystick.systems.protocol import Collection, Column, LogSource, ReadOptions
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.settings import Settings
from tests.fixtures import fixture_dir
from tests.kit import picture_of
from tests.pipeline.applied import feed_of
from tests.systems.tally.build import every_item

LOGS = {
    "bitronix": "all-dangling",
    "cloudtran": "compressed",
    "derby": "halted",
    "h2": "committed-512",
    "jboss": "g1a-jbm2-2008-08/basic",
}


@pytest.fixture(scope="module")
def estate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of each system, two of one."""
    root = tmp_path_factory.mktemp("estate")
    for system, case in LOGS.items():
        shutil.copytree(fixture_dir(system) / case, root / system)
    shutil.copytree(fixture_dir("derby") / "rollbacks", root / "second")
    with tallystick.Journal(root / "journal") as journal:
        for number in range(20):
            journal.append(b"body %d" % number)
    return root


@pytest.fixture(scope="module")
def connection(estate: Path) -> Iterator[Any]:
    with sql(estate) as opened:
        yield opened


@pytest.mark.parametrize("table", sorted(TABLES.keys() - {"changes", "findings"}))
def test_a_view_has_the_rows_that_the_library_gives(
    estate: Path, connection: Any, table: str
) -> None:
    names = ", ".join(f'"{name}"' for name in TABLES[table].names)
    found = connection.sql(f"SELECT {names} FROM {table}").to_arrow_table()
    expected = tallystick.read_arrow(estate, table, problems=[]).read_all()
    assert _texts(found) == _texts(expected) != []


def test_changes_are_the_feed_and_findings_have_those_of_the_search(
    estate: Path, connection: Any
) -> None:
    feed = connection.sql("FROM changes").to_arrow_table()
    options = parse({"path": str(estate), "table": "changes"})
    batches = (batch for task in tasks(options) for batch in execute(task, options))
    expected = pa.Table.from_batches(batches, options.schema)
    assert _texts(feed.cast(expected.schema)) == _texts(expected) != []
    findings = connection.sql("FROM findings").to_arrow_table()
    of_logs = tallystick.read_arrow(estate, "findings", problems=[]).read_all()
    assert {*_texts(findings)} > {*_texts(of_logs)}


def test_the_view_of_rows_has_those_of_every_fate(estate: Path, connection: Any) -> None:
    query = "SELECT fate, system, collection, key, count(*) FROM rows GROUP BY ALL"
    expected = Counter(
        (str(one.fate), one.change.system, one.change.collection, one.change.key)
        for one in rows(estate, problems=[])
    )
    found = {tuple(row[:-1]): row[-1] for row in connection.sql(query).fetchall()}
    assert found == expected
    assert len({fate for fate, *_ in found}) > 1


def _texts(table: pa.Table) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in table.to_pylist())


CONDITIONS = [
    ("records", "kind = 'add'"),
    ("records", "kind <> 'add' OR kind IS NULL"),
    ("records", "record_id IN (1, 2, 3, 40)"),
    ("records", "record_id NOT IN (1, 2)"),
    ("records", 'record_id IS NULL AND "offset" > 100'),
    ("records", "body = '\\x62\\x6F\\x64\\x79\\x20\\x37'::BLOB"),
    ("records", "hex(body) LIKE '62%' OR length > 100"),
    ("records", "log LIKE '%derby%' AND outcome = 'committed'"),
    ("records", "system = 'derby'"),
    ("records", "system <> 'derby'"),
    ("records", "system IN ('h2', 'tally') AND time IS NOT NULL"),
    ("records", "NOT (system = 'derby')"),
    ("records", "NOT (time > 5)"),
    ("records", "time > 5 OR kind = 'commit'"),
    ("transactions", "first_time < 5 OR last_time IS NULL"),
    ("records", "system = 'none'"),
    ("records", "log = (SELECT min(log) FROM logs)"),
    ("records", "len(resources) > 0"),
    ("records", "sequence > 100 AND transaction IS NOT NULL"),
    ("records", "sequence IS NULL AND kind IN ('add', 'commit')"),
    ("records", "transaction IN (1, 2, 3) OR sequence < 50 AND kind <> 'begin'"),
    ("records", "transaction BETWEEN 2 AND 3 AND system IN ('jboss', 'cloudtran')"),
    ("records", "transaction = 2 AND kind = 'commit' OR record_id = 5 AND system = 'jboss'"),
    ("records", "time BETWEEN 1 AND 1372672800000000 AND gtrid IS NOT NULL"),
    ("records", "file LIKE '%jboss%' AND sequence IS NULL"),
    ("records", "file = (SELECT max(file) FROM records WHERE system = 'jboss')"),
    ("records", "file > 'm' OR file IS NULL"),
    ("changes", "transaction = '1' OR _commit_version < 100"),
    ("rows", "transaction = '1' OR commit_sequence < 100 AND time IS NULL"),
    ("changes", "_commit_timestamp IS NULL OR _commit_timestamp > TIMESTAMPTZ '2001-01-01'"),
    ("changes", "_commit_version BETWEEN 1 AND 1000000 AND ordinal % 2 = 0"),
    ("changes", "collection = 'APP.T' AND kind IN ('add', 'delete')"),
    ("changes", "collection LIKE '%.%' AND key < '5' OR system = 'tally'"),
    ("files", "redundant OR size > 1000"),
    ("files", "redundant IS NOT TRUE"),
    ("transactions", "complete AND state <> 'committed'"),
    ("findings", "severity = 'info' OR system IS NULL"),
    ("global_transactions", "decision IS NULL"),
    ("profile", "records > 2 AND group_records_avg IS NULL"),
    ("logs", "system || log > 'd' AND answer = 'safe'"),
    ("rows", "fate <> 'committed' OR collection = 'APP.T'"),
    ("rows", "system = 'derby' AND \"key\" IS NOT NULL"),
]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("table", "condition"), CONDITIONS)
def test_a_condition_gives_the_rows_of_a_copy_of_the_table(
    connection: Any, table: str, condition: str
) -> None:
    connection.execute(f"CREATE TEMP TABLE IF NOT EXISTS copied_{table} AS FROM {table}")
    for columns in ("*", "log" if table != "global_transactions" else "owner"):
        asked = f"SELECT {columns} FROM {{}} WHERE {condition} ORDER BY ALL"
        found = connection.execute(asked.format(table)).fetchall()
        assert found == connection.execute(asked.format(f"copied_{table}")).fetchall()


def test_a_query_reads_its_columns_of_the_logs_that_a_condition_leaves(
    estate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[tuple[list[str], tuple[str, ...]]] = []

    def noted(task: Task, options: Any) -> Iterator[Any]:
        read.append(([one.source.system for one in task.pieces], options.columns))
        return execute(task, options)

    monkeypatch.setattr(module, "execute", noted)
    with sql(estate) as connection:
        query = "SELECT count(*), max(length) FROM records WHERE system = 'h2' AND kind = 'commit'"
        ((count, _),) = connection.execute(query).fetchall()
    assert count > 0
    assert {system for systems, _ in read for system in systems} == {"h2"}
    assert {frozenset(columns) for _, columns in read} == {frozenset({"length", "system", "kind"})}


@pytest.mark.parametrize(
    ("query", "all_read"),
    [
        ("records WHERE time > 5", False),
        ("records WHERE NOT (time > 5) AND length > 0", False),
        ("transactions WHERE last_time IS NOT NULL", False),
        ("changes WHERE _commit_timestamp > TIMESTAMPTZ '2001-01-01'", False),
        ("records WHERE time IS NULL", True),
        ("records WHERE time > 5 OR length > 5", True),
    ],
)
def test_a_condition_on_time_leaves_logs_that_tell_none_unread(
    estate: Path, monkeypatch: pytest.MonkeyPatch, *, query: str, all_read: bool
) -> None:
    read = set[str]()

    def noted(task: Task, options: Any) -> Iterator[Any]:
        read.update(one.source.system for one in task.pieces)
        return execute(task, options)

    monkeypatch.setattr(module, "execute", noted)
    with sql(estate) as connection:
        connection.execute(f"SELECT count(*) FROM {query}").fetchall()
    assert "cloudtran" in read
    assert ({"derby", "h2", "jboss"} <= read) is all_read
    assert bool({"derby", "h2", "jboss"} & read) is all_read


@pytest.mark.parametrize("name", ["bitronix", "cloudtran", "derby", "jboss", "tally"])
def test_a_condition_on_the_file_reads_that_file(
    estate: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    read = set[str]()

    def noted(task: Task, options: Any) -> Iterator[Any]:
        if options.table == "records":
            read.update(one.split.file if one.split else "a whole log" for one in task.pieces)
        return execute(task, options)

    with sql(estate) as connection:
        query = "SELECT file, count(*) FROM records WHERE system = ? AND file <> '' GROUP BY file"
        file, count = max(connection.execute(query, [name]).fetchall())
        monkeypatch.setattr(module, "execute", noted)
        asked = f"SELECT count(*) FROM records WHERE system = '{name}' AND file = '{file}'"
        assert connection.execute(asked).fetchall() == [(count,)]
    several = len(list(Path(file).parent.iterdir())) > 1
    assert read <= ({file} if several else {file, "a whole log"})


@pytest.mark.parametrize(
    ("column", "parted"),
    [
        ("commit_sequence", True),
        ("_commit_version", True),
        ("time", True),
        ("_commit_timestamp", True),
        ("ordinal", False),
    ],
)
def test_a_condition_on_changes_reads_the_parts_that_commit_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column: str, *, parted: bool
) -> None:
    settings = Settings(segment_size=16 << 10, preallocate=False, idle_mark_s=None)
    log = TallyLog(str(tmp_path / "log"), settings=settings, fs=LOCAL)
    while log.last_segment < 6:
        for item in every_item():
            log.submit(item).wait()
    log.close()
    read = list[str | None]()

    def noted(task: Task, options: Any) -> Iterator[Any]:
        read.extend(one.split.file if one.split else None for one in task.pieces)
        return execute(task, options)

    with sql(tmp_path / "log") as connection:
        connection.execute("CREATE TEMP TABLE copied AS FROM changes")
        monkeypatch.setattr(module, "execute", noted)
        middle = f"(SELECT quantile_disc({column}, 0.5) FROM copied)"
        ((value,),) = connection.execute(f"SELECT {middle}").fetchall()
        asked = f"SELECT * FROM {{}} WHERE {column} = ? ORDER BY ALL"
        found = connection.execute(asked.format("changes"), [value]).fetchall()
        assert found == connection.execute(asked.format("copied"), [value]).fetchall()
    assert found
    assert (None not in read) is parted
    assert len(set(read)) < 4


def test_a_collection_is_a_view_with_its_own_columns(connection: Any, estate: Path) -> None:
    names = connection.execute(
        "SELECT table_schema, table_name FROM information_schema.tables "
        "WHERE table_schema IN ('derby', 'h2') ORDER BY ALL"
    ).fetchall()
    rows = 0
    for schema, name in names:
        quoted = name.replace('"', '""')
        found = connection.sql(f'FROM {schema}."{quoted}"').to_arrow_table().to_pylist()
        assert len(found) == len(expected := feed_of(estate, name))
        assert all(row in expected for row in found)
        rows += len(found)
    assert rows > 0


def test_the_views_are_the_tables_of_the_pipeline(connection: Any) -> None:
    found = connection.execute(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'main'"
    ).fetchall()
    names = {name for (name,) in found}
    own = {name for name in names if not name.startswith("copied_")}
    assert own == SOURCE_TABLES.keys() | {"rows"}


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    "statement",
    [
        "COPY records TO '{}/out.csv'",
        "COPY (SELECT 1) TO '{}/out.parquet' (FORMAT parquet)",
        "EXPORT DATABASE '{}/out'",
        "ATTACH '{}/out.db'",
        "INSTALL httpfs",
        "LOAD '{}/x.duckdb_extension'",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM glob('/*')",
        "SELECT * FROM estate",
        "SET enable_external_access = true",
        "SET temp_directory = '{}'",
        "SET lock_configuration = false",
        "PRAGMA enable_profiling; PRAGMA profiling_output = '{}/profile'",
    ],
)
def test_a_query_reaches_no_other_file(estate: Path, tmp_path: Path, statement: str) -> None:
    before = picture_of(estate)
    with sql(estate / "derby") as connection:
        with pytest.raises(Exception, match=r"(?i)disabled|locked|does not exist|cannot|not found"):
            connection.execute(statement.format(tmp_path)).fetchall()
        assert connection.execute("SELECT count(*) FROM logs").fetchone() == (1,)
    assert [*tmp_path.iterdir()] == []
    assert picture_of(estate) == before


def test_the_path_itself_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(LogUnreadableError):
        sql(tmp_path / "nothing")


def test_a_folder_without_a_log_is_told(tmp_path: Path) -> None:
    with pytest.raises(LogUnreadableError, match="no log of any known system"):
        sql(tmp_path)
    problems: list[Finding] = []
    with sql(tmp_path, problems=problems) as connection:
        assert connection.execute("SELECT count(*) FROM rows").fetchone() == (0,)
    assert [one.code for one in problems] == ["no-log"]


def test_several_paths_are_one_estate(estate: Path) -> None:
    with sql([estate / "h2", estate / "journal"]) as connection:
        found = connection.execute("SELECT system FROM logs ORDER BY 1").fetchall()
    assert found == [("h2",), ("tally",)]


def test_a_view_lives_as_long_as_its_connection(estate: Path) -> None:
    connection = sql(estate / "journal")
    gc.collect()
    assert connection.execute("SELECT count(*) FROM records WHERE kind = 'add'").fetchone() == (20,)
    connection.close()


def test_an_error_of_a_reader_ends_the_query_with_its_sentence(
    estate: Path, tmp_path: Path
) -> None:
    gone = tmp_path / "log"
    shutil.copytree(estate / "bitronix", gone)
    with sql(gone) as connection:
        shutil.rmtree(gone)
        with pytest.raises(Exception, match=r"no longer|gone|cannot|went"):
            connection.execute("FROM records").fetchall()


ODD = ["T", 'quo"ted', "semi;colon", "a.b.c", "select", "é漢", "it's", "records"]


@pytest.mark.parametrize("name", ODD)
def test_a_collection_of_any_name_is_a_view(
    name: str, estate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    column = Column(name, "INT", "int")

    def catalogue_of(logs: list[LogSource], _: ReadOptions) -> Any:
        return {(one.system, name): {Collection(name, (column,), ()): "log"} for one in logs}

    monkeypatch.setattr(module, "catalogue_of", catalogue_of)
    with sql(estate / "derby") as connection:
        quoted = name.replace('"', '""')
        found = connection.execute(f'SELECT "{quoted}" FROM derby."{quoted}"')
        assert (found.fetchall(), found.description[0][0]) == ([], name)


def test_collections_whose_names_differ_in_case_alone_have_no_view(
    estate: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """To DuckDB they are one name, by which a question about one got the rows of the other."""
    column = Column("C", "INT", "int")

    def catalogue_of(logs: list[LogSource], _: ReadOptions) -> Any:
        names = ("T", "t", "other")
        return {
            (one.system, name): {Collection(name, (column,)): ""} for one in logs for name in names
        }

    monkeypatch.setattr(module, "catalogue_of", catalogue_of)
    with sql(estate / "derby") as connection:
        found = connection.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'derby'"
        ).fetchall()
    assert found == [("other",)]
    assert [one for one in ("T", "t") if f"collection {one!r} has no view" in caplog.text] == [
        "T",
        "t",
    ]


def test_a_scanner_takes_no_columns_and_any_filter(estate: Path) -> None:
    options = parse({"path": str(estate / "journal"), "table": "records"})
    table = LogTable(options, find(options.paths))
    assert table.scanner(columns=[]).to_table().num_rows == table.scanner().to_table().num_rows > 0
    assert LogTable(options, Plan()).scanner().to_table().num_rows == 0
