"""What many small logs cost: processor time of planning and of all tables, per log.

``python benchmarks/small_logs.py [--logs 200] [--records 20] [--place DIR] [--spark]`` writes
native logs of a few records, each in a segment of 16 MiB that is made ahead, waits until nobody has
changed them for a while, and makes the rows of all tables as the tasks of a run do, in this process
and without Spark. With ``--spark`` it is a run with ``local[2]``, made twice in one session; its
time is that of the driver, Java and all workers once Spark is up. What is in DIR already is read as
it is.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from pipeline_scale import twice

from tallystick.pipeline.options import parse
from tallystick.pipeline.planning import tasks
from tallystick.pipeline.runner import Run
from tallystick.pipeline.task import tables_of
from tallystick.reading.tables import TABLES
from tallystick.services.journal import Journal
from tallystick.storage.source import SETTLED_NS


def write(place: Path, logs: int, records: int) -> None:
    """Write the logs that are not there yet."""
    for number in range(logs):
        if (folder := place / f"log-{number:05}").exists():
            continue
        with Journal(str(folder)) as journal:
            for record in range(records):
                journal.append(b"record %d of %d" % (record, number))
    time.sleep(2 * SETTLED_NS / 1e9)


def read(place: Path) -> int:
    """Plan, and make all rows; return how many there are."""
    options = parse({"paths": json.dumps([str(place)])})
    return sum(
        batch.num_rows
        for task in tasks(options)
        for _, batch in tables_of(task.pieces, options, [*TABLES, "profile"])
    )


def by_spark(place: Path, logs: int) -> None:
    """Make the tables twice by Spark, and print what each time took."""
    with tempfile.TemporaryDirectory() as out:
        taken = twice({}, lambda spark, at: Run([str(place)], f"{out}/{at}").advance(spark))
    for name, seconds in (("first", taken["processor"]), ("again", taken["again"])):
        print(f"{logs} logs, {name}: {seconds:.2f} s, {seconds / logs * 1e3:.1f} ms each")


def main(given: argparse.Namespace) -> None:
    """Print what it took."""
    with tempfile.TemporaryDirectory() as made:
        place = given.place or Path(made)
        write(place, given.logs, given.records)
        if given.spark:
            by_spark(place, given.logs)
            return
        begin = time.process_time()
        rows = read(place)
        seconds = time.process_time() - begin
    print(
        f"{given.logs} logs, {rows} rows: {seconds:.2f} s, {seconds / given.logs * 1e3:.1f} ms each"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--logs", type=int, default=200)
    parser.add_argument("--records", type=int, default=20)
    parser.add_argument("--place", type=Path)
    parser.add_argument("--spark", action="store_true")
    main(parser.parse_args())
