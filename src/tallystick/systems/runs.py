"""When logs are read in runs: the least sizes that pay, and the loading of the walk's code.

A *run* is plain records that follow each other in one file: those that a system's compiled walk can
vouch for. It comes in *chunks* of bounded size, as columns of integers. What is not plain goes
record by record, and so does all of a short log, because loading the code costs more than it saves.
"""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.arrow.numba_kernel import has_compiler, pays

COMPILED_FROM = 2 << 20
"""Bytes of records from which on it pays to load the compiler for them."""
LOADED_FROM = 1 << 16
"""The same where the compiler is loaded already."""
RUN_MIN = 16
"""Records of a run from which on it is read in chunks: a fold over a chunk costs as much."""


def pay(size: int) -> bool:
    """Return whether it saves time to read so many bytes of records in runs."""
    return pays(size, LOADED_FROM, COMPILED_FROM)


def pay_here(size: int) -> bool:
    """Return whether it does, and there is a compiler; only then is the code for runs imported."""
    return pay(size) and has_compiler()


@dataclass(slots=True)
class RunCount:
    """How many records were read in runs, and one by one."""

    in_runs: int = 0
    one_by_one: int = 0

    @property
    def share(self) -> float:
        """The share of the records that were read in runs, from 0 to 1."""
        every = self.in_runs + self.one_by_one
        return self.in_runs / every if every else 1.0
