"""Encryption of logs: the key from a boot password or given directly, and the clear bodies.

In: ``service.properties`` and the caller's secret. Out: a `LogCipher`, or an error that says
what is wrong with the secret. Only record bodies are encrypted, each on its own with
the same key and the same initial vector. Source: docs/formats/derby.md, section "Encryption".
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from tallystick.errors import LogFormatError, MissingExtraError, UnsupportedFormatError

ENCRYPTED = "dataEncryption"
ALGORITHM = "encryptionAlgorithm"
BLOCK_SIZE = "derby.encryptionBlockSize"
KEY_LENGTH = "encryptionKeyLength"
STORED_KEY = "encryptedBootPassword"
DEFAULT_ALGORITHM = "DES/CBC/NoPadding"
_IV_SIZE = 8
_AES_BLOCK = 16
_PAD_MASK = 0xFF
_LENGTH = re.compile(r"[0-9]{1,9}")


class LogCipher:
    """Decrypts and encrypts record bodies, whose length is a multiple of ``block_size``."""

    def __init__(self, algorithm: str, key: bytes) -> None:
        name, _, rest = algorithm.partition("/")
        mode = rest.partition("/")[0] or "CBC"
        self.algorithm = algorithm
        self.block_size = _AES_BLOCK if name == "AES" else _IV_SIZE
        self._cipher = _cipher(name, mode, key, initial_vector(key, name))

    def decrypt(self, body: bytes | memoryview) -> bytes:
        """Return the clear body; its padding stays at the end."""
        return self._run(self._cipher.decryptor(), body)

    def encrypt(self, body: bytes | memoryview) -> bytes:
        """Return the encrypted body; raises `LogFormatError` unless it fills whole blocks."""
        return self._run(self._cipher.encryptor(), body)

    def _run(self, context: Any, body: bytes | memoryview) -> bytes:
        if len(body) % self.block_size:
            raise LogFormatError(
                "body does not fill cipher blocks",
                expected=f"a multiple of {self.block_size}",
                found=str(len(body)),
            )
        done: bytes = context.update(bytes(body)) + context.finalize()
        return done


def initial_vector(key: bytes, name: str) -> bytes:
    """Return the initial vector that Derby derives from the key: 8 bytes, twice for AES.

    Raises:
        LogFormatError: the key is shorter than any that Derby takes.
    """
    if len(key) < _IV_SIZE:
        raise LogFormatError(
            "the key is too short", expected=f"{_IV_SIZE} bytes or more", found=f"{len(key)} bytes"
        )
    signed = [byte - 256 if byte > 127 else byte for byte in key]
    first = (((signed[-1] << 2) | 15) ^ signed[0]) & _PAD_MASK
    rest = (
        (((signed[place - 1] << (place % 5)) | 15) ^ signed[place]) & _PAD_MASK
        for place in range(1, _IV_SIZE)
    )
    vector = bytes((first, *rest))
    return vector * 2 if name == "AES" else vector


def _cipher(name: str, mode: str, key: bytes, vector: bytes) -> Any:
    try:
        from cryptography.hazmat.decrepit.ciphers import algorithms as old
        from cryptography.hazmat.decrepit.ciphers import modes as old_modes
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    except ImportError as error:
        raise MissingExtraError("cryptography", "crypto") from error
    makers: dict[str, Any] = {
        "AES": algorithms.AES,
        "DES": lambda secret: old.TripleDES(secret * 3),
        "DESede": old.TripleDES,
        "Blowfish": old.Blowfish,
    }
    chainings: dict[str, Any] = {
        "CBC": modes.CBC,
        "CFB": old_modes.CFB,
        "OFB": old_modes.OFB,
        "ECB": lambda _: modes.ECB(),
    }
    if name not in makers or mode not in chainings:
        raise UnsupportedFormatError(
            "unknown encryption algorithm", expected="DES, DESede, AES or Blowfish", found=name
        )
    try:
        return Cipher(makers[name](key), chainings[mode](vector))
    except ValueError as error:
        raise LogFormatError(
            "the key does not fit the algorithm",
            expected=name,
            found=f"{len(key)} bytes",
            advice="Name the algorithm that the database was created with",
        ) from error


def algorithm_of(properties: Mapping[str, str], key: bytes) -> str:
    """Return the named algorithm, or the one that block size and key length imply.

    A database with an external key names none in its properties.
    """
    if named := properties.get(ALGORITHM):
        return named
    if properties.get(BLOCK_SIZE) == str(_AES_BLOCK):
        return "AES/CBC/NoPadding"
    return "DESede/CBC/NoPadding" if len(key) == 24 else DEFAULT_ALGORITHM


def key_of_password(properties: Mapping[str, str], password: str) -> bytes:
    """Decrypt the stored key with the boot password; raises `LogFormatError` if that fails."""
    stored, dash, check = properties.get(STORED_KEY, "").partition("-")
    try:
        sealed, expected = bytes.fromhex(stored), int(check)
    except ValueError as error:
        if not stored:
            raise LogFormatError(
                "service.properties has no key that a boot password opens",
                advice="It was encrypted with an external key: give that (--encryption-key); or "
                "put service.properties of this database beside the log",
            ) from error
        raise LogFormatError(
            "the key in service.properties is damaged", expected="hex-check", found=stored + dash
        ) from error
    algorithm = properties.get(ALGORITHM, DEFAULT_ALGORITHM)
    pad = _pad(password.encode("latin-1", "replace"), len(sealed), algorithm)
    opened = LogCipher(algorithm, pad).decrypt(sealed)
    if (found := _folded(opened)) != expected:
        raise LogFormatError(
            "the boot password is wrong", expected=f"check {expected}", found=str(found)
        )
    bits, _, size = properties.get(KEY_LENGTH, "").partition("-")
    if _LENGTH.fullmatch(size):
        return opened[: int(size)]
    return opened[: int(bits) // 8] if _LENGTH.fullmatch(bits) else opened


def _pad(password: bytes, sealed_size: int, algorithm: str) -> bytes:
    if not password:
        raise LogFormatError("the boot password is empty")
    size = _AES_BLOCK if algorithm.startswith("AES") else sealed_size
    turn, count = sum(password), len(password)
    return bytes(
        (password[(place + turn) % count] ^ (password[place % count] << 4)) & _PAD_MASK
        for place in range(size)
    )


def _folded(opened: bytes) -> int:
    digest = hashlib.md5(opened, usedforsecurity=False).digest()
    low = high = 0
    for even, odd in zip(digest[::2], digest[1::2], strict=True):
        low, high = low ^ even, high ^ odd
    return high << 8 | low
