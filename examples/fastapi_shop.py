"""A service of FastAPI and SQLAlchemy: an order in one database, the stock in another.

``ORDERS=postgresql+psycopg://… STOCK=mysql+pymysql://… python examples/fastapi_shop.py PORT`` makes
the tables that are not there, recovers, and answers requests. A request that is sent again is
answered with the first outcome, whatever happened in between.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI, HTTPException
from sqlalchemy import String, create_engine, func, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tallystick import (
    BusyError,
    IdempotencyKey,
    InDoubtError,
    RolledBackError,
    TransactionManager,
)
from tallystick.services.transactions.integrations.sessions import SessionFactory
from tallystick.services.transactions.integrations.web import in_transaction


class Orders(DeclarativeBase):
    """Tables of the database of the orders."""


class Stock(DeclarativeBase):
    """Tables of the database of the stock."""


class Order(Orders):
    """An order."""

    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str] = mapped_column(String(40))


class Item(Stock):
    """How many are left of an item."""

    __tablename__ = "items"
    name: Mapped[str] = mapped_column(String(40), primary_key=True)
    left: Mapped[int]


def make_app() -> FastAPI:
    """Return the service; its transaction manager is open while it runs."""
    engines = {name: create_engine(os.environ[name.upper()]) for name in ("orders", "stock")}
    Orders.metadata.create_all(engines["orders"])
    Stock.metadata.create_all(engines["stock"])
    with Session(engines["stock"]) as session:
        if session.get(Item, "pear") is None:
            session.add(Item(name="pear", left=1000))
            session.commit()
    tm = TransactionManager(os.environ.get("COORDINATOR", "coordinator"), engines)
    orders, stock = SessionFactory("orders"), SessionFactory("stock")

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        tm.recover()
        yield
        tm.close()

    app = FastAPI(lifespan=lifespan)

    @tm.transactional(key=IdempotencyKey("orders", of="request"), retry=5)
    def sell(request: str) -> dict[str, Any]:
        order = Order(item="pear")
        session = orders(tm.current())
        session.add(order)
        pear = stock(tm.current()).get_one(Item, "pear", with_for_update=True)
        pear.left -= 1
        session.flush()
        return {"request": request, "order": order.id}

    @app.post("/orders/{request}")
    def order(request: str) -> dict[str, Any]:  # in a thread: the databases are waited for
        try:
            return sell(request)
        except (BusyError, RolledBackError, InDoubtError) as error:
            raise HTTPException(503, f"send it again: {error}") from error

    request_transaction = in_transaction(tm)

    @app.post("/gifts")
    def give(tx: Any = request_transaction) -> dict[str, Any]:  # committed before the answer
        pear = stock(tx).get_one(Item, "pear", with_for_update=True)
        if pear.left == 0:
            raise HTTPException(409, "no pear is left")  # rolls back
        pear.left -= 1
        session = orders(tx)
        session.add(order := Order(item="pear, a gift"))
        session.flush()
        return {"order": order.id}

    @app.get("/state")
    def state() -> dict[str, Any]:
        with Session(engines["orders"]) as one, Session(engines["stock"]) as other:
            count = one.scalar(select(func.count()).select_from(Order))
            return {"orders": count, "left": other.get_one(Item, "pear").left}

    return app


if __name__ == "__main__":
    uvicorn.run(
        make_app(), host="127.0.0.1", port=int(sys.argv[1] if sys.argv[1:] else 8000), workers=None
    )
