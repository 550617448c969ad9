"""Logs in an object store: a real S3 protocol, spoken by a server on loopback."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tallystick
from tallystick.errors import LogUnreadableError
from tallystick.pipeline.fingerprint import fingerprint
from tallystick.pipeline.options import OptionError, SourceOptions
from tallystick.pipeline.planning import find, stored_size
from tallystick.pipeline.runner import OUTPUT, Run
from tallystick.pipeline.source.file_ranges import file_ranges, read
from tallystick.pipeline.source.positions import Position
from tallystick.pipeline.source.tailer import Tailer
from tallystick.pipeline.tables.bucket import publish, published_files
from tallystick.systems.bitronix.format.layout import ACTIVE
from tallystick.systems.bitronix.live.log import DiskJournal
from tests.fixtures import fixture_dir

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CASE = "rollover-2"


@pytest.fixture(scope="module")
def bucket(storage_options: dict[str, str]) -> Iterator[str]:
    """The URL of a journal in a bucket: as it is in ``plain/``, packed in ``packed/``."""
    import s3fs
    from moto.server import ThreadedMotoServer

    at = urlsplit(storage_options["AWS_ENDPOINT_URL"])
    server = ThreadedMotoServer(at.hostname or "", at.port or 0, verbose=False)
    server.start()
    try:
        store: Any = s3fs.S3FileSystem()
        store.mkdir("estates")
        store.mkdir("live")
        for path in sorted((fixture_dir("bitronix") / CASE).glob("*.tlog*")):
            raw = path.read_bytes()
            plain = gzip.decompress(raw) if path.suffix == ".gz" else raw
            name = path.name.removesuffix(".gz")
            store.pipe(f"estates/plain/{name}", plain)
            store.pipe(f"estates/packed/{name}.gz", gzip.compress(plain))
        yield "s3://estates"
    finally:
        server.stop()


def _records(path: str) -> list[tuple[str, int, int, str, bytes | None]]:
    """What a record says, without the folder it lies in."""
    return [
        (record.file.rpartition("/")[2].removesuffix(".gz"), record.offset, record.length,
         record.type, record.gtrid)
        for record in tallystick.scan(path)
    ]  # fmt: skip


@pytest.mark.parametrize("folder", ["plain", "packed"])
def test_a_scan_of_a_bucket_gives_what_a_scan_of_files_gives(bucket: str, folder: str) -> None:
    here = _records(str(fixture_dir("bitronix") / CASE))
    assert here
    assert _records(f"{bucket}/{folder}") == here


def test_the_logs_of_a_bucket_have_urls_as_names(bucket: str) -> None:
    assert [log.path for log in find([bucket]).logs] == [f"{bucket}/packed", f"{bucket}/plain"]


def test_a_bucket_can_be_followed(bucket: str) -> None:
    position = Tailer(SourceOptions((f"{bucket}/plain",))).advance({})
    assert position
    assert all(one["file"].startswith(f"{bucket}/plain/") for one in position.values())


def _copied(journal: DiskJournal, url: str) -> list[bytes]:
    """Put the files of a live journal into the bucket; returns the gtrids of its records."""
    import s3fs

    journal.force()
    store: Any = s3fs.S3FileSystem()
    for path in sorted(Path(journal.path).glob("*.tlog")):
        store.pipe(f"{url}/{path.name}", path.read_bytes())
    return [record.gtrid or b"" for record in tallystick.scan(journal.path)]


@pytest.mark.usefixtures("bucket")
def test_an_object_written_anew_with_the_same_size_is_looked_at_again(tmp_path: Path) -> None:
    options = SourceOptions(("s3://live/copied",))
    tailer = Tailer(options)
    position: Position = {}
    seen: list[bytes] = []
    with DiskJournal(str(tmp_path), max_log_size=4096) as journal:
        for number in range(20):
            journal.log(ACTIVE, b"transaction %d" % number, {"jdbc/a"})
            written = _copied(journal, "s3://live/copied")
            after = tailer.advance(position)
            for one in file_ranges(options, position, after):
                for batch in read([one], options):
                    seen += batch.column("gtrid").to_pylist()
            position = after
    assert seen == written
    (entry,) = position.values()
    assert fingerprint(entry["file"])[0] == (tmp_path / "btm1.tlog").stat().st_size


@pytest.mark.long(1)
@pytest.mark.usefixtures("bucket", "streams")
def test_spark_follows_a_log_in_a_bucket(spark: SparkSession, tmp_path: Path) -> None:
    """Two queries with one checkpoint, and a third that finds nothing new."""
    url = "s3://live/followed"
    with DiskJournal(str(tmp_path / "log"), max_log_size=4096) as journal:
        for step in range(3):
            if step < 2:
                for number in range(10):
                    journal.log(ACTIVE, b"%d %d" % (step, number), {"jdbc/a"})
            written = _copied(journal, url)
            query = (
                spark.readStream.format("tallystick")
                .option("maxRowsPerTrigger", "7")
                .load(url)
                .writeStream.format("parquet")
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start(str(tmp_path / "rows"))
            )
            assert query.awaitTermination(120)
            rows = spark.read.parquet(str(tmp_path / "rows")).select("gtrid").collect()
            assert sorted(bytes(row.gtrid) for row in rows) == sorted(written)


def test_an_empty_prefix_holds_no_log(bucket: str) -> None:
    assert find([f"{bucket}/nowhere"]).logs == []


@pytest.mark.usefixtures("bucket")
def test_a_bucket_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(LogUnreadableError, match="nobucket"):
        find(["s3://nobucket/logs"])


def test_a_url_of_an_unknown_kind_is_an_error() -> None:
    with pytest.raises(LogUnreadableError, match="no access to this file system"):
        find(["nothing://host/logs"])


def test_a_star_in_a_url_is_a_letter_as_any_other() -> None:
    """It was "no access to this file system: not enough values to unpack"."""
    import fsspec

    store: Any = fsspec.filesystem("memory")
    for path in sorted((fixture_dir("bitronix") / CASE).glob("*.tlog*")):
        store.pipe(f"/stars/a*b/{path.name}", path.read_bytes())
    (log,) = find(["memory://stars/a*b"]).logs
    assert sum(map(stored_size, log.files)) == sum(fingerprint(file)[0] for file in log.files) > 0
    (problem,) = find(["memory://stars/a*"]).problems
    assert problem.message == "there is no log of any known system below memory://stars/a*"


def test_an_error_of_a_file_system_is_one_line_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(path: str) -> None:
        raise OSError(f"Unable to load for {path}" + "\nno such library" * 90)

    monkeypatch.setattr("fsspec.core.url_to_fs", fails)
    with pytest.raises(LogUnreadableError, match="load for hdfs") as raised:
        find(["hdfs://host/logs"])
    assert "library" not in str(raised.value)


def test_spark_reads_the_same_url(spark: SparkSession, bucket: str) -> None:
    url = f"{bucket}/plain"
    frame = spark.read.format("tallystick").load(url)
    rows = frame.where("outcome = 'valid'").select("file", "offset").collect()
    ours = {(record.file, record.offset) for record in tallystick.scan(url)}
    assert {(row.file, row.offset) for row in rows} == ours


def _written(folder: Path, table: str, name: str, values: list[int]) -> None:
    (folder / table).mkdir(parents=True, exist_ok=True)
    partial = folder / "partial"
    pq.write_table(pa.table({"value": values}), partial)
    partial.replace(folder / table / f"{name}.parquet")


def _read(url: str) -> dict[str, list[int]]:
    import s3fs

    store: Any = s3fs.S3FileSystem()
    return {
        table: [
            value
            for file in files
            for value in pq.read_table(file.removeprefix("s3://"), filesystem=store)[
                "value"
            ].to_pylist()
        ]
        for table, files in published_files(url).items()
    }


class _Killed(BaseException):  # no error: nothing may catch the end of a process
    """Stands for the end of the process at a call of the store."""


@pytest.mark.long
@pytest.mark.usefixtures("bucket")
def test_tables_in_a_bucket_are_old_or_new_wherever_the_publisher_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import s3fs

    url, tables = "s3://live/tables", ("files", "records")
    store: Any = s3fs.S3FileSystem()  # the one instance that there is
    with pytest.raises(LogUnreadableError, match="no tables were published"):
        published_files(url)
    for table in tables:
        _written(tmp_path, table, "0-0", [1])
        _written(tmp_path, table, "0-1", [2])
    assert publish(str(tmp_path), url, tables) == 4
    assert publish(str(tmp_path), url, tables) == 0
    removed = next(path for path in store.find("live/tables") if path.endswith(".parquet"))
    store.rm_file(removed)
    assert publish(str(tmp_path), url, tables) == 1
    assert publish(str(tmp_path), url, tables) == 0
    old = _read(url)
    assert old == {table: [1, 2] for table in tables}
    for table in tables:
        _written(tmp_path, table, "0-1", [3])  # another content under the same name
        _written(tmp_path, table, "1-0", [4])
        (tmp_path / table / "0-0.parquet").unlink()
    seen = []
    for step in range(12):
        left = [step]

        def killing(call: Any, left: list[int] = left) -> Any:
            def counted(*given: Any, **named: Any) -> Any:
                if left[0] == 0:
                    raise _Killed
                left[0] -= 1
                return call(*given, **named)

            return counted

        with monkeypatch.context() as patch, suppress(_Killed):
            for name in ("put_file", "pipe_file", "rm_file"):
                patch.setattr(store, name, killing(getattr(store, name)))
            publish(str(tmp_path), url, tables)
        seen.append(_read(url))
    new = {table: [3, 4] for table in tables}
    assert [one for one in seen if one not in (old, new)] == []
    assert seen[0] == old
    assert seen[-1] == new
    _written(tmp_path, "files", "2-0", [5])
    publish(str(tmp_path), url, tables)
    store.invalidate_cache()
    objects = {path for path in store.find("live/tables") if path.endswith(".parquet")}
    assert len(objects) == 5  # what killed publishers and older runs left is gone


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("theirs", "refusal"),
    [
        ("files/theirs.parquet", "no run has written it; found files"),
        ("files/2026/notes.txt", "no run has written it; found files"),
        ("_tables.json", "no manifest of tables"),
        ("theirs/one.parquet", None),
        ("one.parquet", None),
    ],
)
@pytest.mark.usefixtures("bucket")
def test_what_nobody_published_is_neither_replaced_nor_removed(
    tmp_path: Path, theirs: str, refusal: str | None
) -> None:
    import s3fs

    url, store = f"s3://live/shared-{theirs.replace('/', '-')}", s3fs.S3FileSystem()
    store.pipe(f"{url}/{theirs}", b"[]")
    _written(tmp_path, "files", "0-0", [1])
    _written(tmp_path, "records", "0-0", [2])
    for _ in range(3):
        if refusal is None:
            publish(str(tmp_path), url, ("files", "records"))
            assert _read(url) == {"files": [1], "records": [2]}
            _written(tmp_path, "files", "0-0", [1])  # another time, so another name
        else:
            with pytest.raises(OptionError, match=refusal):
                publish(str(tmp_path), url, ("files", "records"))
            assert len(store.find(url)) == 1
        assert store.cat_file(f"{url}/{theirs}") == b"[]"


@pytest.mark.usefixtures("bucket")
def test_a_store_that_refuses_an_object_is_one_sentence_of_what_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import s3fs

    class _RefusedError(Exception):
        """Stands for an error of a store's own library."""

    def refusing(*_given: Any, **_named: Any) -> Any:
        raise _RefusedError("SlowDown")

    _written(tmp_path, "files", "0-0", [1])
    monkeypatch.setattr(s3fs.S3FileSystem(), "put_file", refusing)
    with pytest.raises(LogUnreadableError, match="cannot publish: SlowDown"):
        publish(str(tmp_path), "s3://live/refused", ("files",))


@pytest.mark.usefixtures("bucket")
def test_a_run_publishes_its_tables_in_a_bucket(spark: SparkSession, tmp_path: Path) -> None:
    url = "s3://live/run"
    out = tmp_path / "tables"
    run = Run(["s3://estates/plain"], str(out), publish=url)
    assert run.advance(spark)
    for table, files in published_files(url).items():
        assert len(files) == len(list((out / table).glob("*.parquet")))
    assert set(published_files(url)) == set(OUTPUT)
    with pytest.raises(OptionError, match="Parquet tables in a local folder"):
        Run(["s3://estates/plain"], str(out), "json", publish=url)
