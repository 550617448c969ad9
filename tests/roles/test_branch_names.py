"""Names of prepared transactions that are XA ids, and names that are not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.records import Xid
from tallystick.roles import branch_name, branch_of
from tests.systems.h2.kit import xid_name

INT = st.integers(-(1 << 31), (1 << 31) - 1)
PART = st.binary(max_size=64)


@given(INT, PART, PART)
def test_xa_names_come_back_with_the_bqual_first(number: int, gtrid: bytes, bqual: bytes) -> None:
    xid = Xid(number, gtrid, bqual)
    name = xid_name(xid)
    assert branch_of(name) == branch_of(name.lower().replace("xid", "XID")) == xid
    assert branch_of(branch_name(xid)) == xid
    assert name.split("_")[2] == bqual.hex().upper()


OTHERS = (
    "", "BRANCH", "XID_1_AB", "XID_1_ABC_00", "XID_99999999999_00_00", "XID_1_GG_00",
    "XID_+5_AB_00", "XID_ 5_AB_00", "XID_1_A B_00", "XID_1_AB _00", "XID_1_AB_00\n",
    "XID_1_0_AB_00", "XID_\u0661_AB_00", "XID_-_AB_00",
)  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_other_names_are_no_xa_ids(name: str) -> None:
    assert branch_of(name) is None
