"""The Parquet tables of a run in an object store: objects first, then one manifest that names them.

In: the folder of a run's tables, and a URL. Out: objects that never change, and ``_tables.json``:
its exchange, one PUT, publishes all tables at once. What is there already is not sent again; what
somebody removed, or put another size of there, is.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from tallystick.errors import LogUnreadableError
from tallystick.pipeline.options import OptionError
from tallystick.pipeline.tables.output_dir import require_none
from tallystick.pipeline.tables.write_task import SUFFIX
from tallystick.storage.source import as_unreadable, is_remote, remote_folder

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
    store, root = connected(url)
    with as_unreadable(url, "publish"):
        old = _manifest(store, root)
        new: dict[str, list[str]] = {}
        sent = 0
        found = _objects(store, root, tables)
        if old is None:
            require_none(url, sorted({name.partition("/")[0] for name in found}))
            # Names nothing yet: what a publisher sends that is killed is known as one's.
            _put_manifest(store, root, {})
            old = {}
        there = found.keys() & {name for names in old.values() for name in names}
        for table in tables:
            new[table] = []
            if _is_of_files(store):
                store.makedirs(f"{root}/{table}", exist_ok=True)
            for file in sorted(Path(folder, table).glob("[!._]*.parquet")):
                status = file.stat()  # a file that is written again has another time
                name = f"{table}/{file.stem}-{status.st_size:x}-{status.st_mtime_ns:x}.parquet"
                new[table].append(name)
                if name not in there or found[name] != status.st_size:
                    store.put_file(str(file), f"{root}/{name}")
                    sent += 1
        if new != old:
            _put_manifest(store, root, new)
        if new != old or sent:  # of older runs, and of killed ones
            for name in found.keys() - there.union(*new.values()):
                if name.endswith(SUFFIX):
                    store.rm_file(f"{root}/{name}")
    return sent


def published_files(url: str) -> dict[str, list[str]]:
    """Return the URLs of the Parquet files of every table, as the last publication left them.

    Raises:
        LogUnreadableError: nothing was published there, or the store cannot be reached.
        MissingExtraError: the package for the store is not installed.
    """
    store, root = connected(url)
    with as_unreadable(url):
        found = _manifest(store, root)
    if not found:
        raise LogUnreadableError("no tables were published there", file=url)
    base = url.rstrip("/")
    return {table: [f"{base}/{name}" for name in names] for table, names in found.items()}


def connected(url: str) -> tuple[Any, str]:
    """Return the store of a URL, and the path there; nothing is sent.

    Raises:
        LogUnreadableError: there is no access to such a store.
        MissingExtraError: the package for URLs is not installed.
        OptionError: it is no URL.
    """
    if not is_remote(url):
        raise OptionError("tables are published to an object store", found=url, expected="a URL")
    store, root = remote_folder(url)
    return store, root.rstrip("/")


def _is_of_files(store: Any) -> bool:
    """Return whether a store has folders, which must be there, and writes piece by piece."""
    known = [store.protocol] if isinstance(store.protocol, str) else store.protocol
    return not {"local", "sftp"}.isdisjoint(known)


def _put_manifest(store: Any, root: str, tables: dict[str, list[str]]) -> None:
    """Exchange the manifest in one step: by a PUT, or by a new name."""
    place, data = f"{root}/{MANIFEST}", json.dumps({"tables": tables}).encode()
    if not _is_of_files(store):
        store.pipe_file(place, data)
        return
    store.makedirs(root, exist_ok=True)
    store.pipe_file(f"{place}.partial", data)
    store.mv(f"{place}.partial", place)


def _manifest(store: Any, root: str) -> dict[str, list[str]] | None:
    """Return names of objects by table; None before the first publication."""
    try:
        found = json.loads(store.cat_file(f"{root}/{MANIFEST}"))["tables"]
        tables = {table: [str(name) for name in names] for table, names in found.items()}
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise OptionError(
            f"{root}/{MANIFEST} is no manifest of tables",
            advice="Name a place of the tables' own, or a new one",
        ) from error
    return tables


def _objects(store: Any, root: str, tables: Collection[str]) -> dict[str, int]:
    """Return the names and sizes of the objects that are there in the folders of tables."""
    try:
        found = store.find(root, detail=True)
    except FileNotFoundError:
        return {}
    named = {str(path).removeprefix(f"{root}/"): one["size"] for path, one in found.items()}
    return {name: size for name, size in named.items() if name.partition("/")[0] in tables}
