"""What the journal's own loader would make of the files, in the words of its oracle.

In: the files of a journal and its generation. Out: an `EngineLoad`; `EngineLoad.to_dict` has
the keys ``loaded``, ``live_records``, ``prepared_transactions``, ``incomplete_transactions``,
``failed_transactions`` (g1d on) and ``max_id``, or ``loaded`` and ``error``. The live records are
those of the loader's list form: an id that is deleted anywhere is gone, whatever comes after.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tallystick.systems.jboss.engine.original_scan import UNDERFLOW_TEXT, original_scan
from tallystick.systems.jboss.format.layout import Item, Name, Shape, decode
from tallystick.systems.jboss.read.files import JournalFile, most_common
from tallystick.systems.jboss.read.generations import Generation, shape_of_file
from tallystick.systems.jboss.read.replay import Applied, Open, Placed, Replay
from tallystick.systems.jboss.read.scan import VALID, Row, scan

DELETE_FLUSH = 20_000
"""HornetQ 2.0 and 2.1 apply their list of deletes, and forget it, whenever it is this long."""


@dataclass(slots=True)
class EngineLoad:
    """The outcome of a load. ``error`` is the exception with which it gave up, if it did."""

    generation: Generation
    error: str = ""
    live: list[Item] = field(default_factory=list)
    prepared: list[Open] = field(default_factory=list)
    incomplete: list[int] = field(default_factory=list)
    failed: list[Open] = field(default_factory=list)
    max_id: int = -1

    @property
    def loaded(self) -> bool:
        return not self.error

    def to_dict(self) -> dict[str, Any]:
        """The keys and value forms of the oracle."""
        if self.error:
            return {"loaded": False, "error": self.error}
        verdict: dict[str, Any] = {
            "loaded": True,
            "live_records": [self._record(item) for item in self.live],
            "prepared_transactions": [self._transaction(one, "extra") for one in self.prepared],
            "incomplete_transactions": self.incomplete,
            "max_id": self.max_id,
        }
        if self.generation.tells_failures:
            verdict["failed_transactions"] = [self._transaction(one) for one in self.failed]
        return verdict

    def _record(self, item: Item) -> dict[str, Any]:
        record = {
            "id": item.record_id,
            "userRecordType": item.user_type,
            "isUpdate": item.name in (Name.UPDATE, Name.UPDATE_TX),
            "body": item.body,
        }
        if self.generation.counts_compactions:
            record["compactCount"] = item.compact_count or 0
        return record

    def _transaction(self, one: Open, *with_extra: str) -> dict[str, Any]:
        transaction: dict[str, Any] = {"txId": one.transaction}
        if with_extra and self.generation.shape.extra and one.prepared is not None:
            transaction["extraData"] = one.prepared.item.extra
        transaction["records"] = [self._record(placed.item) for placed in one.records]
        deletes = [placed.item for placed in one.deletes]
        if self.generation.shape.delete_body:
            bodies = [{"id": item.record_id, "body": item.body} for item in deletes]
            transaction["recordsToDelete"] = bodies
        else:
            ids = [item.record_id for item in deletes if item.record_id is not None]
            transaction["recordsToDelete"] = java_hash_order(ids)
        return transaction


class GaveUpError(Exception):
    """The loader threw; its text is the exception's."""


def load(
    files: Sequence[JournalFile], generation: Generation, settings: Mapping[str, str]
) -> EngineLoad:
    """Load as the code of ``generation`` would, with the configured ``file_size`` and
    ``user_version`` if ``settings`` has them, and those that most files agree with if not."""
    outcome = EngineLoad(generation)
    try:
        ordered = admitted(files, generation, settings)
        _replay(ordered, outcome, _configured_size(ordered, settings))
    except GaveUpError as error:
        outcome.error = str(error)
    return outcome


def admitted(
    files: Sequence[JournalFile], generation: Generation, settings: Mapping[str, str]
) -> list[JournalFile]:
    """The files in order of their ids. Raises `GaveUpError` where the loader does."""
    if (expected := settings.get("user_version")) is None:
        user_version = most_common(file.header.user_version for file in files if file.header)
    else:
        user_version = int(expected)
    stay = []
    for file in files:
        if file.header is None:
            if not generation.skips_short_files:
                raise GaveUpError(UNDERFLOW_TEXT)
            continue
        if generation.accepts and file.header.format_version not in generation.accepts:
            raise GaveUpError(generation.wrong_version)
        if generation.accepts and file.header.user_version != user_version:
            raise GaveUpError(generation.other_user)
        stay.append(file)
    return sorted(stay, key=JournalFile.file_id)


