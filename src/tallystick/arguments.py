"""What callers pass, checked where they pass it: an error for this caller, and for no other.

In: any object. Out: the same value as exactly `bytes`, `int` or `str`, which nobody can change any
more; or a `TypeError`, or a `ValueError` that names what was expected. Whatever takes an argument
that reaches a log puts it through these functions before it takes a lock or hands it to a group:
so nothing that a caller passes can fail while a group is written for others.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime, tzinfo
from difflib import get_close_matches
from operator import index
from typing import Any, ClassVar, Final, Protocol, TypeVar, cast
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tallystick.callables import require_plain
from tallystick.errors import UnsupportedFormatError
from tallystick.printable import printable

_SHOWN_BITS: Final = 256
"""Integers up to this size are shown in an error."""
_ONLY_BYTES: Final = frozenset({bytes})
_ONLY_INTEGERS: Final = frozenset({int})
SECONDS_MAX: Final = float(1 << 32)
"""The longest time, 136 years: the calls of the operating system that wait take no infinite one."""
_KEY_SIZES: Final = (16, 24, 32)
"""Bytes of a key of AES."""
_DATE: Final = re.compile(r"\d{4}-?(?:\d\d-?\d\d|W\d\d(?:-?\d)?)(?:[Tt ]|$)")
"""A date in ISO 8601, and its end or what may follow it before a time."""
_FIELD_NAME: Final = re.compile(":[^:]*:")
"""A name within the format of a buffer of structures."""


class DataClass(Protocol):
    """An object of a dataclass, such as the settings of a log."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


_Settings = TypeVar("_Settings", bound=DataClass)


def bytes_of(value: object, name: str = "body") -> bytes:
    """Return the bytes of a buffer: the value itself if it is `bytes`, else a copy.

    Args:
        value: `bytes`, or any other C-contiguous buffer, with items of any width.
        name: of the argument, for the error.

    Raises:
        TypeError: it is no buffer, or its items are references to objects.
        ValueError: it is a buffer that cannot be read as it stands.
    """
    if type(value) is bytes:
        return value
    try:
        view = memoryview(value)  # type: ignore[arg-type]
    except TypeError:
        raise _no_buffer(value, name) from None
    except (ValueError, BufferError) as error:
        raise ValueError(f"{name} is a buffer that cannot be read: {error}") from error
    with view:
        if "O" in _FIELD_NAME.sub("", view.format):
            raise _no_buffer(value, name)
        if not view.c_contiguous:
            raise ValueError(
                f"{name} is a buffer with gaps between its items; pass a copy without them, "
                "such as bytes(it)"
            )
        return view.tobytes()


def several(values: object, name: str) -> tuple[Any, ...]:
    """Return what is given as several values, in order.

    Raises:
        TypeError: it is no iterable; a single text or buffer is none, either.
    """
    if isinstance(values, str | bytes | bytearray | memoryview) or not isinstance(values, Iterable):
        raise TypeError(f"{name} is of type {_kind(values)}; expected several values")
    return tuple(values)


def bodies_of(values: Iterable[object], name: str = "bodies") -> Sequence[bytes]:
    """Return the bytes of each of several buffers, as `bytes_of` does.

    Raises:
        TypeError: it is no iterable of buffers; a single buffer is none, either.
        ValueError: one of them cannot be read as it stands.
    """
    bodies = several(values, name)
    if _ONLY_BYTES.issuperset(map(type, bodies)):
        return bodies
    return [bytes_of(one, f"{name}[{place}]") for place, one in enumerate(bodies)]


def integer(value: object, name: str, least: int, greatest: int) -> int:
    """Return an integer within a range.

    Args:
        value: an integer, or what stands for one exactly (``__index__``), but no `bool`.
        name: of the argument, for the error.
        least: the least that is allowed.
        greatest: the greatest that is allowed.

    Raises:
        TypeError: it is no integer.
        ValueError: it is out of the range.
    """
    if type(value) is int:
        number = value
    else:
        refused = TypeError(f"{name} is of type {_kind(value)}; expected an integer")
        if isinstance(value, bool):
            raise refused
        try:
            # A subclass may say of itself what it likes; this is what it holds.
            number = int.__int__(value if isinstance(value, int) else index(cast(Any, value)))
        except TypeError:  # as of an array of several numbers, too
            raise refused from None
    if least <= number <= greatest:
        return number
    shown = number if number.bit_length() <= _SHOWN_BITS else f"of {number.bit_length()} bits"
    raise ValueError(f"{name} is {shown}; expected an integer from {least} to {greatest}")


def seconds(value: object, name: str, *, positive: bool = False) -> float:
    """Return a time in seconds, at most `SECONDS_MAX`; infinity stands for that.

    Args:
        value: an integer or a float, but no `bool`.
        name: of the argument, for the error.
        positive: whether it must be more than 0; else it may be 0.

    Raises:
        TypeError: it is no number.
        ValueError: it is less than that, or NaN.
    """
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"{name} is of type {_kind(value)}; expected a number of seconds")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if number > 0 or (number == 0 and not positive):
        return min(number, SECONDS_MAX)
    least = "more than 0" if positive else "0 or more"
    raise ValueError(f"{name} is {number}; expected {least}, in seconds")


def time_left(value: object, name: str) -> float | None:
    """Return a time that a call waits, as `seconds` does: None for no limit, 0 for less than 0.

    A program may subtract the time that it is from a limit that is over.
    """
    if value is None:
        return None
    over = isinstance(value, int | float) and value < 0
    return seconds(0.0 if over else value, name)


def mapping(value: object, name: str) -> Mapping[str, Any]:
    """Return a mapping whose keys are texts.

    Raises:
        TypeError: it is none.
    """
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} is of type {_kind(value)}; expected a mapping by name, as a dict")
    for key in value:
        text(key, f"a name in {name}")
    return value


