r"""Text from outside as text that a terminal, a log file or a page shows and does not obey.

In: names, messages and paths as somebody else wrote them. Out: the same text with every control
character (C0, DEL, C1), line separator, mark of text direction and lone surrogate written as a
Python escape: ``\x1b``, ``\u202e``. What stays is safe to print, and a name cannot begin a line.
"""

from __future__ import annotations

import logging
import re
import shlex
import traceback
from collections.abc import Iterable, MutableMapping, Sequence
from typing import Any

_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def printable(text: str) -> str:
    """Return the text with everything escaped that is not to be shown as it is."""
    return _UNSAFE.sub(_escape, text)


def printable_lines(text: str) -> str:
    """Return a text of several lines, which stay lines, each made `printable`."""
    return "\n".join(map(printable, text.split("\n")))


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: ``1 branch``, ``1,200 branches``."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def first_of(values: Sequence[object], most: int) -> str:
    """Return the first of some values, and how many more there are: ``3, 7 and 1,200 more``."""
    rest = len(values) - most
    return ", ".join(map(str, values[:most])) + (f" and {rest:,} more" if rest > 0 else "")


def counted_kind(count: int, kinds: str) -> str:
    """Return a number with what is named in the plural: ``1 open decision``, ``2 updates``.

    One of the first two words is what is counted; names of tables stay as they are.
    """
    words = kinds.split(" ")
    for place, word in enumerate(words[:2] if count == 1 else ()):
        if (noun := word.removesuffix(",")) in _ONE_OF:
            words[place] = word.replace(noun, _ONE_OF[noun])
            break
    return f"{count:,} {' '.join(words)}"


_ONE_OF = {"entries": "entry", "properties": "property"} | {
    f"{one}s": one
    for one in (
        "acknowledgement", "change", "database", "decision", "log", "message", "outcome", "page",
        "piece", "place", "queue", "record", "row", "transaction", "update", "value",
    )
}  # fmt: skip


def shell_quoted(text: str) -> str:
    """Return a path as one word of a POSIX shell; control characters as bash and zsh read them."""
    if text.startswith("-"):
        text = f"./{text}"
    if printable(text) == text:
        return shlex.quote(text)
    escaped = "".join(_shell_escaped(letter) for letter in text)
    return f"$'{escaped}'"


def shell_words(texts: Iterable[str]) -> str:
    """Return paths as words of a POSIX shell, one after another."""
    return " ".join(map(shell_quoted, texts))


def _shell_escaped(letter: str) -> str:
    if letter in "'\\":
        return f"\\{letter}"
    if printable(letter) == letter:
        return letter
    return "".join(f"\\x{byte:02x}" for byte in letter.encode("utf-8", "surrogateescape"))


def logger(name: str) -> Logger:
    """Return the logger of this name, whose messages and tracebacks are printable.

    What handlers and filters of the application raise is printed and goes no further: a message is
    often logged where a commit has succeeded, or in a thread that has to go on.
    """
    found = logging.getLogger(name)
    if _PRINTABLE not in found.filters:
        found.addFilter(_PRINTABLE)
    return Logger(found)


class Logger(logging.LoggerAdapter[logging.Logger]):
    """A logger that raises no exception of a handler; as handlers of Python's own do, it prints."""

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        """Return both as they are."""
        return msg, kwargs

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a message; the caller is the one of this method's caller."""
        try:
            super().log(level, msg, *args, stacklevel=2, **kwargs)
        except Exception:
            if logging.raiseExceptions:
                traceback.print_exc()


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(match[0]) or (
        f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
    )


_FIELDS = (
    "resource", "resources", "gtrid", "consumer", "file", "offset", "outcome", "decisions",
    "failures", "parked", "answer", "error",
)  # fmt: skip
"""What our messages are about, as fields of a record: Python's usual handlers show none of them."""


class _Printable(logging.Filter):
    """Say in a message what it is about, and escape what is unsafe, in the traceback, too."""

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        fields = {name: vars(record)[name] for name in _FIELDS if name in vars(record)}
        about = ", ".join(f"{name}: {_shown(value)}" for name, value in fields.items())
        message = f"{message} ({about})" if about else message
        if about or _UNSAFE.search(message):
            record.msg, record.args = printable(message), ()
        if record.exc_info and not record.exc_text:
            record.exc_text = printable_lines(logging.Formatter().formatException(record.exc_info))
        return True


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


_PRINTABLE = _Printable()
