"""Whether a series of measurements is flat: by the slope of its second half, which outliers do not move.

The slope is that of Theil and Sen (Sen, Estimates of the regression coefficient based on Kendall's tau, 1968): the
median of the slopes between all pairs of points. What it comes to over the second half must stay below a limit. A slope
above it counts unless it may be an accident by Kendall's test: of a dozen noisy series one has such a slope.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_POINTS_MAX = 720
"""Of more points, medians of neighbours are taken: the pairs are as many as their square."""
_SURE = 2.58
"""So many standard deviations are an accident once in a hundred times."""


@dataclass(frozen=True)
class Limit:
    """How much a series may grow over the second half: the larger of the two."""

    absolute: float
    share: float
    """Of the median over the second half."""

    def of(self, median: float) -> float:
        """Return the limit for a series with this median."""
        return max(self.absolute, self.share * median)


@dataclass(frozen=True)
class Trend:
    """What became of a series in the second half of a soak."""

    name: str
    unit: str
    points: int
    first_half: float
    """The median."""
    second_half: float
    growth: float
    """From the beginning to the end of the second half, by the slope."""
    limit: float
    sureness: float
    """How many more pairs of points rise than fall, in standard deviations of the difference for points in no order."""

    @property
    def is_flat(self) -> bool:
        """Whether it grew by no more than its limit, or perhaps not at all. What shrinks is flat."""
        return self.growth <= self.limit or self.sureness < _SURE

    def __str__(self) -> str:
        verdict = "flat" if self.is_flat else "GROWS"
        return (
            f"{verdict:5} {self.name}: {self.second_half:.4g} {self.unit} in the second half, after "
            f"{self.first_half:.4g}; {self.growth:+.3g} by slope ({self.sureness:+.1f} sigma), "
            f"at most {self.limit:.3g} allowed"
        )


def trend(
    name: str, unit: str, at: Sequence[float] | np.ndarray, values: Sequence[float] | np.ndarray, limit: Limit
) -> Trend:
    """Return the trend of a series; ``at`` are moments in seconds, in order. It has at least four points."""
    times, found = _thinned(np.asarray(at, float)), _thinned(np.asarray(values, float))
    half = len(times) // 2
    median = float(np.median(found[half:]))
    growth = slope(times[half:], found[half:]) * float(times[-1] - times[half])
    first = float(np.median(found[:half]))
    return Trend(name, unit, len(times), first, median, growth, limit.of(median), sureness(found[half:]))


def slope(times: np.ndarray, values: np.ndarray) -> float:
    """Return the median of the slopes between all pairs of points."""
    first, second = np.triu_indices(len(times), 1)
    return float(np.median((values[second] - values[first]) / (times[second] - times[first])))


def sureness(values: np.ndarray) -> float:
    """Return how many more pairs rise than fall, in standard deviations of that for values in random order.

    Kendall, Rank Correlation Methods (1948), without his correction for equal values, which only raises it.
    """
    count = len(values)
    first, second = np.triu_indices(count, 1)
    return float(np.sign(values[second] - values[first]).sum() / np.sqrt(count * (count - 1) * (2 * count + 5) / 18))


def _thinned(values: np.ndarray) -> np.ndarray:
    size = -(-len(values) // _POINTS_MAX)
    whole = len(values) // size * size
    return np.median(values[:whole].reshape(-1, size), axis=1)
