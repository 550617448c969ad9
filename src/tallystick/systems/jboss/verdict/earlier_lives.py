"""Whether the records that a file held before it was used again were done with.

In: `KnownFile`s and the live records. Out: a file whose new id cannot be right, in words.

A file is used again once every record in it was deleted, or copied by a compaction. The deletes
stand in it or in later files, and these are used again after it. So while the records of its
earlier life are there untouched, each of them is live elsewhere, or its delete is there too: unless
a compaction has dropped that.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from tallystick.systems.jboss.read.file_facts import KnownFile
from tallystick.systems.jboss.verdict.ends import is_compacted


def not_done_with(readings: Sequence[KnownFile], live: Container[int]) -> str:
    """Return which empty file held a record that is neither live nor deleted; empty if none."""
    if any(map(is_compacted, readings)):
        return ""
    added = {number: one for one in readings for number in one.earlier_adds() if number not in live}
    if not added:
        return ""
    for one in readings:
        for number in one.deletes():
            added.pop(number, None)
    for number, one in added.items():
        return (
            f"{one.file.name} has the id {one.effective_id}, and record {number} of its earlier "
            "life is neither live nor deleted"
        )
    return ""
