"""The answers for the items of one group: the LSN of each, or the error with which it was refused.

In: what a log says of each item. Out: the sequence numbers of a group, which raise that error for
whoever asks for the number of a refused item.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, overload

from tallystick.errors import TallystickError, copy_error

Answer: TypeAlias = int | TallystickError
"""The LSN of an item, or why it was refused."""


class Answers(Sequence[int]):
    """The LSNs of a group of which some items were refused."""

    __slots__ = ("_each", "refused")

    def __init__(self, each: Sequence[Answer], refused: Sequence[TallystickError]) -> None:
        self._each = each
        self.refused = refused

    def __len__(self) -> int:
        return len(self._each)

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[int]: ...

    def __getitem__(self, place: int | slice) -> int | Sequence[int]:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(len(self)))]
        answer = self._each[place]
        if isinstance(answer, int):
            return answer
        raise copy_error(answer)


def lsns_of(each: Sequence[Answer]) -> Sequence[int]:
    """Return the answers as LSNs.

    Raises:
        TallystickError: every item was refused; the error of the first one.
    """
    refused = [one for one in each if not isinstance(one, int)]
    if refused and len(refused) == len(each):
        raise refused[0]
    return Answers(each, refused)
