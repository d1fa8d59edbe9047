"""Metrics as text for Prometheus, or for OpenMetrics, whichever the client asks for."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from prometheus_client import exposition
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from ...schemas.store.metrics import MetricFamily, Metrics


def exposed(metrics: Metrics, accept: str) -> tuple[bytes, str]:
    """Return the metrics as text for an HTTP client with this ``Accept`` header, such as Prometheus, and the content
    type."""
    try:
        encode, content_type = exposition.choose_encoder(accept)
    except (TypeError, ValueError):  # it asks for a version that is not a number
        encode, content_type = exposition.choose_encoder("")
    return encode(_Families(metrics)), content_type


class _Families(Collector):
    """What prometheus-client's encoders take."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        return map(_metric, self._metrics.families)


def _metric(family: MetricFamily) -> Metric:
    names = list(dict.fromkeys(name for sample in family.samples for name in sample.labels))
    rows = [([sample.labels.get(name, "") for name in names], sample) for sample in family.samples]
    if family.kind == "histogram":
        histogram = HistogramMetricFamily(family.name, family.about, labels=names)
        ends = [*(f"{bound:g}" for bound in family.bounds), "+Inf"]
        for values, sample in rows:
            histogram.add_metric(values, list(zip(ends, accumulate(sample.counts), strict=True)), sample.value)
        return histogram
    made = (CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily)(
        family.name, family.about, labels=names
    )
    for values, sample in rows:
        made.add_metric(values, sample.value)
    return made
