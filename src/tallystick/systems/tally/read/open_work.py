"""What the fold of a log works with: rows, and what is open or live because of them.

In: drafts at their places. Out: small records without bodies, but for what is pending.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from tallystick.systems.tally.format.bodies import Ending
from tallystick.systems.tally.format.columns import Draft


class Row(NamedTuple):
    """A record at its place. ``time_us`` is that of its group."""

    lsn: int
    segment: int
    time_us: int
    draft: Draft


@dataclass(frozen=True, slots=True)
class Element:
    """One add, update or delete: where it is, without its body."""

    code: int
    key: int | None
    lsn: int
    segment: int
    size: int
    """Bytes of its body."""


@dataclass(slots=True)
class OpenTransaction:
    """A transaction that has neither committed nor rolled back."""

    first_segment: int
    elements: list[Element] = field(default_factory=list)
    counts: dict[int, int] = field(default_factory=dict)
    """Elements by segment."""
    ending: Ending | None = None
    """The body of its prepare record."""


@dataclass(slots=True)
class OpenDecision:
    """A decision to commit, with the resources that have not confirmed yet."""

    segment: int
    time_us: int
    resources: set[str]


@dataclass(slots=True)
class OpenEntry:
    """A persisting entry, with the targets that do not hold it yet."""

    segment: int
    time_us: int
    body: bytes
    targets: tuple[str, ...]
    remaining: frozenset[str]
