"""LZF: pages there and back, damaged images bounded, compiled loops that give the same bytes."""

from __future__ import annotations

import contextlib
import random
import sys
from array import array

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.arrow.numba_kernel import compiled_of, lazy_kernel
from tallystick.systems.h2.format import lzf
from tallystick.systems.h2.format.entries import Type, encode_undo
from tallystick.systems.h2.read.scan import Scan
from tests.systems.h2.kit import expand, opened, page_file

_REPEATED = st.binary(min_size=1, max_size=40).map(lambda piece: (piece * 512)[:512])
_FAR = st.builds(
    lambda seed, between: (one := random.Random(seed).randbytes(99)) + bytes(between) + one,
    st.integers(),
    st.integers(8085, 8100),
)
"""The same bytes again, at about the longest distance."""
PAGES = st.one_of(
    st.binary(min_size=512, max_size=512),
    _REPEATED,
    st.lists(st.binary(max_size=9), max_size=90).map(lambda rows: b"".join(rows).ljust(512)[:512]),
    _FAR,
)
_TOKENS = st.sampled_from(
    ["00", "01ab00", "1f", "2000", "3fff", "e00901", "e0ff00", "ff", "e0"]
).map(bytes.fromhex)
IMAGES = st.one_of(
    st.binary(max_size=300), st.lists(_TOKENS).map(lambda tokens: b"\x02abc" + b"".join(tokens))
)

compiled_pack = compiled_of(lzf.pack)
compiled_unpack = compiled_of(lzf.unpack)


@given(PAGES)
def test_packed_pages_come_back_and_end_in_a_literal(page: bytes) -> None:
    packed = lzf.compress(page)
    if packed is not None:
        assert len(packed) <= len(page) * 9 // 10
        assert expand(packed, len(page)) == page  # refuses a reference at the end
        assert packed[-1] == page[-1]


@given(_REPEATED)
def test_a_page_that_repeats_is_packed(page: bytes) -> None:
    assert len(lzf.compress(page) or page) < 80


@given(PAGES, st.integers(0, 600))
def test_compiled_packing_gives_the_same_bytes(page: bytes, room: int) -> None:
    assert isinstance(compiled_pack, numba.core.dispatcher.Dispatcher)
    outs = bytearray(room), np.zeros(room, np.uint8)
    places = array("i", bytes(4 * lzf.SLOTS)), np.zeros(lzf.SLOTS, np.int32)
    plain = lzf.pack(page, outs[0], places[0])
    assert compiled_pack(np.frombuffer(page, np.uint8), outs[1], places[1]) == plain
    assert outs[1].tobytes() == outs[0]


@given(IMAGES, st.integers(0, 600), st.integers(0, 300))
def test_expansion_compiled_and_by_slices_gives_the_same_bytes(
    packed: bytes, size: int, more: int
) -> None:
    outs = bytearray(size + more), np.zeros(size + more, np.uint8)
    plain = lzf.unpack(packed, outs[0], size)
    assert compiled_unpack(np.frombuffer(packed, np.uint8), outs[1], size) == plain
    assert outs[1].tobytes() == outs[0]


def test_loops_are_compiled_once_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lzf, "LOADED_FROM", 2)
    pages = [random.Random(seed).randbytes(99) * 5 for seed in range(4)]
    expected = [lzf.compress(page) for page in pages]
    late = lzf.LateKernel(lzf.pack, 500)
    monkeypatch.setattr(lzf, "_pack", late)
    compiled = []
    for page, packed in zip(pages, expected, strict=True):
        assert lzf.compress(page) == packed is not None
        compiled.append(late.compiled is not None)
    assert compiled == [False, False, True, True]


def test_loops_stay_plain_without_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lzf, "LOADED_FROM", 2)
    monkeypatch.setitem(sys.modules, "numba", None)

    @lazy_kernel
    def loop(source: memoryview, out: bytearray, size: int) -> tuple[int, int, int]:
        return lzf.unpack(source, out, size)

    late = lzf.LateKernel(loop, 2)
    for _ in range(4):
        out = bytearray(4)
        assert late(memoryview(b"\x03abcd"), out, 4) == (5, 4, lzf.WHOLE)
        assert out == b"abcd"
    assert late.compiled is None


@given(st.binary(max_size=300))
def test_any_bytes_expand_to_one_page_or_fail_bounded(packed: bytes) -> None:
    out = bytearray(512)
    with contextlib.suppress(lzf.ExpansionError):
        lzf.expand_into(packed, out, 512)
    assert len(out) == 512


@pytest.mark.parametrize(
    ("packed", "reason", "done"),
    [
        ("0061e03600", "at or after the end", 1),
        ("0061", "ends too early", 1),
        ("0061e0", "ends too early", 1),
        ("0061e036", "ends too early", 1),
        ("0361", "ends too early", 0),
        ("00612001", "before the page", 1),
        ("00612000" + "1f" + "62" * 32 + "1f" + "63" * 32, "over the end of the page", 36),
    ],
)
def test_what_is_wrong_with_an_image_is_reported(packed: str, reason: str, done: int) -> None:
    with pytest.raises(lzf.ExpansionError, match=reason) as caught:
        expand(bytes.fromhex(packed), 64)
    assert caught.value.done == done


def test_reference_that_ends_before_the_end_of_the_page_is_taken() -> None:
    assert expand(b"\x00a\xe0\x35\x00\x00b", 64) == b"a" * 63 + b"b"


def test_an_image_longer_than_a_page_is_refused_where_there_is_room_for_it() -> None:
    with pytest.raises(lzf.ExpansionError, match="longer than a page"):
        lzf.expand_into(b"\x03abcd", bytearray(9), 3)


@pytest.mark.parametrize(
    ("image", "stored"),
    [(None, 1), (bytes(512), 1), (b"\1" * 512, None), (random.Random(1).randbytes(512), 0)],
)
def test_undo_image_is_empty_packed_or_raw(image: bytes | None, stored: int | None) -> None:
    image = None if image is None else image[:512].ljust(512, b"\xee")
    body = encode_undo(9, image)
    file = opened(bytes(page_file(body)))
    assert file.stream is not None
    entry = next(Scan(file.stream, file.zone).entries())
    assert entry.code == Type.UNDO
    assert entry.image == (bytes(512) if stored == 1 else image)
    assert entry.size == stored if stored is not None else 1 < entry.size < 512
