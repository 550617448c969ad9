"""Encrypted database files: the key from the file password, and the clear bytes.

In: the bytes of a file with ``CIPHER=AES`` or ``XTEA``, and its file password. Out: the bytes that
the same file would have without a cipher, but for its salt; or nothing, where the password opens it
with neither. Each block of 16 bytes is encrypted by itself, after an XOR with its encrypted offset.
Pages that were never written are zeros, and stay so. Source: ``SecureFileStore``, ``SHA256`` and
``XTEA`` of H2 1.3.176 and 1.4.200.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from tallystick.errors import MissingExtraError
from tallystick.storage.files import Bytes
from tallystick.systems.h2.format import layout

BLOCK = 16
_ITERATIONS = 1024
_KEY = 16
"""Bytes of the hash that a cipher takes."""
_HEADER = 3 * BLOCK
_XTEA_ROUNDS = 32
_XTEA_DELTA = 0x9E3779B9
_WORD = 0xFFFFFFFF
_PIECE = 1 << 20
"""Bytes that are decrypted at once."""
_Cipher = Callable[[bytes, bytes, bool], bytes]
"""Encrypts, or with True decrypts, whole blocks with a key."""


def decrypted(data: Bytes, password: str) -> bytearray | None:
    """Return the clear bytes of a database; None if the password opens it with no cipher.

    Raises:
        MissingExtraError: a package for ciphers is not installed.
    """
    found = None if len(data) < layout.PAGE_SIZE_MIN else _key_and_cipher(data, password)
    return None if found is None else _whole(data, *found)


def decrypted_object(data: Bytes, password: str) -> bytearray | None:
    """Return the clear bytes of the file of a large object; None if the password does not open it.

    Every block of it was written; what ends inside one stays as it is.

    Raises:
        MissingExtraError: a package for ciphers is not installed.
    """
    found = _key_and_cipher(data, password)
    if found is None:
        return None
    clear = bytearray(data)
    clear[2 * BLOCK : _HEADER] = layout.MAGIC
    end = len(data) - len(data) % BLOCK
    for begin in range(_HEADER, end, _PIECE):
        piece = slice(begin, min(end, begin + _PIECE))
        clear[piece] = _decrypt(data, piece.start, piece.stop, *found)
    return clear


def _key_and_cipher(data: Bytes, password: str) -> tuple[bytes, _Cipher] | None:
    """Return the key, and the cipher by which the inner text of a file is clear; None for none."""
    key = _file_key(password, bytes(data[BLOCK : 2 * BLOCK]))
    opens = (
        cipher
        for cipher in (_aes, _xtea)
        if _decrypt(data, 2 * BLOCK, _HEADER, key, cipher) == layout.MAGIC
    )
    cipher = next(opens, None)
    return None if cipher is None else (key, cipher)


def _file_key(password: str, salt: bytes) -> bytes:
    key = hashlib.sha256(f"file@{password}".encode("utf-16-be")).digest()
    key = hashlib.sha256(key + salt).digest()
    for _ in range(_ITERATIONS):
        key = hashlib.sha256(key).digest()
    return key


def _whole(data: Bytes, key: bytes, cipher: _Cipher) -> bytearray:
    """Return the clear bytes of a database."""
    clear = bytearray(data)
    clear[2 * BLOCK : _HEADER] = layout.MAGIC
    # The page size stands in the first bytes, and tells which pages were never written.
    first = slice(_HEADER, layout.PAGE_SIZE_MIN)
    clear[first] = _decrypt(data, first.start, first.stop, key, cipher)
    size = layout.STATIC_HEADER.unpack_from(clear)[3]
    if not layout.valid_page_size(size):
        return clear
    borders = [layout.PAGE_SIZE_MIN, *range(size, len(data) + 1, size)]
    zeros = bytes(size)
    written = [
        one for one in pairwise(borders) if data[one[0] : one[1]] != zeros[: one[1] - one[0]]
    ]
    for begin, end in _joined(written):
        clear[begin:end] = _decrypt(data, begin, end, key, cipher)
    return clear


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ranges with neighbours as one, up to `_PIECE` bytes: so the cipher is called less."""
    joined: list[tuple[int, int]] = []
    for begin, end in ranges:
        if joined and joined[-1][1] == begin and end - joined[-1][0] <= _PIECE:
            joined[-1] = joined[-1][0], end
        else:
            joined.append((begin, end))
    return joined


def _decrypt(data: Bytes, begin: int, end: int, key: bytes, cipher: _Cipher) -> bytes:
    """Return the clear bytes of whole blocks from ``begin`` to ``end``."""
    # The vector of a block: for each half its offset divided by 8, encrypted with a key of its own.
    places = range(begin >> 3, end >> 3)
    vectors = b"".join(place.to_bytes(8, "big") for place in places)
    vectors = cipher(hashlib.sha256(key).digest()[:_KEY], vectors, False)
    clear = cipher(key[:_KEY], bytes(data[begin:end]), True)
    # As one number each: an XOR of all bytes without a loop over them.
    number = int.from_bytes(clear) ^ int.from_bytes(vectors)
    return number.to_bytes(end - begin)


def _aes(key: bytes, data: bytes, decrypt: bool) -> bytes:
    try:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    except ImportError as error:
        raise MissingExtraError("cryptography", "crypto") from error
    cipher = Cipher(algorithms.AES(key), modes.ECB())
    context = cipher.decryptor() if decrypt else cipher.encryptor()
    return bytes(context.update(data) + context.finalize())


def _xtea(key: bytes, data: bytes, decrypt: bool) -> bytes:
    try:
        import numpy as np
    except ImportError as error:
        raise MissingExtraError("numpy", "arrow") from error
    keys = _xtea_keys(key)
    words = np.frombuffer(data, ">u4").astype(np.uint32).reshape(-1, 2)
    y, z = words[:, 0].copy(), words[:, 1].copy()

    def mixed(one: Any) -> Any:
        return (one << np.uint32(4) ^ one >> np.uint32(5)) + one

    if decrypt:
        for first, second in reversed(keys):
            z -= mixed(y) ^ np.uint32(second)
            y -= mixed(z) ^ np.uint32(first)
    else:
        for first, second in keys:
            y += mixed(z) ^ np.uint32(first)
            z += mixed(y) ^ np.uint32(second)
    return np.stack([y, z], axis=1).astype(">u4").tobytes()


def _xtea_keys(key: bytes) -> list[tuple[int, int]]:
    words = [int.from_bytes(key[at : at + 4]) for at in range(0, _KEY, 4)]
    keys, total = [], 0
    for _ in range(_XTEA_ROUNDS // 2):
        first = total + words[total & 3] & _WORD
        total = total + _XTEA_DELTA & _WORD
        keys.append((first, total + words[total >> 11 & 3] & _WORD))
    return keys
