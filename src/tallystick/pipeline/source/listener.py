"""Metrics of streams that follow logs, for OpenTelemetry.

In: Spark's reports of its queries. Out: gauges of what each of them has not read, by log.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

from tallystick.metrics import Meter, Observation
from tallystick.pipeline.source.backlog import Backlog, backlog

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )


class BacklogListener(StreamingQueryListener):
    """Exports what running queries have not read of their logs, by their last reports.

    ``spark.streams.addListener(BacklogListener())``; with ``opentelemetry-api`` installed it has
    gauges of the scope ``tallystick.streams``: ``tallystick_stream_unread_bytes`` and
    ``_unread_records`` (of native logs), ``tallystick_stream_unread_seconds`` (the age of the
    oldest) and ``tallystick_stream_losses``, as of `Backlog`. Their attributes are ``query``, its
    name, else its id, and ``log``.
    """

    def __init__(self) -> None:
        self._last: dict[str, tuple[str, list[Backlog]]] = {}
        self._meter = Meter("tallystick.streams")  # its gauges are read while it is here
        self._gauge("unread_bytes", "Bytes that are not read", "By", lambda one: one.bytes)
        self._gauge("unread_records", "Records that are not read", "1", lambda one: one.records)
        self._gauge("unread_seconds", "Age of the oldest that is not read", "s", _age)
        self._gauge("losses", "How often lost records were passed", "1", lambda one: one.losses)

    def _gauge(
        self, name: str, text: str, unit: str, value_of: Callable[[Backlog], float | None]
    ) -> None:
        def observe() -> Iterable[Observation]:
            for query, found in list(self._last.values()):
                for one in found:
                    if (value := value_of(one)) is not None:
                        yield value, {"query": query, "log": one.log}

        self._meter.gauge(f"tallystick_stream_{name}", text, observe, unit)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Do nothing: nothing is known of a query before its first report."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Take what a report says."""
        report = json.loads(event.progress.json)
        query = str(report["id"])
        self._last[query] = report.get("name") or query, backlog(report)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Do nothing: what was said last still holds."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Forget a query."""
        self._last.pop(str(event.id), None)


def _age(one: Backlog) -> float:
    oldest = one.oldest_unread
    return 0.0 if oldest is None else max(time.time() - oldest.timestamp(), 0.0)
