"""Keys and encrypted bodies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.errors import LogFormatError
from tallystick.systems.derby.format.crypto import LogCipher, key_of_password


@pytest.mark.parametrize(
    ("algorithm", "sealed", "bits", "block"),
    [
        ("AES/CBC/NoPadding", "2f519463efd8aee64725dd6f8b5250f1-19110", "128-16", 16),
        ("DES/CBC/NoPadding", "ecfdeb1b2b83c486-31647", "56-8", 8),
    ],
)
def test_boot_password_opens_the_sealed_key_and_another_does_not(
    algorithm: str, sealed: str, bits: str, block: int
) -> None:
    """Sealed by Derby 10.14.2.0 under this password."""
    properties = {
        "encryptionAlgorithm": algorithm,
        "encryptedBootPassword": sealed,
        "encryptionKeyLength": bits,
    }
    key = key_of_password(properties, "Geheim-12345")
    assert len(key) == block
    assert LogCipher(algorithm, key).block_size == block
    for odd in ("\u00b2", "\u00b2-\u00b2", "9" * 5000):
        whole = key_of_password(properties | {"encryptionKeyLength": odd}, "Geheim-12345")
        assert whole[:block] == key
    with pytest.raises(LogFormatError, match="boot password is wrong"):
        key_of_password(properties, "Geheim-54321")


@given(st.binary(min_size=1, max_size=64))
def test_encrypted_bodies_come_back(data: bytes) -> None:
    for algorithm, key in (
        ("AES/CBC/NoPadding", bytes(range(16))),
        ("DES/CBC/NoPadding", bytes(range(8))),
        ("DESede/CFB/NoPadding", bytes(range(24))),
        ("Blowfish/OFB/NoPadding", bytes(range(16))),
        ("AES/ECB/NoPadding", bytes(range(32))),
    ):
        cipher = LogCipher(algorithm, key)
        padded = data + bytes(-len(data) % cipher.block_size)
        assert cipher.decrypt(cipher.encrypt(padded)) == padded
    with pytest.raises(LogFormatError):
        LogCipher("AES/CBC/NoPadding", bytes(16)).decrypt(bytes(15))
    with pytest.raises(LogFormatError):
        LogCipher("AES/CBC/NoPadding", bytes(15))
