"""Every legal state of a `Disk` after a crash at this moment: all of them, or a sample.

In: a disk with unsynced changes. Out: `DiskState` values, each different from the others.

A state is a choice of which changes of names took place, and for each sector and size of the
files so named, which of its versions is on the disk. Where the product of the choices is small
all are tried. Where it is not, the telling ones come first (nothing, everything, every prefix in
time, every write dropped alone or kept alone, the last write torn at each sector) and seeded
random ones fill the rest.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from tallystick.testing.disk import Disk, Names, Version, applied

_SUBSETS_MAX = 5
"""Up to so many unsynced changes of names, every subset of them is tried."""

Key: TypeAlias = tuple[object, ...]
Choice: TypeAlias = tuple[int, ...]


class Unit(NamedTuple):
    """A sector of a file, or (``sector`` None) its size, and the versions to choose from."""

    inode: int
    sector: int | None
    versions: list[Version]


class DiskState(NamedTuple):
    """What may be on the disk; equal states of one run have equal ``key``."""

    key: Key
    names: Names
    units: list[Unit]
    choice: Choice

    def contents(self, disk: Disk) -> dict[str, bytearray]:
        """Return the files by name; ``disk`` is as it was when the state was made."""
        sizes = {inode: len(disk.inodes[inode].durable) for inode in self.names.values()}
        sectors: dict[int, dict[int, bytes]] = {inode: {} for inode in sizes}
        for unit, chosen in zip(self.units, self.choice, strict=True):
            version = unit.versions[chosen]
            if unit.sector is None:
                sizes[unit.inode] = version.size
            else:
                sectors[unit.inode][unit.sector] = version.content
        return {
            path: disk.inodes[inode].content(sizes[inode], sectors[inode])
            for path, inode in self.names.items()
        }

    def describe(self) -> str:
        """Return the choice as text, as far as it differs from what was durable."""
        paths = {inode: path for path, inode in self.names.items()}
        words = []
        for unit, chosen in zip(self.units, self.choice, strict=True):
            what = "size" if unit.sector is None else f"sector {unit.sector}"
            version = unit.versions[chosen]
            value = f" {version.size}" if unit.sector is None else ""
            words.append(f"{paths[unit.inode]} {what}{value} as of write {version.clock}")
        return f"files {sorted(self.names)}; " + ("; ".join(words) or "nothing unsynced")


def disk_states(disk: Disk, limit: int, rng: random.Random) -> Iterator[DiskState]:
    """Yield legal states, at most about ``limit``; all of them if there are no more."""
    variants = _name_variants(disk, rng)
    share = max(limit // len(variants), 8)
    for names in variants:
        units = _units(disk, names)
        for choice in _choices(units, share, rng):
            yield DiskState(_key(disk, names, units, choice), names, units, choice)


def random_state(disk: Disk, rng: random.Random) -> DiskState:
    """Return one legal state: nothing, everything, all as of one moment, or each by itself."""
    kind = rng.randrange(4)
    flags = [kind == 1 or (kind > 1 and rng.random() < 0.5) for _ in disk.changes]
    kept = [change for change, flag in zip(disk.changes, flags, strict=True) if flag]
    names = applied(disk.durable_names, kept)
    units = _units(disk, names)
    moment = rng.randrange(disk.clock + 1)
    choice = tuple(_random_version(unit, kind, moment, rng) for unit in units)
    return DiskState(_key(disk, names, units, choice), names, units, choice)


def _random_version(unit: Unit, kind: int, moment: int, rng: random.Random) -> int:
    if kind == 0:
        return 0
    if kind == 1:
        return len(unit.versions) - 1
    return _as_of(unit, moment) if kind == 2 else rng.randrange(len(unit.versions))


def is_exhaustive(disk: Disk, limit: int) -> bool:
    """Return True if `disk_states` with this limit yields every state."""
    if len(disk.changes) > _SUBSETS_MAX:
        return False
    variants = _name_variants(disk, random.Random(0))
    share = max(limit // len(variants), 8)
    return all(_count(_units(disk, names)) <= share for names in variants)


def _name_variants(disk: Disk, rng: random.Random) -> list[Names]:
    changes = disk.changes
    count = len(changes)
    if count <= _SUBSETS_MAX:
        kept = [list(flags) for flags in itertools.product((True, False), repeat=count)]
    else:
        kept = [[place < end for place in range(count)] for end in range(count, -1, -1)]
        kept += [[place != gone for place in range(count)] for gone in range(count)]
        kept += [[rng.random() < 0.5 for _ in changes] for _ in range(count)]
    variants = {}
    for flags in kept:
        some = [change for change, flag in zip(changes, flags, strict=True) if flag]
        names = applied(disk.durable_names, some)
        variants[tuple(sorted(names.items()))] = names
    return list(variants.values())


def _units(disk: Disk, names: Names) -> list[Unit]:
    units = []
    for number in sorted(set(names.values())):
        inode = disk.inodes[number]
        if len(inode.sizes) > 1:
            units.append(Unit(number, None, inode.sizes))
        units += [Unit(number, sector, inode.sectors[sector]) for sector in sorted(inode.sectors)]
    return units


def _count(units: list[Unit]) -> int:
    return math.prod(len(unit.versions) for unit in units)


def _choices(units: list[Unit], limit: int, rng: random.Random) -> Iterator[Choice]:
    if _count(units) <= limit:
        yield from itertools.product(*(range(len(unit.versions)) for unit in units))
        return
    telling = list(dict.fromkeys(_telling(units)))
    if len(telling) > limit:
        telling = telling[:2] + rng.sample(telling[2:], limit - 2)
    seen = set(telling)
    yield from telling
    while len(seen) < limit:
        choice = tuple(rng.randrange(len(unit.versions)) for unit in units)
        if choice not in seen:
            seen.add(choice)
            yield choice


def _telling(units: list[Unit]) -> Iterator[Choice]:
    nothing = tuple(0 for _ in units)
    everything = tuple(len(unit.versions) - 1 for unit in units)
    yield nothing
    yield everything
    clocks = sorted({version.clock for unit in units for version in unit.versions[1:]})
    for clock in clocks:
        yield tuple(_as_of(unit, clock) for unit in units)
        yield tuple(
            last if unit.versions[last].clock != clock else _as_of(unit, clock - 1)
            for unit, last in zip(units, everything, strict=True)
        )
        yield tuple(
            _as_of(unit, clock) if _has(unit, clock) else none
            for unit, none in zip(units, nothing, strict=True)
        )
    for torn in range(len(units)):
        yield everything[:torn] + nothing[torn:]
        yield nothing[:torn] + everything[torn:]
        yield (*everything[:torn], 0, *everything[torn + 1 :])
        yield (*nothing[:torn], everything[torn], *nothing[torn + 1 :])


def _as_of(unit: Unit, clock: int) -> int:
    return max(place for place, version in enumerate(unit.versions) if version.clock <= clock)


def _has(unit: Unit, clock: int) -> bool:
    return any(version.clock == clock for version in unit.versions)


def _key(disk: Disk, names: Names, units: list[Unit], choice: Choice) -> Key:
    files = tuple(sorted((path, inode, disk.inodes[inode].syncs) for path, inode in names.items()))
    changed = tuple(
        (unit.inode, unit.sector, unit.versions[chosen].content, unit.versions[chosen].size)
        for unit, chosen in zip(units, choice, strict=True)
        if chosen
    )
    return (files, changed)
