"""The lanes of a service: one for each target, by its name.

In: targets by name, and durable entries. Out: each entry in the lanes of the targets that wait
for it, with the operations that are for them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

from tallystick.roles import PersistEntry
from tallystick.services.write_behind.backlog import Backlog
from tallystick.services.write_behind.metrics import WriteBehindMetrics
from tallystick.services.write_behind.settings import WriteBehindSettings
from tallystick.services.write_behind.targets.target import CountingTarget, Target, target_of
from tallystick.services.write_behind.targets.worker import Lane


class Lanes(Mapping[str, Lane]):
    """Opened, started, stopped and closed together. Raises `TypeError` for what is no target,
    `ValueError` for two that keep their numbers in one place."""

    def __init__(
        self,
        targets: Mapping[str, Any],
        settings: WriteBehindSettings,
        backlog: Backlog,
        metrics: WriteBehindMetrics,
        held: Callable[[str, Sequence[int]], None],
        broken: Callable[[BaseException], None],
        *,
        strict: bool,
    ) -> None:
        made = {name: target_of(thing) for name, thing in targets.items()}
        _require_places_of_their_own(made)
        self._backlog = backlog
        self._handing_over = threading.Lock()
        self._started = False
        self._opened: list[Target] = []
        self._lanes = {
            name: Lane(name, target, settings, backlog, metrics, held, broken, strict=strict)
            for name, target in made.items()
        }

    def __getitem__(self, name: str) -> Lane:
        return self._lanes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._lanes)

    def __len__(self) -> int:
        return len(self._lanes)

    def open(self, identity: str, last_number: int) -> None:
        """Open the targets; all of them, or none."""
        try:
            for lane in self.values():
                target = lane.target
                if isinstance(target, CountingTarget):
                    target.given(last_number)
                target.open(identity)
                self._opened.append(target)
        except BaseException:
            self.close()
            raise

    def start(self) -> None:
        """Begin to apply; a second call does nothing."""
        if not self._started:
            self._started = True
            for lane in self.values():
                lane.start()

    def hand_over(self, entries: Sequence[PersistEntry]) -> None:
        """Durable entries, with greater numbers than all before."""
        with self._handing_over:
            for name, lane in self.items():
                own = self._backlog.waiting_for(name, entries)
                if own:
                    lane.add([_part_for(one, name) for one in own])

    def discard(self, number: int) -> None:
        """An operator gave the transaction up, whether or not it was handed over."""
        with self._handing_over:
            self._backlog.forget(number)
            for lane in self.values():
                lane.discard(number)

    def moves(self, *, patient: bool) -> bool:
        """True while one of them gets on; see `Lane.moves`."""
        return self._started and any(lane.moves(patient=patient) for lane in self.values())

    def stop(self, deadline: float) -> None:
        """Let workers finish what they are at, until the deadline."""
        for lane in self.values():
            lane.stop(deadline)

    def close(self) -> None:
        """Close the targets that were opened."""
        for target in self._opened:
            target.close()
        self._opened.clear()


def _require_places_of_their_own(targets: Mapping[str, Target]) -> None:
    """Each target would take the numbers of the other for its own, and pass transactions over."""
    places: dict[Hashable, str] = {}
    for name, target in targets.items():
        place = target.place if isinstance(target, CountingTarget) else None
        if place is not None and (other := places.setdefault(place, name)) != name:
            raise ValueError(
                f"{other} and {name} are one database and keep their numbers in one table: give "
                "one of them a table of its own, by SqlTarget(engine, applied_table=...)"
            )


def _part_for(entry: PersistEntry, name: str) -> PersistEntry:
    """The entry with the operations for one target."""
    for one in entry.operations:
        if one.target is not None and one.target != name:
            own = tuple(one for one in entry.operations if one.target in (None, name))
            return entry._replace(operations=own)
    return entry
