"""A control file of Derby that is damaged, or gone, as its twin has it.

In: the files of a log. Out: a patch for the control file that is not whole, if the other one is.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from tallystick.errors import LogFormatError
from tallystick.storage.source import logical_name, open_source
from tallystick.systems.derby.format.layout import CONTROL_NAMES, CONTROL_SIZE, decode_control
from tallystick.systems.protocol import LogSource, Patch, ReadOptions


def patches(source: LogSource, options: ReadOptions) -> Iterator[Patch]:
    """Yield the 48 bytes of the twin for a control file that is not whole.

    A boot that finds ``log.ctrl`` damaged goes by the twin as well; one that does not find it looks
    at no twin. The twin is not looked for where it is missing, so nothing is mended then.

    Raises:
        LogUnreadableError: a file cannot be read.
    """
    del options
    paths = {logical_name(path): path for path in source.files}
    contents = {name: _content(paths[name]) for name in CONTROL_NAMES if name in paths}
    whole = {name: data for name, data in contents.items() if _is_whole(data)}
    for name, twin in zip(CONTROL_NAMES, reversed(CONTROL_NAMES), strict=True):
        if name in whole or twin not in whole or (name not in paths and name != CONTROL_NAMES[0]):
            continue
        path = paths.get(name) or posixpath.join(posixpath.dirname(paths[twin]), name)
        yield Patch(path, 0, whole[twin][:CONTROL_SIZE], f"{twin} is whole, {name} is not")


def _content(path: str) -> bytes:
    with open_source(path) as source:
        return bytes(source.data)


def _is_whole(data: bytes) -> bool:
    try:
        decode_control(data)
    except LogFormatError:
        return False
    return True
