"""Reads every table of some logs on Sail, and writes what a test compares, as JSON.

``python on_sail.py FOLDER COLLECTION OUT``: OUT gets a log of the sink's.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from tallystick.pipeline.change_feed import SOURCE_TABLES
from tallystick.pipeline.session import SAIL, start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def texts(frame: DataFrame) -> list[str]:
    """The rows as texts that are alike on all engines, sorted."""
    return sorted(repr(row.asDict(recursive=True)) for row in frame.collect())


def frames(session: SparkSession, folder: str, collection: str) -> dict[str, DataFrame]:
    """Every table, and every other way into the source, by name."""
    source = session.read.format("tallystick")
    found = {name: session.read.format("tallystick").option("table", name).load(folder)
             for name in SOURCE_TABLES}  # fmt: skip
    records = source.load(folder)
    found["filter"] = records.where("system = 'derby'")
    found["schema"] = source.schema("kind string, system string").load(folder)
    found["columns"] = source.options(columns="system,time", timestamps="true").load(folder)
    changes = session.read.format("tallystick").option("table", "changes")
    found["typed"] = changes.option("collection", collection).load(folder)
    return found


def main() -> None:
    """Write the rows by name, then what was written and read again."""
    folder, collection, out = sys.argv[1:]
    session = start(SAIL)
    rows = {name: texts(frame) for name, frame in frames(session, folder, collection).items()}
    options = f"OPTIONS (path '{folder}', table 'transactions')"
    session.sql(f"CREATE TABLE catalogued USING tallystick {options}")
    rows["catalogued"] = texts(session.sql("SELECT * FROM catalogued"))
    bodies = session.createDataFrame([(b"one",), (b"two",)], "body binary")
    bodies.write.format("tallystick").mode("append").save(out)
    written = session.read.format("tallystick").load(out).where("outcome = 'valid'")
    rows["written"] = texts(written.where("body IS NOT NULL").select("body"))
    sys.stdout.write(json.dumps(rows))


if __name__ == "__main__":
    main()
