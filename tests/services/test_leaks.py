"""What is closed is gone: no object, descriptor or thread of it stays, and memory does not grow."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.services.leaks import SUBJECTS, in_child, usage

WARM, MORE = 3, 9
"""Cycles that fill caches, and further ones that must leave nothing behind."""
GROWTH_KIB_MAX = 512
"""Most growth of the memory of its own per 1,000 cycles in the long form."""


def _objects() -> Counter[str]:
    """Objects of our own classes, by class."""
    gc.collect()
    kinds = (type(one) for one in gc.get_objects())
    return Counter(
        f"{kind.__module__}.{kind.__qualname__}"
        for kind in kinds
        if str(kind.__module__).startswith("tallystick.")
    )


@pytest.mark.sampled(4)
@pytest.mark.parametrize("subject", SUBJECTS)
def test_nothing_of_what_was_closed_stays(
    subject: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    for number in range(WARM):
        SUBJECTS[subject](tmp_path, number)
    objects, before = _objects(), usage()
    for number in range(WARM, WARM + MORE):
        SUBJECTS[subject](tmp_path, number)
    assert _objects() - objects == Counter()
    after = usage()
    # What an earlier test has left may end meanwhile, or begin one thread more.
    assert after[1] - before[1] < MORE, "descriptors"
    assert after[2] - before[2] < MORE, "threads"
    record_property("figure", f"memory {after[0] - before[0]:+,} KiB in {MORE} cycles")


@pytest.mark.soak
@pytest.mark.parametrize("subject", SUBJECTS)
def test_memory_does_not_grow_in_an_hour_over_all_subjects(
    subject: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grown = in_child(subject, tmp_path, seconds=3600 / len(SUBJECTS))
    with capsys.disabled():
        print(f"\n{grown}")  # noqa: T201 - the figure
    assert grown.first[1:] == grown.last[1:]
    assert grown.own_kib < GROWTH_KIB_MAX
