"""The data source: options, planning and execution without Spark, then in it."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tallystick import Journal
from tallystick.errors import LogUnreadableError, TallystickError
from tallystick.pipeline import options, planning
from tallystick.pipeline import task as executing
from tallystick.pipeline.options import OptionError, SourceOptions
from tallystick.pipeline.planning import Task
from tallystick.pipeline.source.batch import PruningReader, TableReader, TallystickDataSource
from tallystick.pipeline.source.worker import STREAM_WORKER
from tallystick.reading.tables import TABLES
from tallystick.systems import known
from tests.fixtures import fixture_dir
from tests.kit import opened_logs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ten small logs and a large one of the fake system, and two files that are no log."""
    monkeypatch.setattr(known, "PACKAGES", {"fake": "tests.pipeline.fake"})
    for number in range(10):
        (tmp_path / f"log{number}").mkdir()
        text = f"FAKE\ncommitted {number + 1}\nprepared {number + 50} aa bb\n"
        (tmp_path / f"log{number}" / "1.fake").write_text(text)
    (tmp_path / "large").mkdir()
    (tmp_path / "large" / "1.fake").write_text("FAKE\n" + "committed 7\n" * 1_000)
    (tmp_path / "readme").write_text("no log")
    (tmp_path / "empty").write_text("")
    return tmp_path


def _rows(settings: SourceOptions) -> list[dict[str, Any]]:
    batches = [
        batch for task in planning.tasks(settings) for batch in executing.execute(task, settings)
    ]
    assert all(batch.schema == settings.schema for batch in batches)
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("split_bytes", [37, 100, 4_096, 1 << 20])
def test_every_record_comes_once_however_tasks_are_cut(logs: Path, split_bytes: int) -> None:
    rows = _rows(SourceOptions((str(logs),), split_bytes=split_bytes))
    places = {(row["file"], row["offset"]) for row in rows}
    assert len(rows) == len(places) == 1_020


def test_small_logs_share_a_task_and_large_files_are_divided(logs: Path) -> None:
    tasks = planning.tasks(SourceOptions((str(logs),), split_bytes=4_096))
    assert max(len(task.pieces) for task in tasks) >= 9
    assert sum(piece.split is not None for task in tasks for piece in task.pieces) == 3


def test_overlapping_paths_count_once(logs: Path) -> None:
    rows = _rows(SourceOptions((str(logs), str(logs / "large"), str(logs))))
    assert len(rows) == 1_020


@pytest.mark.parametrize("table", TABLES)
def test_every_table_has_its_rows(logs: Path, table: str) -> None:
    (logs / "log0" / "1.fake").write_text("FAKE\nbroken\ncommitted 1\n")
    rows = _rows(SourceOptions((str(logs),), table=table))
    assert rows
    assert {row["system"] for row in rows} - {""} == {"fake"}


@pytest.mark.parametrize("table", TABLES)
def test_named_columns_are_all_that_is_made(logs: Path, table: str) -> None:
    names = TABLES[table].names[3::-2]
    rows = _rows(SourceOptions((str(logs),), table=table, columns=tuple(names)))
    whole = _rows(SourceOptions((str(logs),), table=table))
    assert rows == [{name: row[name] for name in names} for row in whole]


def test_what_is_no_log_is_a_finding(logs: Path) -> None:
    rows = _rows(SourceOptions((str(logs),), table="findings"))
    assert [row["message"] for row in rows if row["code"] == "not-a-log"] == [
        "no log of any known system: empty, readme"
    ]


def test_what_stores_of_ours_keep_beside_a_log_is_no_stranger(tmp_path: Path) -> None:
    with Journal(tmp_path / "coordinator" / "decisions") as journal:
        journal.append(b"one")
    for name in ("coordinator/node", "coordinator/notes", "lock"):
        (tmp_path / name).write_text("no log")
    strangers = {problem.message for problem in planning.find([str(tmp_path)]).problems}
    assert {message.rpartition(" ")[2] for message in strangers} == {"notes", "lock"}


