"""A folder of Parquet files as a table: whether its files are all of it, and nothing else.

In: a path. Out: an error in one sentence where reading its files would fail, or give other rows.
"""

from __future__ import annotations

import os
from pathlib import Path

from tallystick.errors import LogUnreadableError

_SUFFIX = ".parquet"


def require_parquet(place: str | os.PathLike[str], advice: str) -> None:
    """Check that a local folder holds Parquet files and no others; what is no folder passes.

    The folder of a Delta table has Parquet files with rows that are no more in the table, too.

    Raises:
        LogUnreadableError: it is a table in another format.
    """
    folder = Path(place)
    if not folder.is_dir():
        return
    names = sorted(one.name for one in folder.iterdir())
    if "_delta_log" in names:
        found = "a table of Delta"
    else:
        others = [name for name in names if name[0] not in "._" and not name.endswith(_SUFFIX)]
        found = next(iter(others), "")
    if found:
        raise LogUnreadableError(
            "the table is not in Parquet", file=str(place), found=found, advice=advice
        )