def settings_of(value: object, kind: type[_Settings], name: str = "settings") -> _Settings:
    """Return settings as an object of their class.

    Args:
        value: such an object, a mapping of some of its names, or None for the defaults.
        kind: the class of the settings.
        name: of the argument, for the error.

    Raises:
        TypeError: it is neither, or a value is of a wrong type.
        ValueError: there is no setting of a name, or a value is not allowed.
    """
    if isinstance(value, kind):
        return value
    if value is not None and not isinstance(value, Mapping):
        raise TypeError(
            f"{name} is of type {_kind(value)}; expected {kind.__name__}, or a mapping of its names"
        )
    given = mapping({} if value is None else value, name)
    known = [one.name for one in fields(kind) if one.init]
    for one in given:
        if one not in known:
            near = get_close_matches(one, known, 1)
            meant = f"did you mean {near[0]}?" if near else f"expected {', '.join(known)}"
            raise ValueError(f"{name} has no {printable(one)}; {meant}")
    return kind(**given)


def flag(value: object, name: str) -> bool:
    """Return True or False.

    Raises:
        TypeError: it is neither: of a text, which one is meant would have to be guessed.
    """
    if isinstance(value, bool):
        return value
    raise TypeError(f"{name} is of type {_kind(value)}; expected True or False")


def choice(value: object, name: str, known: Sequence[str]) -> str:
    """Return a text that is one of several.

    Raises:
        TypeError: it is no text.
        ValueError: it is another one.
    """
    found = text(value, name)
    if found not in known:
        expected = ", ".join(known[:-1]) + f" or {known[-1]}"
        raise ValueError(f"{name} is {printable(repr(found))}; expected {expected}")
    return found


def a_path(value: object, name: str = "path") -> str:
    """Return a path as text.

    Raises:
        TypeError: it is neither a text nor an `os.PathLike` of one.
    """
    found = value if isinstance(value, str) else getattr(value, "__fspath__", lambda: value)()
    if not isinstance(found, str):
        raise TypeError(f"{name} is of type {_kind(found)}; expected a path (str or os.PathLike)")
    return found


def integers(values: Iterable[object], name: str, least: int, greatest: int) -> list[int]:
    """Return integers within a range, each as `integer` does."""
    numbers = several(values, name)
    plain = bool(numbers) and _ONLY_INTEGERS.issuperset(map(type, numbers))
    if plain and least <= min(numbers) and max(numbers) <= greatest:
        return list(numbers)
    return [integer(one, name, least, greatest) for one in numbers]


def text(value: object, name: str, most: int | None = None) -> str:
    """Return a text that can be stored.

    Args:
        value: a `str`.
        name: of the argument, for the error.
        most: bytes in UTF-8 that it may have at most; None for no limit.

    Raises:
        TypeError: it is no text.
        ValueError: it has no UTF-8 (a lone surrogate), or too much of it.
    """
    if not isinstance(value, str):
        raise TypeError(f"{name} is of type {_kind(value)}; expected a text (str)")
    exact = str.__str__(value)
    try:
        size = len(exact.encode())
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{name} holds a lone surrogate at character {error.start}, which UTF-8 cannot store"
        ) from None
    if most is not None and size > most:
        raise ValueError(f"{name} has {size} bytes in UTF-8; expected at most {most}")
    return exact


def texts(values: object, name: str, most: int) -> tuple[str, ...]:
    """Return several texts, at most ``most`` of them, each as `text` does.

    Raises:
        TypeError: it is no iterable of texts; a single text is none, either.
        ValueError: one of them cannot be stored, or there are too many.
    """
    found = tuple([text(one, f"a name in {name}", most) for one in several(values, name)])
    if len(found) > most:
        raise ValueError(f"{name} are {len(found)} texts; expected at most {most}")
    return found


def secret(value: object, name: str) -> bytes:
    """Return a key of AES, which the error does not show.

    Raises:
        TypeError: it is no buffer.
        ValueError: it has another size than such keys have.
    """
    key = bytes_of(value, name)
    if len(key) not in _KEY_SIZES:
        raise ValueError(f"{name} has {len(key)} bytes; expected 16, 24 or 32")
    return key


def secret_of(provider: object, name: str) -> bytes | None:
    """Return the key that a function gives, None for no function; raises as `secret` does."""
    if provider is None:
        return None
    if not callable(provider):
        raise TypeError(
            f"{name} is of type {_kind(provider)}; expected a function that returns the key, such "
            f"as {name}=lambda: secret"
        )
    return secret(require_plain(provider, name)(), f"what {name} returns")


def _no_buffer(value: object, name: str) -> TypeError:
    advice = "; encode a text: text.encode()" if isinstance(value, str) else ""
    return TypeError(
        f"{name} is of type {_kind(value)}; expected bytes, or another buffer of bytes or "
        f"numbers{advice}"
    )


def _kind(value: object) -> str:
    return printable(type(value).__name__)


def moment(text: str) -> datetime:
    """Return the time that a text in ISO 8601 names, in no zone where it names none.

    Raises:
        ValueError: it is none. Python alone takes any letter between date and time, digits, too:
            it reads milliseconds since 1970 as a day of the 18th century.
    """
    if not _DATE.match(text):
        raise ValueError(f"no time in ISO 8601: {text!r}")
    return datetime.fromisoformat(text)


def time_zone(name: str) -> tzinfo:
    """Return the time zone of an IANA name.

    Raises:
        UnsupportedFormatError: the name is not known.
    """
    if name.upper() in ("UTC", "GMT", "Z"):
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise UnsupportedFormatError(
            "unknown time zone", found=name, advice="Give an IANA name such as Europe/Berlin"
        ) from error
