"""SQL over logs in this process; DuckDB is asked for when it is used."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tallystick.errors import MissingExtraError
from tallystick.records import Finding
from tallystick.systems.protocol import ReadOptions

if TYPE_CHECKING:
    import duckdb


def sql(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    options: ReadOptions | None = None,
    problems: list[Finding] | None = None,
) -> duckdb.DuckDBPyConnection:
    """Return a connection whose views are the tables of all logs below a path.

    The views are ``logs``, ``files``, ``records``, ``transactions``, ``changes``, ``findings``,
    ``collections``, ``global_transactions`` and ``profile``, with the columns that they have on
    Spark; ``rows``, those of every fate; and ``<system>."<collection>"`` for each collection whose
    columns a log tells: its changes. The connection reads nothing but these logs, and writes no
    file.

    Args:
        path: A log, a folder of logs, or several of them. Logs are looked for now; each query
            reads them.
        options: What the readers have to know.
        problems: Gets what cannot be read, now and by each query, and which paths hold no log;
            ``findings`` has it, too.

    Raises:
        LogUnreadableError: The path itself cannot be read; or there is no log below it, and no
            list of ``problems``.
        MissingExtraError: The extra ``investigate`` is not installed.
    """
    paths = [path] if isinstance(path, str | os.PathLike) else [*path]
    try:
        from tallystick.investigate.sql_views import connect
    except ImportError as error:
        raise MissingExtraError(str(error.name), "investigate") from error
    return connect(tuple(os.fspath(one) for one in paths), options or ReadOptions(), problems)
