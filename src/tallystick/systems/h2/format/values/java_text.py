"""Numbers and intervals as the engine, and so Java, prints them.

In: the numbers as stored. Out: text.
"""

from __future__ import annotations

import decimal
import re
import struct
from collections.abc import Callable

from tallystick.systems.h2.format.values.datetime import NS_PER_SECOND, fraction

_WHOLE = re.compile(r"-?\d{1,19}")
_STR_BITS = 8192
"""Numbers of up to so many bits go through ``str``."""
_EXACT = decimal.Context(
    prec=decimal.MAX_PREC, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN, traps=[decimal.Inexact]
)
INTERVALS = (
    "YEAR",
    "MONTH",
    "DAY",
    "HOUR",
    "MINUTE",
    "SECOND",
    "YEAR TO MONTH",
    "DAY TO HOUR",
    "DAY TO MINUTE",
    "DAY TO SECOND",
    "HOUR TO MINUTE",
    "HOUR TO SECOND",
    "MINUTE TO SECOND",
)
"""Kinds of intervals, by the number that is stored."""


def whole_number(text: object) -> int | None:
    """Return the number of a text that Java reads as a long; None for any other text."""
    if not isinstance(text, str) or _WHOLE.fullmatch(text) is None:
        return None
    return int(text)


def reverse_bits(value: int, bits: int) -> int:
    """Return the lowest ``bits`` bits in opposite order."""
    return int(f"{value & (1 << bits) - 1:0{bits}b}"[::-1], 2)


def decimal_text(unscaled: int, scale: int) -> str:
    """Return ``unscaled / 10**scale`` in the canonical form of Java's BigDecimal."""
    sign, digits = ("-" if unscaled < 0 else ""), _digits(abs(unscaled))
    exponent = len(digits) - 1 - scale
    if scale == 0:
        return sign + digits
    if scale > 0 and exponent >= -6:
        digits = digits.rjust(scale + 1, "0")
        return f"{sign}{digits[:-scale]}.{digits[-scale:]}"
    point = f".{digits[1:]}" if len(digits) > 1 else ""
    power = f"E{exponent:+d}" if exponent else ""
    return f"{sign}{digits[0]}{point}{power}"


def _digits(number: int) -> str:
    """Return all digits of a number that is not negative; ``str`` refuses more than 4,300."""
    if number.bit_length() <= _STR_BITS:
        return str(number)
    with decimal.localcontext(_EXACT):
        return str(_as_decimal(number, {}))


def _as_decimal(number: int, powers: dict[int, decimal.Decimal]) -> decimal.Decimal:
    """Return the number as a Decimal, by halves, which takes less than quadratic time.

    ``powers`` of two are kept by their exponents.
    """
    bits = number.bit_length()
    if bits <= _STR_BITS:
        return decimal.Decimal(number)
    # The same few exponents for numbers of all lengths, so that each power is made once.
    half = 1 << (bits - 1).bit_length() - 1
    if half not in powers:
        powers[half] = decimal.Decimal(2) ** half
    high = _as_decimal(number >> half, powers)
    return high * powers[half] + _as_decimal(number & (1 << half) - 1, powers)


def double_text(bits: int) -> str:
    """Return the 64-bit IEEE number with these bits as Java prints it."""
    return number_text(struct.unpack(">d", struct.pack(">Q", bits))[0])


def number_text(number: float) -> str:
    """Return a 64-bit IEEE number as Java prints it."""
    return _java_float(number, 17, lambda text: float(text) == number, _digits_of(number))


def float_text(bits: int) -> str:
    """Return the 32-bit IEEE number with these bits as Java prints it."""
    number: float = struct.unpack(">f", struct.pack(">I", bits))[0]
    return _java_float(number, 9, lambda text: _as_float32(float(text)) == number)


def _digits_of(number: float) -> int:
    """Return how many digits tell the number from others; no fewer can."""
    mantissa = repr(number).partition("e")[0].lstrip("-").replace(".", "")
    return len(mantissa.strip("0"))


def _as_float32(number: float) -> float:
    try:
        narrowed: float = struct.unpack(">f", struct.pack(">f", number))[0]
    except OverflowError:
        return float("inf")
    return narrowed


def _java_float(
    number: float, digits_max: int, same: Callable[[str], bool], digits_min: int = 2
) -> str:
    if number != number:
        return "NaN"
    if number in (float("inf"), float("-inf")):
        return "Infinity" if number > 0 else "-Infinity"
    if number == 0:
        return str(number)
    text = _shortest(number, max(digits_min, 2), digits_max, same)
    mantissa, _, power = text.partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    digits = mantissa.lstrip("-").replace(".", "")
    return sign + _java_digits(digits.rstrip("0") or "0", int(power))


def _shortest(number: float, digits_min: int, digits_max: int, same: Callable[[str], bool]) -> str:
    # Java never prints fewer than two digits, and takes the nearest number of that length.
    for digits in range(digits_min - 1, digits_max):
        text = f"{number:.{digits}e}"
        if same(text):
            return text
    return f"{number:.{digits_max - 1}e}"


def _java_digits(digits: str, power: int) -> str:
    if not -3 <= power < 7:
        return f"{digits[0]}.{digits[1:] or '0'}E{power}"
    if power < 0:
        return f"0.{'0' * (-power - 1)}{digits}"
    whole = digits[: power + 1].ljust(power + 1, "0")
    return f"{whole}.{digits[power + 1 :] or '0'}"


def interval_text(ordinal: int, leading: int, remaining: int, *, negative: bool) -> str:
    """Return the SQL literal; ``remaining`` is in units of the last field, of seconds in ns."""
    kind = INTERVALS[ordinal]
    sign = "-" if negative else ""
    return f"INTERVAL '{sign}{leading}{_interval_rest(kind, remaining)}' {kind}"


def _interval_rest(kind: str, remaining: int) -> str:
    seconds, nanos = divmod(remaining, NS_PER_SECOND)
    hours, minutes = seconds // 3600, seconds // 60
    rest = f":{seconds % 60:02}{fraction(nanos)}"
    forms = {
        "SECOND": fraction(nanos),
        "YEAR TO MONTH": f"-{remaining}",
        "DAY TO HOUR": f" {remaining:02}",
        "DAY TO MINUTE": f" {remaining // 60:02}:{remaining % 60:02}",
        "DAY TO SECOND": f" {hours:02}:{minutes % 60:02}{rest}",
        "HOUR TO MINUTE": f":{remaining:02}",
        "HOUR TO SECOND": f":{minutes:02}{rest}",
        "MINUTE TO SECOND": rest,
    }
    return forms.get(kind, "")
