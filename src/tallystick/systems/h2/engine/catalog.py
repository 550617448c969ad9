"""The page index and the statements of the catalogue, held against each other after redo.

In: rows of the page index by id, and the rows of SYS. Out: what of them the engine never leaves, in
words. Each commit of a change of a schema leaves both in step, but for an empty table that
ALTER TABLE of 1.3 and 1.4 makes and removes before the one to which it copies the rows.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping

from tallystick.systems.h2.engine.tables import INDEX_KIND, TABLE_KIND, MetaRow
from tallystick.systems.h2.format import layout
from tallystick.systems.h2.format.entries import TABLE_CATALOG
from tallystick.systems.h2.format.values.java_text import whole_number
from tallystick.systems.h2.format.values.types import Value

_TABLE, _INDEX = 0, 1
_BEGINNINGS = {
    _TABLE: "CREATE ",
    _INDEX: "CREATE ",
    2: "CREATE USER ",
    3: "CREATE SEQUENCE ",
    5: "ALTER TABLE ",
    6: "SET ",
}
"""How statements of a type begin, as far as all do so."""
_CACHED = "CREATE CACHED TABLE "
_VIEW = re.compile(r"CREATE (OR REPLACE )?(FORCE )?VIEW ")
_ON_PAGES = re.compile(r"CREATE (PRIMARY KEY|(UNIQUE )?INDEX) ")
_Row = tuple[Value | None, ...]


def contradictions(
    meta: Mapping[int, MetaRow], catalog: Iterable[_Row], log_pages: Container[int]
) -> Iterator[str]:
    """Yield what the engine never leaves in the page index and in the catalogue.

    Args:
        meta: the rows of the page index after redo, by id.
        catalog: the rows of SYS after redo.
        log_pages: the pages that the log uses.
    """
    roots = Counter(row.root for row in meta.values() if row.root)
    yield from (f"page {root} is the root of two indexes" for root, n in roots.items() if n > 1)
    for root in roots:
        if root < layout.FIRST_FREE_PAGE or root in log_pages:
            yield f"page {root} is the root of an index, and is of the log or of the store itself"
    tables, indexes = _ids(meta, TABLE_KIND), _ids(meta, INDEX_KIND)
    for index in indexes:
        parent = meta.get(meta[index].parent)
        if parent is None or parent.kind != TABLE_KIND:
            yield f"index {index} is of table {meta[index].parent}, which the page index has not"
    statements: dict[int, tuple[int, str]] = {}
    for values in catalog:
        found = _statement(values)
        if found is None:
            yield "a row of the catalog holds what the engine never writes"
            return
        index, kind, sql = found
        if index in statements:
            yield f"the catalog has two statements with the id {index}"
        statements[index] = kind, sql
    yield from _unpaired(tables, indexes, statements)


def _ids(meta: Mapping[int, MetaRow], kind: int) -> set[int]:
    """Return the ids of tables or indexes, without temporary ones and the engine's own tables."""
    rows = (row for row in meta.values() if row.kind == kind and not row.temporary)
    return {row.index for row in rows if row.index > TABLE_CATALOG}


def _statement(values: _Row) -> tuple[int, int, str] | None:
    """Return id, type and text of a row of SYS; None if the engine never writes it."""
    texts = [one.text if one is not None and isinstance(one.text, str) else "" for one in values]
    index, head, kind, sql = texts if len(texts) == len(("ID", "HEAD", "TYPE", "SQL")) else [""] * 4
    number, code = whole_number(index), whole_number(kind)
    if number is None or code is None or head != "0":
        return None
    return (number, code, sql) if sql.startswith(_BEGINNINGS.get(code, "")) else None


def _unpaired(
    tables: set[int], indexes: set[int], statements: Mapping[int, tuple[int, str]]
) -> Iterator[str]:
    """Yield tables and indexes that have a statement and no pages, or pages and no statement.

    Args:
        tables: those of the page index.
        indexes: those of the page index.
        statements: type and text of each statement of the catalogue, by id.
    """
    of_tables = {one: sql for one, (kind, sql) in statements.items() if kind == _TABLE}
    of_indexes = {one: sql for one, (kind, sql) in statements.items() if kind == _INDEX}
    cached = {one for one, sql in of_tables.items() if sql.startswith(_CACHED)}
    views = {one for one, sql in of_tables.items() if _VIEW.match(sql)}
    yield from (f"table {one} has no statement" for one in tables - of_tables.keys())
    yield from (f"table {one} has no pages" for one in cached - tables)
    yield from (f"index {one} has no statement" for one in indexes - of_indexes.keys())
    if of_tables.keys() == cached | views:  # the indexes of other tables may have no pages
        kept = {one for one, sql in of_indexes.items() if _ON_PAGES.match(sql)}
        yield from (f"index {one} has no pages" for one in kept - indexes)
