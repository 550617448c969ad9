"""``df.write.format("tallystick")``: a DataFrame into native logs, a shard per task.

In: rows with a column ``body`` (binary or string). Out: ``DIR/batch-ID/shard-N``, each a log of
plain records. Shards are written and synced beside DIR; one rename makes all of a batch
visible, so a reader sees whole batches only, and a batch id that is there already is not
written again.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from tallystick.errors import TallystickError
from tallystick.storage.local import LOCAL

if TYPE_CHECKING:
    import pyarrow as pa

BODY = "body"
"""The column that becomes the record."""

SEGMENT_BYTES = 16 << 20


@dataclass
class ShardWritten(WriterCommitMessage):
    """A task's shard and the number of its records."""

    path: str
    records: int


@dataclass
class _Shards:
    """What batch and stream writers share. ``staging`` lies beside ``root``, on its disk."""

    root: str
    staging: str

    def write_shard(self, batches: Iterator[pa.RecordBatch]) -> ShardWritten:
        """All rows of a task into a log of its own; durable when this returns."""
        from tallystick.systems.tally.live.items import columnar
        from tallystick.systems.tally.live.log import TallyLog
        from tallystick.systems.tally.live.settings import Settings

        path = f"{self.staging}/{uuid.uuid4().hex}"
        Path(self.staging).mkdir(parents=True, exist_ok=True)
        settings = Settings(segment_size=SEGMENT_BYTES, preallocate=False, spares=0)
        records = 0
        with TallyLog(path, settings=settings) as log:
            for batch in batches:
                bodies = _bodies(batch)
                for group in columnar(bodies, log.capacity, log.check_size):
                    log.submit(group)
                records += len(bodies)
            log.flush()
        return ShardWritten(path, records)

    def publish(self, messages: list[WriterCommitMessage | None], batch: str) -> None:
        """Make the shards of a batch visible at once, unless that batch is there."""
        target = Path(self.root) / f"batch-{batch}"
        if not target.exists():
            whole = Path(self.staging) / f"batch-{batch}"
            shutil.rmtree(whole, ignore_errors=True)
            whole.mkdir(parents=True)
            for number, message in enumerate(_shards(messages)):
                Path(message.path).rename(whole / f"shard-{number:05}")
            LOCAL.sync_dir(str(whole))
            Path(self.root).mkdir(parents=True, exist_ok=True)
            whole.rename(target)
            LOCAL.sync_dir(self.root)
        self.discard(messages)

    def discard(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove shards that are not part of a batch."""
        for message in _shards(messages):
            shutil.rmtree(message.path, ignore_errors=True)


class ShardWriter(DataSourceArrowWriter):
    """A batch write; with ``overwrite`` older batches go once the new one is there."""

    def __init__(self, root: str, *, overwrite: bool) -> None:
        self.batch = uuid.uuid4().hex
        self.shards = _Shards(root, f"{root}._staging-{self.batch}")
        self.overwrite = overwrite

    def write(self, iterator: Iterator[pa.RecordBatch]) -> ShardWritten:
        return self.shards.write_shard(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        root = Path(self.shards.root)
        older = list(root.glob("batch-*")) if self.overwrite else []
        self.shards.publish(messages, self.batch)
        for path in older:
            shutil.rmtree(path)
        shutil.rmtree(self.shards.staging, ignore_errors=True)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002
        shutil.rmtree(self.shards.staging, ignore_errors=True)


class ShardStreamWriter(DataSourceStreamArrowWriter):
    """A streaming write: a batch id that was published before is dropped."""

    def __init__(self, root: str) -> None:
        self.shards = _Shards(root, f"{root}._staging-stream")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> ShardWritten:
        return self.shards.write_shard(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self.shards.publish(messages, f"{batchId:012}")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        self.shards.discard(messages)


def _bodies(batch: pa.RecordBatch) -> list[bytes]:
    if BODY not in batch.schema.names:
        raise TallystickError(
            "the frame has no column to write",
            expected=f"a column {BODY}, binary or string",
            found=", ".join(batch.schema.names),
        )
    values = batch.column(BODY).to_pylist()
    return [value.encode() if isinstance(value, str) else bytes(value or b"") for value in values]


def _shards(messages: list[WriterCommitMessage | None]) -> list[ShardWritten]:
    return [message for message in messages if isinstance(message, ShardWritten)]
