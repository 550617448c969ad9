"""Random entries for Hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from tallystick.systems.cloudtran.format.entries import Entry, EntryKind, Operation, OperationKind

names = st.text(min_size=1, max_size=8).filter(lambda text: text.isprintable())
operations = st.builds(
    Operation,
    st.none() | st.just(0),
    st.sampled_from(OperationKind),
    names,
    st.binary(max_size=20),
    st.none() | st.binary(max_size=20),
)
entries = st.builds(
    Entry,
    st.just(EntryKind.PERSISTING),
    st.integers(1, 2**64 - 1),
    st.integers(0, 2**62),
    st.lists(names, min_size=1, max_size=3).map(tuple),
    st.lists(operations, max_size=3).map(tuple),
    st.text(max_size=10).filter(str.isprintable),
    st.sampled_from([0, 1]),
)
