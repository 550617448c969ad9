"""Decoders of dates and times, by type byte.

In: bytes, the place behind a type byte, the time zone. Out: a `Value` and the place behind it. A
read past the end raises `IndexError`. Source: the PageLog description, section a.7.
"""

from __future__ import annotations

from tallystick.systems.h2.format.numbers import Bytes, decode_var_int, decode_var_long, signed
from tallystick.systems.h2.format.values import value as values
from tallystick.systems.h2.format.values.datetime import (
    MS_PER_DAY,
    NS_PER_MS,
    NS_PER_SECOND,
    Zone,
    date_value_text,
    offset_text,
    time_text,
)
from tallystick.systems.h2.format.values.value import Decoded, Decoder, Value

_ZONE_STEP_SECONDS = 900
_ZONE_SECONDS = 127
_ZONE_MINUS_SECONDS = -128


def _time(data: Bytes, at: int, zone: Zone, _depth: int) -> Decoded:
    stored, at = decode_var_long(data, at)
    return Value("TIME", time_text(zone.local_ms(stored) % MS_PER_DAY * NS_PER_MS)), at


def _date(data: Bytes, at: int, zone: Zone, _depth: int) -> Decoded:
    stored, at = decode_var_long(data, at)
    return Value("DATE", zone.date_text(zone.local_ms(stored * 60_000) // MS_PER_DAY)), at


def _timestamp(data: Bytes, at: int, zone: Zone, _depth: int) -> Decoded:
    stored, at = decode_var_long(data, at)
    nanos, at = decode_var_int(data, at)
    day, ms = divmod(zone.local_ms(stored), MS_PER_DAY)
    # 1.2 and 1.3 store the nanoseconds of the second, 1.4 those of the millisecond.
    text = time_text(ms * NS_PER_MS + nanos % NS_PER_MS)
    return Value("TIMESTAMP", f"{zone.date_text(day)} {text}"), at


def _timestamp_tz(*, minutes: bool) -> Decoder:
    def decode(data: Bytes, at: int, _zone: Zone, _depth: int) -> Decoded:
        date, at = decode_var_long(data, at)
        nanos, at = decode_var_long(data, at)
        if minutes:
            offset, at = decode_var_int(data, at)
            offset *= 60
        else:
            offset, at = _zone_seconds(data, at)
        text = f"{date_value_text(date)} {time_text(nanos)}{offset_text(offset)}"
        return Value("TIMESTAMP WITH TIME ZONE", text), at

    return decode


def _time_tz(data: Bytes, at: int, _zone: Zone, _depth: int) -> Decoded:
    seconds, at = decode_var_int(data, at)
    nanos, at = decode_var_int(data, at)
    offset, at = _zone_seconds(data, at)
    text = time_text(seconds * NS_PER_SECOND + nanos) + offset_text(offset)
    return Value("TIME WITH TIME ZONE", text), at


def _zone_seconds(data: Bytes, at: int) -> tuple[int, int]:
    step = signed(data[at], 8)
    if step == _ZONE_SECONDS:
        return decode_var_int(data, at + 1)
    if step == _ZONE_MINUS_SECONDS:
        seconds, at = decode_var_int(data, at + 1)
        return -seconds, at
    return step * _ZONE_STEP_SECONDS, at + 1


def _local_time(data: Bytes, at: int, _zone: Zone, _depth: int) -> Decoded:
    ms, at = decode_var_long(data, at)
    nanos, at = decode_var_long(data, at)
    return Value("TIME", time_text(ms * NS_PER_MS + nanos)), at


def _local_date(data: Bytes, at: int, _zone: Zone, _depth: int) -> Decoded:
    date, at = decode_var_long(data, at)
    return Value("DATE", date_value_text(date)), at


def _local_timestamp(data: Bytes, at: int, _zone: Zone, _depth: int) -> Decoded:
    date, at = decode_var_long(data, at)
    ms, at = decode_var_long(data, at)
    nanos, at = decode_var_long(data, at)
    return Value("TIMESTAMP", f"{date_value_text(date)} {time_text(ms * NS_PER_MS + nanos)}"), at


MOMENTS: dict[int, Decoder] = {
    values.TIME: _time,
    values.DATE: _date,
    values.TIMESTAMP: _timestamp,
    values.TIMESTAMP_TZ: _timestamp_tz(minutes=True),
    values.TIMESTAMP_TZ_SECONDS: _timestamp_tz(minutes=False),
    values.TIME_TZ: _time_tz,
    values.LOCAL_TIME: _local_time,
    values.LOCAL_DATE: _local_date,
    values.LOCAL_TIMESTAMP: _local_timestamp,
}