def test_a_log_in_parts_is_opened_once_by_a_task(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = SourceOptions((str(logs / "large"),), split_bytes=4_096)
    pieces = tuple(piece for task in planning.tasks(settings) for piece in task.pieces)
    opened = opened_logs(monkeypatch)
    rows = sum(batch.num_rows for batch in executing.execute(Task(pieces), settings))
    assert (len(pieces), rows, len(opened)) == (3, 1_000, 1)


def test_small_batches_of_a_task_come_as_one_and_large_ones_as_they_are(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = SourceOptions((str(logs),))
    (task,) = planning.tasks(settings)
    whole = [batch.num_rows for batch in executing.execute(task, settings)]
    monkeypatch.setattr(executing, "BATCH_ROWS", 999)
    by_rows = [batch.num_rows for batch in executing.execute(task, settings)]
    monkeypatch.setattr(executing, "JOINED_BYTES", 1)
    by_bytes = [batch.num_rows for batch in executing.execute(task, settings)]
    assert (whole, by_rows, by_bytes) == ([1_020], [1_000, 20], [1_000, *[2] * 10])


def test_a_log_that_vanishes_is_a_finding_and_never_an_empty_table(logs: Path) -> None:
    found, *others = (
        SourceOptions((str(logs),), table=table, split_bytes=1 << 20, search=False)
        for table in ("findings", "records", "files")
    )
    planned = [planning.tasks(one) for one in (found, *others)]
    (logs / "log3" / "1.fake").rename(logs / "gone")
    batches = [b for task in planned[0] for b in executing.execute(task, found)]
    assert [row["code"] for batch in batches for row in batch.to_pylist()] == ["unreadable"]
    for settings, tasks in zip(others, planned[1:], strict=True):
        with pytest.raises(LogUnreadableError, match="gone since this read was planned"):
            _ = [b for task in tasks for b in executing.execute(task, settings)]


def test_failfast_fails(logs: Path) -> None:
    (logs / "log0" / "1.fake").write_text("FAKE\nrefuse\n")
    with pytest.raises(TallystickError, match="the line refuses"):
        _rows(SourceOptions((str(logs),), mode="failfast"))


def test_salvage_marks_what_is_behind_damage(logs: Path) -> None:
    (logs / "log0" / "1.fake").write_text("FAKE\nbroken\n")
    rows = _rows(SourceOptions((str(logs / "log0"),), salvage=True))
    assert [row["attributes"] for row in rows] == ['{"salvaged":true}']


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "no path"),
        ({"path": "/x", "table": "nonsense"}, "one of files, records"),
        ({"path": "/x", "splitBytes": "-1"}, "a number above 0"),
        ({"path": "/x", "mode": "lenient"}, "permissive"),
        ({"path": "/x", "encryptionKey": "env:NO_KEY"}, "hexadecimal"),
        ({"path": "/x", "encryptionKey": "env:NOTHING"}, "no env:NOTHING on this machine"),
        ({"path": "/x", "bootPassword": "hunter2"}, "a reference, never the secret"),
        ({"path": "/x", "tabel": "files"}, "no option tabel.*Did you mean table"),
        ({"path": "/x", "splitBytes": "128x"}, "as in 128m"),
        ({"path": "/x", "maxRowsPerTrigger": "1k"}, "a number above 0"),
        ({"path": "/x", "maxRowsPerTrigger": str(1 << 63)}, "a number above 0"),
        ({"path": "/x", "maxBytesPerTrigger": "9" * 5000}, "a number above 0"),
        ({"paths": "no json"}, "no JSON"),
        ({"paths": "[]"}, "at least one path"),
        ({"paths": '["/x", ""]'}, "the path is empty"),
        ({"path": ""}, "the path is empty"),
        ({"path": " "}, "the path is empty"),
        ({"path": "/x", "columns": "file, nonsense"}, "columns of records: system, log"),
        (
            {"path": "/x", "table": "changes", "feed": "false", "columns": "_change_type"},
            "columns of changes: system, log",
        ),
        ({"path": "/x", "columns": "file,kind,file"}, "named twice; found file"),
        ({"path": "/x", "columns": "file,kind,FILE"}, "named twice; found file"),
        ({"path": "/x", "timezone": "Nowhere/X"}, "unknown time zone; found Nowhere/X"),
    ],
)
def test_wrong_options_are_named(
    given: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_KEY", "xyz")
    with pytest.raises(OptionError, match=said):
        options.parse(given)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (["kind string", "kind string"], "named twice; found kind"),
        (["kind string not null"], "may be null; found kind NOT NULL"),
        (["kind string", "offset integer"], "found offset int"),
    ],
)
def test_a_schema_that_no_task_could_give_is_refused_before_one_starts(
    fields: list[str], said: str
) -> None:
    from pyspark.sql.types import StructType

    schema = StructType()
    for field in fields:
        name, kind, *rest = field.split()
        schema.add(name, kind, nullable=not rest)
    with pytest.raises(OptionError, match=said):
        TallystickDataSource({"path": "/x"}).reader(schema)


