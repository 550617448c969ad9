"""``spark.readStream.format("tallystick")``: the records of logs that are being written.

In: options and offsets of Spark. Out: offsets as canonical JSON, partitions, batches. An
offset is a `tallystick.pipeline.source.positions.Position`; equal positions are equal texts.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from tallystick.pipeline.change_feed import stamped
from tallystick.pipeline.options import Limit, SourceOptions
from tallystick.pipeline.source.backlog import Looks
from tallystick.pipeline.source.file_ranges import FileRange, file_ranges, packed, read
from tallystick.pipeline.source.positions import (
    UNREAD,
    Position,
    capped,
    reader_offset,
    require_below,
    require_same_stream,
    with_options,
)
from tallystick.pipeline.source.tailer import Tailer
from tallystick.pipeline.source.worker import one_sentence

if TYPE_CHECKING:
    import pyarrow as pa


class RangePartition(InputPartition):
    """`FileRange` objects on their way to an executor."""

    def __init__(self, ranges: tuple[FileRange, ...]) -> None:
        super().__init__(ranges)
        self.ranges = ranges


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads each record of each life of a file exactly once, while files grow, roll and go."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.tailer = Tailer(options)
        self.target: Position | None = None
        self._reached: Position = {}
        self._looks = Looks()
        self._noted: dict[str, str] = {}
        """By log the file that was read last when that was noted for disposers."""

    @one_sentence()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the position before every record, or after those that are there now."""
        return (
            {**with_options({}, self.tailer.latest(), self.options)} if self.options.latest else {}
        )

    @one_sentence()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Take the present end of the logs as the target."""
        self.target = self.tailer.latest()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit of the options."""
        limit = self.options.limit
        if limit.rows is not None:
            return ReadMaxRows(limit.rows)
        if limit.bytes is not None:
            return ReadMaxBytes(limit.bytes)
        return ReadAllAvailable() if limit.files is None else ReadMaxFiles(limit.files)

    @one_sentence()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the position after the next records within the limit, at most the target."""
        require_below(start, self.options.paths)
        require_same_stream(start, self.options)
        start = self.tailer.read_on(start)
        position = self.tailer.advance(start, _limit(limit))
        if self.target is not None:
            self.target = self._renewed(self.target, start, position)
            position = capped(start, position, self.target)
        position = with_options(start, position, self.options)
        self._reached = position
        return {**position}

    @one_sentence()
    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the present end of the logs, with what is not read yet for progress reports."""
        return self._looks.report(self.tailer, self._reached)

    @one_sentence()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[RangePartition]:
        """Return the work between two positions."""
        require_below(end, self.options.paths)
        require_same_stream(end, self.options)
        found = file_ranges(self.options, start, end)
        limit = self.options.split_bytes
        return [
            RangePartition(some) for some in packed(found, limit, whole_logs=self.options.history)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one partition, in the columns that are wanted."""
        assert isinstance(partition, RangePartition)
        with one_sentence():
            for batch in read(partition.ranges, self.options):
                yield self.options.wanted(stamped(batch) if self.options.timestamps else batch)

    @one_sentence()
    def commit(self, end: dict[str, Any]) -> None:
        """Note for disposers which files were read to their end (option holdFolder)."""
        files = {key: entry["file"] for key, entry in end.items() if isinstance(entry, dict)}
        if self.options.hold_folder is None or files == self._noted:
            return
        for folder, path in self.tailer.finished(end).items():
            reader_offset(self.options.hold_folder, folder).commit(PurePath(path).name)
        self._noted = files

    def _renewed(self, target: Position, start: Position, position: Position) -> Position:
        """Return the target with the present end of each log that was put back, and begins anew.

        The end of what was there before means nothing in it.
        """
        anew = [
            key
            for key, entry in position.items()
            if entry["rewrites"] != start.get(key, UNREAD)["rewrites"]
        ]
        now = self.tailer.latest() if anew else {}
        return {**target, **{key: now.get(key, position[key]) for key in anew}}


def _limit(limit: ReadLimit) -> Limit:
    if isinstance(limit, ReadMaxRows):
        return Limit(rows=limit.max_rows)
    if isinstance(limit, ReadMaxBytes):
        return Limit(bytes=limit.max_bytes)
    return Limit(files=limit.max_files) if isinstance(limit, ReadMaxFiles) else Limit()
