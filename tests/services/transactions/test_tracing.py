"""What is seen from outside: spans, latencies, and the board and alerts over them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from tallystick.errors import RolledBackError
from tallystick.services.transactions import Status
from tests.services.transactions.faces import Face
from tests.services.transactions.test_commit import Crash, durable, manager, transfer

OPERATIONS = Path(__file__).parents[3] / "docs" / "operations"


class Seen:
    """What the application's providers got."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def metrics(self) -> dict[str, Any]:
        data = self.reader.get_metrics_data()
        assert data is not None
        (scope,) = data.resource_metrics[0].scope_metrics
        return {metric.name: metric for metric in scope.metrics}


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Seen]:
    made = Seen()
    monkeypatch.setattr("opentelemetry.trace.get_tracer", made.tracers.get_tracer)
    monkeypatch.setattr("opentelemetry.metrics.get_meter", made.meters.get_meter)
    monkeypatch.setattr("opentelemetry.trace.get_tracer_provider", lambda: made.tracers)
    monkeypatch.setattr("opentelemetry.metrics.get_meter_provider", lambda: made.meters)
    yield made
    made.meters.shutdown()
    made.tracers.shutdown()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def parent(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def test_a_transaction_is_a_span_with_one_per_phase_and_resource(
    seen: Seen, tmp_path: Path, face: Face
) -> None:
    app = seen.tracers.get_tracer("app")
    with (
        manager(tmp_path, durable("a", "b"), face=face) as tm,
        app.start_as_current_span("request") as request,
    ):
        transfer(tm, ("a", "b"))
    (root,) = seen.spans("tallystick.transaction")
    assert parent(root) == request.get_span_context().span_id
    assert attributes(root)["tallystick.outcome"] == "committed"
    assert root.context is not None
    for phase, resources in (("prepare", ["a", "b"]), ("commit", ["a", "b"]), ("decide", [None])):
        spans = seen.spans(f"tallystick.{phase}")
        assert {attributes(span).get("tallystick.resource") for span in spans} == set(resources)
        assert len(spans) == len(resources)
        for span in spans:
            assert parent(span) == root.context.span_id
            assert attributes(span)["tallystick.gtrid"] == attributes(root)["tallystick.gtrid"]
            assert span.status.status_code is StatusCode.UNSET


def test_a_phase_that_fails_is_an_error(seen: Seen, tmp_path: Path) -> None:
    state = durable("a", "b")
    state.databases["b"].refuse_prepare = True
    with manager(tmp_path, state) as tm, pytest.raises(RolledBackError):
        transfer(tm, ("a", "b"))
    failed = {
        attributes(span)["tallystick.resource"]: span.status.status_code
        for span in seen.spans("tallystick.prepare")
    }
    assert failed == {"a": StatusCode.UNSET, "b": StatusCode.ERROR}
    assert len(seen.spans("tallystick.roll back")) == 2
    (root,) = seen.spans("tallystick.transaction")
    assert attributes(root)["tallystick.outcome"] == "rolled back"
    assert root.status.status_code is StatusCode.ERROR
    assert root.status.description == "rolled back: RolledBackError"


@pytest.mark.parametrize("asked", [True, False])
def test_a_rollback_is_an_error_unless_the_program_asked_for_it(
    asked: bool, seen: Seen, tmp_path: Path, face: Face
) -> None:
    def stop(_tx: Any) -> None:
        raise ValueError("a program's own")

    with manager(tmp_path, durable("a", "b"), face=face) as tm:
        if asked:
            tx = tm.begin()
            tx.rollback()
        else:
            with pytest.raises(ValueError, match="own"), tm.begin() as tx:
                stop(tx)
    (root,) = seen.spans("tallystick.transaction")
    assert attributes(root)["tallystick.outcome"] == "rolled back"
    assert root.status.status_code is (StatusCode.UNSET if asked else StatusCode.ERROR)


def test_recovery_is_linked_to_what_it_ends(seen: Seen, tmp_path: Path) -> None:
    state = durable("a", "b")

    def leave(step: str) -> None:
        if step == "after decision":
            state.databases["b"].away = True

    with manager(tmp_path, state, on_step=leave) as tm:
        transfer(tm, ("a", "b"))
        state.databases["b"].away = False
        assert tm.recover().clean
    (root,), (recovery,) = (
        seen.spans("tallystick.transaction"),
        seen.spans("tallystick.recovery commit"),
    )
    assert root.context is not None
    assert [link.context.span_id for link in recovery.links] == [root.context.span_id]
    assert attributes(recovery)["tallystick.gtrid"] == attributes(root)["tallystick.gtrid"]
    assert attributes(recovery)["tallystick.resource"] == "b"


@pytest.mark.parametrize(
    ("at", "verb"), [("after decision", "commit"), ("after prepare b", "roll back")]
)
def test_recovery_in_another_process_is_linked_to_what_it_ends(
    seen: Seen, tmp_path: Path, at: str, verb: str
) -> None:
    state = durable("a", "b")

    def crash(step: str) -> None:
        if step == at:
            for database in state.databases.values():
                database.away = True
            raise Crash(step)

    with manager(tmp_path, state, on_step=crash) as tm, pytest.raises(Crash):
        transfer(tm, ("a", "b"))
    for database in state.databases.values():
        database.away = False
    with manager(tmp_path, state) as tm:
        assert tm.recover().clean
    spans = seen.spans(f"tallystick.recovery {verb}")
    (root,) = seen.spans("tallystick.transaction")
    assert root.status.status_code is StatusCode.ERROR
    assert [attributes(span)["tallystick.gtrid"] for span in spans] == [
        attributes(root)["tallystick.gtrid"]
    ] * 2
    assert root.context is not None
    for span in spans:
        (link,) = span.links
        assert link.context.trace_id == root.context.trace_id
        assert link.context.span_id == root.context.span_id
        assert link.context.is_remote


def test_latencies_and_transactions_at_work_are_measured(seen: Seen, tmp_path: Path) -> None:
    with manager(tmp_path, durable("a", "b")) as tm:
        transfer(tm, ("a", "b"))
        with tm.begin(), tm.begin(independent=True):
            (point,) = seen.metrics()["tallystick_transactions_active"].data.data_points
            assert (point.value, dict(point.attributes)) == (2, {"node": "node-1"})
        metrics = seen.metrics()
    (point,) = metrics["tallystick_transactions_active"].data.data_points
    assert point.value == 0
    durations = metrics["tallystick_transactions_duration_seconds"].data.data_points
    assert {point.attributes["outcome"]: point.count for point in durations} == {"committed": 3}
    phases = metrics["tallystick_transactions_phase_seconds"].data.data_points
    assert {
        (point.attributes["phase"], point.attributes["resource"]): point.count for point in phases
    } == {("prepare", "a"): 1, ("prepare", "b"): 1, ("decide", ""): 1, ("commit", "a"): 1,
          ("commit", "b"): 1}  # fmt: skip
    assert all(point.sum < 60 for point in [*durations, *phases])


# -- the board and the alerts --------------------------------------------------------------------


def exported(metrics: dict[str, Any]) -> set[str]:
    """Return the names that Prometheus has, by OpenTelemetry's rules for the translation."""
    names: set[str] = set()
    for name, metric in metrics.items():
        assert metric.unit in ("s", "1") or metric.unit.startswith("{"), name
        assert metric.unit != "s" or name.endswith("_seconds"), name
        kind = type(metric.data).__name__
        if kind == "Histogram":
            names |= {f"{name}_{part}" for part in ("bucket", "sum", "count")}
        else:
            assert kind != "Sum" or name.endswith("_total"), name
            assert kind != "Gauge" or metric.unit != "1", f"{name} would become {name}_ratio"
            names.add(name)
    return names


@pytest.fixture
def names(seen: Seen, tmp_path: Path) -> set[str]:
    """Every metric of a manager to which everything has happened."""
    state = durable("a", "b")

    def leave(step: str) -> None:
        if step == "after decision":
            state.databases["b"].away = True

    with manager(tmp_path, state, on_step=leave) as tm:
        transfer(tm, ("a", "b"))
        tm.recover()
        state.databases["b"].away = False
        assert tm.recover().clean
        tm._context.metrics.heuristic()
        return exported(seen.metrics())


def test_the_board_shows_metrics_that_exist(names: set[str]) -> None:
    board = json.loads((OPERATIONS / "grafana-transactions.json").read_text("utf-8"))
    shown = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    used = set(re.findall(r"tallystick_\w+", " ".join(shown)))
    assert used <= names
    assert {re.sub("_(bucket|sum|count)$", "", name) for name in names} <= {
        re.sub("_(bucket|sum|count)$", "", name) for name in used
    }, "a metric that nobody sees"
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_the_alerts_use_metrics_that_exist_and_say_what_to_do(names: set[str]) -> None:
    text = (OPERATIONS / "alerts-transactions.yml").read_text("utf-8")
    rules = [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]
    for rule in rules:
        used = set(re.findall(r"tallystick_\w+", rule["expr"]))
        assert used, rule["alert"]
        assert used <= names, rule["alert"]
        assert rule["annotations"]["action"]
        assert rule["labels"]["severity"] in ("critical", "warning")
    outcomes = re.findall(r'outcome="([^"]+)"', text)
    assert set(outcomes) <= {status.value for status in Status}
    assert outcomes