def test_options_are_compared_without_case() -> None:
    found = options.parse({"PATHS": '["/a", "file:///b"]', "SplitBytes": "5", "TABLE": "files"})
    assert found == SourceOptions(("/a", "/b"), "files", 5)
    assert options.parse({"path": "/x", "columns": "FILE, Kind"}).columns == ("file", "kind")


@pytest.mark.parametrize(
    ("text", "size"), [("5", 5), ("128m", 128 << 20), ("2G", 2 << 30), ("64kb", 64 << 10)]
)
def test_sizes_may_have_a_unit(text: str, size: int) -> None:
    assert options.parse({"path": "/x", "splitBytes": text}).split_bytes == size


def test_relative_paths_and_patterns_are_local_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c.txt"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    assert options.parse({"path": "a"}).paths == (str(tmp_path / "a"),)
    (pattern,) = options.parse({"path": "[ab]"}).paths
    assert options.matching(pattern) == [str(tmp_path / "a"), str(tmp_path / "b")]
    assert options.parse({"path": "dbfs:/logs"}).paths == ("/dbfs/logs",)
    for url in ("jdbc:derby:a;create=true", f"jdbc:h2:file:{tmp_path}/a", f'"{tmp_path}/a"'):
        assert options.parse({"path": url}).paths == (str(tmp_path / "a"),)


def test_a_secret_stands_in_no_value_that_travels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key").write_text("00ff" * 8 + "\n")
    monkeypatch.setenv("BOOT", "hunter2")
    given = {
        "path": "/x", "bootPassword": "env:BOOT", "encryptionKey": f"file:{tmp_path / 'key'}",
    }  # fmt: skip
    settings = options.parse(given)
    assert settings.reading.boot_password == "hunter2"
    assert settings.reading.encryption_key == bytes.fromhex("00ff" * 8)
    for text in (repr(settings), repr(pickle.dumps(settings)), repr(settings.reading)):
        assert "hunter2" not in text
        assert "00ff" not in text.lower()
        assert r"\x00\xff" not in text


def test_failfast_fails_at_a_file_that_cannot_be_read(logs: Path) -> None:
    (logs / "log0" / "2.fake.gz").write_bytes(b"\x1f\x8b\x08garbage")
    assert len(_rows(SourceOptions((str(logs),)))) == 1_020
    with pytest.raises(LogUnreadableError, match=r"2\.fake\.gz"):
        _rows(SourceOptions((str(logs),), mode="failfast"))


