"""The native log as a coordinator's decision log.

In: the calls of `tallystick.roles.DecisionLog`. Out: records submitted to the log, and views of
its state.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping

from tallystick.arguments import several, texts
from tallystick.records import State
from tallystick.roles import Decision, DecisionOutcome, Role, Ticket
from tallystick.systems.tally.format.bodies import NAME_MAX, encode_names, encode_note
from tallystick.systems.tally.format.columns import UnplacedRecord
from tallystick.systems.tally.format.kinds import Code
from tallystick.systems.tally.live.reclaim import heuristic_record
from tallystick.systems.tally.live.roles.base import AnyLog, TallyRole
from tallystick.systems.tally.live.settings import Settings
from tallystick.systems.tally.live.shared.log import SharedTallyLog
from tallystick.systems.tally.read.claim import Claim

SEGMENT_SIZE = 2 << 20
"""Of a new decision log: a coordinator starts where there is little space; decisions are short."""


_DECISION, _FINISH = Code.DECISION.value, Code.FINISH.value


class TallyDecisionLog(TallyRole[AnyLog]):
    """A two-phase-commit coordinator's log. Only `decide` and `settle` are forced."""

    settings = Settings(segment_size=SEGMENT_SIZE)
    role = Role.DECISION_LOG

    def note(self, state: State, gtrid: bytes, resources: Collection[str]) -> None:
        """Record a status that decides nothing, without forcing."""
        body = encode_note(State(state), _names(several(resources, "resources")))
        self.log.submit(UnplacedRecord(Code.NOTE, body, gtrid=gtrid), sync=False)

    def decide(self, gtrid: bytes, resources: Collection[str]) -> Ticket:
        """Record the decision to commit."""
        self._reclaim_after_roll()
        body = _body(several(resources, "resources"))
        return self.log.submit(UnplacedRecord(_DECISION, body, None, None, 0, gtrid))

    def finish(self, gtrid: bytes, resources: Collection[str], outcome: DecisionOutcome) -> None:
        """Record, without forcing, the outcome at these resources."""
        if outcome is DecisionOutcome.HEURISTIC:
            record = heuristic_record(gtrid, frozenset(_names(several(resources, "resources"))))
        else:
            body = _body(several(resources, "resources"), DecisionOutcome(outcome))
            record = UnplacedRecord(_FINISH, body, None, None, 0, gtrid)
        self.log.submit(record, sync=False)

    def open_decisions(self) -> Mapping[bytes, Decision]:
        """Return decisions not closed for all of their resources, by gtrid; times are in ms."""
        with self.log.state() as state:
            return {
                gtrid: Decision(gtrid, frozenset(one.resources), one.time_us // 1000)
                for gtrid, one in state.decisions.items()
            }

    def heuristics(self) -> Mapping[bytes, frozenset[str]]:
        """Return heuristic outcomes that are not settled, by gtrid."""
        with self.log.state() as state:
            return {gtrid: names for gtrid, (_, names) in state.heuristics.items()}

    def settle(self, gtrid: bytes) -> Ticket:
        """Record durably that an operator has settled a heuristic outcome."""
        return self.log.submit(UnplacedRecord(Code.SETTLE, gtrid=gtrid))


class TallySharedDecisionLog(TallyDecisionLog):
    """The decision log of a coordinator of several processes; see `SharedDecisionLog`."""

    log: SharedTallyLog

    def __init__(self, path: str, *, owner: str = "") -> None:
        claim = Claim(self.role, owner)
        super().__init__(SharedTallyLog(path, settings=self.settings, claim=claim))

    @property
    def member(self) -> int:
        """Number of this process."""
        return self.log.member

    @property
    def since_ms(self) -> int:
        """When this process opened the log, in milliseconds since 1970."""
        return self.log.start_ms

    def lives_since(self, member: int) -> int | None:
        """Return when the process of this number opened the log; None if it does not live."""
        return self.log.lives_since(member)


@functools.lru_cache(maxsize=256)
def _body(resources: tuple[str, ...], outcome: str = "") -> bytes:
    """Encode names and outcome; cached, as a program has few sets of resources."""
    return encode_names(_names(resources), outcome.encode())


def _names(resources: Collection[str]) -> tuple[str, ...]:
    """Return names that a body can hold. Raises `TypeError` or `ValueError`."""
    return texts(resources, "resources", NAME_MAX)
