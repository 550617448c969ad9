"""Whatever a caller passes is an error of that caller alone, or is in the log, byte for byte."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tallystick.services.journal import (
    AsyncJournal,
    AsyncJournalTransaction,
    Journal,
    JournalTransaction,
)
from tallystick.storage.group import queue
from tallystick.systems.tally.live import appender
from tests.hostile import REFUSALS, VALUES
from tests.need import need
from tests.services.hostile_calls import (
    AsyncSubject,
    Call,
    JournalSubject,
    SharedSubject,
    Subject,
    parameters,
)

CLASSES: dict[type, set[str]] = {
    Journal: {
        "as_resource", "backup", "close", "flush", "follow", "live_records", "prepared", "reclaim",
        "replay", "transaction",
    },
    AsyncJournal: {
        "as_resource", "backup", "close", "flush", "follow", "live_records", "open", "prepared",
        "reclaim", "replay", "transaction",
    },
    JournalTransaction: {"commit", "rollback"},
    AsyncJournalTransaction: {"commit", "rollback"},
}  # fmt: skip
"""Public classes that write, and those of their methods that write nothing that is passed."""
SUBJECTS: dict[str, type[Subject]] = {
    "core": JournalSubject,
    "twin": JournalSubject,
    "shared": SharedSubject,
    "tasks": AsyncSubject,
}
SHARE = 0.09
"""Share of the values that one run tries, unless it tries all."""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, where there is one: nothing here depends on a disk."""
    in_memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=in_memory if in_memory.is_dir() else tmp_path) as made:
        yield Path(made)


def test_every_parameter_of_every_public_method_is_classified() -> None:
    known = {
        call.method: list(call.right) for subject in SUBJECTS.values() for call in subject.calls
    }
    for owner, others in CLASSES.items():
        found = parameters(owner)
        writes = {one: found[one] for one in found if one.partition(".")[2] not in others}
        assert writes == {one: known.get(one) for one in writes}


@pytest.mark.parametrize(
    "share", [pytest.param(SHARE, id="sample"), pytest.param(1, id="all", marks=pytest.mark.soak)]
)
@pytest.mark.parametrize("name", list(SUBJECTS))
def test_an_odd_argument_is_refused_to_its_caller_alone_or_stored_byte_for_byte(
    name: str, share: float, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "core":
        need("core")
    if name == "twin":
        monkeypatch.setattr(queue, "CORE", None)
        monkeypatch.setattr(appender, "CORE", None)
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201 - the run can be repeated with it
    rng = random.Random(seed)
    kind = SUBJECTS[name]
    for number, call in enumerate(kind.calls):
        subject = kind(folder / str(number))
        try:
            _try_all(subject, call, share, rng)
            subject.verify()
        except BaseException as error:
            error.add_note(call.method)
            raise
        finally:
            subject.close()


def _try_all(subject: Subject, call: Call, share: float, rng: random.Random) -> None:
    for parameter in call.right:
        for value in VALUES:
            if rng.random() < share:
                _try(subject, call, parameter, value)
                subject.witness()


def _try(subject: Subject, call: Call, parameter: str, value: str) -> None:
    right = {name: make(subject) for name, make in call.right.items()}
    given, equal = ({**right, parameter: VALUES[value]()} for _ in range(2))
    try:
        rows = list(call.make(subject, given, equal))
    except REFUSALS:
        return
    except BaseException as error:
        error.add_note(f"{call.method}({parameter}={value})")
        raise
    subject.due += rows