def test_a_pyspark_without_read_limits_is_told_which_one_has_streams(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tallystick.pipeline.source.stream", None)
    source = TallystickDataSource({"path": str(logs)})
    with pytest.raises(OptionError, match=r"streams need PySpark 4\.2"):
        source.streamReader(source.schema())


@pytest.mark.parametrize(
    ("given", "refusal"),
    [
        ({"table": "files"}, "only records and changes can be streamed"),
        ({"table": "changes", "beforeImages": "history"}, "the option imagesFolder"),
        ({"nonsense": "1"}, "there is no option nonsense"),
    ],
)
@pytest.mark.usefixtures("streams")
def test_a_refused_stream_has_a_reader_whose_offsets_say_so(
    logs: Path, given: dict[str, str], refusal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker of a stream without reader ends with an error of its own, after ours."""
    from pyspark.sql.types import StructType

    schema = StructType().add("log", "string")
    source = TallystickDataSource({"path": str(logs)} | given)
    with pytest.raises(OptionError, match=refusal):
        source.streamReader(schema)
    monkeypatch.setattr("tallystick.pipeline.source.batch.main_module", lambda: STREAM_WORKER)
    reader: Any = source.streamReader(schema)
    with pytest.raises(OptionError, match=refusal):
        reader.initialOffset()
    with pytest.raises(OptionError, match=refusal):
        reader.latestOffset({}, None)


def test_filters_skip_logs_and_are_all_handed_back(logs: Path) -> None:
    from pyspark.sql.datasource import EqualTo, GreaterThan, In

    wanted = str(logs / "log4" / "1.fake")
    filters = [In(("file",), (wanted, "/elsewhere")), GreaterThan(("offset",), 0)]
    reader = PruningReader(SourceOptions((str(logs),)))
    assert all(a is b for a, b in zip(reader.pushFilters(filters), filters, strict=True))
    tasks = [part.task for part in reader.partitions()]
    assert [piece.source.files for task in tasks for piece in task.pieces] == [(wanted,)]
    other = PruningReader(SourceOptions((str(logs),)))
    other.pushFilters([EqualTo(("system",), "h2")])
    assert [part.task for part in other.partitions()] == [Task()]


def test_a_filter_finds_a_file_whose_name_is_in_another_encoding(logs: Path) -> None:
    """It compares with the name as the column has it."""
    from pyspark.sql.datasource import EqualTo

    (logs / "log0").rename(logs / "\udce4")
    options = SourceOptions((str(logs / "\udce4"),))
    (file,) = {row["file"] for row in _rows(options)}
    reader = PruningReader(options)
    reader.pushFilters([EqualTo(("file",), file)])
    (found,) = reader.partitions()
    assert found.task.pieces


def test_a_column_of_a_collection_is_no_reason_to_skip_a_log() -> None:
    from pyspark.sql.datasource import EqualTo

    path = str(fixture_dir("h2") / "ddl-1024")
    reader = PruningReader(SourceOptions((path,), "changes", collection="PUBLIC.T"))
    reader.pushFilters([EqualTo(("system",), "solar"), EqualTo(("file",), "a.txt")])
    assert [piece.source.system for part in reader.partitions() for piece in part.task.pieces] == [
        "h2"
    ]


@pytest.mark.parametrize("names", [("OFFSET", "Kind"), ("kind", "offset")])
def test_names_of_a_schema_may_be_in_other_letters_of_case(
    logs: Path, names: tuple[str, str]
) -> None:
    from pyspark.sql.datasource import EqualTo
    from pyspark.sql.types import StructType

    types = {"offset": "long", "kind": "string"}
    schema = StructType()
    for name in names:
        schema = schema.add(name, types[name.lower()])
    readers: list[Any] = [
        TallystickDataSource({"path": str(logs), "splitBytes": "4096"}).reader(schema),
        PruningReader(SourceOptions((str(logs),), columns=tuple(map(str.lower, names)))),
    ]
    named, plain = (
        [
            list(batch.to_pylist()[row].items())
            for part in reader.partitions()
            for batch in reader.read(part)
            for row in range(batch.num_rows)
        ]
        for reader in readers
    )
    assert [[name for name, _ in row] for row in named] == [list(names)] * 1_020
    values = [sorted(str([value for _, value in row]) for row in rows) for rows in (named, plain)]
    assert values[0] == values[1]
    reader = PruningReader(SourceOptions((str(logs),)))
    reader.pushFilters([EqualTo(("SYSTEM",), "h2")])
    assert [part.task for part in reader.partitions()] == [Task()]


def test_a_schema_with_a_column_twice_is_refused(logs: Path) -> None:
    from pyspark.sql.types import StructType

    schema = StructType().add("body", "binary").add("BODY", "binary")
    with pytest.raises(Exception, match="a column is named twice; found body"):
        TallystickDataSource({"path": str(logs)}).reader(schema)


def test_a_plain_reader_defines_no_filters() -> None:
    from pyspark.sql.datasource import DataSourceReader

    assert TableReader.pushFilters is DataSourceReader.pushFilters


class TestInSpark:
    """Over one real log, which every worker knows."""

    @pytest.fixture
    def path(self) -> str:
        return str(fixture_dir("bitronix") / "rollover-2")

    def test_the_format_needs_no_registration(self, spark: SparkSession, path: str) -> None:
        frame = spark.read.format("tallystick").load(path)
        assert frame.columns == TABLES["records"].names
        assert frame.count() > 0

    def test_a_filter_never_changes_what_an_unfiltered_action_gives(
        self, spark: SparkSession, path: str
    ) -> None:
        """Spark reuses a reader that was given filters."""
        frame = spark.read.format("tallystick").load(path)
        file = frame.first().file  # type: ignore[union-attr]
        all_rows = frame.count()
        filtered = frame.where(frame["file"] == file).count()
        assert 0 < filtered < all_rows
        assert frame.count() == all_rows
        assert frame.where("system = 'h2'").count() == 0

    def test_reading_works_with_push_down_switched_off(
        self, spark: SparkSession, path: str
    ) -> None:
        setting = "spark.sql.python.filterPushdown.enabled"
        before = spark.conf.get(setting)
        spark.conf.set(setting, "false")
        try:
            frame = spark.read.format("tallystick").load(path)
            assert frame.where("system = 'bitronix'").count() == frame.count()
        finally:
            spark.conf.set(setting, before or "false")

    def test_a_declared_schema_is_what_is_read(self, spark: SparkSession, path: str) -> None:
        whole = spark.read.format("tallystick").load(path)
        declared = spark.read.format("tallystick").schema("`offset` bigint, kind string").load(path)
        named = spark.read.format("tallystick").option("columns", "offset, kind").load(path)
        assert declared.columns == named.columns == ["offset", "kind"]
        rows = [sorted(frame.collect()) for frame in (whole[["offset", "kind"]], declared, named)]
        assert rows[0] == rows[1] == rows[2]
        shouted = spark.read.format("tallystick").schema("`OFFSET` bigint, KIND string").load(path)
        assert sorted(shouted.where("kind > ''").collect()) == rows[0]
        filtered = declared.where("kind = 'decision'")
        assert filtered.count() == whole.where("kind = 'decision'").count()

    def test_a_schema_of_other_columns_is_refused(self, spark: SparkSession, path: str) -> None:
        reader = spark.read.format("tallystick").schema("`offset` string")
        with pytest.raises(Exception, match="does not fit the table records"):
            reader.load(path).count()

    def test_several_paths_load_at_once(self, spark: SparkSession, path: str) -> None:
        other = str(fixture_dir("bitronix") / "fresh")
        frame = spark.read.format("tallystick").option("table", "files")
        logs = {
            row.log for row in frame.option("paths", json.dumps([path, other])).load().collect()
        }
        assert logs == {path, other}

    @pytest.mark.parametrize("how", ["OPTIONS (path '{path}')", "LOCATION '{path}'"])
    def test_a_table_of_the_catalog_is_read_again(
        self, spark: SparkSession, path: str, how: str
    ) -> None:
        spark.sql(f"CREATE TABLE catalogued USING tallystick {how.format(path=path)}")
        try:
            count = spark.read.format("tallystick").load(path).count()
            assert spark.sql("SELECT * FROM catalogued").count() == count > 0
            assert spark.sql("SELECT kind FROM catalogued WHERE system = 'h2'").count() == 0
        finally:
            spark.sql("DROP TABLE catalogued")

    def test_a_table_of_the_catalog_keeps_its_other_options(
        self, spark: SparkSession, path: str
    ) -> None:
        spark.sql(
            "CREATE TABLE catalogued USING tallystick "
            f"OPTIONS (path '{path}', table 'files', columns 'file, size')"
        )
        try:
            rows = spark.sql("SELECT * FROM catalogued").collect()
            assert rows
            assert rows[0].asDict().keys() == {"file", "size"}
        finally:
            spark.sql("DROP TABLE catalogued")

    def test_a_misspelt_option_fails_the_query(self, spark: SparkSession, path: str) -> None:
        with pytest.raises(Exception, match="Did you mean table"):
            spark.read.format("tallystick").option("tabel", "files").load(path).count()

    @pytest.mark.parametrize(
        ("path", "said"),
        [("/nowhere", "cannot read: No such file"), ("/nowhere/*.log", "matches the path; found")],
    )
    def test_what_is_not_there_is_said_in_words(
        self, spark: SparkSession, path: str, said: str
    ) -> None:
        with pytest.raises(Exception, match=said) as raised:
            spark.read.format("tallystick").load(path).count()
        assert "Traceback" not in str(raised.value)
