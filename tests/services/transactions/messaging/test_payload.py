"""A key stands for one payload, and outcomes hold the values that tables have."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tallystick.errors import TransactionUsageError
from tallystick.services.transactions import IdempotencyKey, Outbox, Relay, TransactionManager
from tallystick.services.transactions.messaging.outbox import Message
from tests.kit import unpack


def manager(folder: Path) -> TransactionManager:
    return TransactionManager(
        folder / "c", {"a": f"sqlite:///{folder}/a.db"}, recovery_interval=None
    )


def test_a_key_with_another_payload_is_refused(tmp_path: Path) -> None:
    done: list[Decimal] = []
    with manager(tmp_path) as tm:

        @tm.transactional(key=IdempotencyKey("a", of="key"))
        def pay(key: str, amount: Decimal, session: object = None) -> int:
            del key, session
            done.append(amount)
            return len(done)

        assert pay("one", Decimal("1.10")) == 1
        assert pay("one", amount=Decimal("1.10"), session=object()) == 1, "a session has no payload"
        with pytest.raises(TransactionUsageError, match="another payload"):
            pay("one", Decimal("1.20"))
        assert pay("two", Decimal("1.20")) == 2
    assert done == [Decimal("1.10"), Decimal("1.20")]


def test_the_program_may_say_what_the_payload_is(tmp_path: Path) -> None:
    with manager(tmp_path) as tm:

        def payload(key: str, amount: int, at: float) -> int:
            del key, at
            return amount

        @tm.transactional(key=IdempotencyKey("a", of="key", payload=payload))
        def pay(key: str, amount: int, at: float) -> float:
            del key, amount
            return at

        assert pay("one", 1, at=1.0) == pay("one", 1, at=2.0) == 1.0
        with pytest.raises(TransactionUsageError, match="another payload"):
            pay("one", 2, at=1.0)


def test_a_payload_that_is_none_for_every_request_refuses_no_key(tmp_path: Path) -> None:
    with manager(tmp_path) as tm:

        @tm.transactional(key=IdempotencyKey("a", of="key", payload=lambda *_, **__: None))
        def pay(key: str, amount: int) -> int:
            del key
            return amount

        assert pay("one", 1) == pay("one", 2) == 1


def test_an_outcome_holds_what_tables_hold(tmp_path: Path) -> None:
    outcome = {"id": UUID(int=7), "at": datetime(2026, 1, 31, tzinfo=UTC), "of": b"\0"}
    with manager(tmp_path) as tm:
        handler = tm.transactional(key=IdempotencyKey("a", of="key", scope="s"))(_giving(outcome))
        assert handler("one") == outcome
        again = tm.transactional(key=IdempotencyKey("a", of="key", scope="s"))(_giving(None))
        assert again("one") == outcome
        wrong = tm.transactional(key=IdempotencyKey("a", of="key", scope="s"))(_giving((1, 2)))
        with pytest.raises(TransactionUsageError, match="cannot be kept"):
            wrong("two")


def _giving(outcome: Any) -> Any:
    def handler(key: str) -> Any:
        del key
        return outcome

    return handler


def test_keys_and_messages_of_an_earlier_version_are_read(tmp_path: Path) -> None:
    unpack(Path(__file__).with_name("earlier_rows.b64"), tmp_path)
    got: list[Message] = []
    with manager(tmp_path) as tm:
        handler = tm.transactional(key=IdempotencyKey("a", of="key", scope="s"))(_giving(2))
        assert handler("old") == {"id": 1, "items": ["pear", None]}
        assert handler("new") == 2
        outbox = Outbox(tm, "a", consumers=("default", "other"))
        assert outbox.pending("other").parked == outbox.unpark("other") == 1
        for consumer in outbox.consumers:
            Relay(outbox, got.append, consumer=consumer).run_once()
        assert outbox.pending().messages == outbox.pending("other").messages == 0
    assert [(one.topic, one.body, one.headers) for one in got] == [
        ("orders", b"\0\xff", {"type": "grün"})
    ] * 2


def test_a_header_that_is_no_text_is_refused_at_the_call(tmp_path: Path) -> None:
    headers: Any = {"at": datetime(2026, 1, 31, tzinfo=UTC)}
    with manager(tmp_path) as tm:
        outbox = Outbox(tm, "a")
        with tm.begin() as tx, pytest.raises(TransactionUsageError, match="the header 'at'"):
            outbox.add(tx, "orders", b"", headers)
        assert outbox.pending().messages == 0
