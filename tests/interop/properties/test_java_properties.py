"""Java's own Properties and ours find the same in random files."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tallystick.systems.java_properties import parse_properties
from tests.interop.java import compile_java, start_java

pytestmark = pytest.mark.interop

PIECES = ["a", "b", "=", ":", " ", "\t", "\f", "\\", "\\\\", "\\\n", "\n", "\r", "\r\n", "#", "!",
          "\\u0041", "\\u", "\\t", "\x85", "\x0b", "\x1c", "\xe9"]  # fmt: skip


def test_java_finds_the_same() -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    files = [
        "".join(chance.choices(PIECES, k=chance.randrange(25))).encode("latin-1")
        for _ in range(5000)
    ]
    # Java takes a last line of nothing but a backslash for an entry; we do not.
    files = [data.rstrip(b"\\\r\n \t\f") for data in files]
    classes = compile_java(Path(__file__).parent)
    with start_java("LoadProperties", classpath=str(classes)) as process:
        lines = "".join(f"{data.hex()}\n" for data in files)
        answers = process.communicate(lines, timeout=60)[0].splitlines()
    for data, answer in zip(files, answers, strict=True):
        assert ours(data) == theirs(answer), f"seed {seed}: {data!r}"


def ours(data: bytes) -> dict[str, str] | None:
    try:
        return parse_properties(data)
    except ValueError:
        return None


def theirs(answer: str) -> dict[str, str] | None:
    if answer == "error":
        return None
    pairs = [pair.split("=") for pair in answer.split()[1:]]
    texts = [[bytes.fromhex(part).decode("utf-16-be") for part in pair] for pair in pairs]
    return {pair[0]: pair[1] for pair in texts}
