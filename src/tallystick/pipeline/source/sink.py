"""``df.write.format("tallystick")``: a DataFrame into native logs, a shard per task.

In: rows with the one column ``body`` (binary or string, never null). Out: ``DIR/batch-ID/shard-N``,
each a log of plain records. Shards are written and synced beside DIR; one rename makes all of a
batch visible, so a reader sees whole batches only. The id of a streaming batch holds the id of its
query, so a batch that is tried again is not written again, and one of another query is.
"""

from __future__ import annotations

import ctypes
import errno
import os
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

from tallystick.errors import LogWriteError, TallystickError
from tallystick.pipeline.planning import NAMES_MAX
from tallystick.pipeline.source.worker import one_sentence
from tallystick.reading.discovery import search
from tallystick.refusals import reason_of
from tallystick.storage.local import LOCAL, LocalFileSystem
from tallystick.systems.registry import open_journal_engine, systems

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

BODY = "body"
"""The column that becomes the record."""

SEGMENT_BYTES = 16 << 20
"""Size of a segment, except where a whole shard needs less: a segment takes its size on disk."""

_RECORD_ROOM, _SEGMENT_ROOM, _ROUND = 64, 32 << 10, 4096
"""Bytes beside its body that a record, and a segment, need at most; sizes are multiples of the
last."""

APPENDED_BYTES = 32 << 20
"""Bytes that are appended, and synced, at once."""

_BATCH = "batch-"
"""How the folders of batches begin, with which the sink's folder is filled."""

_QUERY = "sql.streaming.queryId"
"""Local property of a streaming task: the id that a query keeps over restarts from a checkpoint."""

_FOLDERS = LocalFileSystem(folder_mode=0o777)
"""Makes folders durably, for all whom the umask lets in, as Spark makes its own."""

_EXCHANGED = "exchanged"
"""File of a staging folder: the inode of the folder that takes the place of the old one."""


@dataclass
class ShardWritten(WriterCommitMessage):
    """A task's shard, the number of its records, and the id of the streaming query."""

    path: str
    records: int
    query: str | None = None


@dataclass
class _Shards:
    """What batch and stream writers share. ``staging`` lies beside ``root``, on its disk."""

    root: str
    staging: str

    def write_shard(self, batches: Iterator[pa.RecordBatch]) -> ShardWritten:
        """Write all rows of a task into a new log; durable when this returns."""
        path = f"{self.staging}/{uuid.uuid4().hex}"
        _FOLDERS.mkdir(self.staging)
        parts = _parts(batches)
        waiting = next(parts, [])
        settings = {"segment_size": _segment_size(waiting), "preallocate": False, "spares": 0}
        records = 0
        log = open_journal_engine(path, settings=settings)
        try:
            while waiting:
                records += len(log.append_many(waiting))
                waiting = next(parts, [])
        finally:
            log.close()
        return ShardWritten(path, records, _query_id())

    def gather(self, messages: list[WriterCommitMessage | None], folder: Path) -> None:
        """Move the shards of a batch into a new folder, durably."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for number, message in enumerate(_shards(messages)):
            Path(message.path).rename(folder / f"shard-{number:05}")
        LOCAL.sync_dir(str(folder))

    def publish(self, messages: list[WriterCommitMessage | None], batch: str) -> None:
        """Make the shards of a batch visible at once, unless that batch is there."""
        target = Path(self.root) / f"{_BATCH}{batch}"
        if not target.exists():
            whole = Path(self.staging) / f"{_BATCH}{batch}"
            self.gather(messages, whole)
            _FOLDERS.mkdir(self.root)
            whole.rename(target)
            LOCAL.sync_dir(self.root)
        self.discard(messages)

    def discard(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove shards that are not part of a batch."""
        for message in _shards(messages):
            shutil.rmtree(message.path, ignore_errors=True)


