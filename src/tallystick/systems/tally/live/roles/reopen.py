"""Open a native log, or make one, in any of its roles by one call: for conversions.

In: the folder of a log, or of none, and its role. Out: the role, open.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from tallystick.errors import CorruptLogError
from tallystick.roles import Role
from tallystick.storage.local import LOCAL
from tallystick.systems.protocol import LogReading
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.roles.base import TallyRole
from tallystick.systems.tally.live.roles.decision_log import TallyDecisionLog
from tallystick.systems.tally.live.roles.journal import TallyJournal
from tallystick.systems.tally.live.roles.persist_log import TallyPersistLog
from tallystick.systems.tally.live.salvage import salvage
from tallystick.systems.tally.read.claim import ANYONES, Claim
from tallystick.systems.tally.read.files import control_in

_ROLES: Final[dict[Role, type[TallyRole[Any]]]] = {
    Role.DECISION_LOG: TallyDecisionLog,
    Role.RECORD_JOURNAL: TallyJournal,
    Role.PERSIST_LOG: TallyPersistLog,
}


def reopen(
    folder: str, role: Role, like: LogReading | None, key: bytes | None, _content: Any, *,
    force: bool,
) -> TallyRole[Any]:  # fmt: skip
    """Open the log in ``folder``; see `tallystick.systems.protocol.System.reopener`."""
    made = _ROLES[role]
    settings = made.settings
    control = control_in(LOCAL, like.source.path) if like is not None else None
    if control is not None and control.segment_size > settings.segment_size:
        settings = replace(settings, segment_size=control.segment_size)
    provider = None if key is None else lambda: key
    claim = Claim(role) if like is None else ANYONES  # of a copy: nothing is noted, or told
    try:
        log = TallyLog(folder, settings=settings, key=provider, claim=claim)
    except CorruptLogError:
        if not force:
            raise
        whole = f"{folder}.salvaged"
        salvage(folder, whole, settings=settings, key=provider)
        log = TallyLog(whole, settings=settings, key=provider, claim=claim)
    try:
        return made(log)
    except BaseException:
        log.close()
        raise
