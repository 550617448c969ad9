"""What a task writes: the rows of a few logs, each table into a file of its own.

In: `WriteTask` objects. Out: Parquet files ``TABLE/BUNDLE.parquet``. A log is opened once for all
of its tables, rows go from Arrow into the file without becoming rows of Java, and a file appears
whole or not at all, however often the task is tried. The profile of a log comes from the same pass;
where several tasks read its records, from what each of them counted.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tallystick.pipeline.options import SourceOptions
from tallystick.pipeline.planning import Bundle, Task
from tallystick.pipeline.task import tables_of
from tallystick.reading.profiling import PROFILE, LogProfile, folded
from tallystick.reading.tables import TABLES, batches_of_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUFFIX = ".parquet"

_RECORDS = ("records",)
_PROFILED = ("records", "transactions")
_OTHERS = tuple(table for table in TABLES if table not in _RECORDS)

PROFILE_TABLE = "profile"
PARTIAL_PROFILE = "_profile"
"""The folder of what several tasks counted of the same logs, until `ProfileFold` adds it up."""

GROUP_BYTES = 32 << 20
"""Bytes of Arrow buffers that become one row group: what a task holds of a table at most."""


class WriteTask(Protocol):
    """The work of one task."""

    def __call__(self) -> None:
        """Do the work; doing it again gives the same files."""
        ...


def do_all(spark: SparkSession, work: Sequence[WriteTask]) -> None:
    """Do each in a task of its own, by functions that engines without RDDs have, too."""
    from tallystick.pipeline.stages.matching import arrow_function

    # Pickled one by one: a worker gets them all, and makes objects of its own one only.
    packed = [pickle.dumps(one) for one in work]

    def do(numbers: pa.Array) -> pa.Array:
        for number in numbers.to_pylist():
            pickle.loads(packed[number])()
        return numbers

    numbers = spark.range(0, len(work), 1, len(work))
    numbers.select(arrow_function(do, "long")("id")).collect()


@dataclass(frozen=True, slots=True)
class TableWrite:
    """Reads the pieces of ``task`` and writes ``tables`` of them below ``root``.

    ``profile`` is the folder for the profile of what was read; there is none if it is empty.
    """

    root: str
    bundle: str
    task: Task
    tables: tuple[str, ...]
    options: SourceOptions
    codec: str
    profile: str = ""

    def __call__(self) -> None:
        """Write one file per table that has rows."""
        files = {
            table: TableFile(f"{self.root}/{table}", self.bundle, TABLES[table], self.codec)
            for table in self.tables
        }
        profiles: dict[tuple[str, str], LogProfile] = {}
        for table, batch in tables_of(self.task.pieces, self.options, self.tables):
            files[table].add(batch)
            if self.profile and table in _PROFILED and batch.num_rows:
                log = batch["system"][0].as_py(), batch["log"][0].as_py()
                one = profiles.setdefault(log, LogProfile(*log))
                (one.add_records if table in _RECORDS else one.add_transactions)(batch)
        for file in files.values():
            file.close()
        if self.profile:
            rows = chain.from_iterable(one.rows() for one in profiles.values())
            _write_profile(rows, f"{self.root}/{self.profile}", self.bundle, self.codec)


def bundle_writes(
    bundle: Bundle, name: str, root: str, options: SourceOptions, codec: str, *, profile: bool
) -> Iterator[TableWrite]:
    """Yield the writing of every table of a bundle, below ``root`` into files called ``name``.

    With ``profile`` also of their profile: where the bundle has parts, `ProfileFold` has to follow.
    """
    tables = _OTHERS if bundle.parts else tuple(TABLES)
    folder = "" if not profile else PARTIAL_PROFILE if bundle.parts else PROFILE_TABLE
    yield TableWrite(root, name, bundle.whole, tables, options, codec, folder)
    for number, part in enumerate(bundle.parts):
        yield TableWrite(root, f"{name}-{number:05d}", part, _RECORDS, options, codec, folder)


@dataclass(frozen=True, slots=True)
class ProfileFold:
    """Adds up what the writes of a bundle with parts counted, into its file of ``profile``."""

    root: str
    bundle: str
    codec: str

    def __call__(self) -> None:
        """Write the file."""
        folder = Path(self.root, PARTIAL_PROFILE)
        names = (f"{self.bundle}{SUFFIX}", f"{self.bundle}-*{SUFFIX}")
        parts = (part for name in names for part in folder.glob(name))
        rows = folded(row for part in parts for row in pq.read_table(part).to_pylist())
        _write_profile(rows, f"{self.root}/{PROFILE_TABLE}", self.bundle, self.codec)


def _write_profile(rows: Iterable[dict[str, Any]], folder: str, name: str, codec: str) -> None:
    file = TableFile(folder, name, PROFILE, codec)
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
    """A file of rows in the making; there is none if there are no rows."""

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
