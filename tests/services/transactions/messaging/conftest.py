"""The databases of these tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import Server
from tests.services.transactions.messaging.places import Places


@pytest.fixture
def places(tmp_path: Path, postgres_server: Server, mariadb_server: Server) -> Iterator[Places]:
    made = Places(tmp_path, postgres_server, mariadb_server)
    yield made
    made.close()
