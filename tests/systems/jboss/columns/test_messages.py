"""Rows of messages from columns are those one by one."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.arrow.schemas import json_text
from tallystick.investigate import keys as investigated
from tallystick.investigate.rows import rows_of
from tallystick.reading.filters import Filter
from tallystick.records import Row
from tallystick.systems.jboss.columns import changes, messages
from tallystick.systems.jboss.columns.message_texts import addresses, message_texts
from tallystick.systems.jboss.format.messages import (
    ACKNOWLEDGED,
    LARGE_MESSAGE,
    MESSAGE,
    OLD_MESSAGE,
    REFERENCE,
    message,
)
from tallystick.systems.jboss.live.log import CircularJournal, JournalSettings
from tests.kit import read_in_runs
from tests.systems.jboss.applications.test_tables import queue, write_bindings
from tests.systems.jboss.build import read
from tests.systems.jboss.format import test_messages as encoded

if TYPE_CHECKING:
    from tallystick.systems.protocol import Longs

NAMES = st.text('ab"\\é€\x7f\n\U0001f600', max_size=2).map(encoded.text)
UNITS = st.just(b"\xff\xfd") | st.sampled_from('a~\x7f"\u0800').map(
    lambda one: one.encode("utf-16-be")
)
PROPERTY = (
    st.sampled_from([b"\0", b"\x02\0", b"\x02\1", b"\x09" + bytes(8), b"\x08" + bytes(4)])
    | st.builds(lambda one: b"\x0a" + one, NAMES | st.just(struct.pack(">ic", 1, b"a")))
    | st.builds(lambda one: b"\x0b" + one, UNITS)
    | st.builds(lambda one: b"\x04" + struct.pack(">i", len(one)) + one, st.binary(max_size=3))
    | st.builds(
        lambda form, value: bytes([form[0]]) + value[-form[1]:],
        st.sampled_from([(3, 1), (5, 2), (6, 4), (7, 8)]),
        st.sampled_from([0, 1, 9, -1, -10, 10**18, -(1 << 63), (1 << 63) - 1]).map(
            lambda one: one.to_bytes(8, signed=True)
        ),
    )
)  # fmt: skip
PROPERTIES = st.builds(
    lambda found: (
        b"\1"
        + struct.pack(">i", len(found))
        + b"".join(map(bytes.__add__, *zip(*found, strict=True)) if found else ())
    ),
    st.lists(st.tuples(NAMES, PROPERTY), max_size=4),
)
TEXTS = st.none() | st.text('ab"\\é€\x7f\t\n\0\U0001f600', max_size=5)
HEADERS = st.builds(
    lambda address, user, kind, durable, moment, properties: (
        struct.pack(">q", 7) + encoded.nullable(address) + user + struct.pack(">b?", kind, durable)
        + struct.pack(">qqb", moment, 1_700_000_000_000 + moment, 4) + properties
    ),
    TEXTS,
    st.sampled_from([b"\0", b"\1" + encoded.USER.bytes]),
    st.sampled_from([encoded.TEXT] * 4 + [encoded.BYTES, encoded.MAP, 9]),
    st.booleans(),
    st.sampled_from([0, 1, -5, 123, 1 << 62, 253_402_300_799_999, 253_402_300_800_000])
    | st.integers(0, 253_402_300_800_000),
    st.sampled_from([b"\0", encoded.PROPERTIES, encoded.PROPERTIES[:-1], b"\1"]) | PROPERTIES,
)  # fmt: skip
CONTENTS = TEXTS.map(encoded.nullable) | st.binary(max_size=9) | st.just(encoded.PROPERTIES)
WHOLE = st.builds(encoded.core, CONTENTS, HEADERS)
CUT = st.builds(lambda body, size: body[:size], WHOLE, st.integers(0, 150))
BODIES = st.lists(WHOLE | CUT | st.binary(max_size=20), max_size=6)


@given(BODIES, st.sampled_from([MESSAGE, MESSAGE, MESSAGE, LARGE_MESSAGE, OLD_MESSAGE]))
def test_texts_are_the_values_of_each_message(bodies: list[bytes], kind: int) -> None:
    types, column = np.full(len(bodies), kind), pa.array([b"x", *bodies], pa.binary()).slice(1)
    values = [message(kind, body) or {} for body in bodies]
    ids = np.arange(len(bodies)) << 40
    assert message_texts(types, column, ids).to_pylist() == [
        json_text(one | {"message_id": key}) for one, key in zip(values, ids.tolist(), strict=True)
    ]
    assert addresses(types, column) == [one.get("address") for one in values]


def written(folder: Path, seed: int) -> Path:
    """Write messages that come, are held by queues, taken and given up, some ids odd or again."""
    chance = random.Random(seed)
    (folder / "journal").mkdir(parents=True)
    write_bindings(folder / "bindings")
    settings = JournalSettings(prefix="activemq-data", extension="amq", file_size=1 << 16)
    live = dict[int, None]()
    with CircularJournal(str(folder / "journal"), settings) as log:
        for number in range(300):
            body = encoded.core(
                encoded.nullable(f"n {number}"), encoded.headers(encoded.TEXT, encoded.PROPERTIES)
            )
            inside, prepared = chance.random() < 0.4, chance.random() < 0.3
            kind = chance.choice([MESSAGE] * 5 + [OLD_MESSAGE, 37, REFERENCE])
            one, of_queue = chance.choice([*live, number]), chance.choice([0, 3, 4])
            what = chance.choice(["add", "add", "refer", "refer", "take", "delete"])
            if one not in live and what != "add":
                continue
            update = REFERENCE if what == "refer" else ACKNOWLEDGED
            small = queue(of_queue)[: chance.choice([8, 8, 8, 7])]
            if inside:
                if what == "add":
                    log.append_add_record_transactional(number, one, kind, body)
                elif what == "delete":
                    log.append_delete_record_transactional(number, one)
                else:
                    log.append_update_record_transactional(number, one, update, small)
                if prepared:
                    log.append_prepare_record(number, b"")
                end = chance.choice(["commit", "rollback", "open"])
                if end == "commit":
                    log.append_commit_record(number)
                    if what == "add":
                        live[one] = None
                    elif what == "delete":
                        live.pop(one)
                elif end == "rollback":
                    log.append_rollback_record(number)
            elif what == "add":
                log.append_add_record(one, kind, body)
                live[one] = None
            elif what == "delete":
                log.append_delete_record(one)
                live.pop(one)
            else:
                log.append_update_record(one, update, small)
        log.flush()
    return folder / "journal"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(12))
def test_rows_of_messages_are_the_same_both_ways(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = written(tmp_path / "broker", seed)
    monkeypatch.setattr(changes, "PIECE", (40, 1 << 15)[seed % 2])
    monkeypatch.setattr(investigated, "BATCH_ROWS", (7, 10_000, 50)[seed % 3])
    for wanted in (Filter(), Filter(table="left"), Filter(table="orders"), Filter(body="n 1")):
        told: list[list[Row]] = []
        for always in (False, True):
            read_in_runs(monkeypatch, always=always)
            told.append([*rows_of(read(folder), set(), wanted)])
        assert told[0] == told[1]
        assert told[1] or wanted.table == "orders"


def test_only_rows_that_are_asked_for_are_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = written(tmp_path / "broker", 1)
    read_in_runs(monkeypatch, always=True)
    every = [one for one in rows_of(read(folder), set()) if one.change.collection == "messages"]
    counts = []

    def counted(types: object, bodies: pa.Array, ids: Longs) -> pa.Array:
        counts.append(len(ids))
        return message_texts(types, bodies, ids)

    monkeypatch.setattr(messages, "message_texts", counted)
    key = every[0].change.key
    found = [*rows_of(read(folder), set(), Filter(key=key, table="messages"))]
    assert found == [one for one in every if one.change.key == key]
    assert sum(counts) == sum(one.change.values is not None for one in found)
