"""Metrics for operators, through the OpenTelemetry API where it is installed.

In: names, units and values. Out: instruments of the application's own meter provider; without the
``otel`` extra every call here does nothing. Never uses the SDK. Durations are in seconds, sizes in
bytes, and names of counters end in ``_total``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

Observation = tuple[float, Mapping[str, str]]
"""A value and its attributes."""


class Meter:
    """Makes instruments of one scope.

    Args:
        scope: A dotted name, such as ``tallystick.transactions``.
    """

    def __init__(self, scope: str) -> None:
        self._meter: Any = None
        self._observation: Any = None
        try:
            from opentelemetry import metrics
        except ImportError:
            return
        self._meter = metrics.get_meter(scope)
        self._observation = metrics.Observation

    def counter(self, name: str, description: str, unit: str = "1") -> Callable[..., None]:
        """Make a counter; returns its ``add(value=1, **attributes)``."""
        if self._meter is None:
            return _nothing
        instrument = self._meter.create_counter(name, unit=unit, description=description)
        return lambda value=1, **attributes: instrument.add(value, attributes)

    def histogram(self, name: str, description: str, unit: str = "s") -> Callable[..., None]:
        """Make a histogram; returns its ``record(value, **attributes)``."""
        if self._meter is None:
            return _nothing
        instrument = self._meter.create_histogram(name, unit=unit, description=description)
        return lambda value, **attributes: instrument.record(value, attributes)

    def gauge(
        self,
        name: str,
        description: str,
        read: Callable[[], Iterable[Observation]],
        unit: str = "1",
    ) -> None:
        """Make a gauge; ``read`` gives its values whenever the provider collects them."""
        if self._meter is None:
            return

        def callback(_: Any) -> Iterable[Any]:
            return [self._observation(value, attributes) for value, attributes in read()]

        self._meter.create_observable_gauge(
            name, callbacks=[callback], unit=unit, description=description
        )


def _nothing(*_: object, **__: object) -> None:
    """Take the place of an instrument where OpenTelemetry is not installed."""
