"""What a group writer counts."""

from __future__ import annotations

import pytest

from tallystick.storage.group.counters import BUCKETS, GroupCounters


@pytest.mark.parametrize(
    ("seconds", "bucket"),
    [
        (0.0, 0),
        (0.000_999, 0),
        (0.001, 1),
        (0.001_999, 1),
        (0.002, 2),
        (0.0039, 2),
        (0.004, 3),
        (1.0, 10),
        (1e6, BUCKETS - 1),
    ],
)
def test_bucket_n_counts_flushes_below_one_millisecond_times_two_to_the_n(
    seconds: float, bucket: int
) -> None:
    counters = GroupCounters()
    counters.add_time(seconds)
    assert counters.histogram.index(1) == bucket
    assert sum(counters.histogram) == 1
    assert counters.seconds == seconds


def test_fsyncs_per_record_is_zero_before_the_first() -> None:
    counters = GroupCounters()
    assert counters.fsyncs_per_record == 0
    counters.add_group(4, 100)
    counters.fsyncs = 1
    assert counters.fsyncs_per_record == 0.25
