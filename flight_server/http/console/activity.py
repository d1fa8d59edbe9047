"""The page of what a server does now: charts, running requests, flushes and compactions."""

from __future__ import annotations

from ....schemas.phrases import size
from ....schemas.store.metrics import MetricFamily
from .charts import charts
from .frame import Page, page
from .html import live, table, tag
from .visit import Visit


def activity_page(visit: Visit) -> Page:
    """Return the console's page of what runs, and what maintenance has done. Raises PermissionDeniedError if metrics
    are not for the caller, since requests are those of all users."""
    server = visit.server
    families = {family.name: family for family in server.metrics(visit.caller).families}
    running = [
        (call.verb, call.table, call.user or "", call.peer.address, f"{seconds:.1f}", "yes" if waits else "")
        for call, seconds, waits in server.calls.running()
    ]
    return page(
        "Activity",
        live(
            "now",
            charts(visit.around.samples),
            tag("h2", "Running requests"),
            table(("Request", "Table", "User", "From", "Seconds", "Waits for its client"), running, 4),
        ),
        tag("h2", "Flushes and compactions"),
        table(("Work", "Times", "Seconds", "Rows", "Written"), _work(families)),
        at="/console/activity",
        is_live=True,
    )


def _work(families: dict[str, MetricFamily]) -> list[tuple[str, ...]]:
    found: dict[tuple[str, str], list[float]] = {}
    for name in ("nyala_maintenance_seconds", "nyala_maintenance_rows", "nyala_maintenance_written_bytes"):
        for sample in families[name].samples if name in families else ():  # no process may answer
            key = sample.labels["work"], sample.labels.get("process", "")
            found.setdefault(key, []).extend([sum(sample.counts), sample.value] if sample.counts else [sample.value])
    return [
        (f"{work} {process}", f"{times:,.0f}", f"{seconds:.2f}", f"{rows:,.0f}", size(written))
        for (work, process), (times, seconds, rows, written) in found.items()
    ]
