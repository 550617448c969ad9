"""The form of the engine's result."""

from __future__ import annotations

from tallystick.systems.jboss.engine.report import java_hash_order


def test_deletes_come_in_the_order_of_a_java_hash_set() -> None:
    assert java_hash_order([33, 1, 17, 16, 1]) == [16, 33, 1, 17]
    assert java_hash_order([1 << 32, 3, 2]) == [1 << 32, 2, 3]
