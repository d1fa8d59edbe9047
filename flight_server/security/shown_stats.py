"""The statistics of a table as one caller may see them."""

from __future__ import annotations

from ...schemas.store.description import ColumnStats, TableStats, TabletStats
from ...schemas.store.grants import Privilege
from .rights import Rights


def shown_stats(stats: TableStats, rights: Rights) -> TableStats:
    """Return statistics without what needs more than these rights: the fields are then 0 or empty, as older clients
    can read them.

    The bytes of a column tell how long its cells are and, by the size of a dictionary, whether a written cell equals
    another. So they need ``read`` on the column, and sums of bytes on all columns. Operators, who read the metrics of
    all tables, see sums, too.
    """
    table = rights.of(stats.name)
    readable = table.of(Privilege.READ)
    if readable is None:
        return stats
    columns = [each if each.name in readable else _without_bytes(each) for each in stats.columns]
    hidden = {} if readable else {"last_change": 0}
    shown = stats.model_copy(update={"columns": columns, **hidden})
    if Privilege.MAINTAIN in rights.everywhere:
        return shown
    tablets = [_without_sums(each, has_counts=bool(readable)) for each in stats.tablets]
    return shown.model_copy(update={"bytes_on_disk": 0, "tablets": tablets, "memory": None})


def _without_bytes(column: ColumnStats) -> ColumnStats:
    return ColumnStats(name=column.name, encodings=[], bytes_on_disk=0, raw_bytes=0)


def _without_sums(tablet: TabletStats, has_counts: bool) -> TabletStats:
    """Return a tablet without its bytes, and without the counts of rows read and written unless ``has_counts``."""
    sums = ("memory_bytes", "bytes_on_disk", "redo_bytes", "undo_bytes", "dropped_bytes")
    counts = () if has_counts else ("rows_read", "rows_written")
    key_index = tablet.key_index.model_copy(update={"bytes": 0})
    return tablet.model_copy(update=dict.fromkeys((*sums, *counts), 0) | {"layout": [], "key_index": key_index})
