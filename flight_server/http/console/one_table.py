"""The page of one table: its columns, partitions and tablets."""

from __future__ import annotations

from urllib.parse import quote

from ....schemas.phrases import counted, size
from ....schemas.store.description import ColumnStats, TableDescription, TableStats, TabletStats
from .frame import Page, page
from .html import Element, legend, table, tag
from .maintenance import Buttons, run_buttons
from .picture import rowset_numbers, tablet_picture
from .tables import others, table_link
from .visit import Visit
from .words import moment, share

TABLETS_A_PAGE = 50


def table_page(visit: Visit, buttons: Buttons) -> Page:
    """Return the console's page of a table, with its tablets from the ``first`` on. Raises NotFoundError if there is
    none."""
    store, name, first = visit.store, visit.asked.get("name", ""), visit.first
    about, stats = store.describe_table(name), store.table_stats(name)
    tablets, readable = stats.tablets[first : first + TABLETS_A_PAGE], visit.readable(name)
    changed = "" if readable == frozenset() else f" Last change: {moment(stats.last_change) or 'none'}."
    return page(
        name,
        tag(
            "p",
            f"{counted(stats.live_rows, 'row')}, {size(stats.bytes_on_disk)} on disk.",
            f" Schema version {about.schema_version}.",
            changed,
        ),
        *_sample(visit, name),
        tag("h2", "Columns"),
        _columns(about, stats, readable),
        tag("h2", "Partitions"),
        _partitions(about),
        *run_buttons(visit, buttons, name),
        tag("h2", f"Tablets ({len(stats.tablets):,})"),
        tag(
            "p",
            "Each bar is a rowset: from left to right its range of keys, in height its size, with columns below and "
            "changes and old values above. Bars above one another overlap.",
        ),
        legend(base="columns", redo="changes", undo="old values"),
        *(part for tablet in tablets for part in _tablet(tablet)),
        *others(lambda first: f"{table_link(name)}&first={first}", first, TABLETS_A_PAGE, len(stats.tablets)),
        at="/console",
    )


def _sample(visit: Visit, name: str) -> list[Element]:
    """Return the way to some rows, for those who may read any."""
    if visit.readable(name) == frozenset():
        return []
    return [tag("p", tag("a", "Some of its rows", href=f"/console/rows?name={quote(name, safe='')}"))]


def _columns(about: TableDescription, stats: TableStats, readable: frozenset[str] | None) -> Element:
    """Return the columns, with the sizes of ``readable`` ones; None: of all."""
    sizes = {column.name: column for column in stats.columns}
    whole = sum(column.bytes_on_disk for column in stats.columns)
    rows = [
        (
            column.name,
            str(column.type),
            "key" if column.name in about.primary_key else "nullable" if column.nullable else "",
            *(
                (
                    ", ".join(found.encodings),
                    size(found.bytes_on_disk),
                    size(found.raw_bytes),
                    share(found.bytes_on_disk, found.raw_bytes),
                    share(found.bytes_on_disk, whole) if readable is None else "",
                )
                if readable is None or column.name in readable
                else [""] * 5
            ),
        )
        for column in about.columns
        for found in (
            sizes.get(column.name) or ColumnStats(name=column.name, encodings=[], bytes_on_disk=0, raw_bytes=0),
        )
    ]
    titles = ("Column", "Type", "Kind", "Encodings", "On disk", "Plain", "Of plain", "Of the table")
    return table(titles, rows, 4)


def _partitions(about: TableDescription) -> Element:
    rows = [
        (f"hash of {', '.join(level['hash'])}", f"{level['buckets']} buckets")
        if "hash" in level
        else (f"ranges of {', '.join(level['range'])}", f"{len(level['bounds']):,} ranges")
        for level in about.partitions
    ]
    return table(("By", "Into"), rows, 1, empty="The table is not partitioned: it is one tablet.")


def _tablet(tablet: TabletStats) -> list[Element]:
    about = (
        f"{counted(tablet.live_rows, 'row')}, {counted(tablet.rowsets, 'rowset')}, average height "
        f"{tablet.average_rowset_height:.2f}, {size(tablet.bytes_on_disk)} on disk, "
        f"{size(tablet.memory_bytes)} in memory"
    )
    parts = [tag("h3", f"Tablet {tablet.tablet}{_place(tablet)}")]
    if tablet.quarantine:
        return [*parts, tag("p", tablet.quarantine, class_="bad")]
    parts += [tag("p", f"{about}. {_history(tablet)}")]
    if not tablet.layout:
        return parts
    axis = tag("div", tag("span", "first key"), tag("span", "last key"), class_="axis")
    return [*parts, tablet_picture(tablet.layout, about), axis, rowset_numbers(tablet.layout)]


def _place(tablet: TabletStats) -> str:
    """Return which buckets of its hash levels a tablet is."""
    buckets = tablet.partition.buckets
    return f", bucket {'.'.join(map(str, buckets))}" if buckets else ""


def _history(tablet: TabletStats) -> str:
    """Return what a tablet keeps beside its columns."""
    lookups = {"index": "in memory", "partial": "partly in memory", "search": "searched on disk"}
    kept = [
        f"{size(tablet.redo_bytes)} changes and {size(tablet.undo_bytes)} old values "
        f"in {counted(tablet.delta_files, 'file')}",
        *([f"{size(tablet.dropped_bytes)} of dropped columns"] if tablet.dropped_bytes else []),
        f"keys {lookups[tablet.key_index.mode]} ({size(tablet.key_index.bytes)})",
        f"history since {moment(tablet.history_floor)}" if tablet.history_floor else "all history",
    ]
    return f"Deltas: {'; '.join(kept)}."
