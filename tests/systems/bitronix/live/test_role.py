"""The Bitronix journal fulfils the contract of decision logs, with one pair and with several."""

from __future__ import annotations

from tallystick.roles import DecisionLog
from tallystick.storage.files import FileSystem
from tallystick.storage.local import LOCAL
from tallystick.systems.bitronix.live.role import BitronixDecisionLog
from tests.roles.contract_decision_log import DecisionLogContract


class TestBitronixDecisionLog(DecisionLogContract):
    """See `DecisionLogContract`."""

    def open_log(self, folder: str, fs: FileSystem = LOCAL) -> DecisionLog:
        return BitronixDecisionLog(folder, fs=fs, max_log_size=8 << 10)


class TestBitronixDecisionLogOfTwoPairs(DecisionLogContract):
    """See `DecisionLogContract`."""

    one_order = False

    def open_log(self, folder: str, fs: FileSystem = LOCAL) -> DecisionLog:
        return BitronixDecisionLog(folder, fs=fs, max_log_size=8 << 10, pairs=2)
