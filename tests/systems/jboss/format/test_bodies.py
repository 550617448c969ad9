"""Bodies of applications: Xids and objects of Narayana."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tallystick.systems.jboss.format.bodies import (
    ObjectState,
    heuristic_xid,
    object_state,
    pack_object_state,
    pack_xid,
    xid,
)

BYTES = st.binary(max_size=300)


@given(st.binary(max_size=64), st.binary(max_size=64), st.integers(-(1 << 31), (1 << 31) - 1))
def test_xid_comes_back(gtrid: bytes, bqual: bytes, format_id: int) -> None:
    raw = format_id.to_bytes(4, "big", signed=True)
    raw += len(bqual).to_bytes(4, "big") + bqual + len(gtrid).to_bytes(4, "big") + gtrid
    found = xid(raw)
    assert found is not None
    assert (found.format_id, found.gtrid, found.bqual) == (format_id, gtrid, bqual)
    assert pack_xid(found) == raw
    assert xid(raw + b"\0") is None
    assert heuristic_xid(raw + b"\1") == (found, True)
    assert heuristic_xid(raw + b"\2") is None


@given(BYTES)
def test_other_bodies_are_no_xid_and_no_object(raw: bytes) -> None:
    found = xid(raw)
    assert found is None or pack_xid(found) == raw
    state = object_state(raw)
    assert state is None or pack_object_state(state) == raw


@given(st.binary(min_size=28, max_size=28), st.text(max_size=20), BYTES, st.booleans())
def test_object_state_comes_back(uid: bytes, name: str, state: bytes, old: bool) -> None:
    one = ObjectState(uid, name, state, b"") if old else ObjectState(uid, name, state)
    assert object_state(pack_object_state(one)) == one
