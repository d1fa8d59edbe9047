"""How much a test does: a small dose by day, which ``make test`` runs, and a long one by night (``make night``)."""

import os
from collections.abc import Collection, Iterable
from typing import Any, TypeVar

import pytest

IS_NIGHT = bool(os.environ.get("NIGHT"))
"""Whether the long doses run."""
_Dose = TypeVar("_Dose")


def dose(day: _Dose, night: _Dose) -> _Dose:
    """Return one of two doses.

    >>> dose(5, 5)
    5
    """
    return night if IS_NIGHT else day


def by_night(values: Iterable[Any], day: Collection[Any]) -> list[Any]:
    """Return values of a parameter, of which only some are tested by day.

    >>> [len(value.marks) for value in by_night(["a", "b"], day=["a"])]
    [0, 1]
    """
    values = list(values)
    assert all(value in values for value in day), "the day has a value that the night lacks"
    return [pytest.param(value, marks=() if value in day else pytest.mark.night) for value in values]


def diagonal(first: Iterable[Any], second: Iterable[Any]) -> list[Any]:
    """Return all pairs as values of two parameters. By day each value is tested in one pair at least.

    >>> [len(pair.marks) for pair in diagonal("ab", "xyz")]
    [0, 1, 0, 1, 0, 1]
    """
    one, other = list(first), list(second)
    day = {(number % len(one), number % len(other)) for number in range(max(len(one), len(other)))}
    return [
        pytest.param(a, b, marks=() if (row, column) in day else pytest.mark.night)
        for row, a in enumerate(one)
        for column, b in enumerate(other)
    ]
