"""Tables by the rows of the catalogue, of which the log may have given up some."""

from __future__ import annotations

from tallystick.systems.derby.format import operations
from tallystick.systems.derby.format.field_types import Page
from tallystick.systems.derby.format.layout import Group
from tallystick.systems.derby.format.record_body import Body
from tallystick.systems.derby.read.catalogue import (
    COLUMNS,
    CONGLOMERATES,
    TABLES,
    Catalogue,
    Table,
)
from tallystick.systems.derby.read.containers import Key

Columns = dict[int, bytes | None]
TABLE, OLD, NEW, COMMIT = "an-id", 1808, 1840, 70
LOST: Columns = {}
"""A row that was there, and was purged since: neither log nor page have its values."""


def text(value: str) -> bytes:
    return len(value).to_bytes(2) + value.encode()


def container(number: int) -> Columns:
    return {1: text(TABLE), 2: number.to_bytes(8), 4: b"\0"}


def table(name: str) -> Columns:
    return {0: text(TABLE), 1: text(name), 2: text("T"), 3: text("schema")}


def body(page: int, record: int, columns: Columns | None) -> Body:
    """An insert of a row, or a delete where there are no columns."""
    fields = {"pageId": Page(0, page, 1), "recordId": record, "undo": None}
    if columns is None:
        return Body(Group(0), 7, operations.DELETE, fields | {"delete": True}, 0)
    whole = [columns.get(at) for at in range(1 + max(columns))]
    stored = b"".join(
        b"\1" if one is None else b"\x20" + len(one).to_bytes(2) + one for one in whole
    )
    return Body(Group(0), 7, operations.INSERT, fields, 0, bytes([0, record, len(whole)]) + stored)


COLUMN: Columns = {0: text(TABLE), 1: text("ID"), 2: (1).to_bytes(4), 3: b""}


def made(begin: dict[int, dict[Key, Columns]], *bodies: Body) -> Table:
    """The table after one transaction; it was none where the log begins."""
    catalogue = Catalogue({CONGLOMERATES: {}, TABLES: {}, COLUMNS: {}} | begin)
    assert not catalogue.tables
    catalogue.apply(bodies, COMMIT)
    (found,) = catalogue.tables.values()
    return found


def test_a_table_that_was_renamed_has_its_container_from_before_the_log() -> None:
    rows: dict[int, dict[Key, Columns]] = {
        CONGLOMERATES: {(1, 8): container(OLD)},
        TABLES: {(1, 8): LOST},
        COLUMNS: {(1, 8): COLUMN},
    }
    found = made(rows, body(TABLES, 8, None), body(TABLES, 9, table("N")))
    assert (found.name, found.containers, found.loaded) == ("schema.N", [(OLD, None)], False)


def test_a_table_that_gets_another_container_has_rows_that_the_log_does_not_have() -> None:
    rows: dict[int, dict[Key, Columns]] = {
        CONGLOMERATES: {(1, 8): LOST},
        TABLES: {(1, 8): table("N")},
        COLUMNS: {(1, 8): COLUMN},
    }
    found = made(rows, body(CONGLOMERATES, 8, None), body(CONGLOMERATES, 9, container(NEW)))
    assert (found.containers, found.loaded) == ([(NEW, COMMIT)], True)


def test_a_table_that_the_log_makes_has_all_of_its_rows_there() -> None:
    rows = {CONGLOMERATES: container(NEW), TABLES: table("N"), COLUMNS: COLUMN}
    found = made({}, *(body(page, 9, columns) for page, columns in rows.items()))
    assert (found.containers, found.loaded) == ([(NEW, COMMIT)], False)


def test_the_container_of_a_table_that_was_dropped_is_none_of_the_catalogue_s_own() -> None:
    """Even where no table of users is left that is older; what is older and was not dropped is."""
    first: Columns = {1: text("first"), 2: OLD.to_bytes(8), 4: b"\0"}
    rows: dict[int, dict[Key, Columns]] = {
        CONGLOMERATES: {(1, 8): first, (1, 9): container(NEW)},
        TABLES: {(1, 8): table("N") | {0: text("first")}, (1, 9): table("M")},
        COLUMNS: {(1, 8): COLUMN | {0: text("first")}, (1, 9): COLUMN},
    }
    catalogue = Catalogue(rows)
    assert len(catalogue.tables) == 2
    catalogue.apply([body(one, 8, None) for one in rows], COMMIT)
    assert [one.name for one in catalogue.tables.values()] == ["schema.M"]
    assert not catalogue.is_other(OLD)
    assert catalogue.is_other(OLD - 32)
