"""What is said of a password or key that is wrong is not said where none was given, and back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystick.cli import main
from tallystick.reading import explain, scan, verify
from tallystick.records import Answer, Finding
from tallystick.systems.protocol import ReadOptions
from tests.fixtures import fixture_dir
from tests.systems.h2.test_left import LEFT

WRONG = (
    ReadOptions(boot_password="wrong password"),
    ReadOptions(encryption_key=bytes(1)),
    ReadOptions(encryption_key=bytes(16)),
)


def h2() -> Path:
    return LEFT / "aes-1.4.200-halt.h2.db.gz"


def derby() -> Path:
    return fixture_dir("derby") / "encrypted-aes-external-key"


def texts(path: Path, options: ReadOptions | None) -> str:
    """Return all that is said of a log."""
    (log,) = explain(path, options=options).logs
    assert log.judgement.answer is Answer.CANNOT_TELL
    assert log.judgement.reason == "encrypted"
    problems = list[Finding]()
    list(scan(path, options=options, problems=problems))
    said = [*map(str, verify(path, options=options).findings), *map(str, problems)]
    return " ".join([str(log.judgement), *said])


@pytest.mark.parametrize("path", [h2, derby], ids=["h2", "derby"])
def test_without_a_secret_none_is_called_wrong(path: object) -> None:
    said = texts(path(), None)  # type: ignore[operator]
    assert "no file password was given" in said or "no boot password or key was given" in said
    assert "does not open" not in said
    assert "right" not in said


@pytest.mark.parametrize("options", WRONG, ids=["password", "short key", "key"])
def test_with_a_wrong_one_none_is_called_missing(options: ReadOptions) -> None:
    said = texts(derby(), options)
    assert "the boot password or key that was given does not open it" in said
    assert "was given:" not in said
    assert "no key was" not in said
    if options.boot_password is not None:
        assert "service.properties has no key that a boot password opens" in said
        said = texts(h2(), options)
        assert "does not open with the file password that was given" in said
        assert "no file password" not in said
        assert "the right file password" in said


def test_a_key_of_any_length_is_no_fault_of_ours(capsys: pytest.CaptureFixture[str]) -> None:
    for key in ("00", "00" * 7, "00" * 8, "00" * 17, "00" * 200, ""):
        with pytest.raises(SystemExit) as ended:
            main(["explain", "--encryption-key", key, str(derby())])
        assert ended.value.code == 1
        said = capsys.readouterr()
        assert "should not have happened" not in said.err + said.out
