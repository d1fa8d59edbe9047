"""The pages of requests: running ones, recent scans with what they read and where their time went, and writes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ....schemas.errors import NotFoundError
from ....schemas.phrases import counted, size
from ....schemas.store.metrics import MetricFamily, Metrics, Sample, quantile
from ...requests.calls import Call
from ...requests.recent_requests import RecentRequest
from .explanation import explained, times
from .frame import Page, page
from .html import Cell, Element, legend, live, table, tag
from .visit import Visit
from .words import clock, clock_lately, duration, share

_TIMES = {
    "waiting": "waiting for a place",
    "planning": "planning",
    "working": "reading and computing",
    "client": "waiting for its client",
}
LATENCIES = "Count", "Average", "Median", "95 %", "99 %", "Longest"
_WRITES = ("do_put", "session_write", "execute", "commit_transaction", "import_commit")


def scans_page(visit: Visit) -> Page:
    """Return the console's page of running and recent scans. Raises PermissionDeniedError: they are those of all
    users."""
    visit.check_operates()
    recent = visit.server.calls.recent
    slow = [each for each in recent.slow.all() if each.scanned]
    return page(
        "Scans",
        tag("p", "Scans by DoGet. Short scans in sessions are only in the metrics. Values in filters are not kept."),
        live(
            "running",
            legend(**_TIMES),
            tag("h2", "Running"),
            _running(visit.server.calls.running()),
            tag("h2", "Slow"),
            _scans(slow, "Scans on which the server worked for a second or more, the newest first."),
            tag("h2", "Recent"),
            _scans(recent.scans.all(), "The newest first."),
        ),
        at="/console/scans",
        is_live=True,
    )


def scan_page(visit: Visit) -> Page:
    """Return the console's page of one scan with an explanation. Raises NotFoundError: it is not kept any more."""
    visit.check_operates()
    name = visit.asked.get("id", "")
    scan = visit.server.calls.recent.found(name)
    if scan is None or scan.scanned is None:
        raise NotFoundError("this scan is no longer among the recent scans")
    spent = times(scan)
    rows = [(_TIMES[each], duration(seconds), share(seconds, scan.seconds)) for each, seconds in spent.items()]
    return page(
        f"Scan {scan.id}",
        tag("p", f"Table {scan.table}, for {_who(scan)}, ended {clock(scan.ended)} after {duration(scan.seconds)}."),
        tag("p", f"It asked for {scan.scanned.shape}. It returned {scan.rows:,} rows, {size(scan.bytes)}."),
        *([tag("p", f"It failed: {scan.code}.", class_="bad")] if scan.code else []),
        tag("h2", "What took the time"),
        tag("ul", *(tag("li", text) for text in explained(scan))),
        _bar(scan),
        legend(**_TIMES),
        table(("Part", "Time", "Share"), rows),
        tag("h2", "What it read"),
        _counts(scan),
        tag("p", tag("a", "All scans", href="/console/scans")),
        at="/console/scans",
    )


def writes_page(visit: Visit) -> Page:
    """Return the console's page of writes with their latencies. Raises PermissionDeniedError: they are those of all
    users."""
    visit.check_operates()
    metrics = visit.server.metrics(visit.caller)
    recent = visit.server.calls.recent
    rows = [
        (
            clock_lately(each.ended),
            each.verb,
            each.table,
            _who(each),
            f"{each.rows:,}",
            size(each.bytes),
            *_write_times(each),
        )
        for each in recent.writes.all()
    ]
    titles = ("Ended", "Request", "Table", "User", "Rows", "Received", "Time", "Server", "Client", "Error")
    return page(
        "Writes",
        tag("h2", "Latencies"),
        table(
            ("Request", *LATENCIES),
            latencies(metrics, "nyala_request_seconds", _WRITES),
            about="Since the start. A stream is timed as a whole; a write in a session until it is durable.",
        ),
        tag("h2", "Syncs of the log"),
        table(
            ("Process", *LATENCIES),
            latencies(metrics, "nyala_log_sync_seconds"),
            about="Each makes a group of commits durable.",
        ),
        tag("h2", "Recent"),
        table(titles, rows, 4, "Streams, statements and transactions, the newest first, without those of sessions."),
        at="/console/writes",
    )


def _write_times(each: RecentRequest) -> tuple[str, ...]:
    return duration(each.seconds), duration(each.worked_seconds), duration(each.client_seconds), each.code


