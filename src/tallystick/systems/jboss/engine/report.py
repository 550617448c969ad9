"""The loader's result in the words and keys of the oracle.

In: an `EngineLoad`. Out: a dict with ``loaded``, ``live_records``, ``prepared_transactions``,
``incomplete_transactions``, ``failed_transactions`` (g1d on) and ``max_id``, or with ``loaded`` and
``error``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tallystick.systems.jboss.engine.loader import EngineLoad
from tallystick.systems.jboss.format.layout import Item, RecordType
from tallystick.systems.jboss.read.generations import Generation
from tallystick.systems.jboss.read.replay import OpenTransaction


def engine_report(load: EngineLoad) -> dict[str, Any]:
    """Return the result with the keys and value forms of the oracle."""
    if load.error:
        return {"loaded": False, "error": load.error}
    generation = load.generation
    report: dict[str, Any] = {
        "loaded": True,
        "live_records": [_record(generation, item) for item in load.live],
        "prepared_transactions": [_prepared(generation, one) for one in load.prepared],
        "incomplete_transactions": load.incomplete,
        "max_id": load.max_id,
    }
    if generation.reports_failures:
        report["failed_transactions"] = [_failed(generation, one) for one in load.failed]
    return report


def _record(generation: Generation, item: Item) -> dict[str, Any]:
    record = {
        "id": item.record_id,
        "userRecordType": item.user_type,
        "isUpdate": item.type in (RecordType.UPDATE, RecordType.UPDATE_TX),
        "body": item.body,
    }
    if generation.counts_compactions:
        record["compactCount"] = item.compact_count or 0
    return record


def _prepared(generation: Generation, one: OpenTransaction) -> dict[str, Any]:
    extra = {}
    if generation.shape.extra and one.prepared is not None:
        extra = {"extraData": one.prepared.item.extra}
    return {"txId": one.transaction} | extra | _elements(generation, one)


def _failed(generation: Generation, one: OpenTransaction) -> dict[str, Any]:
    return {"txId": one.transaction} | _elements(generation, one)


def _elements(generation: Generation, one: OpenTransaction) -> dict[str, Any]:
    deletes = [placed.item for placed in one.deletes]
    deleted: list[Any]
    if generation.shape.delete_body:
        deleted = [{"id": item.record_id, "body": item.body} for item in deletes]
    else:
        ids = (item.record_id for item in deletes if item.record_id is not None)
        deleted = java_hash_order(ids)
    records = [_record(generation, placed.item) for placed in one.records]
    return {"records": records, "recordsToDelete": deleted}


def java_hash_order(ids: Iterable[int]) -> list[int]:
    """Return the distinct ids in the order in which a Java hash set lists them."""
    distinct = list(dict.fromkeys(ids))
    # A `java.util.HashSet` begins with 16 buckets and doubles them above a load of 3/4.
    size = 16
    while 4 * len(distinct) > 3 * size:
        size *= 2

    def bucket(value: int) -> int:
        bits = value & 0xFFFFFFFFFFFFFFFF
        # `Long.hashCode`, and then how `HashMap` mixes its upper half in. Ids of one bucket stay in
        # the order in which they were added, as `sorted` is stable.
        code = (bits ^ (bits >> 32)) & 0xFFFFFFFF
        return (code ^ (code >> 16)) & (size - 1)

    return sorted(distinct, key=bucket)
