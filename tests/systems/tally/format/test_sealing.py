"""Encrypted and compressed groups: the same records, verified without the key, opened with it."""

from __future__ import annotations

import sys
from dataclasses import replace

import pyarrow as pa
import pytest

from tallystick.arrow.schemas import plain
from tallystick.errors import (
    CorruptLogError,
    MissingExtraError,
    UnsupportedFormatError,
)
from tallystick.records import Outcome
from tallystick.systems.tally.format.sealing import (
    BatchSealing,
    compress,
    decompress,
    require_packages,
)
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.settings import Settings
from tallystick.testing import MemoryFileSystem, check_tiling
from tests.systems.tally.build import FOLDER, TINY, every_item, reading

KEY = bytes(range(32))
BIG = b"compressible " * 400


def _written(settings: Settings, key: bytes | None) -> MemoryFileSystem:
    fs = MemoryFileSystem()
    log = TallyLog(FOLDER, settings=settings, key=(lambda: key) if key else None, fs=fs)
    for item in every_item():
        log.submit(item).wait()
    log.append(BIG).wait()
    log.close()
    return fs


@pytest.mark.parametrize("compression", ["none", "zlib", "zstd"])
@pytest.mark.parametrize("key", [None, KEY])
def test_records_and_batches_are_the_same(compression: str, key: bytes | None) -> None:
    settings = replace(TINY, compression=compression, compress_min=64)
    fs = _written(settings, key)
    one = reading(fs, key)
    records = list(one.records())
    assert [record.sequence for record in records] == list(range(1, len(records) + 1))
    assert records[-1].body == BIG
    rows = pa.Table.from_batches([plain(batch) for batch in one.batches()]).to_pylist()
    assert [row["body"] for row in rows] == [record.body for record in records]
    assert [row["offset"] for row in rows] == [record.offset for record in records]
    for file in one.files():
        check_tiling(file)
    TallyLog(FOLDER, settings=settings, key=(lambda: key) if key else None, fs=fs).close()


def test_without_the_key_only_envelopes_are_read_and_reported() -> None:
    fs = _written(TINY, KEY)
    one = reading(fs)
    records = list(one.records())
    assert {record.type for record in records} == {"group"}
    assert all(record.attributes["encrypted"] for record in records)
    assert [finding.code for finding in one.findings()] == ["encrypted"]
    with pytest.raises(UnsupportedFormatError, match="encrypted"):
        TallyLog(FOLDER, settings=TINY, fs=fs)


def test_damage_is_seen_without_the_key() -> None:
    fs = _written(TINY, KEY)
    file = fs.open(f"{FOLDER}/0000000000000001.tally")
    byte = file.pread(1, 8192 + 150)
    file.pwrite(bytes([byte[0] ^ 1]), 8192 + 150)
    file.close()
    assert "corrupt-group" in {finding.code for finding in reading(fs).findings()}


def test_wrong_key_is_refused_and_nothing_is_believed() -> None:
    fs = _written(TINY, KEY)
    with pytest.raises(CorruptLogError, match="cannot be decrypted"):
        TallyLog(FOLDER, settings=TINY, key=lambda: bytes(32), fs=fs)
    assert all(record.outcome is Outcome.CORRUPT for record in reading(fs, bytes(32)).records())


def test_key_of_a_wrong_length_is_refused() -> None:
    with pytest.raises(ValueError, match="16, 24 or 32"):
        TallyLog(FOLDER, settings=TINY, key=lambda: b"short", fs=MemoryFileSystem())


@pytest.mark.parametrize("flag", [2, 4])
@pytest.mark.parametrize("raw", [0, 99, 101, 1 << 40])
def test_wrong_size_or_bomb_is_corrupt_and_unpacks_no_more_than_it_claims(
    flag: int, raw: int
) -> None:
    packed = compress(bytes(100), flag)
    with pytest.raises(CorruptLogError):
        decompress(packed, flag, raw)
    assert decompress(packed, flag, 100) == bytes(100)


@pytest.mark.parametrize("flag", [2, 4])
def test_garbage_does_not_decompress(flag: int) -> None:
    with pytest.raises(CorruptLogError) as caught:
        decompress(b"garbage" * 9, flag, 10)
    assert "None" not in str(caught.value)


def test_a_packed_group_without_its_package_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    packed = compress(bytes(100), 4)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    said = r"^zstandard .* 'tallystick\[zstd\]'"
    with pytest.raises(MissingExtraError, match=said):
        compress(bytes(100), 4)
    with pytest.raises(MissingExtraError, match=said):
        decompress(packed, 4, 100)


def test_what_processes_hand_over_is_sealed_in_its_context_and_with_its_key() -> None:
    sealing, context = BatchSealing(KEY), b"batch 7"
    sealed = sealing.seal(b"records", context)
    assert b"records" not in sealed
    assert sealing.seal(b"records", context) != sealed
    assert BatchSealing(KEY).open(sealed, context) == b"records"
    assert BatchSealing(KEY[:16]).open(sealed, context) is None
    assert sealing.open(sealed, b"batch 8") is None
    for cut in range(len(sealed)):
        assert sealing.open(sealed[:cut], context) is None
        flipped = bytearray(sealed)
        flipped[cut] ^= 1
        assert sealing.open(bytes(flipped), context) is None


@pytest.mark.parametrize(
    ("missing", "compression", "key", "extra"),
    [
        ("zstandard", "zstd", None, "zstd"),
        ("zstandard", "zlib", KEY, None),
        ("zstandard", "none", None, None),
        ("cryptography.hazmat.primitives.ciphers.aead", "none", KEY, "crypto"),
        ("cryptography.hazmat.primitives.ciphers.aead", "zstd", None, None),
    ],
)
def test_only_what_seals_is_asked_for(
    missing: str, compression: str, key: bytes | None, extra: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setitem(sys.modules, missing, None)
    if extra is None:
        require_packages(compression, key)
        return
    with pytest.raises(MissingExtraError, match=rf"tallystick\[{extra}\]"):
        require_packages(compression, key)
