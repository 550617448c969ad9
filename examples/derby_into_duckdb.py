"""What the logs of Derby changed, as tables of a DuckDB file: no Derby, no Java.

``python examples/derby_into_duckdb.py LOGS DATABASE``
"""

from __future__ import annotations

import sys

import duckdb

import tallystick


def load(logs: str, database: str) -> None:
    """Make a table of changes for each table that the logs tell the columns of."""
    with tallystick.sql(logs) as source, duckdb.connect(database) as target:
        views = "FROM information_schema.tables WHERE table_schema = 'derby' ORDER BY ALL"
        found = source.execute(f"SELECT table_name {views}").fetchall()
        for (name,) in found:
            # A stream of batches: neither side holds all rows.
            rows = source.sql(f'FROM derby."{name}"').to_arrow_reader()
            target.execute(f'CREATE OR REPLACE TABLE "{name}" AS FROM rows')
            rows.close()
            query = f'SELECT _change_type, count(*) FROM "{name}" GROUP BY ALL ORDER BY ALL'
            print(name, dict(target.execute(query).fetchall()))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    load(*sys.argv[1:])
