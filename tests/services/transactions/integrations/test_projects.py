"""The projects under ``examples/`` are killed under load, and have sold each pear once."""

from __future__ import annotations

import http.client
import itertools
import json
import random
import threading
import time
import urllib.error
from pathlib import Path

import psycopg
import pytest

from tests.servers import Server
from tests.services.transactions.integrations.projects import Databases, Project

pytestmark = [pytest.mark.postgres, pytest.mark.mariadb]

PROJECTS = {
    "django": (("django_shop/manage.py", "serve"), "SELECT request FROM sales_order"),
    "fastapi": (("fastapi_shop.py",), "SELECT request FROM tallystick_keys"),
}
DRIVERS = {"postgresql://": "postgresql+psycopg://", "mysql://": "mysql+pymysql://"}


@pytest.mark.long
@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", PROJECTS)
def test_a_project_that_is_killed_has_sold_each_pear_once(
    tmp_path: Path, postgres_server: Server, mariadb_server: Server, name: str
) -> None:
    databases = Databases(postgres_server, mariadb_server)
    (command, query), urls = PROJECTS[name], dict(databases.urls)
    if name == "fastapi":
        for plain, driver in DRIVERS.items():
            urls = {key: url.replace(plain, driver) for key, url in urls.items()}
    numbers, acknowledged, chance = itertools.count(1), set[str](), random.Random(3)
    gifts: list[int] = []  # acknowledged; the others may be in the databases, too

    def order(project: Project) -> None:
        for number in numbers:
            try:
                if name == "fastapi" and not number % 3:
                    project.ask("gifts", post=True)
                    gifts.append(number)
                    continue
                project.ask(f"orders/{number}", post=True)
            except urllib.error.HTTPError:
                continue  # to be sent again
            except (OSError, http.client.HTTPException, json.JSONDecodeError):
                return  # killed, perhaps between the head of an answer and its body
            acknowledged.add(str(number))

    for _ in range(3):
        project, before = Project(tmp_path, urls, *command), len(acknowledged)
        threads = [threading.Thread(target=order, args=(project,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 120
        while len(acknowledged) < before + 8 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.2))
        project.kill()
        for thread in threads:
            thread.join()
    project = Project(tmp_path, urls, *command)
    try:
        deadline = time.monotonic() + 120
        while databases.in_doubt and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not databases.in_doubt
        with psycopg.connect(databases.urls["ORDERS"]) as pg:
            kept = {row[0] for row in pg.execute(query.encode())}
        assert acknowledged <= kept
        assert len(acknowledged) >= 24
        state = project.ask("state")
        assert state["left"] == 1000 - state["orders"]
        given = state["orders"] - len(kept)
        assert given >= len(gifts)
        assert given == 0 or name == "fastapi"
        project.ask(f"orders/{max(acknowledged)}", post=True)  # sent again, it changes nothing
        assert project.ask("state") == state
    finally:
        project.kill()
