"""The faces over which tests of the transaction manager run."""

from __future__ import annotations

import pytest

from tests.services.transactions.faces import FACES, Face


@pytest.fixture(params=FACES)
def face(request: pytest.FixtureRequest) -> Face:
    """Every face, for resources in memory."""
    return FACES[request.param]


@pytest.fixture(params=["blocking", "as they are"])
def server_face(request: pytest.FixtureRequest) -> Face:
    """The faces for resources that have branches for tasks, or have not."""
    return FACES[request.param]
