"""Requests of FastAPI and Starlette, each in a transaction, whatever threads handle it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any

import pytest
from fastapi import BackgroundTasks, Depends, FastAPI, HTTPException
from fastapi.responses import JSONResponse

from tallystick.errors import TransactionUsageError
from tallystick.services.journal import Journal
from tallystick.services.page_store import PageStore
from tallystick.services.transactions import (
    AsyncTransactionManager,
    Outbox,
    TransactionManager,
)
from tallystick.services.transactions.integrations import web

REQUESTS = 60


class Shop:
    """A service, its stores and its manager."""

    def __init__(self, folder: Path) -> None:
        self.journal = Journal(folder / "j")
        self.store = PageStore(folder / "s")
        self.store.create_table("t")
        resources: dict[str, Any] = {"j": self.journal, "s": self.store}
        self.tm = TransactionManager(folder / "c", resources, recovery_interval=None)
        self.app = FastAPI()
        self.seen: list[object] = []

    @property
    def kept(self) -> list[int]:
        return sorted(record.record_id for record in self.journal.live_records())

    def work(self, tx: Any, number: int) -> None:
        tx["j"].add(number, b"x")
        time.sleep(0.003 * (number % 4))
        tx["s"].table("t")[number] = b"x"

    async def ask(self, path: str) -> str:
        """Return the status of an answer, or the class of what the request raised."""
        got: list[str] = []

        async def receive() -> MutableMapping[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                self.seen.append(("answer", len(self.kept)))
                got.append(str(message["status"]))

        scope = {
            "type": "http", "method": "GET", "path": path, "raw_path": path.encode(),
            "query_string": b"", "headers": [], "http_version": "1.1", "scheme": "http",
            "server": ("t", 80), "client": ("t", 1), "root_path": "", "asgi": {"version": "3.0"},
        }  # fmt: skip
        try:
            await self.app(scope, receive, send)
        except Exception as error:  # a server logs it; the answer of 500 has been sent
            got.append(type(error).__name__)
        return ", ".join(got)

    def ask_all(self, *paths: str) -> list[str]:
        async def main() -> list[str]:
            return list(await asyncio.gather(*map(self.ask, paths)))

        return asyncio.run(main())


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    yield made
    made.tm.close()


def by_generator(shop: Shop) -> Any:
    def get_tx() -> Iterator[Any]:
        with shop.tm.begin() as tx:
            yield tx

    return Depends(get_tx)


WAYS: dict[str, Callable[[Shop], Any]] = {
    "generator": by_generator,
    "dependency": lambda shop: web.in_transaction(shop.tm),
}


@pytest.mark.parametrize("way", WAYS)
def test_plain_handlers_of_many_requests_at_once_commit_all(shop: Shop, way: str) -> None:
    dependency = WAYS[way](shop)

    @shop.app.get("/{number}")
    def handle(number: int, tx: Any = dependency) -> int:
        shop.work(tx, number)
        return number

    answers = shop.ask_all(*(f"/{number}" for number in range(REQUESTS)))
    assert answers == ["200"] * REQUESTS
    assert shop.kept == list(range(REQUESTS))


def add_routes(shop: Shop, dependency: Any) -> None:
    """Add a plain and an asynchronous handler for each way to end."""

    def work(number: int, end: str, tx: Any) -> Any:
        if isinstance(tx, int):
            tx = shop.tm.current()
        shop.seen.append(shop.tm.current() is tx)
        shop.work(tx, number)
        if end == "raises":
            raise ValueError(end)
        if end == "refuses":
            raise HTTPException(409)
        return JSONResponse({}, 409) if end == "answers-409" else number

    @shop.app.get("/plain/{number}/{end}")
    def plain(number: int, end: str, tx: Any = dependency) -> Any:
        shop.seen.append(threading.current_thread() is not threading.main_thread())
        return work(number, end, tx)

    @shop.app.get("/task/{number}/{end}")
    async def task(number: int, end: str, tx: Any = dependency) -> Any:
        return work(number, end, tx)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", ["plain", "task"])
@pytest.mark.parametrize("way", ["dependency", "middleware", "both"])
def test_it_is_committed_before_the_answer_and_not_after_an_error(
    shop: Shop, way: str, kind: str
) -> None:
    if way != "dependency":
        shop.app.add_middleware(web.TransactionMiddleware, manager=shop.tm)
    add_routes(shop, 0 if way == "middleware" else web.in_transaction(shop.tm))
    assert shop.ask_all(f"/{kind}/1/well") == ["200"]
    assert shop.seen.pop() == ("answer", 1), "committed before the answer was sent"
    assert all(shop.seen)
    assert shop.ask_all(f"/{kind}/2/refuses") == ["409"]
    assert shop.ask_all(f"/{kind}/3/raises") == ["500, ValueError"]
    assert shop.kept == [1]
    if way != "dependency":
        assert shop.ask_all(f"/{kind}/4/answers-409") == ["409"]
        assert shop.kept == [1]


@pytest.mark.parametrize("way", ["dependency", "middleware"])
def test_a_commit_that_fails_is_no_success(shop: Shop, way: str) -> None:
    if way == "middleware":
        shop.app.add_middleware(web.TransactionMiddleware, manager=shop.tm)
    dependency = 0 if way == "middleware" else web.in_transaction(shop.tm)

    @shop.app.get("/")
    def handle(tx: Any = dependency) -> int:
        del tx
        shop.work(shop.tm.current(), 1)
        shop.tm.current().before_commit(lambda: 1 // 0)
        return 1

    assert shop.ask_all("/") == ["500, RolledBackError"]
    assert shop.kept == []


def test_a_background_task_of_an_answer_is_outside(shop: Shop) -> None:
    shop.app.add_middleware(web.TransactionMiddleware, manager=shop.tm)

    def later() -> None:
        with pytest.raises(TransactionUsageError, match="no transaction is running"):
            shop.tm.current()
        with shop.tm.begin() as tx:
            shop.work(tx, 2)

    @shop.app.get("/")
    def handle(tasks: BackgroundTasks) -> None:
        shop.work(shop.tm.current(), 1)
        tasks.add_task(later)

    assert shop.ask_all("/") == ["200"]
    assert shop.kept == [1, 2]


def test_what_a_handler_calls_may_join(shop: Shop) -> None:
    shop.app.add_middleware(web.TransactionMiddleware, manager=shop.tm)

    @shop.tm.transactional
    def inner() -> None:
        shop.work(shop.tm.current(), 2)

    @shop.app.get("/")
    def handle() -> None:
        shop.work(shop.tm.current(), 1)
        inner()
        with pytest.raises(TransactionUsageError, match="is running here"):
            shop.tm.begin()

    assert shop.ask_all("/") == ["200"]
    assert shop.kept == [1, 2]


def test_the_transaction_of_tasks_is_a_dependency_too(shop: Shop) -> None:
    tasks = AsyncTransactionManager(shop.tm)
    dependency = web.in_transaction(tasks)

    @shop.app.get("/{number}/{end}")
    async def handle(number: int, end: str, tx: Any = dependency) -> None:
        assert tasks.current() is tx
        (await tx.enlist("j")).add(number, b"x")
        if end == "refuses":
            raise HTTPException(409)

    assert shop.ask_all("/1/well", "/2/refuses", "/3/well") == ["200", "409", "200"]
    assert shop.kept == [1, 3]
    asyncio.run(tasks.close())


def test_a_request_that_is_given_up_rolls_back(shop: Shop) -> None:
    shop.app.add_middleware(web.TransactionMiddleware, manager=shop.tm)

    @shop.app.get("/")
    async def handle() -> None:
        await asyncio.to_thread(shop.work, shop.tm.current(), 1)
        shop.seen.append("working")
        await asyncio.sleep(60)

    async def main() -> None:
        request = asyncio.ensure_future(shop.ask("/"))
        while not shop.seen:
            await asyncio.sleep(0.001)
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request

    asyncio.run(main())
    assert shop.kept == []
    assert not shop.tm._context.live.at_work()


def test_the_outbox_can_be_looked_at_within_a_request(tmp_path: Path) -> None:
    with TransactionManager(tmp_path / "c", {"a": f"sqlite:///{tmp_path}/a.db"}) as tm:
        outbox = Outbox(tm, "a")
        with tm.begin():
            assert outbox.pending().messages == 0
