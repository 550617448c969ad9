"""The invariant of every reader: the spans of a file tile it, no byte in two, none in none.

In: a `LogFile`. Out: nothing, or an `AssertionError` that names the first byte that breaks it.
"""

from __future__ import annotations

from tallystick.records import LogFile, Outcome


def check_tiling(file: LogFile) -> None:
    """Check that the spans of a file cover its bytes once, in order, each with a reason.

    Args:
        file: A file as a reader returned it. A span that is not valid must give a reason.

    Raises:
        AssertionError: Names the file and the offset.
    """
    place = 0
    for span in file.spans:
        assert span.length > 0, f"{file.path}: empty span at {span.offset}"
        assert span.offset == place, (
            f"{file.path}: span '{span.what}' starts at {span.offset}, expected {place}"
        )
        assert span.outcome is Outcome.VALID or span.reason, (
            f"{file.path}: {span.outcome.value} span at {span.offset} gives no reason"
        )
        place = span.end
    assert place == file.size, f"{file.path}: spans end at {place}, the file at {file.size}"
