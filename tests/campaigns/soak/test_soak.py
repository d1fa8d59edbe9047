"""A short soak, and that the verdict finds leaks; ``make soak`` runs for an hour."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest

from tests.campaigns.soak.rows import OwnRows
from tests.campaigns.soak.samples import windows
from tests.campaigns.soak.soak import soak
from tests.campaigns.soak.verdict import Limit, trend


@pytest.mark.night
def test_a_server_stays_as_it_is() -> None:
    outcome = soak(seconds=40, clients=16, seed=0)
    assert outcome.is_good, "\n".join(outcome.lines())
    assert outcome.rows_checked and {"get", "load", "full scan", "changes", "refusal"} <= outcome.latencies.keys()


@pytest.mark.night
def test_leaks_are_found() -> None:
    outcome = soak(seconds=15, clients=16, seed=0, program=(str(Path(__file__).with_name("leaking_server.py")),))
    growing = {each.name for each in outcome.trends if not each.is_flat}
    assert {"anonymous_mib", "files"} <= growing, "\n".join(outcome.lines())


def series(growth: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """An hour of a value of 300 that wavers by some percent, after a steep beginning, with outliers."""
    random = np.random.default_rng(seed)
    at = np.arange(0.0, 3600.0, 5.0)
    warm = 300 * (1 - np.exp(-at / 300))
    values = warm + 10 * np.sin(at / 17) + random.normal(0, 5, len(at)) + growth * at / 3600
    values[random.integers(0, len(at), 30)] *= 3
    return at, values


@pytest.mark.parametrize(("growth", "is_flat"), [(0, True), (10, True), (-500, True), (80, False), (1_000, False)])
def test_the_slope_of_a_noisy_series(growth: float, is_flat: bool) -> None:
    for seed in range(5):
        found = trend("memory", "MiB", *series(growth, seed), Limit(24, 0.05))
        assert found.is_flat == is_flat, found
        assert abs(found.growth - growth / 2) < 8


def test_a_slope_that_may_be_an_accident() -> None:
    """A p99 that is one of the worst two of its requests: by accident its slope often exceeds the limit."""
    at = np.arange(60.0)
    noise = [np.random.default_rng(seed).lognormal(-1.8, 0.5, 60) for seed in range(200)]
    flat, grown = (
        [trend("p99", "s", at, each * by, Limit(0.002, 0.25)) for each in noise]
        for by in (1, np.maximum(at / 30, 1) ** 2)
    )
    assert sum(each.growth > each.limit for each in flat) > 20
    assert sum(not each.is_flat for each in flat) < 6
    assert sum(not each.is_flat for each in grown) > 180


def test_a_long_series_is_thinned() -> None:
    at = np.arange(10_000.0)
    found = trend("files", "files", at, at, Limit(8, 0))
    assert found.points <= 720 and not found.is_flat
    assert found.growth == pytest.approx(5_000, rel=0.01)


def test_windows_of_latencies() -> None:
    found = windows(0.0, 60.0, [("get", 0.5, 0.001), ("get", 0.6, 0.003), ("get", 59.9, 0.5), ("scan", 61.0, 1.0)])
    assert [(each.at, each.count, each.p50) for each in found["get"]] == [(0.5, 2, 0.002), (59.5, 1, 0.5)]
    assert [each.at for each in found["scan"]] == [59.5]


def test_a_writer_knows_what_must_be_there() -> None:
    own, random = OwnRows(7, 50), Random(0)
    rows = own.written(own.all())
    assert own.check(_table(rows)) == 50
    newer = own.written(own.some(random, 1))
    with pytest.raises(AssertionError, match="1 rows have another version"):
        own.check(_table(rows))
    assert newer.num_rows == 1
    own.deleted(own.all()[:10])
    with pytest.raises(AssertionError, match="0 rows are lost, 10 should be gone"):
        own.check(_table(rows))


def _table(batch: object) -> object:
    import pyarrow as pa

    return pa.Table.from_batches([batch])
