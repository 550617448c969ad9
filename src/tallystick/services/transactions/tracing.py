"""Spans and latencies of transactions, through the OpenTelemetry API where it is installed.

In: the steps of a transaction, as observers see them. Out: a span ``tallystick.transaction`` with a
child per phase and resource, in the trace of the caller; the duration of each, as metrics. Recovery
has a span per branch, linked to that of the transaction, which a sampled one notes in the
coordinator's directory before its first phase.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tallystick.services.transactions.coordinator_dir import Traces
from tallystick.services.transactions.metrics import TransactionMetrics
from tallystick.services.transactions.steps import Observer
from tallystick.storage.scheduling import time

_STARTS = {
    "before prepare": "prepare",
    "before decision": "decide",
    "before commit": "commit",
    "before last": "commit last",
    "before one-phase": "commit one-phase",
    "rollback": "roll back",
}
_ENDS = frozenset(
    {"after prepare", "after decision", "after commit", "after last", "after one-phase"}
)
_REMEMBERED = 1000
"""Transactions that have ended whose spans recovery can still link to."""
_API = ("opentelemetry.trace", "opentelemetry.metrics")
"""Packages whose providers record nothing."""
_GOOD = frozenset({"committed", "rolled back"})
_LOOK_S = 0.1
"""Seconds between two looks for a provider: one takes a few microseconds."""


class Tracing:
    """The spans and latencies of one transaction manager.

    Args:
        node: the node id, an attribute of every span.
        metrics: takes the durations.
        traces: keeps what recovery in another process can link to.
    """

    def __init__(self, node: str, metrics: TransactionMetrics, traces: Traces) -> None:
        self.node = node
        self._traces = traces
        self.metrics = metrics
        self.api: Any = None
        self._ended: OrderedDict[bytes, Any] = OrderedDict()
        try:
            from opentelemetry import metrics as metrics_api
            from opentelemetry import trace
        except ImportError:
            return
        self.api = trace
        self._providers = trace.get_tracer_provider, metrics_api.get_meter_provider
        self._recorded = False
        self._look_again = 0.0
        self.tracer = trace.get_tracer("tallystick.transactions")

    def begin(self, gtrid: bytes, observe: Observer, now: float) -> Trace | None:
        """Begin the span of a transaction; None where nothing would take it.

        ``now`` is the moment of the monotonic clock.
        """
        if self.api is None or not (self._recorded or self._is_recorded(now)):
            return None
        return Trace(self, gtrid, observe)

    def _is_recorded(self, now: float) -> bool:
        """Return True if the application has a provider; it is looked for ten times a second."""
        if now >= self._look_again:
            self._look_again = now + _LOOK_S
            self._recorded = any(_records(provider()) for provider in self._providers)
        return self._recorded

    def attributes(self, gtrid: bytes, resource: str | None = None) -> dict[str, str]:
        """Return the attributes of a span."""
        found = {"tallystick.node": self.node, "tallystick.gtrid": gtrid.hex()}
        return found if resource is None else found | {"tallystick.resource": resource}

    def remember(self, gtrid: bytes, span: Any) -> None:
        """Keep the context of an ended span for links."""
        context = span.get_span_context()
        if context.is_valid:
            self._ended[gtrid] = context
            while len(self._ended) > _REMEMBERED:
                self._ended.popitem(last=False)

    def note(self, gtrid: bytes, span: Any) -> None:
        """Note the context of a sampled span, before the transaction can be in doubt."""
        context = span.get_span_context()
        if context.trace_flags.sampled:
            self._traces.add(gtrid, f"{context.trace_id:032x} {context.span_id:016x}")

    def _noted(self, gtrid: bytes) -> Any:
        """Return the context of a span of another process; None if there is none."""
        trace, _, span = self._traces.texts([gtrid]).get(gtrid, "").partition(" ")
        try:
            found = self.api.SpanContext(
                int(trace, 16), int(span, 16), is_remote=True, trace_flags=self.api.TraceFlags(1)
            )
        except ValueError:  # no such line, or one that was cut
            return None
        return found if found.is_valid else None

    @contextmanager
    def recovering(self, verb: str, resource: str, gtrid: bytes) -> Iterator[None]:
        """Show a block in which recovery ends a branch as a span."""
        if self.api is None:
            yield
            return
        known = self._ended.get(gtrid) or self._noted(gtrid)
        links = [] if known is None else [self.api.Link(known)]
        with self.tracer.start_as_current_span(
            f"tallystick.recovery {verb}", attributes=self.attributes(gtrid, resource), links=links
        ):
            yield


def _records(provider: object) -> bool:
    """Return True for a provider of spans or metrics that is not one of the API alone."""
    return not type(provider).__module__.startswith(_API)


class Trace:
    """The span of one transaction, and the one of its phase that is under way."""

    __slots__ = ("_began", "_observe", "_phase", "_recorded", "_root", "_tracing", "gtrid")

    def __init__(self, tracing: Tracing, gtrid: bytes, observe: Observer) -> None:
        self.gtrid = gtrid
        self._tracing = tracing
        self._observe = observe
        self._root = tracing.tracer.start_span(
            "tallystick.transaction", attributes=tracing.attributes(gtrid)
        )
        self._recorded = self._root.is_recording()
        """Without a recorder, or for what it does not sample, phases have no spans."""
        self._began = time.monotonic()
        self._phase: tuple[Any, str, str, float] | None = None

    def observe(self, step: str, resource: str | None = None) -> None:
        """Take note of a step, and pass it on."""
        phase = _STARTS.get(step)
        if phase is not None:
            self._end_phase(good=phase != "roll back")
            span = None
            if self._recorded:
                span = self._tracing.tracer.start_span(
                    f"tallystick.{phase}",
                    context=self._tracing.api.set_span_in_context(self._root),
                    attributes=self._tracing.attributes(self.gtrid, resource),
                )
            self._phase = span, phase, resource or "", time.monotonic()
        elif step in _ENDS:
            self._end_phase(good=True)
        elif self._recorded:
            if step == "before first phase":
                self._tracing.note(self.gtrid, self._root)
            self._root.add_event(step, {} if resource is None else {"resource": resource})
        self._observe(step, resource)

    def end(self, outcome: str) -> None:
        """End the span of the transaction, and the phase that did not come to its end."""
        self._end_phase(good=outcome == "committed")
        self._root.set_attribute("tallystick.outcome", outcome)
        # A program may roll back because it wants to; while an exception is handled, the block or
        # the commit has failed.
        error = sys.exc_info()[1] if outcome == "rolled back" else None
        if outcome not in _GOOD or error is not None:
            self._fail(
                self._root, outcome if error is None else f"rolled back: {type(error).__name__}"
            )
        self._root.end()
        self._tracing.remember(self.gtrid, self._root)
        self._tracing.metrics.ended(time.monotonic() - self._began, outcome)

    def _end_phase(self, *, good: bool) -> None:
        if self._phase is None:
            return
        span, phase, resource, began = self._phase
        self._phase = None
        if span is not None:
            if not good and phase != "roll back":
                self._fail(span, "the phase did not come to its end")
            span.end()
        self._tracing.metrics.phase(time.monotonic() - began, phase, resource)

    def _fail(self, span: Any, why: str) -> None:
        api = self._tracing.api
        span.set_status(api.Status(api.StatusCode.ERROR, why))
