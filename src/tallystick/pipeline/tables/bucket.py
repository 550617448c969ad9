"""The Parquet tables of a run in an object store: objects first, then one manifest that names them.

In: the folder of a run's tables, and a URL. Out: objects that never change, and ``_tables.json``:
its exchange, one PUT, publishes all tables at once. What is there already is not sent again; what
somebody removed is.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from tallystick.errors import LogUnreadableError, MissingExtraError
from tallystick.pipeline.options import OptionError
from tallystick.pipeline.tables.output_dir import require_none
from tallystick.pipeline.tables.write_task import SUFFIX
from tallystick.storage.source import as_unreadable, is_remote

MANIFEST = "_tables.json"


def publish(folder: str, url: str, tables: Collection[str]) -> int:
    """Bring the tables in a folder into an object store, all at once for who reads the manifest.

    Objects of these tables that neither this manifest nor the one before it names are removed: who
    has just read the old manifest can still read its tables. One publisher at a time.

    Returns:
        The number of objects that were sent.

    Raises:
        LogUnreadableError: the store cannot be reached.
        MissingExtraError: the package for the store is not installed.
        OptionError: something there has the name of a table, and nothing was published.
    """
    store, root = _connect(url)
    with as_unreadable(url, "publish"):
        old = _manifest(store, root)
        new: dict[str, list[str]] = {}
        sent = 0
        found = _objects(store, root, tables)
        if old is None:
            require_none(url, sorted({name.partition("/")[0] for name in found}))
            # Names nothing yet: what a publisher sends that is killed is known as one's.
            store.pipe_file(f"{root}/{MANIFEST}", json.dumps({"tables": {}}).encode())
            old = {}
        there = found.intersection(name for names in old.values() for name in names)
        for table in tables:
            new[table] = []
            for file in sorted(Path(folder, table).glob("[!._]*.parquet")):
                status = file.stat()  # a file that is written again has another time
                name = f"{table}/{file.stem}-{status.st_size:x}-{status.st_mtime_ns:x}.parquet"
                new[table].append(name)
                if name not in there:
                    store.put_file(str(file), f"{root}/{name}")
                    sent += 1
        if new != old:
            store.pipe_file(f"{root}/{MANIFEST}", json.dumps({"tables": new}).encode())
        if new != old or sent:  # of older runs, and of killed ones
            for name in found.difference(there, *new.values()):
                if name.endswith(SUFFIX):
                    store.rm_file(f"{root}/{name}")
    return sent


def published_files(url: str) -> dict[str, list[str]]:
    """Return the URLs of the Parquet files of every table, as the last publication left them.

    Raises:
        LogUnreadableError: nothing was published there, or the store cannot be reached.
        MissingExtraError: the package for the store is not installed.
    """
    store, root = _connect(url)
    with as_unreadable(url):
        found = _manifest(store, root)
    if not found:
        raise LogUnreadableError("no tables were published there", file=url)
    base = url.rstrip("/")
    return {table: [f"{base}/{name}" for name in names] for table, names in found.items()}


def _connect(url: str) -> tuple[Any, str]:
    if not is_remote(url):
        raise OptionError("tables are published to an object store", found=url, expected="a URL")
    try:
        import fsspec

        store, root = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise MissingExtraError("fsspec", "remote") from error
    store.invalidate_cache()
    return store, str(root).rstrip("/")


def _manifest(store: Any, root: str) -> dict[str, list[str]] | None:
    """Return names of objects by table; None before the first publication."""
    try:
        tables: dict[str, list[str]] = json.loads(store.cat_file(f"{root}/{MANIFEST}"))["tables"]
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        raise OptionError(
            f"{root}/{MANIFEST} is no manifest of tables",
            advice="Name a place of the tables' own, or a new one",
        ) from error
    return tables


def _objects(store: Any, root: str, tables: Collection[str]) -> set[str]:
    """Return the names of the objects that are there in the folders of tables."""
    try:
        names = {str(path).removeprefix(f"{root}/") for path in store.find(root)}
    except FileNotFoundError:
        return set()
    return {name for name in names if name.partition("/")[0] in tables}
