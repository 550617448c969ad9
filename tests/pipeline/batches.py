"""Micro-batches as Spark runs them, without Spark: drivers that cost nothing to start and to kill.

``python -m tests.pipeline.batches`` imports everything once. For every line on its standard input,
a number and folders of streams as `streaming` has them, it forks a driver that follows them into
the sink, and prints how that ended. The driver kills itself before its change of a file of that
number, or at the latest when nothing is new; with 0 it ends when everything is read. Offsets and
commits are written where Spark writes them, and in its order: a batch that has offsets and no
commit is run again with the same offsets.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import BinaryType, StructField, StructType

from tallystick.pipeline.source import sink
from tallystick.pipeline.source.batch import TallystickDataSource
from tallystick.systems.registry import systems
from tests.pipeline.streaming import COLUMNS, Stream

if TYPE_CHECKING:
    from tallystick.pipeline.source.stream import LogStreamReader

PAUSE_SECONDS = 0.01
IDLE_ROUNDS = 20

CHANGES = ("os.rename", "os.mkdir", "os.rmdir", "os.remove", "os.truncate", "os.link")
"""Events of Python's audit that change files, beside opening them for writing."""

Offset = dict[str, Any]


class Batches:
    """The batches of one stream, from its checkpoint on."""

    def __init__(self, stream: Stream) -> None:
        source = TallystickDataSource(stream.options)
        reader: Any = source.streamReader(source.schema())
        self.reader: LogStreamReader = reader
        body = StructType([StructField(sink.BODY, BinaryType())])
        target = TallystickDataSource({"path": str(stream.rows)})
        self.writer: Any = target.streamWriter(body, overwrite=False)
        self.stream = stream
        for name in ("offsets", "commits"):
            (stream.checkpoint / name).mkdir(parents=True, exist_ok=True)

    def step(self) -> bool:
        """Run one batch; False if there is nothing new."""
        number = max(self._numbers("offsets"), default=-1)
        if number in self._numbers("commits") or number < 0:
            start = self._offset(number)
            if number >= 0:
                self.reader.commit(start)
            end = self.reader.latestOffset(start, self.reader.getDefaultReadLimit())
            if end == start:
                return False
            number += 1
            self._note("offsets", number, f"v1\n{{}}\n{json.dumps(end)}")
        start, end = self._offset(number - 1), self._offset(number)
        parts = [pickle.loads(pickle.dumps(one)) for one in self.reader.partitions(start, end)]
        self.writer.commit([self.writer.write(self._rows(one)) for one in parts], number)
        self._note("commits", number, "v1\n{}")
        return True

    def _rows(self, partition: Any) -> Iterator[pa.RecordBatch]:
        for batch in self.reader.read(partition):
            rows = batch.select(COLUMNS[self.stream.table]).to_pylist()
            lines = [json.dumps(row, default=_text).encode() for row in rows]
            yield pa.record_batch({sink.BODY: pa.array(lines, pa.binary())})

    def _numbers(self, kind: str) -> set[int]:
        return {int(path.name) for path in (self.stream.checkpoint / kind).glob("[0-9]*")}

    def _offset(self, number: int) -> Offset:
        if number < 0:
            return self.reader.initialOffset()
        text = (self.stream.checkpoint / "offsets" / str(number)).read_text()
        found: Offset = json.loads(text.splitlines()[2])
        return found

    def _note(self, kind: str, number: int, text: str) -> None:
        partial = self.stream.checkpoint / f".{kind}"
        partial.write_text(text)
        partial.rename(self.stream.checkpoint / kind / str(number))


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()


def follow(streams: list[Stream], killed_before: int) -> None:
    """Run batches of all streams in turns, until killed or until nothing is new."""
    sink._query_id = lambda: "killed"  # a folder has the batches of one query
    every = [Batches(stream) for stream in streams]
    if killed_before:
        _kill_before(killed_before)
    idle = 0
    while idle < IDLE_ROUNDS:
        moved = [one.step() for one in every]
        idle = 0 if any(moved) else idle + 1
        time.sleep(PAUSE_SECONDS if idle else 0)
    if killed_before:
        os.kill(os.getpid(), signal.SIGKILL)


def _kill_before(number: int) -> None:
    """Kill this process before its change of a file of that number."""
    left = [number]

    def look(event: str, given: tuple[Any, ...]) -> None:
        if event in CHANGES or (event == "open" and given[2] & (os.O_WRONLY | os.O_RDWR)):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(look)


def main() -> None:
    """Fork a driver per line."""
    for one in systems():
        import_module(f"tallystick.systems.{one.name}.reader")
        import_module(f"tallystick.systems.{one.name}.columns.batches")
        import_module(f"tallystick.systems.{one.name}.live.log")
    for line in sys.stdin:
        number, *folders = line.split()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                follow([Stream.of(Path(one)) for one in folders], int(number))
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
