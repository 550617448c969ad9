"""The history of a row whose primary key is changed, in the real H2 and Derby."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystick.investigate.rows import rows
from tallystick.reading.filters import Filter
from tests.interop.undo.histories import is_h2
from tests.interop.undo.test_undo import ENGINES, run_steps, url

pytestmark = pytest.mark.interop

KINDS = {
    "INT": ("ID + 1", {"1": "3", "6": "7"}),
    "VARCHAR(9)": ("'1' || ID", {"1": "12", "6": "16"}),
}
"""How all keys are changed at once, and the last keys of rows by their first ones."""
AMOUNTS = {
    True: {"1": "10 11 11 12 12", "6": "60 60"},
    False: {"1": "10 11 12", "6": "60"},
}
"""In H2 or not: of H2, which writes whole rows, each change has them."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_row_keeps_its_history_when_its_key_is_changed(
    engine: str, kind: str, tmp_path: Path
) -> None:
    path, (changed, last) = tmp_path / "db", KINDS[kind]
    shown = str if kind == "INT" else "'{}'".format
    steps = [f"open\t{url(engine, path)}"]
    for one in (
        f"CREATE TABLE T (ID {kind} NOT NULL PRIMARY KEY, A INT)",
        *(f"INSERT INTO T VALUES ({shown(key)}, {key}0)" for key in (1, 5, 6)),
        "UPDATE T SET A = 11 WHERE A = 10",
        f"UPDATE T SET ID = {shown(2)} WHERE A = 11",
        "UPDATE T SET A = 12 WHERE A = 11",
        f"UPDATE T SET ID = {changed}",
        "DELETE FROM T WHERE A = 12",
    ):  # fmt: skip
        steps += [f"sql\t{one}", "commit"]
    assert not run_steps(engine, steps)
    log = path if path.is_dir() else path.with_name("db.h2.db")
    table = "PUBLIC.T" if is_h2(engine) else "APP.T"
    for first, amounts in AMOUNTS[is_h2(engine)].items():
        found = [one.change for one in rows(log, Filter(key=f"ID={last[first]}", table=table))]
        told = [f"{one.values['A']}" for one in found if one.values and "A" in one.values]
        assert " ".join(told) == amounts
