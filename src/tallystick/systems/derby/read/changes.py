"""Committed row changes, in commit order: inserts, updates and deletes of table rows.

In: records as `ByteRange`s in log order. Out: `Change`s at the commit of their transaction. What
a compensation record undoes is left out; index entries (operations with a logical undo) and the
physical moves of rows are not changes. Memory grows with the changes of open transactions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from tallystick.errors import LogFormatError
from tallystick.records import Change, Kind, Xid
from tallystick.systems.derby.format import operations
from tallystick.systems.derby.format.field_types import Page
from tallystick.systems.derby.format.layout import SYSTEM_NAME, Group
from tallystick.systems.derby.format.page_rows import FIELD_NONEXISTENT, Images, Row, images_of
from tallystick.systems.derby.format.record_body import Body
from tallystick.systems.derby.read.spans import ByteRange

_CHANGING = (
    operations.INSERT,
    operations.DELETE,
    operations.UPDATE_FIELD,
    operations.UPDATE_ROW,
)


def committed(ranges: Iterable[ByteRange], log: str) -> Iterator[Change]:
    """Yield the changes of committed transactions; ``ordinal`` counts within each."""
    pending: dict[int, dict[int, Change]] = {}
    for one in ranges:
        body = one.body
        if body is None or body.transaction is None:
            continue
        mine = pending.setdefault(body.transaction, {})
        if body.operation == operations.BEGIN:
            mine.clear()
        if body.undo is not None:
            mine.pop(body.undo, None)
        elif (change := _change(one, body, log)) is not None:
            mine[one.place] = change
        if body.group & Group.LAST:
            done = pending.pop(body.transaction)
            if body.group & Group.COMMIT:
                yield from _numbered(done, one.place, body.xid)


def _numbered(done: dict[int, Change], commit: int, xid: Xid | None) -> Iterator[Change]:
    gtrid = xid.gtrid if xid else None
    for ordinal, change in enumerate(done.values()):
        yield replace(change, commit_sequence=commit, ordinal=ordinal, gtrid=gtrid)


def _change(one: ByteRange, body: Body, log: str) -> Change | None:
    if body.operation not in _CHANGING or body.fields.get("undo") is not None:
        return None
    try:
        images = images_of(body)
    except LogFormatError:
        images = Images(after=body.optional)
    page: Page = body.fields["pageId"]
    return Change(
        SYSTEM_NAME,
        log,
        commit_sequence=0,
        ordinal=0,
        kind=_kind(body),
        collection=f"{page.segment}:{page.container}" if page.segment else str(page.container),
        key=f"{page.number}:{body.fields['recordId']}",
        file=one.file.path,
        offset=one.offset,
        transaction=str(body.transaction),
        before=images.before,
        after=images.after,
        values=_values(images.row_after or images.row_before),
    )


def _kind(body: Body) -> Kind:
    if body.operation == operations.DELETE and not body.fields["delete"]:
        return Kind.ADD  # a deleted row is made visible again
    return body.kind


def _values(row: Row | None) -> dict[str, bytes | None] | None:
    """Raw fields by column number from 0; columns that were not changed are left out."""
    if row is None:
        return None
    return {
        str(column): field.data
        for column, field in enumerate(row.fields, row.first_field)
        if field.status & FIELD_NONEXISTENT != FIELD_NONEXISTENT
    }
