"""Old images of changed rows, from the history of a log and from a base snapshot.

In: batches of `CHANGES` in commit order. Out: the same rows with `before` filled, and the column
`BEFORE_VALUES`. The newest image of every row is kept in a file: memory does not grow with rows.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tallystick.arrow.parquet import require_parquet
from tallystick.arrow.schemas import BATCH_ROWS, CHANGES
from tallystick.arrow.texts import whole_text
from tallystick.errors import LogUnreadableError, TallystickError
from tallystick.records import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    Between = Callable[[int | None, int], Iterable[pa.RecordBatch]]
    RowsBefore = Iterable[tuple[str, dict[str, Any]]]

BEFORE_VALUES = "before_values"
"""Column of batches with old images: the columns of the old row, as in ``values``."""

WITH_IMAGES = pa.schema([*CHANGES, (BEFORE_VALUES, pa.string())])


class BaseImagesError(TallystickError):
    """The base snapshot cannot be used: the log is not to blame."""


_FOLDER_MODE = 0o700
_TABLES = """
CREATE TABLE IF NOT EXISTS images (
    collection TEXT, key TEXT, version INTEGER, image BLOB, columns TEXT,
    PRIMARY KEY (collection, key)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS seen (version INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS named (columns TEXT NOT NULL);
"""
_SET = "INSERT OR REPLACE INTO images VALUES (?, ?, ?, ?, ?)"
_SET_IF_NONE = _SET.replace("REPLACE", "IGNORE")
_BEFORE_ALL = -(2**63)
"""Version of an image that is older than every change."""


class Images:
    """The newest image of every row of one log.

    An image is used for a change with a later version only, so a base snapshot may be younger
    than the first change that is read.

    Args:
        path: the file that keeps them; a new one is made. It belongs to one query over one log.
        base: a Parquet file or folder with the columns ``collection``, ``key``, ``after`` and, as
            far as it has them, ``log``, ``values`` and ``commit_sequence``: as `as_of` makes it.
        log: the name of the log in the base.
        collection: the one whose changes are read alone, if it is one.
        rows: key and columns of the rows that it has before the first change.
        columns: the names of its columns, by which changes tell of them.
    """

    def __init__(
        self,
        path: str,
        base: str | None,
        log: str,
        collection: str | None,
        rows: RowsBefore,
        columns: Sequence[str],
    ) -> None:
        self._path, self._base, self._log = path, base, log
        self._collection, self._rows, self._columns = collection, rows, [*columns]
        self._store = sqlite3.connect(path, isolation_level=None, timeout=600)
        # What is kept is made again from the log and the base: it need not outlive a power cut.
        self._store.execute("PRAGMA synchronous = OFF")
        self._store.executescript(_TABLES)
        if self.version is None:
            self._fill()
        elif self._are_renamed:
            self._begin_anew()
        self._reached = self.version

    def close(self) -> None:
        """Close the file."""
        self._store.close()

    @property
    def version(self) -> int | None:
        """The place up to which all changes are in the images; None where there was none yet."""
        found = self._store.execute("SELECT max(version) FROM seen").fetchone()[0]
        return None if found is None or found == _BEFORE_ALL else int(found)

    def advance(self, changes: Between, until: int | None, lost: int | None = None) -> None:
        """Apply all changes up to a place.

        Where no change was applied yet, and the log is damaged before the place, rows are known
        from this place on: not by the base either, as changes of them are lost.

        Args:
            changes: gives the changes between two places; None as the first is the log's beginning.
            until: the place; None to apply no change.
            lost: the place up to which changes may be lost, not above ``until``: rows are known
                from there on. None where none are.

        Raises:
            TallystickError: changes in between are gone or damaged.
        """
        known = self.version
        if known is not None and (until is None or known > until):  # of another query or log
            self._begin_anew()
            known = None
        if lost is not None and (known is None or known < lost):
            self._store.executescript("DELETE FROM images")
            self._store.execute("INSERT INTO seen VALUES (?)", [lost])
            known = lost
        if until is not None and known != until and until >= 1:
            self._take_in(changes, known, until)
        self._reached = self.version

    def _take_in(self, changes: Between, known: int | None, until: int) -> None:
        self._store.execute("BEGIN IMMEDIATE")
        try:
            for batch in changes(known, until):
                for _ in self._old(batch):
                    pass
        except TallystickError:
            self._store.execute("ROLLBACK")
            if known is not None:
                raise
            self._store.execute("BEGIN IMMEDIATE")
            self._store.execute("DELETE FROM images")
        except BaseException:
            self._store.execute("ROLLBACK")
            raise
        self._store.execute("INSERT INTO seen VALUES (?)", [until])
        self._store.execute("COMMIT")

    def filled(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches of `CHANGES` as `WITH_IMAGES`; the kept images stay as they are.

        Raises:
            TallystickError: another query has changed them.
        """
        self._store.execute("BEGIN IMMEDIATE")
        try:
            if self.version != self._reached:
                raise TallystickError(
                    "another query keeps its old images in the same folder", file=self._path,
                    advice="Give each query a folder of its own: imagesFolder",
                )  # fmt: skip
            for batch in batches:
                old = list(self._old(batch))
                columns = [batch[name] for name in CHANGES.names]
                columns[CHANGES.get_field_index("before")] = pa.array(
                    [image for image, _, _ in old], pa.binary()
                )
                columns[CHANGES.get_field_index("values")] = pa.array(
                    [values for _, _, values in old], pa.string()
                )
                columns.append(pa.array([values for _, values, _ in old], pa.string()))
                yield pa.RecordBatch.from_arrays(columns, schema=WITH_IMAGES)
        finally:
            self._store.execute("ROLLBACK")

    def _old(self, batch: pa.RecordBatch) -> Iterator[tuple[bytes | None, str | None, str | None]]:
        """Yield the old image and columns of each row and its new columns, and note these.

        An update that has some of the columns gets the others from the row before.
        """
        names = ("kind", "collection", "key", "commit_sequence", "before", "after", "values")
        for row in zip(*(batch[name].to_pylist() for name in names), strict=True):
            kind, collection, key, version, before, after, values = row
            if kind == Kind.TRUNCATE.value:
                self._store.execute("DELETE FROM images WHERE collection = ?", [collection])
                yield before, None, values
                continue
            image, columns = self._store.execute(
                "SELECT image, columns FROM images "
                "WHERE collection = ? AND key = ? AND version <= ?",
                [collection, key, version],
            ).fetchone() or (None, None)
            if kind == Kind.DELETE.value:
                self._store.execute(
                    "DELETE FROM images WHERE collection = ? AND key = ? AND version <= ?",
                    [collection, key, version],
                )
                if before is not None:
                    image, columns = before, values
            else:
                if kind == Kind.UPDATE.value and values is not None and columns is not None:
                    values = json.dumps(json.loads(columns) | json.loads(values))
                self._store.execute(_SET, [collection, key, version, after, values])
                if kind != Kind.UPDATE.value:  # a row that is kept is of an earlier life of the key
                    image, columns = before, None
                elif before is not None:
                    image = before
            yield image, columns, values

    @property
    def _are_renamed(self) -> bool:
        """True if what is kept has names that columns have no more; new columns come last."""
        found = self._store.execute("SELECT columns FROM named").fetchone()
        kept = [] if found is None else json.loads(found[0])
        return bool(kept != self._columns[: len(kept)])

    def _begin_anew(self) -> None:
        self._store.executescript("DELETE FROM images; DELETE FROM seen")
        self._fill()

    def _fill(self) -> None:
        """Take in the base, and the rows before the first change, in one transaction."""
        self._store.execute("BEGIN IMMEDIATE")
        self._store.execute("DELETE FROM named")
        self._store.execute("INSERT INTO named VALUES (?)", [json.dumps(self._columns)])
        for rows in _base_rows(self._base, self._log) if self._base else ():
            self._store.executemany(_SET, rows)
        name = self._collection
        found = ((name, key, _BEFORE_ALL, None, json.dumps(values)) for key, values in self._rows)
        self._store.executemany(_SET_IF_NONE, found)
        self._store.execute("INSERT INTO seen VALUES (?)", [_BEFORE_ALL])
        self._store.execute("COMMIT")


def without_images(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches of `CHANGES` as `WITH_IMAGES`, with the old images that the log has itself."""
    for batch in batches:
        deleted = pc.equal(batch["kind"], Kind.DELETE.value)
        old = pc.if_else(deleted, batch["values"], pa.scalar(None, pa.string()))
        columns = [*(batch[name] for name in CHANGES.names), old]
        yield pa.RecordBatch.from_arrays(columns, schema=WITH_IMAGES)


@contextmanager
def images_of(
    folder: str | None,
    base: str | None,
    log: str,
    collection: str | None = None,
    rows: RowsBefore = (),
    columns: Sequence[str] = (),
) -> Iterator[Images]:
    """Open the images of a log in a folder, or in a file that is removed at the end.

    Args:
        folder: of one query; None makes a file for this time.
        base: as in `Images`.
        log: its name.
        collection: the one whose changes are read alone, which has a file of its own.
        rows: key and columns of the rows that it has before the first change.
        columns: the names of its columns.
    """
    with tempfile.TemporaryDirectory(prefix="tallystick-images-") as own:
        if folder is not None:
            Path(folder).mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        whose = log if collection is None else f"{log}\0{collection}"
        name = blake2b(whose.encode(errors="surrogateescape"), digest_size=16).hexdigest()
        path = str(Path(folder or own) / f"{name}.images")
        images = Images(path, base, log, collection, rows, columns)
        try:
            yield images
        finally:
            images.close()


def _base_rows(base: str, log: str) -> Iterator[list[tuple[Any, ...]]]:
    import pyarrow.dataset

    advice = "Name Parquet with the rows as they were, as stages.as_of gives them"
    try:
        require_parquet(base, advice)
        dataset = pyarrow.dataset.dataset(base, format="parquet")
        there = set(dataset.schema.names)
        if missing := {"collection", "key", "after"} - there:
            raise BaseImagesError(
                "the base snapshot lacks columns", file=base, found=", ".join(sorted(there)),
                expected=f"also {', '.join(sorted(missing))}",
            )  # fmt: skip
        wanted = pyarrow.dataset.field("log") == whole_text(log) if "log" in there else None
        names = ["collection", "key", "commit_sequence", "after", "values"]
        columns = [name for name in names if name in there]
        for batch in dataset.to_batches(columns=columns, filter=wanted, batch_size=BATCH_ROWS):
            nulls = [None] * batch.num_rows
            found = [batch[name].to_pylist() if name in columns else nulls for name in names]
            found[2] = [_BEFORE_ALL if version is None else version for version in found[2]]
            yield list(zip(*found, strict=True))
    except (pa.ArrowInvalid, OSError) as error:
        raise BaseImagesError(
            f"cannot read the base snapshot: {error}", file=base, advice=advice
        ) from error
    except LogUnreadableError as error:
        raise BaseImagesError(str(error)) from error
