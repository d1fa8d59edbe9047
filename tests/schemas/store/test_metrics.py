"""Histograms: what can be told of values that were only counted."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nyala.schemas.store.metrics import SECONDS, Histogram, extremes, histogram, quantile

DURATIONS = st.lists(st.floats(min_value=0.0, max_value=200.0), min_size=1, max_size=40)
BOUNDS = [1.0, 2.0, 4.0]


def counted(values: list[float]) -> Histogram:
    found = Histogram()
    for each in values:
        found.add(each)
    return found


@given(DURATIONS, st.sampled_from([0.5, 0.95, 0.99, 1.0]))
def test_a_percentile_is_no_less_and_no_more_than_any_request_took(values: list[float], share: float) -> None:
    found = counted(values)
    told = quantile(found.counts, SECONDS, share, found.least, found.greatest)
    assert min(values) <= told <= max(values)
    exact = float(np.quantile(values, share, method="inverted_cdf"))
    assert np.searchsorted(SECONDS, told) == np.searchsorted(SECONDS, exact) or told in (*SECONDS, max(values))


@given(DURATIONS, DURATIONS, st.sampled_from([0.5, 0.95, 1.0]))
def test_a_percentile_of_an_interval_is_possible(before: list[float], during: list[float], share: float) -> None:
    """Nobody notes the extremes of an interval: its total bounds them."""
    old, new = counted(before), counted(before + during)
    counts = [after - first for first, after in zip(old.counts, new.counts, strict=True)]
    total = new.total - old.total
    least, greatest = extremes(counts, SECONDS, total)
    close = 1e-9 * new.total
    assert least <= min(during) + close and greatest >= max(during) - close
    assert greatest <= max(SECONDS[np.searchsorted(SECONDS, max(during))], total) if max(during) <= 60 else True
    assert least <= quantile(counts, SECONDS, share, least, greatest) <= greatest + close


def test_one_request_of_an_interval_took_what_it_took() -> None:
    found = counted([0.003])
    assert extremes(found.counts, SECONDS, found.total) == pytest.approx((0.003, 0.003))


@pytest.mark.parametrize(
    ("counts", "share", "ends", "told"),
    [
        ([0, 100, 0, 0], 0.5, (None, None), 1.5),
        ([90, 0, 10, 0], 0.95, (None, None), 3.0),
        ([10, 0, 0, 0], 0.99, (None, None), 0.99),
        ([0, 0, 0, 5], 0.5, (None, None), 4.0),  # no more is known
        ([0, 0, 0, 5], 0.5, (4.0, 10.0), 7.0),
        ([0, 100, 0, 0], 0.99, (1.2, 1.3), 1.299),
        ([0, 0, 0, 0], 0.5, (None, None), 0.0),
    ],
)
def test_values_are_evenly_spread_in_a_bucket(
    counts: list[int], share: float, ends: tuple[float | None, float | None], told: float
) -> None:
    assert quantile(counts, BOUNDS, share, *ends) == pytest.approx(told)


def test_extremes_are_told_once_there_are_values() -> None:
    (none,) = histogram("seconds", "", "", {"": Histogram()}).samples
    (some,) = histogram("seconds", "", "", {"": counted([0.2, 0.1])}).samples
    assert (none.least, none.greatest) == (None, None) and (some.least, some.greatest) == (0.1, 0.2)
    assert Histogram().least == inf
