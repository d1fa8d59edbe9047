"""The page of what a store holds: memory, log, disk, and versions that are pinned for readers and unfinished work."""

from __future__ import annotations

from ....schemas.phrases import size
from ....schemas.store.metrics import MetricFamily, Sample
from .frame import Page, page
from .html import Cell, Element, live, table, tag
from .visit import Visit
from .words import duration

_LOG = (
    *("nyala_log_size_bytes", "nyala_log_segments", "nyala_log_records", "nyala_log_written_bytes"),
    *("nyala_log_replay_seconds", "nyala_commits_in_flight", "nyala_disk_free_bytes"),
)
_PINNED = ("nyala_unfinished", "nyala_planned_scans", "nyala_planned_scan_bytes")
_PRESSURE = ("nyala_throttled_batches", "nyala_throttled_seconds", "nyala_refused_batches")
_CACHE = ("nyala_page_cache_hits", "nyala_page_cache_misses")


def memory_page(visit: Visit) -> Page:
    """Return the console's page of what the store holds in memory, log and disk. Raises PermissionDeniedError: it is of
    all tables."""
    families = {family.name: family for family in visit.server.metrics(visit.caller).families}
    return page(
        "Memory",
        live(
            "held",
            tag("h2", "Memory"),
            table(("Kind", "Bytes", "Limit"), _memory(families)),
            tag("h2", "Writers that waited for memory"),
            _listed(families, *_PRESSURE),
            tag("h2", "Page cache"),
            _listed(families, *_CACHE),
            tag("h2", "Log and disk"),
            _listed(families, *_LOG),
            tag("h2", "Pinned versions and unfinished work"),
            tag("p", "Files of pinned versions and unfinished work stay until these end or expire."),
            _listed(families, *_PINNED),
        ),
        at="/console/memory",
        is_live=True,
    )


def _listed(families: dict[str, MetricFamily], *names: str) -> Element:
    found = [families[name] for name in names if name in families]  # no process may answer
    rows = [
        (family.about, _labels(each), _value(family.name, each.value)) for family in found for each in family.samples
    ]
    return table(("What", "Which", "Value"), rows, 2)


def _labels(sample: Sample) -> str:
    return " ".join(sample.labels.values())


def _value(name: str, value: float) -> str:
    if name.endswith("_bytes"):
        return size(value)
    return duration(value) if name.endswith("_seconds") else f"{value:,.0f}"


def _memory(families: dict[str, MetricFamily]) -> list[tuple[Cell, ...]]:
    if "nyala_memory_bytes" not in families:
        return []
    limits = {tuple(each.labels.items()): each.value for each in families["nyala_memory_limit_bytes"].samples}
    used = families["nyala_memory_bytes"].samples
    rows = [
        (_labels(each), size(each.value), size(limit) if (limit := limits.get(tuple(each.labels.items()))) else "")
        for each in used
    ]
    budget = sum(value for labels, value in limits.items() if ("kind", "all") in labels)
    return [*rows, ("all", size(sum(each.value for each in used)), size(budget))]
