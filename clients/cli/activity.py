"""A server's activity between two looks at its metrics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from time import time
from typing import Any

from ...schemas.phrases import counted, size
from ...schemas.store.metrics import Metrics, extremes, quantile

_TABLES = 10
"""How many of the largest tables are shown."""


@dataclass(frozen=True, slots=True)
class Section:
    """A table of the picture that ``nyala top`` shows."""

    titles: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(slots=True)
class _Sum:
    """The numbers of several processes, added up."""

    value: float = 0.0
    counts: Sequence[int] = ()


def activity(before: Metrics, after: Metrics, seconds: float) -> dict[str, Any]:
    """Return the rates and states of a server that ``nyala top`` shows. Rates are those of the ``seconds`` between;
    processes are added up."""
    return {
        "requests": _timed(before, after, "nyala_request_seconds", "verb", seconds),
        "errors": _rates(before, after, "nyala_request_errors", "code", seconds),
        "running": _values(after, "nyala_running_requests", "kind"),
        "waiting": _values(after, "nyala_waiting_requests", "kind"),
        "log": _timed(before, after, "nyala_log_sync_seconds", "", seconds),
        "maintenance": _timed(before, after, "nyala_maintenance_seconds", "work", seconds),
        "rates": {
            "written rows": _rate(before, after, "nyala_written_rows", seconds),
            "log records": _rate(before, after, "nyala_log_records", seconds),
            "received bytes": _rate(before, after, "nyala_received_bytes", seconds),
            "sent bytes": _rate(before, after, "nyala_sent_bytes", seconds),
            "throttled batches": _rate(before, after, "nyala_throttled_batches", seconds),
            "cached pages": _rate(before, after, "nyala_page_cache_hits", seconds),
            "pages read": _rate(before, after, "nyala_page_cache_misses", seconds),
        },
        "processors": _rate(before, after, "process_cpu_seconds", seconds),
        "memory_bytes": _values(after, "nyala_memory_bytes", "kind"),
        "memory_limit_bytes": _values(after, "nyala_memory_limit_bytes", "kind"),
        "resident_bytes": _total(after, "process_resident_memory_bytes"),
        "log_bytes": _total(after, "nyala_log_size_bytes"),
        "disk_free_bytes": min(_each(after, "nyala_disk_free_bytes"), default=0.0),
        "sources": _sources(after),
        "tables": _tables(after),
    }


def sections(found: dict[str, Any]) -> list[Section]:
    """Return a server's activity as the tables that ``nyala top`` prints."""
    rates = [[name, _number(value)] for name, value in found["rates"].items()]
    shown = [
        Section(["requests", "a second", "mean ms", "p99 ms"], [_timed_row(each) for each in found["requests"]]),
        Section(["errors", "a second"], [[code, _number(rate)] for code, rate in found["errors"].items()]),
        Section(
            ["requests of kind", "running", "waiting"],
            [
                [kind, _number(count), _number(found["waiting"].get(kind, 0.0))]
                for kind, count in found["running"].items()
                if count or found["waiting"].get(kind)
            ],
        ),
        Section(["rates", "a second"], rates),
        Section(
            ["background", "a second", "mean ms", "p99 ms"],
            [
                *(["log syncs", *_timed_row(each)[1:]] for each in found["log"]),
                *map(_timed_row, found["maintenance"]),
            ],
        ),
        Section(["state", ""], _state(found)),
        Section(["source", "lag seconds", "behind", "applied"], [_source_row(each) for each in found["sources"]]),
        Section(
            ["table", "rows", "size", "in memory", "rowsets"],
            [_table_row(each) for each in found["tables"]],
        ),
    ]
    return [section for section in shown if section.rows]


def _state(found: dict[str, Any]) -> list[list[str]]:
    limits = found["memory_limit_bytes"]
    memory = [
        [f"memory: {kind}", size(value) + (f" of {size(limits[kind])}" if kind in limits else "")]
        for kind, value in found["memory_bytes"].items()
    ]
    budget = [["memory: budget", size(limits["all"])]] if "all" in limits else []
    return [
        ["processors", f"{found['processors']:.2f}"],
        ["resident", size(found["resident_bytes"])],
        *budget,
        *memory,
        ["log", size(found["log_bytes"])],
        ["free on disk", size(found["disk_free_bytes"])],
    ]


def _timed_row(each: dict[str, Any]) -> list[str]:
    return [each["name"], _number(each["per_second"]), f"{each['mean_ms']:.3f}", f"{each['p99_ms']:.3f}"]


