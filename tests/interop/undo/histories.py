"""Random histories of tables with many types, and the same without one of their transactions.

In: a seed and the family of an engine. Out: steps for Scripts.java. A third of the rows, at least,
is last written before the log begins; in half of the histories later transactions change the rows
of the one that is left out.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

Ident = tuple[str, tuple[str, ...]]
"""Name of a table, and what tells its rows from each other."""

_NASTY = ["''", "'it''s; -- \"x\"'", "'a\nb\r\t'", "'é€漢\U0001f600\\'", "'\x01\x7f '", "'x'"]
_LONG = "'" + "long é''\n" * 700 + "'"
_DATES = ["'0001-01-01'", "'9999-12-31'", "'1582-10-15'", "'2020-02-29'"]
_TIMES = ["'00:00:00'", "'23:59:59'"]
_STAMPS = [
    "'0001-01-01 00:00:00'", "'9999-12-31 23:59:59.999999999'", "'2021-05-06 07:08:09.123456'",
    "'1970-01-01 00:00:00.000000001'",
]  # fmt: skip
_DECIMALS = ["0.001", "-0.5", "999999999.999", "-999999999.999", "0", "12.340"]

_BOTH = {
    "SMALLINT": ["-32768", "32767", "0"],
    "INT": ["-2147483648", "2147483647", "7"],
    "BIGINT": ["-9223372036854775807 - 1", "9223372036854775807", "1"],
    "DECIMAL(12, 3)": _DECIMALS,
    "BOOLEAN": ["TRUE", "FALSE"],
    "VARCHAR(200)": _NASTY,
    "DATE": _DATES,
    "TIME": _TIMES,
    "TIMESTAMP": _STAMPS,
    "CLOB": [*_NASTY, _LONG],
}
_OF_H2 = _BOTH | {
    "DECIMAL(60, 10)": ["1" * 50, "-0.0000000001", "1E-10"],
    "DOUBLE": [
        f"CAST('{one}' AS DOUBLE)"
        for one in ("4.9E-324", "1.7976931348623157E308", "NaN", "-Infinity", "0.1", "-2.5E-8")
    ],
    "REAL": [f"CAST('{one}' AS REAL)" for one in ("3.4028235E38", "1.4E-45", "0.1", "NaN")],
    "VARBINARY": ["X''", "X'00ff27'", "X'" + "ab" * 3000 + "'"],
    "BLOB": ["X''", "X'00ff27'", "X'" + "cd" * 9000 + "'"],
    "UUID": ["'00000000-0000-0000-0000-000000000000'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'"],
    "DATE ": [*_DATES, "'-0044-03-15'", "'10000-01-01'"],
    "VARCHAR_IGNORECASE": _NASTY,
    "CHAR(9)": ["'x'", "''", "'it''''s'"],
}
_OF_H2_LAST = _OF_H2 | {
    "ENUM('a', 'b''c')": ["'a'", "'b''c'"],
    "JSON": ["JSON '{\"a\":[1,\"é\\n\"]}'", "JSON '\"x\"'", "JSON 'null'"],
    "TIMESTAMP(9) WITH TIME ZONE": [
        "'2021-05-06 07:08:09.123456789+02:30'", "'0001-01-01 00:00:00+00'",
    ],
    "INTERVAL DAY TO SECOND": [
        "INTERVAL '1 2:3:4.5' DAY TO SECOND", "INTERVAL '-9 0:0:0' DAY TO SECOND",
    ],
    "INTERVAL YEAR TO MONTH": ["INTERVAL '-3-4' YEAR TO MONTH"],
    "GEOMETRY": ["'POINT (1.5 2)'", "'SRID=4326;LINESTRING (0 0, 1 1.25)'"],
    "TIME WITH TIME ZONE": ["'10:11:12.5+01:30'"],
}  # fmt: skip
_OF_DERBY = _BOTH | {
    "DECIMAL(31, 31)": ["." + "9" * 31, "-." + "1" * 31, "0"],
    "NUMERIC(31, 0)": ["9" * 31, "-" + "9" * 31],
    "DOUBLE": ["1.79769E308", "-1.79769E308", "2.225E-307", "0.1E0", "0E0"],
    "REAL": ["CAST(3.402E38 AS REAL)", "CAST(1.18E-37 AS REAL)", "CAST(0.1E0 AS REAL)"],
    "CHAR(9)": ["'it''s'", "''", "'a\nb'"],
    "LONG VARCHAR": [*_NASTY, _LONG],
    "CHAR(4) FOR BIT DATA": ["X'00ff2700'", "X'01'"],
    "VARCHAR(40) FOR BIT DATA": ["X''", "X'00ff27'"],
    "LONG VARCHAR FOR BIT DATA": ["X'00ff27'", "X'" + "ab" * 8000 + "'"],
    "BLOB": [
        "CAST(X'00ff27' AS BLOB)",
        " || ".join(f"CAST(X'{one * 8000}' AS BLOB)" for one in ("cd", "ef", "01")),
    ],
    "VARCHAR(30000)": [_LONG, "'" + "€" * 12000 + "'"],
}  # fmt: skip
_TYPES = {"h2-1.3.176": _OF_H2, "h2-1.4.200": _OF_H2_LAST}


def is_h2(engine: str) -> bool:
    """Whether an engine is H2."""
    return engine.startswith("h2")


@dataclass(slots=True)
class Table:
    """A table; `keys` of its columns tell its rows from each other."""

    name: str
    keys: tuple[str, ...]
    columns: dict[str, str]
    lone: bool = True
    rows: list[tuple[str, ...]] = field(default_factory=list)

    def where(self, ident: tuple[str, ...]) -> str:
        return " and ".join(f"{k} = {v}" for k, v in zip(self.keys, ident, strict=True))


@dataclass(slots=True)
class History:
    """Steps with and without the target; `moves` are rows that get another ident."""

    target: int = 0
    with_it: list[str] = field(default_factory=list)
    without: list[str] = field(default_factory=list)
    tables: dict[str, Table] = field(default_factory=dict)
    moves: list[tuple[Ident, Ident]] = field(default_factory=list)


class Maker:
    """Makes one history."""

    def __init__(self, engine: str, seed: int) -> None:
        self._random = random.Random(f"{engine} {seed}")
        self._engine, self._types = engine, _TYPES.get(engine, _OF_DERBY)
        self._history, self._fresh = History(), 100
        self._touched: list[Ident] = []

    def made(self, reopen: list[str]) -> History:
        """Return a history; ``reopen`` are steps that close and open the database."""
        chance, history = self._random, self._history
        self._both(self._created())
        for _ in range(3):
            self._both([line for _ in range(8) for line in self._insert()] + ["commit"])
        self._both(self._break(reopen))
        count = chance.randrange(4, 9)
        later = chance.random() < 0.5
        history.target = chance.randrange(1, count)
        for number in range(1, count + 1):
            is_target = number == history.target
            undone = not is_target and chance.random() < 0.25
            saved = {name: list(table.rows) for name, table in history.tables.items()}
            moves = len(history.moves)
            lines = [f"sql\tinsert into MARKS values ({number})"]
            for _ in range(chance.randrange(1, 7)):
                near = later and number > history.target and chance.random() < 0.5
                lines += self._statement(near=near, note=is_target)
            if undone:
                for name, rows in saved.items():
                    history.tables[name].rows = rows
                del history.moves[moves:]
            lines.append("rollback" if undone else "commit")
            history.with_it += lines
            if not is_target:
                history.without += lines
        return history

    def _both(self, lines: list[str]) -> None:
        self._history.with_it += lines
        self._history.without += lines

    def _created(self) -> list[str]:
        chance, lines = self._random, ["sql\tcreate table MARKS (K INT NOT NULL PRIMARY KEY)"]
        shapes = [
            Table("A", ("ID",), {}),
            Table('"q ""T\'\n"', ('"k ey"', "N"), {}),
            Table("P", ("TAG",), {}, lone=False),
        ]
        for table in shapes:
            kinds = chance.sample(sorted(self._types), chance.randrange(2, 5))
            table.columns = {f'"c{at}"': kind for at, kind in enumerate(kinds)}
            keys = dict.fromkeys(table.keys, "INT NOT NULL")
            keys |= {name: "VARCHAR(90) NOT NULL" for name in keys if '"' in name}
            parts = [f"{name} {kind}" for name, kind in (keys | table.columns).items()]
            if table.lone:
                parts.append(f"PRIMARY KEY ({', '.join(table.keys)})")
            lines.append(f"sql\tcreate table {table.name} ({', '.join(parts)})")
            self._history.tables[table.name] = table
        if not is_h2(self._engine):
            lines.append("sql\tcreate table PADDING (X LONG VARCHAR FOR BIT DATA)")
        return [*lines, "commit"]

    def _break(self, reopen: list[str]) -> list[str]:
        """Return what the log begins anew with."""
        if is_h2(self._engine):
            return reopen if self._random.random() < 0.5 else ["sql\tCHECKPOINT SYNC", "commit"]
        pad = f"sql\tinsert into PADDING values (X'{'77' * 8000}')"
        switch = [
            *[pad] * 16,
            "commit",
            "sql\tcall SYSCS_UTIL.SYSCS_CHECKPOINT_DATABASE()",
            "commit",
        ]
        return [*switch, *(reopen if self._random.random() < 0.5 else [])]

    def _value(self, kind: str) -> str:
        return "NULL" if self._random.random() < 0.15 else self._random.choice(self._types[kind])

    def _ident(self, table: Table) -> tuple[str, ...]:
        self._fresh += 1
        number = str(self._fresh)
        odd = self._random.choice(["", "it''s", "\n", "é€", '"'])
        text = f"'k {odd}{number}'"
        return (text, str(self._random.randrange(3))) if len(table.keys) > 1 else (number,)

    def _insert(self, note: bool = False) -> list[str]:
        table = self._random.choice([*self._history.tables.values()])
        gone = [one for name, one in self._touched if name == table.name and one not in table.rows]
        again = table.lone and bool(gone) and self._random.random() < 0.3
        ident = self._random.choice(gone) if again else self._ident(table)
        values = [*ident, *map(self._value, table.columns.values())]
        line = f"sql\tinsert into {table.name} values ({', '.join(values)})"
        table.rows.append(ident)
        self._note(table, ident, note)
        twice = not table.lone and self._random.random() < 0.15
        return [line, line] if twice else [line]

    def _note(self, table: Table, ident: tuple[str, ...], note: bool) -> None:
        if note:
            self._touched.append((table.name, ident))

    def _statement(self, *, near: bool, note: bool) -> list[str]:
        chance, tables = self._random, self._history.tables
        there = [(name, one) for name, one in self._touched if one in tables[name].rows]
        everywhere = [(name, one) for name, table in tables.items() for one in table.rows]
        roll = chance.random()
        if roll < 0.3 or not everywhere:
            return self._insert(note)
        name, ident = chance.choice(there if near and there else everywhere)
        table = tables[name]
        self._note(table, ident, note)
        if roll < 0.5:
            table.rows.remove(ident)
            return [f"sql\tdelete from {name} where {table.where(ident)}"]
        if roll < 0.6:
            new = self._ident(table)
            table.rows[table.rows.index(ident)] = new
            self._history.moves.append(((name, ident), (name, new)))
            self._note(table, new, note)
            pairs = zip(table.keys, new, strict=True)
            sets = ", ".join(f"{key} = {value}" for key, value in pairs)
        else:
            columns = chance.sample(sorted(table.columns), chance.randrange(1, 3))
            sets = ", ".join(f"{one} = {self._value(table.columns[one])}" for one in columns)
        return [f"sql\tupdate {name} set {sets} where {table.where(ident)}"]
