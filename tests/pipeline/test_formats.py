"""Tables in other formats than Parquet, and what a failure of Spark says."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from tallystick.errors import TallystickError
from tallystick.indoubt.listing import InDoubtReport, gathered
from tallystick.pipeline.options import OptionError
from tallystick.pipeline.runner import Run
from tallystick.pipeline.session import own_errors
from tallystick.pipeline.source.batch import spark_schema
from tallystick.pipeline.tables import output_dir
from tallystick.pipeline.tables.output_dir import SCHEMAS, TableFolder, TableSpace
from tallystick.pipeline.tables.write_task import FileRewrite, do_all
from tallystick.reading.tables import TABLES
from tests.fixtures import fixture_dir

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_csv_is_refused_before_spark_starts(tmp_path: Path) -> None:
    for form in ("csv", "CSV"):
        with pytest.raises(OptionError, match="csv cannot hold the tables: ids and bodies are"):
            Run([str(tmp_path)], str(tmp_path / "out"), form)


@pytest.mark.parametrize(
    ("given", "form"),
    [("PARQUET", "parquet"), ("Json", "json"), ("ORC", "orc"), ("Delta", "delta"),
     ("ICEBERG", "iceberg"), ("org.Example.Format", "org.Example.Format")],
)  # fmt: skip
def test_a_format_is_the_same_in_any_letters_of_case(given: str, form: str) -> None:
    """Else its tables would be neither staged nor locked, and Delta's of no run."""
    assert Run(["logs"], "out", given).form == form


def test_json_holds_the_same_tables(spark: SparkSession, tmp_path: Path) -> None:
    root, out = tmp_path / "estate", tmp_path / "out"
    shutil.copytree(fixture_dir("bitronix") / "crash-mid-commit", root)
    (root / "manifest.json").unlink()
    run = Run([str(root)], str(out), "json")
    summary = run(spark)
    rows = TableSpace(str(out), "json").read(spark, "global_transactions").collect()
    judged = gathered([str(root)], InDoubtReport([])).judged()
    expected = {(row["gtrid"], row["resolution"]) for row in judged}
    assert {(bytes(row.gtrid), row.resolution) for row in rows} == expected
    assert summary.resolutions
    assert run(spark).read == []  # nothing new: the tables are there, and read again


def _without(table: str, *columns: str) -> pa.Schema:
    return pa.schema([one for one in SCHEMAS[table] if one.name not in columns])


@pytest.mark.parametrize(
    ("there", "refused"),
    [
        ({}, None),
        ({"records": TABLES["records"], "files": TABLES["files"]}, None),
        ({"records": _without("records", "body")}, None),  # of an older version
        ({"records": pa.schema([("id", pa.int64())]), "files": TABLES["files"]}, "records"),
        ({"files": None}, "files"),
    ],
)
def test_a_remote_folder_is_overwritten_where_it_holds_tables_of_a_run(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    there: dict[str, pa.Schema | None],
    refused: str | None,
) -> None:
    """Through a local folder: Spark lists both alike."""
    monkeypatch.setattr(output_dir, "is_remote", lambda path: path == str(tmp_path))
    place = TableFolder(spark, TableSpace(str(tmp_path)))
    for table, schema in there.items():
        if schema is None:
            (tmp_path / table).mkdir()
            (tmp_path / table / "notes.txt").write_text("theirs, and of more than eight bytes")
        else:
            place.space.write(spark.createDataFrame([], spark_schema(schema)), table)
    (tmp_path / "changes" / "_temporary").mkdir(parents=True)  # of a run that was killed
    (tmp_path / "theirs").mkdir()
    if refused is None:
        assert place.open() is None
        return
    with pytest.raises(OptionError, match=f"no run has written it; found {refused}"):
        place.open()


def test_a_failure_says_its_own_sentence(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(TallystickError, match="nosuch") as caught, own_errors():
        spark.read.format("tallystick").option("table", "nosuch").load(str(tmp_path)).collect()
    assert len(str(caught.value)) < 300
    assert "Traceback" not in str(caught.value)


def test_a_worker_says_in_a_sentence_what_the_system_refuses_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    """It was "this should not have happened", with 1,700 characters of traceback."""
    work = FileRewrite(str(tmp_path / "gone.parquet"), str(tmp_path), frozenset(), "snappy")
    with pytest.raises(TallystickError) as caught, own_errors():
        do_all(spark, [work], str(tmp_path))
    said = f"{tmp_path}: the work cannot go on: No such file or directory. It vanished or was never"
    assert str(caught.value).startswith(said)
    assert "Traceback" not in str(caught.value)


FULL = "No space left on device"


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, FULL),
        OSError(28, f"Error writing bytes to file. Detail: [errno 28] {FULL}"),
        PySparkException(f"Job aborted: java.io.IOException: {FULL}\n\tat java.base/sun.nio.ch"),
    ],
    ids=["here", "in Arrow", "in Java"],
)
def test_a_full_disk_is_a_sentence_wherever_it_is_met(error: Exception) -> None:
    with pytest.raises(TallystickError) as caught, own_errors("tables"):
        raise error
    assert str(caught.value) == f"tables: the work cannot go on: {FULL}. Free space"


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (
            "An error.\n: NotFound: [DATA_SOURCE_NOT_FOUND] No nosuch. SQLSTATE: 42K02\n\tat",
            "No nosuch",
        ),
        (
            "[AVRO_DATA_SOURCE_NOT_ENABLED] Failed to find data source: avro. SQLSTATE: 42K02",
            "Failed to find data source: avro",
        ),
        (
            "[INVALID_CONF_VALUE.OUT_OF_RANGE_OF_OPTIONS] It should be 'zstd'. SQLSTATE: 22022",
            "It should be 'zstd'",
        ),
        (
            "[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number..",
            "Java gateway process exited before sending its port number",
        ),
    ],
    ids=["format", "format without its package", "setting", "master"],
)
def test_what_spark_does_not_take_is_a_sentence_of_its_own(said: str, sentence: str) -> None:
    """It was "this should not have happened", with the request to report it."""
    with pytest.raises(TallystickError) as caught, own_errors("tables"):
        raise PySparkException(said)
    assert str(caught.value) == (
        f"Spark does not take what it was given: {sentence}. "
        "Look at the format, the master and the settings (--conf)"
    )
