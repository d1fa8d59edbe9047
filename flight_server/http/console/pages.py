"""The pages of the console. They only show: nothing here changes anything."""

from __future__ import annotations

from contextlib import suppress
from urllib.parse import quote

from ....schemas.description import ColumnStats, TableDescription, TableStats, TabletStats
from ....schemas.errors import NotFoundError, StoreError
from ....schemas.metrics import MetricFamily
from ....schemas.service import StoreService
from ....schemas.timestamp import datetime_of
from ...security.identity import Identity
from ...server import FlightServer
from .html import Element, page, table, tag
from .picture import tablet_picture

TABLETS_A_PAGE = 50
TABLES_A_PAGE = 100
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def tables_page(store: StoreService, first: int) -> bytes:
    """Return the tables of a store, as far as a caller may use it, from the ``first`` on."""
    health, names = store.health(), store.tables()
    rows: list[tuple[Element | str, ...]] = []
    for name in names[first : first + TABLES_A_PAGE]:
        with suppress(NotFoundError):  # it was dropped since
            link = tag("a", name, href=f"/console/table?name={quote(name, safe='')}")
            rows.append((link, *_numbers(store, name)))
    titles = ("Table", "Rows", "On disk", "In memory", "Tablets", "Greatest height", "Last change")
    return page(
        "Tables",
        tag("p", f"The server is {health.status}. Version {health.version}. {health.reason}"),
        table(titles, rows),
        *_others("/console?", first, TABLES_A_PAGE, len(names)),
    )


def _numbers(store: StoreService, name: str) -> tuple[str, ...]:
    """Return the numbers of a table. Raises NotFoundError if there is none."""
    try:
        stats = store.table_stats(name)
    except NotFoundError:
        raise
    except StoreError:
        return ("not available", *[""] * 5)
    return (
        f"{stats.live_rows:,}",
        size(stats.bytes_on_disk),
        size(sum(tablet.memory_bytes for tablet in stats.tablets)),
        f"{len(stats.tablets):,}",
        f"{max((tablet.average_rowset_height for tablet in stats.tablets), default=0):.2f}",
        _moment(stats.last_change),
    )


def table_page(store: StoreService, name: str, first: int) -> bytes:
    """Return a table, with its tablets from the ``first`` on. Raises NotFoundError if there is none."""
    about, stats = store.describe_table(name), store.table_stats(name)
    tablets = stats.tablets[first : first + TABLETS_A_PAGE]
    target = f"/console/table?name={quote(name, safe='')}&"
    return page(
        name,
        tag(
            "p",
            f"{stats.live_rows:,} rows, {size(stats.bytes_on_disk)} on disk. Schema version {about.schema_version}.",
        ),
        tag("h2", "Columns"),
        _columns(about, stats),
        tag("h2", "Tablets"),
        tag(
            "p",
            "Each bar is a rowset: from left to right its range of keys, in height its size, with columns below and "
            "changes and old values above. Bars above one another overlap.",
        ),
        *(part for tablet in tablets for part in _tablet(tablet)),
        *_others(target, first, TABLETS_A_PAGE, len(stats.tablets)),
    )


def activity_page(server: FlightServer, caller: Identity | None) -> bytes:
    """Return what runs, and what maintenance has done. Raises PermissionDeniedError if metrics are not for the caller,
    since requests are those of all users."""
    families = {family.name: family for family in server.metrics(caller).families}
    running = [
        (call.verb, call.table, call.user or "", call.peer.address, f"{seconds:.1f}", "yes" if waits else "")
        for call, seconds, waits in server.calls.running()
    ]
    return page(
        "Activity",
        tag("h2", "Running requests"),
        table(("Request", "Table", "User", "From", "Seconds", "Waits for its client"), running, 4),
        tag("h2", "Flushes and compactions"),
        table(("Work", "Times", "Seconds", "Rows", "Written"), _work(families)),
        tag("h2", "Memory"),
        table(("Kind", "Bytes", "Limit"), _memory(families)),
    )


def _columns(about: TableDescription, stats: TableStats) -> Element:
    sizes = {column.name: column for column in stats.columns}
    rows = [
        (
            column.name,
            str(column.type),
            "key" if column.name in about.primary_key else "nullable" if column.nullable else "",
            ", ".join(found.encodings),
            size(found.bytes_on_disk),
            size(found.raw_bytes),
        )
        for column in about.columns
        for found in (
            sizes.get(column.name) or ColumnStats(name=column.name, encodings=[], bytes_on_disk=0, raw_bytes=0),
        )
    ]
    return table(("Column", "Type", "", "Encodings", "On disk", "Plain"), rows, 4)


def _tablet(tablet: TabletStats) -> list[Element]:
    about = (
        f"{tablet.live_rows:,} rows, {tablet.rowsets} rowsets, average height {tablet.average_rowset_height:.2f}, "
        f"{size(tablet.bytes_on_disk)} on disk, {size(tablet.memory_bytes)} in memory"
    )
    parts = [tag("h3", f"Tablet {tablet.tablet}"), tag("p", tablet.quarantine or about)]
    return [*parts, tablet_picture(tablet.layout, about)] if tablet.layout else parts


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


def _memory(families: dict[str, MetricFamily]) -> list[tuple[str, ...]]:
    if "nyala_memory_bytes" not in families:
        return []
    limits = {tuple(each.labels.items()): each.value for each in families["nyala_memory_limit_bytes"].samples}
    return [
        (" ".join(each.labels.values()), size(each.value), size(limit) if (limit := limits.get(key)) else "")
        for each in families["nyala_memory_bytes"].samples
        for key in (tuple(each.labels.items()),)
    ]


def _others(target: str, first: int, shown: int, count: int) -> list[Element]:
    """Return links to what comes before and after, if there is any."""
    links: list[Element] = []
    if first > 0:
        links.append(tag("a", "Earlier", href=f"{target}first={max(first - shown, 0)}"))
    if first + shown < count:
        links.append(tag("a", f"Later, of {count:,}", href=f"{target}first={first + shown}"))
    return [tag("p", link) for link in links]


def size(count: float) -> str:
    """Return a number of bytes for people."""
    unit = 0
    while count >= 1024 and unit < len(_UNITS) - 1:
        count, unit = count / 1024, unit + 1
    return f"{count:.0f} {_UNITS[unit]}" if not unit else f"{count:.1f} {_UNITS[unit]}"


def _moment(timestamp: int) -> str:
    if not timestamp:
        return ""
    return datetime_of(timestamp).strftime("%Y-%m-%d %H:%M:%S UTC")
