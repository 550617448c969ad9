"""Logs in an object store: a real S3 protocol, spoken by a server on loopback."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

import tallystick
from tallystick.errors import LogUnreadableError
from tallystick.pipeline.fingerprint import fingerprint
from tallystick.pipeline.options import SourceOptions
from tallystick.pipeline.planning import find
from tallystick.pipeline.source.file_ranges import file_ranges, read
from tallystick.pipeline.source.positions import Position
from tallystick.pipeline.source.tailer import Tailer
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
    assert all(path.startswith(f"{bucket}/plain/") for path in position)


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
    assert len({fingerprint(path)[0] for path in position}) == 1


@pytest.mark.usefixtures("bucket")
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


def test_spark_reads_the_same_url(spark: SparkSession, bucket: str) -> None:
    url = f"{bucket}/plain"
    frame = spark.read.format("tallystick").load(url)
    rows = frame.where("outcome = 'valid'").select("file", "offset").collect()
    ours = {(record.file, record.offset) for record in tallystick.scan(url)}
    assert {(row.file, row.offset) for row in rows} == ours
