"""What a boot does with the changes of a log, and why that can be said.

In: the analysis of all bytes and the engine's recovery. Out: the `Ground`s of the answer. A commit
is acknowledged after the group that holds it was written and synced, and groups are written in
order into files that were filled with zeros before.
"""

from __future__ import annotations

from collections.abc import Iterator

from tallystick.records import AtStake
from tallystick.systems.answers import Ground
from tallystick.systems.derby.engine.recovery import Recovery
from tallystick.systems.derby.format.layout import instant_text
from tallystick.systems.derby.read.analysis import LogAnalysis
from tallystick.systems.derby.read.files import LogFiles
from tallystick.systems.derby.read.transactions import COMMITTED, PREPARED


def grounds(log: LogFiles, analysis: LogAnalysis, recovery: Recovery) -> Iterator[Ground]:
    """Yield what holds of the log."""
    if recovery.boots is False:
        ended = sum(one.state in (COMMITTED, PREPARED) for one in analysis.transactions)
        yield Ground("no-boot", f"The database does not boot: {recovery.reason}.", AtStake(ended))
    if log.sealed:
        yield Ground("encrypted")
    if recovery.depends:
        yield Ground("boot-depends", f"{recovery.reason}.", decided_by=recovery.depends)
    yield from _losses(analysis, recovery)
    if not log.sealed and recovery.boots and recovery.control and recovery.log_end:
        yield Ground("log-end", f"The log ends at {instant_text(recovery.log_end)}.")


def _losses(analysis: LogAnalysis, recovery: Recovery) -> Iterator[Ground]:
    if not recovery.may_boot:
        return
    if recovery.new_log:
        yield Ground("new-log", f"The engine begins a new log: {recovery.reason}.")
    elif recovery.past_end:
        yield Ground("checkpoint-past-end")
    if recovery.lost_file:
        name = f"log{recovery.lost_file}.dat"
        yield Ground("last-file-missing", f"{name} is missing, and it is known to have existed.")
    if commits := len(analysis.lost_commits):
        yield Ground("commits-dropped", at_stake=AtStake(commits))
