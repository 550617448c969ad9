"""What must hold after a crash: acknowledged ⊆ recovered ⊆ submitted, in order.

In: recorded runs and a recovery of the user's. Out: a `CrashReport`, or an `AssertionError` that
names the crash state and what is wrong with the items that were recovered.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

from tallystick.storage.files import FileSystem
from tallystick.testing.crashes import LIMIT, CrashState, RecordingFileSystem
from tallystick.testing.states import Key

Recover = Callable[[FileSystem], Iterable[Hashable]]
"""Opens the log on a file system, closes it, and returns the items it holds, in order."""

_CUT = reprlib.Repr()
"""Shows items; of a long one its ends, so that the crash is told in the first lines."""
_CUT.maxstring = _CUT.maxother = 60


@dataclass(slots=True)
class CrashReport:
    """How much `check_recovery` has tried.

    ``points`` are moments of the run; of ``sampled_points`` of them only a sample of the states was
    tried, by ``seed``. ``states`` were checked with ``recoveries`` runs of the recovery, as equal
    states share one; ``recoveries_crashed`` counts how often such a run was crashed in turn.
    ``never`` names what did not happen: a defect there cannot have been found.
    """

    points: int
    sampled_points: int
    seed: int
    states: int = 0
    recoveries: int = 0
    recoveries_crashed: int = 0
    never: tuple[str, ...] = ()

    def __str__(self) -> str:
        kind = "exhaustive"
        if self.sampled_points:
            kind = f"{self.sampled_points} moments sampled, seed {self.seed}"
        text = f"{self.states} crash states at {self.points} moments ({kind}), "
        text += f"{self.recoveries} recoveries"
        if self.recoveries_crashed:
            text += f", crashed {self.recoveries_crashed} times and run again"
        if self.never:
            text += f"; never happened: {', '.join(self.never)}"
        return text


def check_recovery(
    recording: RecordingFileSystem,
    recover: Recover,
    *,
    limit: int = LIMIT,
    seed: int = 0,
    writer_of: Callable[[Hashable], Hashable] | None = None,
    again: int = 0,
) -> CrashReport:
    """Run a recovery on every crash state of a recorded run and check what it returns.

    Args:
        recording: The file system of the run, with the marks of its items.
        recover: Opens the log on a file system, closes it, and returns its items in order.
        limit: Most states per moment; see `RecordingFileSystem.crash_states`.
        seed: Of the sample, where there are more.
        writer_of: Returns who submitted an item. With it, the items recovered of each writer must
            be a prefix of those it submitted, in order.
        again: If positive, each recovery is crashed too, at each of its calls in about this many
            states at most, and run again; it must then return the same items.

    Returns:
        How much was tried.

    Raises:
        AssertionError: An item is lost, invented, repeated or out of order, or the recovery failed;
            the message finds the crash state again.
    """
    points = recording.points + 1
    report = CrashReport(points, recording.sampled_points(limit=limit), seed)
    report.never = recording.never() + (() if again else ("a crash of the recovery (again=10)",))
    known: dict[Key, list[Hashable]] = {}
    for state in recording.crash_states(limit=limit, seed=seed):
        report.states += 1
        if state.key not in known:
            known[state.key] = _recovered(state, recover, report, again, seed)
        where = f"{state.describe()} (seed {seed}, limit {limit})"
        submitted, acknowledged, found = state.submitted, state.acknowledged, known[state.key]
        check_items(submitted, acknowledged, found, writer_of=writer_of, where=where)
    return report


def check_items(
    submitted: Sequence[Hashable],
    acknowledged: Sequence[Hashable],
    recovered: Sequence[Hashable],
    *,
    writer_of: Callable[[Hashable], Hashable] | None = None,
    where: str = "",
) -> None:
    """Check acknowledged ⊆ recovered ⊆ submitted, no item twice, and a prefix per writer.

    Args:
        submitted: Items handed to the log, in order.
        acknowledged: Items that the log reported durable.
        recovered: Items that a recovery returned, in order.
        writer_of: As for `check_recovery`; None checks no order.
        where: Added to every message.

    Raises:
        AssertionError: One of these does not hold; names the first few items.
    """
    found = set(recovered)
    lost = [item for item in acknowledged if item not in found]
    assert not lost, f"acknowledged but lost: {_CUT.repr(lost[:5])} ({len(lost)} in all); {where}"
    invented = found.difference(submitted)
    assert not invented, f"never submitted but recovered: {_CUT.repr(list(invented)[:5])}; {where}"
    assert len(found) == len(recovered), f"recovered twice; {where}: {_CUT.repr(recovered)}"
    if writer_of is not None:
        _check_prefixes(submitted, recovered, writer_of, where)


def _check_prefixes(
    submitted: Sequence[Hashable],
    recovered: Sequence[Hashable],
    writer_of: Callable[[Hashable], Hashable],
    where: str,
) -> None:
    sent, found = _by_writer(submitted, writer_of), _by_writer(recovered, writer_of)
    for writer, items in found.items():
        wanted = sent[writer][: len(items)]
        assert items == wanted, (
            f"writer {writer!r}: {_CUT.repr(items)} is no prefix of {_CUT.repr(wanted)}; {where}"
        )


def _by_writer(
    items: Sequence[Hashable], writer_of: Callable[[Hashable], Hashable]
) -> dict[Hashable, list[Hashable]]:
    groups: dict[Hashable, list[Hashable]] = {}
    for item in items:
        groups.setdefault(writer_of(item), []).append(item)
    return groups


def _recovered(
    state: CrashState, recover: Recover, report: CrashReport, again: int, seed: int
) -> list[Hashable]:
    report.recoveries += 1
    fs = state.recording() if again else state.fs()
    try:
        items = list(recover(fs))
    except Exception as error:
        raise AssertionError(f"recovery failed: {error!r}; {state.describe()}") from error
    if isinstance(fs, RecordingFileSystem):
        for inner in fs.crash_states(limit=again, seed=seed):
            report.recoveries_crashed += 1
            second = list(recover(inner.fs()))
            assert second == items, (
                f"recovery interrupted and run again gives {_CUT.repr(second)} ({len(second)} in "
                f"all) instead of {_CUT.repr(items)} ({len(items)} in all); "
                f"{state.describe()}; then {inner.describe()}"
            )
    return items
