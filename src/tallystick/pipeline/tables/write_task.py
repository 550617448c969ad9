"""What a task writes: the rows of a few logs, each table into a file of its own.

In: `WriteTask` objects. Out: Parquet files ``TABLE/BUNDLE.parquet``. A log is opened once for all
of its tables, rows go from Arrow into the file without becoming rows of Java, and a file appears
whole or not at all, however often the task is tried. The profile of a log comes from the same pass.
Logs that several tasks read: `tallystick.pipeline.tables.bundle_tasks`.
"""

from __future__ import annotations

import pickle
import shutil
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tallystick.pipeline.options import SourceOptions
from tallystick.pipeline.planning import Task
from tallystick.pipeline.task import tables_of
from tallystick.reading.profiling import PROFILE, LogProfile
from tallystick.reading.tables import TABLES, batches_of_rows
from tallystick.refusals import refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUFFIX = ".parquet"

PROFILE_TABLE = "profile"
_PROFILED = ("records", "transactions")
"""Tables that a profile counts."""

GROUP_BYTES = 32 << 20
"""Bytes of Arrow buffers that become one row group: what a task holds of a table at most."""


class WriteTask(Protocol):
    """The work of one task."""

    def __call__(self) -> None:
        """Do the work; doing it again gives the same files."""
        ...


def do_all(spark: SparkSession, work: Sequence[WriteTask], root: str) -> None:
    """Do each in a task of its own, by functions that engines without RDDs have, too.

    They write below ``root``, which an error names where a call that failed names no file.
    """
    from tallystick.pipeline.stages.matching import arrow_function

    # Pickled one by one: a worker gets them all, and makes objects of its own one only.
    packed = [pickle.dumps(one) for one in work]

    def do(numbers: pa.Array) -> pa.Array:
        for number in numbers.to_pylist():
            try:
                pickle.loads(packed[number])()
            except OSError as error:  # of others Spark hands on nothing but the traceback
                raise refused(error, root) from error
        return numbers

    numbers = spark.range(0, len(work), 1, len(work))
    numbers.select(arrow_function(do, "long")("id")).collect()


@dataclass(frozen=True, slots=True)
class TableWrite:
    """Reads the pieces of ``task`` and writes ``tables`` of them below ``root``.

    With ``profile`` also the profile of what was read.
    """

    root: str
    bundle: str
    task: Task
    tables: tuple[str, ...]
    options: SourceOptions
    codec: str
    profile: bool = False

    def __call__(self) -> None:
        """Write one file per table that has rows."""
        batches = tables_of(self.task.pieces, self.options, self.tables)
        profiles = write_tables(batches, self.root, self.bundle, self.codec, count=self.profile)
        if self.profile:
            write_profile(profiles, self.root, self.bundle, self.codec)


def write_tables(
    batches: Iterable[tuple[str, pa.RecordBatch]],
    root: str,
    name: str,
    codec: str,
    *,
    count: bool = False,
) -> Profiles:
    """Write batches below ``root`` into one file per table that has rows; nothing if one fails.

    Returns:
        With ``count`` their profiles.
    """
    files: dict[str, TableFile] = {}
    profiles = Profiles()
    for table, batch in batches:
        if table not in files:
            files[table] = TableFile(f"{root}/{table}", name, TABLES[table], codec)
        files[table].add(batch)
        if count:
            profiles.add(table, batch)
    for file in files.values():
        file.close()
    return profiles


@dataclass(slots=True)
class Profiles:
    """The profiles of several logs, from the rows of some of their tables."""

    by_log: dict[tuple[str, str], LogProfile] = field(default_factory=dict)

    def add(self, table: str, batch: pa.RecordBatch) -> None:
        """Count rows of one log."""
        if table in _PROFILED and batch.num_rows:
            one = self._of(batch["system"][0].as_py(), batch["log"][0].as_py())
            (one.add_records if table == "records" else one.add_transactions)(batch)

    def merge(self, other: Profiles) -> None:
        """Count what another task has counted."""
        for log, profile in other.by_log.items():
            self._of(*log).merge(profile)

    def sums(self) -> list[dict[str, Any]]:
        """Return what was counted as JSON takes it, for `of_sums`."""
        return [one.sums() for one in self.by_log.values()]

    @classmethod
    def of_sums(cls, sums: Iterable[Mapping[str, Any]]) -> Self:
        """Return what these sums say."""
        found = map(LogProfile.of_sums, sums)
        return cls({(one.system, one.log): one for one in found})

    def _of(self, system: str, log: str) -> LogProfile:
        return self.by_log.setdefault((system, log), LogProfile(system, log))


def write_profile(profiles: Profiles, root: str, name: str, codec: str) -> None:
    """Write the rows of profiles below ``root`` into a file of that name."""
    file = TableFile(f"{root}/{PROFILE_TABLE}", name, PROFILE, codec)
    rows = chain.from_iterable(one.rows() for one in profiles.by_log.values())
    for batch in batches_of_rows(rows, PROFILE):
        file.add(batch)
    file.close()


@dataclass(frozen=True, slots=True)
class FileRewrite:
    """Writes the rows of a file again, without those of some logs."""

    file: str
    folder: str
    dropped: frozenset[str]
    codec: str

    def __call__(self) -> None:
        """Write the file without the rows of the dropped logs."""
        with pq.ParquetFile(self.file) as old:
            name = Path(self.file).name.removesuffix(SUFFIX)
            new = TableFile(self.folder, name, old.schema_arrow, self.codec)
            for batch in old.iter_batches():
                gone = pc.is_in(batch["log"], pa.array(sorted(self.dropped), pa.string()))
                new.add(batch.filter(pc.invert(gone)))
            new.close()


@dataclass(slots=True)
class TableFile:
    """A file of rows in the making; without rows no file is made."""

    folder: str
    name: str
    schema: pa.Schema
    codec: str
    _writer: pq.ParquetWriter | None = None
    _partial: Path = field(init=False)
    _waiting: list[pa.RecordBatch] = field(default_factory=list)
    _bytes: int = 0

    def __post_init__(self) -> None:
        # Spark and Arrow pass over names that begin with a point.
        self._partial = Path(self.folder, f".{self.name}.{uuid.uuid4().hex}")

    def add(self, batch: pa.RecordBatch, *, keep_empty: bool = False) -> None:
        """Add rows of the schema; with ``keep_empty`` there is a file even if there are none."""
        if batch.num_rows or keep_empty:
            self._waiting.append(batch)
            self._bytes += batch.nbytes
        if self._bytes >= GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        """Give the file its name, with all its rows."""
        if self._waiting:
            self._flush()
        if self._writer is not None:
            self._writer.close()
            self._partial.replace(Path(self.folder, self.name + SUFFIX))

    def _flush(self) -> None:
        if self._writer is None:
            Path(self.folder).mkdir(parents=True, exist_ok=True)
            self._writer = parquet_writer(self._partial, self.schema, self.codec)
        self._writer.write_table(pa.Table.from_batches(self._waiting, self.schema))
        self._waiting, self._bytes = [], 0


def parquet_writer(path: Path, schema: pa.Schema, codec: str) -> pq.ParquetWriter:
    """Return a writer of plain Parquet, as Spark would write it."""
    return pq.ParquetWriter(path, schema, compression=codec, store_schema=False)


def link_file(file: Path, place: Path) -> None:
    """Link the file into another folder; copy it where the file system has no links."""
    try:
        place.hardlink_to(file)
    except OSError:
        shutil.copy2(file, place)