def _configured_size(files: Sequence[JournalFile], settings: Mapping[str, str]) -> int:
    if (size := settings.get("file_size")) is not None:
        return int(size)
    return most_common(file.size for file in files) or 0


def engine_rows(
    file: JournalFile, generation: Generation, size: int, max_id: int
) -> tuple[Iterable[Row], int]:
    """The healthy records that the loader sees in one file, and its maximum id after g1 scans.

    Raises `GaveUpError` where the loader does.
    """
    shape = shape_of_file(generation, file.head)
    if shape.header_size != 4:
        rows = scan(file.data(), shape, file.stamp, events=generation.knows_events)
        return (row for row in rows if row.status == VALID), max_id
    if shape.pairs and file.size < size:
        raise GaveUpError(
            f"java.lang.IllegalStateException: File is wrong size {file.size} "
            f"expected {size} : {file.name}"
        )
    data = file.data()[:size] if shape.pairs else file.data()
    found = original_scan(data, shape, file.stamp, max_id)
    if found.error:
        raise GaveUpError(found.error)
    return found.rows, found.max_id


def _replay(files: Sequence[JournalFile], outcome: EngineLoad, size: int) -> None:
    generation = outcome.generation
    replay = Replay(generation.shape, [file.stamp for file in files])
    records = _ListForm(generation.flushes_deletes)
    for order, file in enumerate(files):
        rows, outcome.max_id = engine_rows(file, generation, size, outcome.max_id)
        shape = shape_of_file(generation, file.head)
        for placed in _placed(file, order, shape, rows):
            if not generation.shape.pairs:
                outcome.max_id = max(outcome.max_id, _raising_id(placed.item))
            records.take(replay.feed(placed)[0])
    outcome.live = records.live()
    outcome.prepared = list(replay.in_doubt())
    discarded = list(replay.discarded())
    seen = dict.fromkeys([*replay.incomplete, *(one.transaction for one in discarded)])
    outcome.incomplete = list(seen)
    outcome.failed = discarded


def _placed(file: JournalFile, order: int, shape: Shape, rows: Iterable[Row]) -> Iterator[Placed]:
    data = file.data()
    for row in rows:
        yield Placed(decode(shape, data, row.offset, row.size), order, file.stamp, file.path)


def _raising_id(item: Item) -> int:
    """The id by which a record raises the maximum from g1d on; -1 for deletes and events."""
    raising = item.name in (Name.ADD, Name.UPDATE, Name.ADD_TX, Name.UPDATE_TX)
    return item.record_id if raising and item.record_id is not None else -1


class _ListForm:
    """The list form of the loader: records in order, deletes gathered and applied at the end."""

    def __init__(self, flushes: bool) -> None:
        self._flushes = flushes
        self._records: list[Item] = []
        self._deleted: set[int | None] = set()

    def take(self, effects: Iterable[Applied]) -> None:
        """Note the effects of one record."""
        for effect in effects:
            item = effect.placed.item
            if item.name not in (Name.DELETE, Name.DELETE_TX):
                self._records.append(item)
                continue
            self._deleted.add(item.record_id)
            if self._flushes and len(self._deleted) == DELETE_FLUSH:
                self._records = self.live()
                self._deleted.clear()

    def live(self) -> list[Item]:
        """The records that are not deleted."""
        return [item for item in self._records if item.record_id not in self._deleted]


def java_hash_order(ids: Iterable[int]) -> list[int]:
    """Different ids in the order in which a Java hash set lists them."""
    distinct = list(dict.fromkeys(ids))
    size = 16
    while 4 * len(distinct) > 3 * size:
        size *= 2

    def bucket(value: int) -> int:
        bits = value & 0xFFFFFFFFFFFFFFFF
        code = (bits ^ (bits >> 32)) & 0xFFFFFFFF
        return (code ^ (code >> 16)) & (size - 1)

    return sorted(distinct, key=bucket)
