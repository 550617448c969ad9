"""Compress and encrypt the payload of a group.

In: payload and group header. Out: the payload as stored, and back. A payload is first compressed
(zlib, or zstd where ``zstandard`` is installed), then encrypted (AES-GCM through ``cryptography``;
12 random bytes of nonce per group; the header is authenticated with it). The checksum is over the
stored bytes, so a group can be verified without the key.
"""

from __future__ import annotations

import hmac
import os
import zlib
from typing import Any, Final, Protocol

from tallystick.arguments import secret
from tallystick.errors import CorruptLogError, MissingExtraError, UnsupportedFormatError
from tallystick.storage.files import Bytes
from tallystick.systems.tally.format.layout import (
    AES_GCM,
    KNOWN_FLAGS,
    LENGTH_MAX,
    NONCE_SIZE,
    ZLIB,
    ZSTD,
    GroupHeader,
    authenticated,
)

TAG_SIZE: Final = 16
COMPRESSIONS: Final = {"none": 0, "zlib": ZLIB, "zstd": ZSTD}


class KeyProvider(Protocol):
    """Gives the secret key of a log, 16, 24 or 32 bytes; called once per opening."""

    def __call__(self) -> bytes:
        """Return the key."""
        ...


class KeyMissingError(UnsupportedFormatError):
    """A group is encrypted and no key was given: only its headers can be read."""


class WrongKeyError(CorruptLogError):
    """A whole group cannot be decrypted by this key: another one, one of no size that keys have."""


def require_packages(compression: str, key: bytes | None) -> None:
    """Ask for what groups are to be sealed with, before the first of them is written.

    Raises:
        MissingExtraError: it is not installed.
    """
    if COMPRESSIONS[compression] == ZSTD:
        _zstandard()
    if key is not None:
        _aes(key)


def compress(data: bytes, flag: int) -> bytes:
    """Compress ``data`` by the method of the flag."""
    if flag == ZLIB:
        return zlib.compress(data, 1)
    packed: bytes = _zstandard().ZstdCompressor(level=1).compress(data)
    return packed


def decompress(data: Bytes, flag: int, raw: int) -> bytes:
    """Return exactly ``raw`` bytes; never unpack more than that.

    Raises:
        CorruptLogError: the data is damaged, or unpacks to another size.
    """
    if raw > LENGTH_MAX:
        raise CorruptLogError("a group claims too many bytes", found=str(raw))
    try:
        unpacked = _unzip(data, raw) if flag == ZLIB else _unzstd(data, raw)
    except (zlib.error, ValueError) as error:
        raise CorruptLogError("a group cannot be decompressed", found=str(error)) from error
    if len(unpacked) != raw:
        raise CorruptLogError(
            "a group unpacks to another size", expected=f"{raw} bytes", found=f"{len(unpacked)}"
        )
    return unpacked


def new_nonce() -> bytes:
    """Return a random nonce."""
    return os.urandom(NONCE_SIZE)


def encrypt(data: bytes, header: GroupHeader, key: bytes) -> bytes:
    """Return ciphertext and tag, `TAG_SIZE` bytes longer than ``data``."""
    sealed: bytes = _aes(key).encrypt(header.nonce, data, authenticated(header))
    return sealed


def payload_bytes(data: Bytes, header: GroupHeader, key: bytes | None) -> Bytes:
    """Return columns and bodies of a group from its stored payload: decrypted and decompressed.

    Raises:
        KeyMissingError: the group is encrypted and ``key`` is None.
        UnsupportedFormatError: the group has flags of a later version.
        WrongKeyError: the key is wrong or can be none, or the bytes were altered.
        CorruptLogError: the content of the group has another size.
    """
    if header.flags & ~KNOWN_FLAGS:
        raise UnsupportedFormatError("a group of a later version", found=f"flags {header.flags}")
    if header.flags & AES_GCM:
        data = _decrypt(data, header, key)
    packing = header.flags & (ZLIB | ZSTD)
    if packing:
        return decompress(data, packing, header.raw)
    if len(data) != header.raw:
        raise CorruptLogError(
            "a group has another size", expected=f"{header.raw} bytes", found=f"{len(data)}"
        )
    return data


class BatchSealing:
    """Seals what one process hands to another in files beside an encrypted log.

    The key is derived from the log's, so that no nonce meets one of the log's groups.
    """

    def __init__(self, key: bytes) -> None:
        self._aes = _aes(hmac.digest(key, b"tallystick: batches between processes", "sha256"))

    def seal(self, data: bytes, context: bytes) -> bytes:
        """Return nonce, ciphertext and tag; ``context`` is authenticated with them."""
        nonce = new_nonce()
        sealed: bytes = self._aes.encrypt(nonce, data, context)
        return nonce + sealed

    def open(self, data: bytes, context: bytes) -> bytes | None:
        """Return what was sealed in this context; None if the bytes are not that."""
        from cryptography.exceptions import InvalidTag

        try:
            opened: bytes = self._aes.decrypt(data[:NONCE_SIZE], data[NONCE_SIZE:], context)
        except (InvalidTag, ValueError):
            return None
        return opened


def _decrypt(data: Bytes, header: GroupHeader, key: bytes | None) -> bytes:
    if key is None:
        raise KeyMissingError("a group is encrypted", advice="Give the log's key")
    try:
        secret(key, "the key that was given")
    except (TypeError, ValueError) as error:
        raise WrongKeyError(f"a group is encrypted, and {error}") from error
    from cryptography.exceptions import InvalidTag

    try:
        plain: bytes = _aes(key).decrypt(header.nonce, bytes(data), authenticated(header))
    except InvalidTag as error:
        raise WrongKeyError(
            "a group cannot be decrypted",
            expected="the key that it was written with",
            found="another key, or altered bytes",
            advice="Check the key first",
        ) from error
    return plain


def _unzip(data: Bytes, raw: int) -> bytes:
    stream = zlib.decompressobj()
    # One byte more than there should be: only so is the end of a right stream read, and a longer
    # one noticed.
    unpacked = stream.decompress(data, raw + 1)
    if not stream.eof or stream.unused_data:
        raise ValueError("the stream does not end where the group does")
    return unpacked


def _unzstd(data: Bytes, raw: int) -> bytes:
    module = _zstandard()
    try:
        # A frame names the memory that it needs: a damaged one would be given any amount.
        stream = module.ZstdDecompressor(max_window_size=1 << 27).stream_reader(bytes(data))
        unpacked: bytes = stream.read(raw + 1)
    except module.ZstdError as error:
        raise ValueError(str(error)) from error
    return unpacked


def _zstandard() -> Any:
    try:
        import zstandard
    except ImportError as error:
        raise MissingExtraError("zstandard", "zstd") from error
    return zstandard


def _aes(key: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise MissingExtraError("cryptography", "crypto") from error
    return AESGCM(key)
