"""Logs in an object store: a real S3 protocol, spoken by a server on loopback."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

import tallystick
from tallystick.pipeline.options import SourceOptions
from tallystick.pipeline.planning import find
from tallystick.pipeline.tailing import Tailer
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
        for path in sorted((fixture_dir("bitronix") / CASE).glob("*.tlog*")):
            raw = path.read_bytes()
            plain = gzip.decompress(raw) if path.suffix == ".gz" else raw
            name = path.name.removesuffix(".gz")
            store.pipe(f"estates/plain/{name}", plain)
            store.pipe(f"estates/packed/{name}.gz", gzip.compress(plain))
        yield "s3://estates"
    finally:
        server.stop()


def _told(path: str) -> list[tuple[str, int, int, str, bytes | None]]:
    """What a record says, without the folder it lies in."""
    return [
        (record.file.rpartition("/")[2].removesuffix(".gz"), record.offset, record.length,
         record.type, record.gtrid)
        for record in tallystick.scan(path)
    ]  # fmt: skip


@pytest.mark.parametrize("folder", ["plain", "packed"])
def test_a_scan_of_a_bucket_gives_what_a_scan_of_files_gives(bucket: str, folder: str) -> None:
    here = _told(str(fixture_dir("bitronix") / CASE))
    assert here
    assert _told(f"{bucket}/{folder}") == here


def test_the_logs_of_a_bucket_have_urls_as_names(bucket: str) -> None:
    assert [log.path for log in find([bucket]).logs] == [f"{bucket}/packed", f"{bucket}/plain"]


def test_a_bucket_can_be_followed(bucket: str) -> None:
    position = Tailer(SourceOptions((f"{bucket}/plain",))).advance({})
    assert position
    assert all(path.startswith(f"{bucket}/plain/") for path in position)


def test_an_empty_prefix_holds_no_log(bucket: str) -> None:
    assert find([f"{bucket}/nowhere"]).logs == []


def test_spark_reads_the_same_url(spark: SparkSession, bucket: str) -> None:
    url = f"{bucket}/plain"
    frame = spark.read.format("tallystick").load(url)
    rows = frame.where("outcome = 'valid'").select("file", "offset").collect()
    ours = {(record.file, record.offset) for record in tallystick.scan(url)}
    assert {(row.file, row.offset) for row in rows} == ours
