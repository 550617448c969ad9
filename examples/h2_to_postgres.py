"""An H2 database that does not start, its rows saved into PostgreSQL; its files stay as they are.

``python examples/h2_to_postgres.py H2 POSTGRESQL-URL``
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import psycopg
import pyarrow.parquet as parquet
from psycopg.sql import SQL, Identifier

import tallystick

TYPES = {
    "bool": "boolean", "int8": "smallint", "int16": "smallint", "int32": "integer",
    "int64": "bigint", "float": "real", "double": "double precision", "binary": "bytea",
    "date32[day]": "date", "timestamp[us]": "timestamp",
}  # fmt: skip
"""Types of PostgreSQL by those of Arrow; a text where there is none."""


def column(field: object) -> SQL:
    """Return the type of a column: a decimal's is called like it."""
    name = str(field).replace("decimal128", "numeric")
    return SQL(name if name.startswith("numeric") else TYPES.get(name, "text"))


def save(source: str, url: str) -> None:
    """Write what can be read as a table each, all in one transaction."""
    with tempfile.TemporaryDirectory() as folder, psycopg.connect(url) as database:
        print(tallystick.salvage(source, f"{folder}/saved", "parquet"))
        for file in sorted(Path(folder, "saved").glob("*.parquet")):
            table = Identifier(file.stem.partition("-")[2].lower())
            rows = parquet.read_table(file)
            columns = SQL(", ").join(
                SQL("{} {}").format(Identifier(one.name.lower()), column(one.type))
                for one in rows.schema
            )
            database.execute(SQL("CREATE TABLE {} ({})").format(table, columns))
            with database.cursor().copy(SQL("COPY {} FROM STDIN").format(table)) as copy:
                for row in rows.to_pylist():
                    copy.write_row(tuple(row.values()))
            print(table.as_string(), rows.num_rows, "rows")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    save(*sys.argv[1:])
