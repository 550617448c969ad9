"""Dates and times of H2 as text, under the time zone of the process that wrote them.

In: numbers as stored, and a `Zone`. Out: text. TIME, DATE and TIMESTAMP are stored as "local time
without daylight saving": the instant of the local value plus the zone's raw offset as it is today.
Reading inverts that, so the zone is a parameter. Source: docs/formats/h2.md, "Records".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo

from tallystick.arguments import time_zone

MS_PER_DAY = 86_400_000
NS_PER_SECOND = 1_000_000_000
NS_PER_MS = 1_000_000
_GREGORIAN_START = -141_427
"""Day number of 1582-10-15, counted from 1970-01-01."""
_DAYS_PER_400_YEARS = 146_097
_SAFE_YEAR = 9998
_JAVA_RULES_MS = -2_208_988_800_000
"""1900-01-01 in UTC: for what is earlier Java's calendar knows no rules, but the raw offset."""


@dataclass(frozen=True, slots=True)
class Zone:
    """A time zone and its raw offset in milliseconds.

    ``julian`` counts days before 1582-10-15 in the Julian calendar, as releases up to 1.4.199 do.
    """

    zone: tzinfo = UTC
    raw_ms: int = 0
    julian: bool = False
    _offsets: dict[int, int] = field(default_factory=dict, repr=False, compare=False)

    def local_ms(self, stored_ms: int) -> int:
        """Return the stored instant as a clock in the zone shows it, in ms since 1970-01-01."""
        instant = stored_ms - self.raw_ms
        return instant + self._offset_ms(instant)

    def _offset_ms(self, instant_ms: int) -> int:
        if self.zone is UTC:
            return 0
        if instant_ms < _JAVA_RULES_MS:
            return self.raw_ms
        days, rest = divmod(instant_ms, MS_PER_DAY)
        # Beyond what datetime holds the rules repeat every 400 years.
        if (year := _civil(days)[0]) > _SAFE_YEAR:
            days -= (year - 9598) // 400 * _DAYS_PER_400_YEARS
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=days, milliseconds=rest)
        offset = moment.astimezone(self.zone).utcoffset()
        return round(offset.total_seconds() * 1000) if offset is not None else 0

    def date_text(self, day: int) -> str:
        """Return the day, counted from 1970-01-01, as year-month-day."""
        if self.julian and day < _GREGORIAN_START:
            return date_text(*_julian(day))
        return date_text(*_civil(day))


def zone_named(name: str, *, julian: bool = False) -> Zone:
    """Return the zone of that IANA name.

    Raises:
        UnsupportedFormatError: the name is not known.
    """
    zone = time_zone(name)
    if zone is UTC:
        return Zone(julian=julian)
    now = datetime.now(zone)
    offset = (now.utcoffset() or timedelta()) - (now.dst() or timedelta())
    return Zone(zone, round(offset.total_seconds() * 1000), julian)


def time_text(nanos_of_day: int) -> str:
    """Return hours, minutes, seconds and as much of a fraction as there is."""
    seconds, nanos = divmod(nanos_of_day, NS_PER_SECOND)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{fraction(nanos)}"


def fraction(nanos: int) -> str:
    """Return a point and the digits of ``nanos`` without trailing zeros; empty for none."""
    return f".{nanos:09}".rstrip("0") if nanos else ""


def date_text(year: int, month: int, day: int) -> str:
    """Return year, month and day; years from 1 on have at least four digits."""
    return f"{year:04}-{month:02}-{day:02}" if year > 0 else f"{year}-{month:02}-{day:02}"


def date_value_text(value: int) -> str:
    """Return the text of a packed date: year << 9 | month << 5 | day."""
    return date_text(value >> 9, value >> 5 & 15, value & 31)


def offset_text(seconds: int) -> str:
    """Return a zone offset as text: ``+00``, ``+05:30``, ``-01:30:30``."""
    sign = "-" if seconds < 0 else "+"
    hours, rest = divmod(abs(seconds), 3600)
    minutes, rest = divmod(rest, 60)
    text = f"{sign}{hours:02}"
    if minutes or rest:
        text += f":{minutes:02}"
    return f"{text}:{rest:02}" if rest else text


def _civil(day: int) -> tuple[int, int, int]:
    """Return proleptic Gregorian year, month, day of a day counted from 1970-01-01."""
    # Years from March on, so that a leap day is the last day of its year; eras of 400 years from
    # 0000-03-01 on, which was 719,468 days before.
    era, day_of_era = divmod(day + 719_468, _DAYS_PER_400_YEARS)
    year_of_era = (
        day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096
    ) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    return _from_march(year_of_era + era * 400, day_of_year)


def _julian(day: int) -> tuple[int, int, int]:
    """Return Julian year, month, day as `_civil` does, with eras of 4 years."""
    era, day_of_era = divmod(day + 719_470, 1461)
    year_of_era = min(day_of_era // 365, 3)
    return _from_march(year_of_era + era * 4, day_of_era - 365 * year_of_era)


def _from_march(year: int, day_of_year: int) -> tuple[int, int, int]:
    """Return year, month, day of a day, from 0, of a year that begins in March."""
    # Five months from March or August on have 153 days, and are the same five lengths.
    shifted = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * shifted + 2) // 5 + 1
    month = shifted + 3 if shifted < 10 else shifted - 9
    return year + (month <= 2), month, day
