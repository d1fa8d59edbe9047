"""Metrics: what a process has counted and measured, as one message. docs/metrics.md lists their names."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Literal

from pydantic import Field

from ..message import Message, new_dict, new_list

SECONDS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
"""Bounds for requests and for calls of the disk."""
LONG_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 150.0, 300.0, 600.0)
"""Bounds for background work."""

Labels = Mapping[str, str]


class Histogram:
    """A metric in a store's answer that counts values by their size. For any number of threads, without a lock: an
    interpreter with its own lock switches threads at calls and jumps back only, and there are none after the bucket is
    found."""

    __slots__ = ("bounds", "counts", "greatest", "least", "total")

    def __init__(self, bounds: tuple[float, ...] = SECONDS) -> None:
        """``bounds`` ascend; each is the largest value of its bucket, and one more bucket has what is above all."""
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0
        """The sum of all values."""
        self.least, self.greatest = inf, 0.0
        """The extremes of all values; ``inf`` and 0 before the first."""

    def add(self, value: float) -> None:
        """Count a value."""
        bucket = bisect_left(self.bounds, value)
        self.counts[bucket] += 1
        self.total += value
        if value < self.least:
            self.least = value
        if value > self.greatest:
            self.greatest = value

    def add_many(self, count: int, total: float) -> None:
        """Count values of which only the sum is known: each is taken for their mean."""
        value = total / count
        self.add(value)
        self.counts[bisect_left(self.bounds, value)] += count - 1
        self.total += total - value


class Sample(Message, frozen=True):
    """One number of a metric with its labels, or the state of one histogram."""

    labels: dict[str, str] = Field(default_factory=new_dict)
    value: float = 0.0
    """The number; of a histogram the sum of its values."""
    counts: list[int] = Field(default_factory=new_list)
    """Of a histogram: how many values are in each bucket, and last those above all bounds."""
    least: float | None = None
    """Of a histogram: its smallest value; None: it has none."""
    greatest: float | None = None
    """Of a histogram: its largest value; None: it has none."""


class MetricFamily(Message, frozen=True):
    """All numbers of a metric's name in the answer of ``metrics``."""

    name: str
    """As Prometheus shows it, but without ``_total`` and the like; the unit is its last word."""
    kind: Literal["counter", "gauge", "histogram"]
    about: str
    samples: list[Sample] = Field(default_factory=new_list)
    bounds: list[float] = Field(default_factory=new_list)
    """Of a histogram: the largest value of each bucket."""


class Metrics(Message, frozen=True):
    """The metrics of a process, the answer of ``metrics``. Numbers count from the start of the process."""

    families: list[MetricFamily] = Field(default_factory=new_list)


def gauge(name: str, about: str, *samples: Sample) -> MetricFamily:
    """Return a metric for the answer of ``metrics``: numbers that go up and down."""
    return MetricFamily(name=name, kind="gauge", about=about, samples=list(samples))


def counter(name: str, about: str, *samples: Sample) -> MetricFamily:
    """Return a metric for the answer of ``metrics``: numbers that only go up."""
    return MetricFamily(name=name, kind="counter", about=about, samples=list(samples))


def histogram(name: str, about: str, label: str, found: Mapping[str, Histogram]) -> MetricFamily:
    """Return a metric for the answer of ``metrics``: histograms with the same bounds, by the value of a label; an empty
    label is none."""
    samples = [
        Sample(
            labels={label: value} if label else {},
            value=each.total,
            counts=list(each.counts),
            **({"least": each.least, "greatest": each.greatest} if each.least < inf else {}),
        )
        for value, each in list(found.items())
    ]
    bounds = next((list(each.bounds) for each in found.values()), list(SECONDS))
    return MetricFamily(name=name, kind="histogram", about=about, samples=samples, bounds=bounds)


def quantile(
    counts: Sequence[int], bounds: Sequence[float], share: float, least: float | None, greatest: float | None
) -> float:
    """Return about how large a value of a metric's histogram is that a ``share`` of them does not exceed: within a
    bucket the values are taken as evenly spread, between ``least`` and ``greatest`` if these lie in it. None: they are
    not known. Of no values, return 0."""
    wanted, below = share * sum(counts), 0
    low = 0.0 if least is None else least
    high = inf if greatest is None else greatest
    lower = 0.0
    for count, bound in zip(counts, (*bounds, inf), strict=True):
        if count and below + count >= wanted:
            first, last = max(lower, low), min(bound, high)
            return first if last == inf else min(first + (last - first) * (wanted - below) / count, last)
        below, lower = below + count, bound
    return 0.0


def extremes(counts: Sequence[int], bounds: Sequence[float], total: float) -> tuple[float, float]:
    """Return what the least and the greatest of some values can be at the utmost: those of a histogram with this
    ``total``, such as the difference of two states of one, whose own extremes nobody has noted."""
    lowers = (0.0, *bounds)
    filled = [place for place, count in enumerate(counts) if count]
    if not filled:
        return 0.0, 0.0
    above = max(total - sum(count * lower for count, lower in zip(counts, lowers, strict=True)), 0.0)
    greatest = lowers[filled[-1]] + above
    if filled[-1] == len(bounds):
        return lowers[filled[0]], greatest
    under = max(sum(count * upper for count, upper in zip(counts, bounds, strict=False)) - total, 0.0)
    greatest = min(greatest, bounds[filled[-1]])
    return min(max(bounds[filled[0]] - under, lowers[filled[0]]), greatest), greatest


def one(value: float, **labels: str) -> Sample:
    """Return a number of a metric with labels, for the answer of ``metrics``."""
    return Sample(labels=labels, value=value)


def each_of(label: str, values: Mapping[str, float]) -> list[Sample]:
    """Return numbers of a metric by the value of a label, for the answer of ``metrics``."""
    return [one(value, **{label: name}) for name, value in list(values.items())]


def joined(label: str, parts: Mapping[str, Metrics]) -> Metrics:
    """Return the answers of ``metrics`` of several processes as one, each number with the name of its process as
    another label."""

    def named(family: MetricFamily, name: str) -> MetricFamily:
        samples = [each.model_copy(update={"labels": {**each.labels, label: name}}) for each in family.samples]
        return family.model_copy(update={"samples": samples})

    return _gathered(named(family, name) for name, part in parts.items() for family in part.families)


def merged(metrics: Metrics, more: Iterable[MetricFamily]) -> Metrics:
    """Return an answer of ``metrics`` with more numbers, of the same names or others."""
    return _gathered([*metrics.families, *more])


def _gathered(found: Iterable[MetricFamily]) -> Metrics:
    """Return metrics in which each name comes once."""
    families: dict[str, MetricFamily] = {}
    for family in found:
        known = families.setdefault(family.name, family.model_copy(update={"samples": []}))
        known.samples.extend(family.samples)
    return Metrics(families=list(families.values()))