def _source_row(each: dict[str, Any]) -> list[str]:
    ago = max(time() - each["applied_time"], 0.0)
    messages = each["behind_messages"]
    behind = size(each["behind_bytes"]) if messages is None else counted(int(messages), "message")
    return [each["source"], f"{each['lag_seconds']:.1f}", behind, f"{ago:,.0f} s ago"]


def _table_row(each: dict[str, Any]) -> list[str]:
    sizes = size(each["bytes"]), size(each["memory_bytes"])
    return [each["table"], _number(each["rows"]), *sizes, _number(each["rowsets"])]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def _by(metrics: Metrics, name: str, label: str) -> dict[str, _Sum]:
    """Return the numbers of a name by the value of a label, which is empty for none."""
    found: dict[str, _Sum] = defaultdict(_Sum)
    for family in metrics.families:
        for sample in family.samples if family.name == name else ():
            known = found[sample.labels.get(label, "")]
            known.value += sample.value
            known.counts = [*map(sum, zip(known.counts, sample.counts, strict=True))] if known.counts else sample.counts
    return found


def _values(metrics: Metrics, name: str, label: str) -> dict[str, float]:
    return {of: each.value for of, each in _by(metrics, name, label).items()}


def _total(metrics: Metrics, name: str) -> float:
    return sum(_each(metrics, name))


def _each(metrics: Metrics, name: str) -> list[float]:
    return [sample.value for family in metrics.families if family.name == name for sample in family.samples]


def _rate(before: Metrics, after: Metrics, name: str, seconds: float) -> float:
    return _total_growth(_total(before, name), _total(after, name)) / seconds


def _rates(before: Metrics, after: Metrics, name: str, label: str, seconds: float) -> dict[str, float]:
    """Return those that are not 0."""
    old, new = _values(before, name, label), _values(after, name, label)
    found = {of: _total_growth(old.get(of, 0.0), value) / seconds for of, value in new.items()}
    return {of: rate for of, rate in found.items() if rate}


def _total_growth(old: float, new: float) -> float:
    """Return the growth of a counter, which begins at 0 again if its process does."""
    return new - old if new >= old else new


def _timed(before: Metrics, after: Metrics, name: str, label: str, seconds: float) -> list[dict[str, Any]]:
    """Return rates and latencies of what was timed, the most frequent first."""
    bounds = next((family.bounds for family in after.families if family.name == name), [])
    old, found = _by(before, name, label), []
    for of, each in _by(after, name, label).items():
        first = old.get(of, _Sum())
        counts = [new - known for new, known in zip(each.counts, first.counts or [0] * len(each.counts), strict=True)]
        total = each.value - first.value
        if any(count < 0 for count in counts):  # its process began again
            counts, total = list(each.counts), each.value
        if number := sum(counts):
            longest = quantile(counts, bounds, 0.99, *extremes(counts, bounds, total))
            times = {"mean_ms": 1000 * total / number, "p99_ms": 1000 * longest}
            found.append({"name": of, "per_second": number / seconds, **times})
    return sorted(found, key=lambda each: -each["per_second"])


def _sources(metrics: Metrics) -> list[dict[str, Any]]:
    numbers = ("lag_seconds", "behind_bytes", "applied_time_seconds", "behind_messages")
    lag, behind, applied, messages = (_values(metrics, f"nyala_source_{of}", "source") for of in numbers)
    return [
        {
            "source": name,
            "lag_seconds": lag.get(name, 0.0),
            "behind_bytes": behind.get(name, 0.0),
            "behind_messages": messages.get(name),
            "applied_time": applied[name],
        }
        for name in sorted(applied)
    ]


def _tables(metrics: Metrics) -> list[dict[str, Any]]:
    rows, sizes = _values(metrics, "nyala_table_rows", "table"), _values(metrics, "nyala_table_size_bytes", "table")
    memory, rowsets = (_values(metrics, f"nyala_table_{of}", "table") for of in ("memory_bytes", "rowsets"))
    largest = sorted(rows, key=lambda name: -(sizes.get(name, 0.0) + memory.get(name, 0.0)))
    return [
        {
            "table": name or "(others)",
            "rows": rows[name],
            "bytes": sizes.get(name, 0.0),
            "memory_bytes": memory.get(name, 0.0),
            "rowsets": rowsets.get(name, 0.0),
        }
        for name in largest[:_TABLES]
    ]
