"""Small logs to start from: written by our own logs, and the smallest ones of the originals.

The archives in ``corpus`` hold what runs found to reach more, minimised by libFuzzer.
"""

from __future__ import annotations

import gzip
import tarfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from tallystick.services.page_store import PageStore
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.settings import Settings
from tallystick.testing import MemoryFileSystem
from tests.fixtures import cases, fixture_dir
from tests.fuzz import bundle
from tests.fuzz.bundle import Bundle
from tests.systems.h2.kit import page_file
from tests.systems.h2.live.test_damaged import RECORDS
from tests.systems.live_logs import LIVE
from tests.systems.tally.build import every_item, every_kind, segments_of_plain

HERE = Path(__file__).parent
FOLDER = "/log"
CASE_MAX = 40_000
"""Bytes, packed, of the fixtures that are taken."""
SIZE_MAX = 20 << 10
"""Bytes, unpacked, of a log: small ones are tried more often."""
CASES_MAX = 10
"""Fixtures of each system."""
_FILL = 512
"""Bytes of the fill at the end of a fixture's file that stay."""


def live(name: str, *, closed: bool) -> Bundle:
    """Return a log of our own with numbers put and dropped."""
    fs = MemoryFileSystem()
    log = LIVE[name](fs, FOLDER)
    for number in range(1, 8):
        log.put(number)
    log.drop(2)
    left_open = bundle.of_memory(fs, FOLDER)
    log.close()
    return bundle.of_memory(fs, FOLDER) if closed else left_open


def fixtures(name: str) -> Iterator[Bundle]:
    """Yield small cases of the original, unpacked, most different folders first."""
    sized = []
    for case in cases(name):
        paths = [
            path
            for path in sorted((fixture_dir(name) / case).rglob("*"))
            if path.is_file() and not path.name.startswith(("manifest", "oracle"))
        ]
        size = sum(path.stat().st_size for path in paths)
        if paths and size <= CASE_MAX:
            sized.append((size, case, paths))
    step = max(1, len(sized) // CASES_MAX)
    for _, case, paths in sorted(sized)[::-1][::step][:CASES_MAX]:
        root = fixture_dir(name) / case
        yield _trimmed({str(path.relative_to(root)): path.read_bytes() for path in paths})


def _trimmed(packed: Bundle) -> Bundle:
    """Return the files unpacked, with little of the fill at their ends: equal files stay equal."""
    files = {
        name.removesuffix(".gz"): gzip.decompress(data) if name.endswith(".gz") else data
        for name, data in packed.items()
    }
    kept = max(len(data.rstrip(data[-1:])) for data in files.values()) + 1
    return {name: data[: -(-kept // _FILL) * _FILL] for name, data in files.items()}


def _h2() -> Iterator[Bundle]:
    for size in (64, 128, 512):
        yield {"log.h2.db": bytes(page_file(b"".join(RECORDS[1:4]) * 4, page_size=size))}
    fs = MemoryFileSystem()
    with PageStore(FOLDER, system="h2", fs=fs) as store:
        store.create_table("rows")
        with store.begin() as transaction:
            transaction.table("rows")[1] = b"one"
    yield bundle.of_memory(fs, FOLDER)


def _tally() -> Iterator[Bundle]:
    yield bundle.of_memory(every_kind(), FOLDER)
    yield bundle.of_memory(segments_of_plain(20), FOLDER)
    for compression in ("zlib", "zstd"):
        fs = MemoryFileSystem()
        settings = Settings(
            segment_size=16 << 10,
            compression=compression,
            compress_min=64,
            preallocate=False,
            idle_mark_s=None,
        )
        log = TallyLog(FOLDER, settings=settings, fs=fs)
        for item in every_item() * 2:
            log.submit(item)
        log.close()
        yield bundle.of_memory(fs, FOLDER)
    fs = MemoryFileSystem()
    with PageStore(FOLDER, fs=fs) as store:
        store.create_table("rows")
        for key in range(20):
            with store.begin() as transaction:
                transaction.table("rows")[key] = bytes(200)
    yield bundle.of_memory(fs, FOLDER)


_MORE: dict[str, Callable[[], Iterator[Bundle]]] = {"h2": _h2, "tally": _tally}


@cache
def seeds(name: str) -> tuple[Bundle, ...]:
    """Return the logs to start from, the corpus of earlier runs included."""
    written = [live(name, closed=True), live(name, closed=False)]
    written += _MORE.get(name, lambda: iter(()))()
    found = sorted(fixtures(name), key=_size) if name != "tally" else []
    small = [one for one in found if _size(one) <= SIZE_MAX] or found[:1]
    return (*written, *small, *corpus(name))


def _size(files: Bundle) -> int:
    return sum(map(len, files.values()))


def corpus(name: str) -> Iterator[Bundle]:
    """Yield the bundles of the archive of a system."""
    archive = HERE / "corpus" / f"{name}.tar.xz"
    if not archive.exists():
        return
    with tarfile.open(archive) as tar:
        for member in tar:
            file = tar.extractfile(member)
            if file is not None and (files := bundle.decode(file.read())) is not None:
                yield files
