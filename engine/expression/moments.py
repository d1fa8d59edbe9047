"""The parts and the text of dates and timestamps, over the whole range of their types.

Arrow computes years in 16 bits, and writes dates beyond them as "<value out of range>". A timestamp of microseconds
reaches 292,000 years from 1970, a date 5.8 million.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ...schemas import compute as pc
from ...schemas.cells.moment import DAY_MICROSECONDS
from .numbers import Value

_SECOND_MICROSECONDS = 1_000_000
_YEARS = -9_999, 9_999
"""Arrow is right for these."""


def part(value: Value, name: str) -> Value:
    """Return a part of dates or timestamps in an expression: year, month, day, hour, minute or second, as int64."""
    if isinstance(value, pa.Scalar):
        return part(pa.array([value], value.type), name)[0]  # pyright: ignore[reportReturnType]
    days, microseconds = _split(value)
    if name in ("year", "month", "day"):
        numbers = _civil(days)[name]
    else:
        unit, count = {"hour": (3_600, 24), "minute": (60, 60), "second": (1, 60)}[name]
        numbers = microseconds // (unit * _SECOND_MICROSECONDS) % count
    return _like(numbers, value)


def halves_of_days(value: Value) -> Value:
    """Return dates and timestamps of an expression as numbers that compare as these do: twice the day, and one more
    after midnight."""
    if isinstance(value, pa.Scalar):
        return halves_of_days(pa.array([value], value.type))[0]  # pyright: ignore[reportReturnType]
    days, microseconds = _split(value)
    return _like(2 * days + (microseconds > 0), value)


def text(value: Value) -> Value:
    """Return dates and timestamps in an expression as ISO text, with a blank before the time and without zeros at the
    end of a fraction."""
    if isinstance(value, pa.Scalar):
        return text(pa.array([value], value.type))[0]  # pyright: ignore[reportReturnType]
    days, microseconds = _split(value)
    years = _civil(days)["year"]
    is_plain = bool(((years >= _YEARS[0]) & (years <= _YEARS[1])).all())
    texts = value.cast(pa.string()) if is_plain else _written(value, days, microseconds)
    if pa.types.is_timestamp(value.type):
        texts = pc.replace_substring_regex(texts, pattern=r"(\.\d*?)0+$", replacement=r"\1")
        texts = pc.replace_substring_regex(texts, pattern=r"\.$", replacement="")
    return texts


def _written(value: pa.Array, days: np.ndarray, microseconds: np.ndarray) -> pa.Array:
    civil = _civil(days)
    year = pc.binary_join_element_wise(
        pa.array(np.where(civil["year"] < 0, "-", "")), _padded(np.abs(civil["year"]), 4), ""
    )
    texts = pc.binary_join_element_wise(year, _padded(civil["month"], 2), _padded(civil["day"], 2), "-")
    if pa.types.is_timestamp(value.type):
        seconds = microseconds // _SECOND_MICROSECONDS
        parts = [seconds // 3_600, seconds // 60 % 60, seconds % 60]
        time = pc.binary_join_element_wise(*(_padded(each, 2) for each in parts), ":")
        time = pc.binary_join_element_wise(time, _padded(microseconds % _SECOND_MICROSECONDS, 6), ".")
        texts = pc.binary_join_element_wise(texts, time, " ")
    return pc.if_else(value.is_valid(), texts, None)


def _padded(numbers: np.ndarray, width: int) -> pa.Array:
    return pc.utf8_lpad(pa.array(numbers).cast(pa.string()), width=width, padding="0")


def _split(value: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return days since 1970 and microseconds since midnight (int64); those of NULL are zero."""
    if pa.types.is_date32(value.type):
        days = _numbers(value.cast(pa.int32()).cast(pa.int64()))
        return days, np.zeros_like(days)
    moments = _numbers(value.cast(pa.timestamp("us")).cast(pa.int64()))
    return moments // DAY_MICROSECONDS, moments % DAY_MICROSECONDS


def _numbers(value: pa.Array) -> np.ndarray:
    return np.asarray(pc.fill_null(value, 0).to_numpy(zero_copy_only=False), np.int64)


def _like(numbers: np.ndarray, value: pa.Array) -> pa.Array:
    """Return numbers with the NULLs of another array."""
    return pa.array(numbers, mask=np.asarray(value.is_null().to_numpy(zero_copy_only=False)))


def _civil(days: np.ndarray) -> dict[str, np.ndarray]:
    """Return year, month and day of days since 1970, in the calendar of today continued both ways.

    H. Hinnant, "chrono-Compatible Low-Level Date Algorithms": eras of 400 years, and years that begin in March.
    """
    shifted = days + 719_468
    era, of_era = shifted // 146_097, shifted % 146_097
    year_of_era = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_from_march = (5 * of_year + 2) // 153
    month = np.where(month_from_march < 10, month_from_march + 3, month_from_march - 9)
    return {
        "year": year_of_era + era * 400 + (month <= 2),
        "month": month,
        "day": of_year - (153 * month_from_march + 2) // 5 + 1,
    }