class ShardWriter(DataSourceArrowWriter):
    """A batch write; ``overwrite`` exchanges the whole folder for one with the new batch alone.

    A reader sees the old batches or the new one, never both; so does a later run after a kill at
    any point, which also removes what the killed one left.
    """

    def __init__(self, root: str, *, overwrite: bool) -> None:
        self.batch = uuid.uuid4().hex
        self.shards = _Shards(root, f"{root}._staging-{self.batch}")
        self.overwrite = overwrite

    @one_sentence()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> ShardWritten:
        """Write the rows of one task."""
        return self.shards.write_shard(iterator)

    @one_sentence()
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish the batch; with ``overwrite``, in the place of all older ones."""
        root, staging = Path(self.shards.root), Path(self.shards.staging)
        _remove_replaced(root)
        if self.overwrite and root.exists():
            self.shards.gather(messages, staging / "new" / f"{_BATCH}{self.batch}")
            (staging / _EXCHANGED).write_text(str((staging / "new").stat().st_ino))
            LOCAL.sync_dir(str(staging / "new"))
            try:
                _exchange(str(staging / "new"), str(root))
            except OSError as error:
                if error.errno not in (errno.ENOSYS, errno.EINVAL):
                    raise
                root.rename(staging / "old")  # `_remove_replaced` goes on from here after a kill
                (staging / "new").rename(root)
            LOCAL.sync_dir(str(root.parent))
        else:
            self.shards.publish(messages, self.batch)
        shutil.rmtree(staging, ignore_errors=True)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002
        """Remove what was staged."""
        shutil.rmtree(self.shards.staging, ignore_errors=True)


class ShardStreamWriter(DataSourceStreamArrowWriter):
    """A streaming write: a batch that its query published before is dropped.

    A query has a staging folder of its own, so each commit removes what killed tries left there.
    """

    def __init__(self, root: str) -> None:
        self.root = root

    @one_sentence()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> ShardWritten:
        """Write the rows of one task."""
        return self._shards(_query_id()).write_shard(iterator)

    @one_sentence()
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Publish the batch unless its query published it before.

        Raises:
            LogWriteError: the folder has a batch of that number from before batches had the id of
                their query: whether it is the same one cannot be known.
        """
        queries = {shard.query for shard in _shards(messages)}
        if not queries:
            return  # a batch without rows and without tasks
        query = queries.pop() if len(queries) == 1 else None
        if query is None:
            raise LogWriteError("a streaming batch does not say which query it is of")
        old = Path(self.root) / f"{_BATCH}{batchId:012}"
        if old.exists():
            raise LogWriteError(
                "there is a batch of this number that does not say which query wrote it",
                file=str(old),
                advice="Write to another folder; or remove it if this query has not written it",
            )
        shards = self._shards(query)
        shards.publish(messages, f"{query}-{batchId:012}")
        shutil.rmtree(shards.staging, ignore_errors=True)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Remove the shards of the batch."""
        self._shards(None).discard(messages)

    def _shards(self, query: str | None) -> _Shards:
        return _Shards(self.root, f"{self.root}._staging-{query or 'stream'}")


def require_room(root: str, *, overwrite: bool) -> None:
    """Check that nothing but batches of this sink would be removed, and no log written into.

    Raises:
        LogWriteError: the folder holds something else, with ``overwrite``; or it is that of a log,
            or holds a file that cannot be read, and so may be one's.
    """
    try:
        names = sorted(one.name for one in Path(root).iterdir())
    except FileNotFoundError:
        return
    except OSError as error:
        raise LogWriteError(f"cannot write here: {reason_of(error)}", file=root) from error
    others = [name for name in names if not name.startswith(_BATCH)]
    if overwrite and others:
        raise LogWriteError(
            "overwrite would remove what this sink has not written",
            file=root,
            found=", ".join(others[:NAMES_MAX]),
            advice="Name a folder of the sink's own, or a new one",
        )
    found = search(root, systems())
    if found.logs:
        raise LogWriteError(
            "this is the folder of a log, and shards are logs of their own",
            file=root,
            advice="Name a folder of the sink's own, or a new one",
        )
    if found.problems:
        raise LogWriteError(
            "a file in this folder cannot be read, so it may be a log's",
            file=found.problems[0].file,
            advice="Name a folder of the sink's own, or a new one",
        )


def require_body(schema: StructType) -> None:
    """Check that a frame has the column ``body`` and no other.

    Raises:
        TallystickError: it has others, which would be lost, or has it in another type.
    """
    columns = {field.name: field.dataType.simpleString() for field in schema}
    if set(columns) != {BODY} or columns[BODY] not in ("binary", "string"):
        raise TallystickError(
            "the frame does not fit a log",
            expected=f"a column {BODY}, binary or string, and no other",
            found=", ".join(f"{name} {kind}" for name, kind in columns.items()),
            advice=f'Select it: df.select("{BODY}")',
        )


def _parts(batches: Iterator[pa.RecordBatch]) -> Iterator[list[bytes]]:
    """Yield the bodies, in lists of about `APPENDED_BYTES`."""
    waiting: list[bytes] = []
    size = 0
    for batch in batches:
        waiting += _bodies(batch)
        size += batch.nbytes
        if size >= APPENDED_BYTES:
            yield waiting
            waiting, size = [], 0
    if waiting:
        yield waiting


def _segment_size(bodies: list[bytes]) -> int:
    """Return the size of segments for a shard that begins with these bodies."""
    needed = sum(len(body) + _RECORD_ROOM for body in bodies) + _SEGMENT_ROOM
    return min(-(-needed // _ROUND) * _ROUND, SEGMENT_BYTES)


def _bodies(batch: pa.RecordBatch) -> list[bytes]:
    values = batch.column(BODY)
    if values.null_count:
        raise TallystickError(
            "a body is null: a record has a body, which may be empty",
            advice="Filter such rows, or replace the null",
        )
    return [v.encode() if isinstance(v, str) else v for v in values.to_pylist()]


def _query_id() -> str | None:
    from pyspark import TaskContext

    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(_QUERY)


def _remove_replaced(root: Path) -> None:
    """Finish what killed writers began: old batches go once new ones have taken their place."""
    for staging in root.parent.glob(f"{root.name}._staging-*"):
        if (staging / "old").exists() and not root.exists():
            (staging / "new").rename(root)
        try:
            exchanged = (staging / _EXCHANGED).read_text() == str(root.stat().st_ino)
        except OSError:
            continue  # of a writer at work, or killed before it exchanged anything
        if exchanged:
            shutil.rmtree(staging, ignore_errors=True)


def _exchange(one: str, other: str) -> None:
    """Exchange two folders of one file system in a single step (renameat2, Linux 3.15).

    Raises:
        OSError: the file system, or the kernel, cannot do that.
    """
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "renameat2"):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), other)
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE of <linux/fs.h>
    if library.renameat2(here, os.fsencode(one), here, os.fsencode(other), exchange) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), other)


def _shards(messages: list[WriterCommitMessage | None]) -> list[ShardWritten]:
    return [message for message in messages if isinstance(message, ShardWritten)]
