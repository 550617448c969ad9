"""Targets of persist-log records: the same as a full decode gives, or the same refusal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.errors import CorruptLogError
from tallystick.roles import Operation, OperationCode
from tallystick.systems.tally.format.bodies import encode_names
from tallystick.systems.tally.format.entries import (
    EVERY_TARGET,
    NO_VALUE,
    OPERATION_CODES,
    OPERATION_HEAD,
    decode_entry,
    encode_entry,
    entry_targets,
    mark_targets,
)

NAMES = st.lists(st.text(max_size=4), min_size=1, max_size=3, unique=True)
OPERATIONS = st.lists(
    st.builds(
        Operation,
        st.sampled_from(OperationCode),
        st.text(max_size=3),
        st.binary(max_size=5),
        st.none() | st.binary(max_size=5),
        st.none() | st.just("first"),
    ),
    max_size=3,
)


def encoded(names: list[str], reference: str, operations: list[Operation]) -> bytes:
    """Encode an entry; the target "first" stands for the first name."""
    given = [one._replace(target=names[0] if one.target else None) for one in operations]
    return encode_entry(tuple(names), reference, given)


def specified_entry(targets: list[str], reference: str, operations: list[Operation]) -> bytes:
    """Encode an entry as docs/formats/tally.md says, field by field."""
    texts = [name.encode() for name in (*targets, reference)]
    body = len(targets).to_bytes(2, "little")
    body += b"".join(len(text).to_bytes(2, "little") + text for text in texts)
    for one in operations:
        collection, value = one.collection.encode(), one.value or b""
        size = NO_VALUE if one.value is None else len(value)
        target = EVERY_TARGET if one.target is None else targets.index(one.target)
        code = OPERATION_CODES.index(one.code)
        body += OPERATION_HEAD.pack(code, target, len(collection), len(one.key), size)
        body += collection + one.key + value
    return body


@given(NAMES, st.text(max_size=5), OPERATIONS)
def test_targets_are_those_of_the_whole_entry(
    names: list[str], reference: str, operations: list[Operation]
) -> None:
    body = encoded(names, reference, operations)
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
    body = encode_entry(tuple(names), reference, chosen)
    assert decode_entry(body) == (tuple(names), reference, tuple(chosen))
    assert body == specified_entry(names, reference, chosen)


def test_operation_for_a_stranger_and_a_name_that_is_too_long_are_refused() -> None:
    stranger = Operation(OperationCode.UPDATE, "t", b"k", b"v", "nobody")
    with pytest.raises(ValueError, match="nobody"):
        encode_entry(("a",), "", [stranger])
    with pytest.raises(ValueError, match="at most 65535"):
        encode_entry(("a",), "r" * 70_000, [])
    with pytest.raises(ValueError, match="at most 65535"):
        encode_entry(("a",), "", [stranger._replace(collection="c" * 70_000, target="a")])


@given(NAMES, OPERATIONS, st.data())
def test_cut_or_changed_entry_is_refused_or_well_formed(
    names: list[str], operations: list[Operation], data: st.DataObject
) -> None:
    body = bytearray(encoded(names, "reference", operations))
    body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(body[: data.draw(st.integers(0, len(body)))])
    try:
        whole = decode_entry(cut)[0]
    except CorruptLogError:
        return  # text that is no UTF-8 is found when it is decoded
    assert entry_targets(cut) == whole


@pytest.mark.parametrize("body", [b"", b"\1", b"\1\0\5\0a", b"\1\0\1\0a\7\0"])
def test_entry_that_ends_early_is_corrupt(body: bytes) -> None:
    with pytest.raises(CorruptLogError):
        entry_targets(body)
