"""Journals for tests, made of items by our own encoder.

In: a shape name and, per file, an id and items. Out: files on disk, and readings of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from tallystick.systems.jboss import SYSTEM
from tallystick.systems.jboss.format.layout import SHAPES, Item, RecordType, encode, encode_header
from tallystick.systems.jboss.reader import JournalReading
from tallystick.systems.protocol import Entry, Folder, LogSource, ReadOptions

NAMES = {"g3": "activemq-data-{}.amq", "hash": "activemq-data-{}.amq", "g2": "hornetq-data-{}.hq"}
NAMES |= {"g1d": "hornetq-data-{}.hq"}


def file_name(shape: str, number: int) -> str:
    return NAMES.get(shape, "jbm-data-{}.jbm").format(number)


def image(
    shape: str, file_id: int, items: Iterable[Item], size: int = 1024, fill: bytes = b"J"
) -> bytes:
    """One file: header, records back to back under its id, fill."""
    stamp = file_id & 0x7FFFFFFF
    body = b"".join(encode(SHAPES[shape], replace(item, file_id=stamp)) for item in items)
    raw = encode_header(SHAPES[shape], file_id) + body
    return raw + fill * (size - len(raw))


def write(folder: Path, shape: str, files: dict[int, bytes]) -> None:
    for number, content in files.items():
        (folder / file_name(shape, number)).write_bytes(content)


def sources(folder: Path) -> list[LogSource]:
    entries = (Entry(str(path), path.stat().st_size) for path in sorted(folder.iterdir()))
    return SYSTEM.detect(Folder(str(folder), tuple(entries)))


def read(folder: Path, **settings: str) -> JournalReading:
    """The reading of the only journal in ``folder``."""
    (source,) = sources(folder)
    return JournalReading(source, ReadOptions(settings=settings))


def full(kind: RecordType) -> Item:
    """A record of that type with every field that any generation stores."""
    pairs = ((1, 2), (3, 4))
    extra = b"extra"
    return Item(0, 0, kind, 1, 0, *ids_of(kind), 1, b"abc", count=2, pairs=pairs, extra=extra)


def ids_of(kind: RecordType) -> tuple[int | None, int | None]:
    """A transaction and a record id, None where the type has none."""
    outside = (RecordType.EVENT, RecordType.ADD, RecordType.UPDATE, RecordType.DELETE)
    ends = (RecordType.PREPARE, RecordType.COMMIT, RecordType.ROLLBACK)
    return None if kind in outside else 9, None if kind in ends else 8


def add(number: int, body: bytes = b"body", user_type: int = 1) -> Item:
    return Item(0, 0, RecordType.ADD, 0, 0, record_id=number, user_type=user_type, body=body)


def update(number: int, body: bytes = b"more", user_type: int = 1) -> Item:
    return Item(0, 0, RecordType.UPDATE, 0, 0, record_id=number, user_type=user_type, body=body)


def delete(number: int) -> Item:
    return Item(0, 0, RecordType.DELETE, 0, 0, record_id=number)


def event(number: int, body: bytes = b"seen") -> Item:
    return Item(0, 0, RecordType.EVENT, 0, 0, record_id=number, user_type=1, body=body)


def add_tx(transaction: int, number: int, body: bytes = b"in tx", user_type: int = 1) -> Item:
    return Item(
        0, 0, RecordType.ADD_TX, 0, 0, transaction, record_id=number, user_type=user_type, body=body
    )


def delete_tx(transaction: int, number: int) -> Item:
    return Item(0, 0, RecordType.DELETE_TX, 0, 0, transaction, record_id=number, body=b"")


def commit(transaction: int, count: int = 0, pairs: Sequence[tuple[int, int]] = ()) -> Item:
    return Item(0, 0, RecordType.COMMIT, 0, 0, transaction, count=count, pairs=tuple(pairs))


def prepare(
    transaction: int, extra: bytes, count: int = 0, pairs: Sequence[tuple[int, int]] = ()
) -> Item:
    return Item(
        0, 0, RecordType.PREPARE, 0, 0, transaction, count=count, pairs=tuple(pairs), extra=extra
    )


def rollback(transaction: int) -> Item:
    return Item(0, 0, RecordType.ROLLBACK, 0, 0, transaction)


def commit_of(shape: str, transaction: int, *counts: tuple[int, int]) -> Item:
    """A commit of (file id, elements) pairs; by count the last one is the commit's own file."""
    return commit(transaction, counts[-1][1], counts if SHAPES[shape].pairs else ())


def prepare_of(shape: str, transaction: int, extra: bytes, *counts: tuple[int, int]) -> Item:
    """As `commit_of`, for a prepare."""
    return prepare(transaction, extra, counts[-1][1], counts if SHAPES[shape].pairs else ())


def engine_ids(reading: JournalReading) -> list[int]:
    return [record["id"] for record in reading.verdict().engine["live_records"]]
