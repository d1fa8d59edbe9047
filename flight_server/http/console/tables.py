"""The page of all tables, sorted, searched and added up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from ....schemas.errors import InvalidArgumentError, NotFoundError, StoreError
from ....schemas.phrases import size
from ....schemas.protocol.service import StoreService
from ....schemas.store.description import Health, TableStats
from .frame import Page, page
from .html import Cell, Element, table, tag, tiles
from .listing import Column, Listing
from .visit import Visit
from .words import moment

TABLES_A_PAGE = 100
SORTED_TABLES_MAX = 1000


@dataclass(frozen=True, slots=True)
class _Row:
    """A table of the list."""

    name: str
    stats: TableStats | None
    """None: not available now."""

    def of(self, number: Callable[[TableStats], float]) -> float:
        """Return a number of the table, below all others if it is not available."""
        return -1 if self.stats is None else number(self.stats)


def _numbers(title: str, number: Callable[[TableStats], float], shown: Callable[[float], str]) -> Column[_Row]:
    return Column(
        title, lambda row: "" if row.stats is None else shown(number(row.stats)), lambda row: row.of(number), True
    )


def _count(value: float) -> str:
    return f"{value:,.0f}"


_COLUMNS: list[Column[_Row]] = [
    Column("Table", lambda row: tag("a", row.name, href=table_link(row.name)), lambda row: row.name),
    Column(
        "Rows",
        lambda row: "not available" if row.stats is None else f"{row.stats.live_rows:,}",
        lambda row: row.of(lambda stats: stats.live_rows),
        True,
    ),
    _numbers("On disk", lambda stats: stats.bytes_on_disk, size),
    _numbers("In memory", lambda stats: sum(tablet.memory_bytes for tablet in stats.tablets), size),
    _numbers("Tablets", lambda stats: len(stats.tablets), _count),
    _numbers(
        "Greatest height",
        lambda stats: max((tablet.average_rowset_height for tablet in stats.tablets), default=0),
        lambda value: f"{value:.2f}",
    ),
    _numbers("Last change", lambda stats: stats.last_change, lambda value: moment(int(value))),
]


def tables_page(visit: Visit) -> Page:
    """Return the console's page of the tables that the caller sees, from the ``first`` on, with their totals. Raises
    InvalidArgumentError: they cannot be listed so."""
    store, first, listing = visit.store, visit.first, Listing(visit, "/console", _COLUMNS)
    health, all_names = store.health(), store.tables()
    names = [name for name in all_names if listing.has(name)]
    if listing.is_first:  # what a page does not show is not asked for
        names = names[::-1] if listing.is_down else names
        shown = list(_rows(store, names[first : first + TABLES_A_PAGE]))
        stated = shown
    else:
        if len(names) > SORTED_TABLES_MAX:
            raise InvalidArgumentError(
                f"{len(names):,} tables are too many to sort by numbers, at most {SORTED_TABLES_MAX:,}: search "
                "for a part of a name"
            )
        stated = listing.sorted(_rows(store, names))
        shown = stated[first : first + TABLES_A_PAGE]
    return page(
        "Tables",
        _state(health, stated, len(all_names)),
        listing.form("Part of a name"),
        table(
            listing.titles(),
            listing.rows(shown),
            empty=f"No table has {listing.search!r} in its name." if listing.search else "There is no table yet.",
            totals=_totals(stated, len(names)),
        ),
        *others(listing.address, first, TABLES_A_PAGE, len(names)),
        at="/console",
    )


def _rows(store: StoreService, names: Iterable[str]) -> Iterator[_Row]:
    for name in names:
        try:
            yield _Row(name, store.table_stats(name))
        except NotFoundError:  # it was dropped since
            continue
        except StoreError:
            yield _Row(name, None)


def _state(health: Health, rows: Sequence[_Row], count: int) -> Element:
    """Return what matters most; the numbers of all tables if all are in ``rows``."""
    status = tag("span", health.status, **({} if health.status == "ok" else {"class_": "bad"}))
    reason = [("Why", health.reason)] if health.reason else []
    numbers = zip(("Rows", "On disk", "In memory"), _totals(rows, count)[1:4], strict=False)
    return tiles(("Server", status), *reason, ("Tables", f"{count:,}"), *(numbers if len(rows) == count else []))


def _totals(rows: Sequence[_Row], count: int) -> list[Cell]:
    """Return the last row of the list; none below a single table."""
    found = [row.stats for row in rows if row.stats is not None]
    if len(rows) < 2:
        return []
    tablets = [tablet for stats in found for tablet in stats.tablets]
    return [
        f"{len(rows):,} tables" if len(rows) == count else f"{len(rows):,} of {count:,} tables",
        f"{sum(stats.live_rows for stats in found):,}",
        size(sum(stats.bytes_on_disk for stats in found)),
        size(sum(tablet.memory_bytes for tablet in tablets)),
        f"{len(tablets):,}",
        f"{max((tablet.average_rowset_height for tablet in tablets), default=0):.2f}",
        moment(max((stats.last_change for stats in found), default=0)),
    ]


def table_link(name: str) -> str:
    """Return the address of a table's page in the console."""
    return f"/console/table?name={quote(name, safe='')}"


def others(address: Callable[..., str], first: int, shown: int, count: int) -> list[Element]:
    """Return the links on a page of the console to what comes before and after, if there is any."""
    links: list[Element] = []
    if first > 0:
        links.append(tag("a", "Earlier", href=address(first=max(first - shown, 0))))
    if first + shown < count:
        links.append(tag("a", f"Later, of {count:,}", href=address(first=first + shown)))
    return [tag("p", link) for link in links]