def latencies(metrics: Metrics, name: str, verbs: Sequence[str] | None = None) -> list[tuple[str, ...]]:
    """Return the percentiles of histograms that a page of the console shows, those of the given verbs."""
    family = next((each for each in metrics.families if each.name == name), None)
    if family is None:  # no process may answer
        return []
    wanted = [each for each in family.samples if verbs is None or each.labels.get("verb", "") in verbs]
    return [_latency(each, family) for each in wanted if sum(each.counts)]


def _latency(sample: Sample, family: MetricFamily) -> tuple[str, ...]:
    count = sum(sample.counts)
    ends = sample.least, sample.greatest
    quantiles = (quantile(sample.counts, family.bounds, at, *ends) for at in (0.5, 0.95, 0.99))
    name = " ".join(sample.labels.values()) or "this server"
    longest = "" if sample.greatest is None else duration(sample.greatest)
    return name, f"{count:,}", duration(sample.value / count), *map(duration, quantiles), longest


def _running(running: Iterable[tuple[Call, float, bool]]) -> Element:
    rows = [
        (
            call.table,
            call.user or "",
            call.peer.address,
            call.scanned.shape,
            duration(seconds),
            f"{call.sent_rows:,}",
            f"{call.scanned.counts.rows_in_chunks:,}" if call.scanned.counts else "",
            "yes" if waits else "",
        )
        for call, seconds, waits in running
        if call.scanned is not None
    ]
    titles = ("Table", "User", "From", "Asked for", "Time", "Rows sent", "Rows read", "Waits for its client")
    return table(titles, rows, 4)


def _scans(scans: Iterable[RecentRequest], about: str) -> Element:
    rows = [
        (
            tag("a", clock_lately(each.ended), href=f"/console/scan?id={each.id}"),
            each.table,
            _who(each),
            each.scanned.shape,
            tag("div", _bar(each), tag("small", _longest(each))),
            duration(each.seconds),
            f"{each.rows:,}",
            *_read(each),
            each.code,
        )
        for each in scans
        if each.scanned is not None
    ]
    titles = ("Ended", "Table", "User", "Asked for", "Time went", "Time", "Rows", "Rows read", "Left out", "Error")
    return table(titles, rows, 5, about)


def _read(scan: RecentRequest) -> tuple[str, str]:
    counts = scan.scanned.counts if scan.scanned else None
    if counts is None:
        return "", ""
    left_out = counts.rowsets_by_key + counts.rowsets_unchanged, counts.chunks_by_zone_map
    told = f"{counted(left_out[0], 'rowset')}, {counted(left_out[1], 'range')}"
    return f"{counts.rows_in_chunks:,}", told if any(left_out) else "nothing"


def _counts(scan: RecentRequest) -> Element:
    counts = scan.scanned.counts if scan.scanned else None
    if counts is None:
        return tag("p", "Not counted here.")
    rows: list[tuple[Cell, ...]] = [
        ("Rowsets read", f"{counts.rowsets_read:,}"),
        ("Rowsets in which keys were looked up", f"{counts.rowsets_by_look_up:,}"),
        ("Rowsets without a key in range, or empty", f"{counts.rowsets_by_key:,}"),
        ("Rowsets without a change", f"{counts.rowsets_unchanged:,}"),
        ("Ranges of rows read", f"{counts.chunks_read:,}"),
        ("Ranges left out by zone maps", f"{counts.chunks_by_zone_map:,}"),
        ("Ranges read for changed rows only", f"{counts.chunks_touched_only:,}"),
        ("Rows in the ranges that were read", f"{counts.rows_in_chunks:,}"),
        ("Rows in all rowsets", f"{counts.rows_total:,}"),
    ]
    return table(("What", "Count"), rows)


def _bar(scan: RecentRequest) -> Element:
    """Return where the time went as a bar, with words for those who do not see it."""
    spent, left = times(scan), 0.0
    whole = sum(spent.values()) or 1.0
    parts: list[Element] = []
    for name, seconds in spent.items():
        width = 100 * seconds / whole
        if width:
            parts.append(tag("rect", x=f"{left:.1f}", y=0, width=f"{width:.1f}", height=10, class_=name))
        left += width
    words = ", ".join(f"{duration(seconds)} {_TIMES[name]}" for name, seconds in spent.items() if seconds)
    return tag(
        "svg", tag("title", words), *parts, viewBox="0 0 100 10", preserveAspectRatio="none", class_="bar", role="img"
    )


def _longest(scan: RecentRequest) -> str:
    """Return the part of a scan that took the most of its time."""
    spent = times(scan)
    name = max(spent, key=lambda each: spent[each])
    return f"{share(spent[name], sum(spent.values()))} {_TIMES[name]}" if spent[name] else ""


def _who(request: RecentRequest) -> str:
    return request.user or request.address or "?"
