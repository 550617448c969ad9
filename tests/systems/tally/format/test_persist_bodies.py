"""Targets of persist-log records: the same as a full decode gives, or the same refusal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.errors import CorruptLogError
from tallystick.roles import Operation, OperationCode
from tallystick.systems.tally.format.bodies import (
    OPERATION_CODES,
    PersistOperation,
    decode_entry,
    encode_entry,
    encode_names,
)
from tallystick.systems.tally.format.persist_bodies import (
    encode_persisting,
    entry_targets,
    mark_targets,
)

NAMES = st.lists(st.text(max_size=4), min_size=1, max_size=3, unique=True)
OPERATIONS = st.lists(
    st.builds(
        PersistOperation,
        st.integers(0, 3),
        st.text(max_size=3),
        st.binary(max_size=5),
        st.none() | st.binary(max_size=5),
        st.none() | st.just(0),
    ),
    max_size=3,
)


@given(NAMES, st.text(max_size=5), OPERATIONS)
def test_targets_are_those_of_the_whole_entry(
    names: list[str], reference: str, operations: list[PersistOperation]
) -> None:
    body = encode_entry(names, reference, operations)
    assert entry_targets(body) == decode_entry(body)[0] == tuple(names)
    assert mark_targets(encode_names(names)) == tuple(sorted(names))


@given(
    NAMES,
    st.text(max_size=5),
    st.lists(
        st.builds(
            Operation,
            st.sampled_from(OperationCode),
            st.text(max_size=3),
            st.binary(max_size=5),
            st.none() | st.binary(max_size=5),
        ),
        max_size=3,
    ),
    st.data(),
)
def test_commit_encodes_what_the_format_says(
    names: list[str], reference: str, operations: list[Operation], data: st.DataObject
) -> None:
    chosen = [
        one._replace(target=data.draw(st.none() | st.sampled_from(names))) for one in operations
    ]
    body = encode_persisting(tuple(names), chosen, reference)
    targets, text, found = decode_entry(body)
    assert (targets, text) == (tuple(names), reference)
    assert [
        Operation(
            OperationCode(OPERATION_CODES[one.code]),
            one.collection,
            one.key,
            one.value,
            None if one.target is None else names[one.target],
        )
        for one in found
    ] == chosen
    assert body == encode_entry(names, reference, found)


def test_operation_for_a_stranger_and_a_name_that_is_too_long_are_refused() -> None:
    stranger = Operation(OperationCode.UPDATE, "t", b"k", b"v", "nobody")
    with pytest.raises(ValueError, match="nobody"):
        encode_persisting(("a",), [stranger], "")
    with pytest.raises(ValueError, match="too long"):
        encode_persisting(("a",), [], "r" * 70_000)
    with pytest.raises(ValueError, match="too long"):
        encode_persisting(("a",), [stranger._replace(collection="c" * 70_000, target="a")], "")


@given(NAMES, OPERATIONS, st.data())
def test_cut_or_changed_entry_is_refused_or_well_formed(
    names: list[str], operations: list[PersistOperation], data: st.DataObject
) -> None:
    body = bytearray(encode_entry(names, "reference", operations))
    body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(body[: data.draw(st.integers(0, len(body)))])
    try:
        whole = decode_entry(cut)[0]
    except CorruptLogError:
        return  # text that is no UTF-8 is found by whoever decodes it
    assert entry_targets(cut) == whole


@pytest.mark.parametrize("body", [b"", b"\1", b"\1\0\5\0a", b"\1\0\1\0a\7\0"])
def test_entry_that_ends_early_is_corrupt(body: bytes) -> None:
    with pytest.raises(CorruptLogError):
        entry_targets(body)
