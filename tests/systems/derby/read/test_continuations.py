"""Rows that go on in other pages, of which the log may have lost a part with its first files."""

from __future__ import annotations

from collections.abc import Iterator

from tallystick.records import Outcome
from tallystick.storage.source import ByteSource
from tallystick.systems.derby.format import operations
from tallystick.systems.derby.format.compressed_numbers import compressed_int, compressed_long
from tallystick.systems.derby.format.field_types import Page
from tallystick.systems.derby.format.layout import Group
from tallystick.systems.derby.format.page_rows import FIELD_NONEXISTENT, FIELD_OVERFLOW, Field
from tallystick.systems.derby.format.record_body import Body
from tallystick.systems.derby.format.sql_values import SqlType
from tallystick.systems.derby.read.catalogue import Layout, Table
from tallystick.systems.derby.read.containers import Before, Container, Key, Part
from tallystick.systems.derby.read.files import LogBytes
from tallystick.systems.derby.read.spans import ByteRange
from tallystick.systems.derby.read.tables import _TableChanges

TEXT = SqlType("", "string", bytes.decode)
LAYOUT: Layout = (("ID", TEXT), ("V", TEXT))
HEAP, WORK = 1808, 7


class _Stored(Before):
    """Parts where the log begins; pages from 9 on hold continuations, those from 20 on are free."""

    def __init__(self, parts: dict[Key, Part]) -> None:
        super().__init__(Container(None))
        self._parts = parts

    def part(self, key: Key) -> Part | None:
        return self._parts.get(key)

    def rows(self) -> Iterator[tuple[Key, Part]]:
        return ((key, part) for key, part in self._parts.items() if key[0] < 9)

    def overflow(self, page: int) -> bool | None:
        return page >= 9 if page < 20 else None


def pointer(page: int, record: int) -> Field:
    return Field(FIELD_OVERFLOW, compressed_long(page) + compressed_int(record))


def stored(field: Field | None) -> bytes:
    if field is None:
        return bytes([FIELD_NONEXISTENT])
    assert field.data is not None
    return bytes([field.status | 0x20]) + len(field.data).to_bytes(2) + field.data


def image(record: int, *fields: Field | None, goes_on: Key | None = None, first: int = 0) -> bytes:
    """A row with these fields, from the column ``first`` on; None is left out."""
    status = (2 if goes_on else 0) | 4
    more = b"" if goes_on is None else compressed_long(goes_on[0]) + compressed_int(goes_on[1])
    count = compressed_int(len(fields))
    at = compressed_int(record) + more + compressed_int(first)
    return bytes([status]) + at + count + b"".join(map(stored, fields))


def operation(kind: int, key: Key, *images: bytes) -> Body:
    fields = {"pageId": Page(0, HEAP, key[0]), "recordId": key[1], "undo": None}
    return Body(Group(0), WORK, kind, fields, 0, b"".join(images))


def inserts(key: Key, *fields: Field | None, first: int = 0) -> Body:
    return operation(operations.INSERT, key, image(key[1], *fields, first=first))


def updates(key: Key, after: bytes, before: bytes) -> Body:
    return operation(operations.UPDATE_ROW, key, after, before)


def told_of(before: dict[Key, Part], *transactions: list[Body]) -> list[dict[str, object]]:
    """The values of the changes of a table, each transaction after the other."""
    table = Table("N", [(HEAP, None)], {HEAP: LAYOUT})
    found = _TableChanges(table, {HEAP: _Stored(before)}, "log")
    file = LogBytes(1, ByteSource("log1.dat", memoryview(b"")))
    changes = (
        one
        for bodies in transactions
        for one in found.of(
            [(ByteRange(file, at, 1, Outcome.VALID, ""), body) for at, body in enumerate(bodies)],
            None,
        )
    )
    return [dict(one.values or {}) for one in changes]


def text(value: bytes) -> Field:
    return Field(0, value)


OLD = Part({0: text(b"key"), 1: text(b"old")})
HALF: dict[Key, Part] = {
    # Of a long value in three parts two were written before the log.
    (1, 7): OLD,
    (9, 8): Part({0: text(b"one "), 1: pointer(10, 7)}),
    (10, 7): Part({0: text(b"two ")}),
}
REST = [
    inserts((11, 7), text(b"three")),
    updates((10, 7), image(7, None, pointer(11, 7)), image(7, None, None)),
]
WHOLE = "one two three"


def test_of_an_inserted_row_what_the_log_has_no_more_is_put_together_from_before_it() -> None:
    """The first part is gone, the second has got its pointer since."""
    row = inserts((1, 8), text(b"key"), pointer(9, 8))
    assert told_of(HALF, [*REST, row]) == [{"ID": "key", "V": WHOLE}]


def test_of_an_updated_row_what_the_log_has_no_more_is_put_together_from_before_it() -> None:
    row = updates((1, 7), image(7, None, pointer(9, 8)), image(7, None, text(b"old")))
    assert told_of(HALF, [*REST, row]) == [{"V": WHOLE}]


def test_a_value_of_another_transaction_is_not_half_told() -> None:
    """Both columns are of an update that moves them; the log had half of the second."""
    moved = updates(
        (1, 7), image(7, text(b"new"), pointer(9, 8)), image(7, text(b"key"), pointer(9, 8))
    )
    first = updates((1, 7), image(7, None, pointer(9, 8)), image(7, None, text(b"old")))
    assert told_of(HALF, [*REST, first], [moved]) == [{"V": WHOLE}, {"ID": "new"}]


def test_the_rest_of_an_updated_row_that_was_made_before_the_log_is_read_there() -> None:
    """Its last columns went to another page, which the log has no more."""
    before: dict[Key, Part] = {(1, 7): OLD, (9, 6): Part({1: text(b"long")})}
    row = updates((1, 7), image(7, text(b"k"), goes_on=(9, 6)), image(7, text(b"key"), text(b"o")))
    assert told_of(before, [row]) == [{"ID": "k", "V": "long"}]
    same = updates((1, 7), image(7, text(b"k"), goes_on=(9, 6)), image(7, None, goes_on=(9, 6)))
    assert told_of(before, [same]) == [{"ID": "k"}]


def test_what_a_continuation_goes_on_to_is_of_the_same_row() -> None:
    before: dict[Key, Part] = {
        (1, 7): Part({0: text(b"key")}, (9, 6)),
        (9, 6): Part({1: text(b"v")}),
    }
    grows = [
        inserts((10, 6), text(b"more"), first=1),
        updates((9, 6), image(6, goes_on=(10, 6), first=1), image(6, text(b"v"), first=1)),
    ]
    later = updates((10, 6), image(6, text(b"w"), first=1), image(6, text(b"more"), first=1))
    assert told_of(before, grows, [later]) == [{"V": "more"}, {"V": "w"}]


def test_what_a_row_refers_to_is_no_row_where_its_page_is_free_again() -> None:
    """Neither the log nor the page tells any more that it was for continuations."""
    value = [
        inserts((20, 6), text(b"one ")),
        inserts((21, 6), text(b"two")),
        updates((20, 6), image(6, None, pointer(21, 6)), image(6, None, None)),
        updates((1, 7), image(7, None, pointer(20, 6)), image(7, None, text(b"old"))),
    ]
    assert told_of({(1, 7): OLD}, value) == [{"V": "one two"}]
    rest = inserts((22, 7), text(b"m"), first=1)
    assert told_of({(1, 7): OLD}, [rest]) == []
    other = inserts((22, 6), text(b"more"), text(b"m"))
    assert told_of({}, [other]) == [{"ID": "more", "V": "m"}]
