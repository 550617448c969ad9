"""Metrics for operators, through the OpenTelemetry API where it is installed.

In: names, units and values. Out: instruments of the application's own meter provider; without the
``otel`` extra every call here does nothing. Never uses the SDK. Durations are in seconds, sizes in
bytes, and names of counters end in ``_total``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from weakref import WeakSet

from tallystick.posix import after_fork_in_child

Observation = tuple[float, Mapping[str, str]]
"""A value and its attributes."""


class Meter:
    """Makes instruments of one scope; its gauges are read as long as it is referred to.

    Args:
        scope: A dotted name, such as ``tallystick.transactions``.
    """

    def __init__(self, scope: str) -> None:
        self.reads: dict[str, Callable[[], Iterable[Observation]]] = {}
        """What each gauge reads, by its name."""
        self._scope: _Scope | None = None
        try:
            from opentelemetry import metrics
        except ImportError:
            return
        with _LOCK:
            key = (metrics.get_meter, scope)
            if key not in _SCOPES:
                _SCOPES[key] = _Scope(metrics.get_meter(scope), metrics.Observation)
            self._scope = _SCOPES[key]

    def counter(self, name: str, description: str, unit: str = "1") -> Callable[..., None]:
        """Make a counter; returns its ``add(value=1, **attributes)``."""
        if self._scope is None:
            return _nothing
        instrument = self._scope.made("create_counter", name, unit, description)
        return lambda value=1, **attributes: instrument.add(value, attributes)

    def histogram(self, name: str, description: str, unit: str = "s") -> Callable[..., None]:
        """Make a histogram; returns its ``record(value, **attributes)``."""
        if self._scope is None:
            return _nothing
        instrument = self._scope.made("create_histogram", name, unit, description)
        return lambda value, **attributes: instrument.record(value, attributes)

    def gauge(
        self,
        name: str,
        description: str,
        read: Callable[[], Iterable[Observation]],
        unit: str = "1",
    ) -> None:
        """Make a gauge; ``read`` gives its values whenever the provider collects them."""
        if self._scope is not None:
            self.reads[name] = read
            self._scope.gauge(self, name, unit, description)


class _Scope:
    """The instruments of one scope, each made once: a provider never forgets one."""

    def __init__(self, meter: Any, observation: Any) -> None:
        self._meter, self._observation = meter, observation
        self._instruments: dict[str, Any] = {}
        self._meters: WeakSet[Meter] = WeakSet()

    def made(self, call: str, name: str, unit: str, description: str, **more: Any) -> Any:
        """Return the instrument of this name."""
        with _LOCK:
            if name not in self._instruments:
                make = getattr(self._meter, call)
                self._instruments[name] = make(name, unit=unit, description=description, **more)
            return self._instruments[name]

    def gauge(self, meter: Meter, name: str, unit: str, description: str) -> None:
        """Have the gauge of this name read this meter, too."""

        def callback(_: Any) -> Iterator[Any]:
            for one in list(self._meters):
                for value, attributes in one.reads.get(name, _no_values)():
                    yield self._observation(value, attributes)

        self._meters.add(meter)
        self.made("create_observable_gauge", name, unit, description, callbacks=[callback])


_LOCK = threading.Lock()
_SCOPES: dict[tuple[Any, str], _Scope] = {}
"""By the function that gives meters, and the name of the scope."""


def _after_fork() -> None:
    global _LOCK
    _LOCK = threading.Lock()  # a thread of the parent may have held the other one


after_fork_in_child(_after_fork)


def _no_values() -> Iterable[Observation]:
    return ()


def _nothing(*_: object, **__: object) -> None:
    """Take the place of an instrument where OpenTelemetry is not installed."""
