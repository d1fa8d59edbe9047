"""Statistics of a table, from what its tablets hold in memory about their files."""

from __future__ import annotations

from ..schemas.column import ColumnSchema
from ..schemas.description import ColumnStats, KeyIndexStats, TableStats, TabletMap, TabletPlace, TabletStats
from .table import Table
from .tablet.tablet import Tablet
from .tablet.version import Version


def table_stats(table: Table) -> TableStats:
    """Return the statistics of a table."""
    layout = table.layout
    tablets = [_tablet_stats(tablet) for tablet in layout.tablets if tablet.elsewhere is None]
    versions = [tablet.version for tablet in layout.tablets]
    return TableStats(
        name=table.name,
        live_rows=sum(tablet.live_rows for tablet in tablets),
        bytes_on_disk=sum(tablet.bytes_on_disk for tablet in tablets),
        tablets=tablets,
        columns=[_column_stats(column, versions) for column in layout.schema.columns],
        last_change=table.last_change,
    )


def tablet_map(table: Table) -> TabletMap:
    """Return how a table is cut, and which of its tablets are here."""
    layout = table.layout
    tablets = [
        TabletPlace(tablet=tablet.tablet_id, partition=tablet.partition, server=tablet.elsewhere)
        for tablet in layout.tablets
    ]
    return TabletMap(schema_version=layout.schema.version, partitions=layout.partitions, tablets=tablets)


def _tablet_stats(tablet: Tablet) -> TabletStats:
    version = tablet.version
    files = [file for rowset in version.on_disk for file in rowset.deltas.files]
    return TabletStats(
        tablet=tablet.tablet_id,
        live_rows=tablet.live_rows,
        rowsets=len(version.on_disk),
        delta_files=len(files),
        memory_bytes=tablet.memory_bytes,
        bytes_on_disk=sum(rowset.size_bytes for rowset in version.on_disk) + sum(file.size_bytes for file in files),
        average_rowset_height=average_height(version),
        redo_bytes=sum(file.size_bytes for rowset in version.on_disk for file in rowset.deltas.stores.redo),
        undo_bytes=sum(file.size_bytes for rowset in version.on_disk for file in rowset.deltas.stores.undo),
        dropped_bytes=sum(rowset.bytes_beside(tablet.schema.by_id) for rowset in version.on_disk),
        history_floor=version.history_floor,
        key_index=KeyIndexStats(bytes=tablet.key_lookup.nbytes, mode=tablet.key_lookup.mode(version)),
        partition=tablet.partition,
    )


def average_height(version: Version) -> float:
    """Return how many DiskRowSets the key range of an average one overlaps, itself included, weighted by rows.

    Stands for the expected number of rowsets that the look-up of a random existing key would search without an index.
    """
    rowsets = version.on_disk
    total = sum(len(rowset) for rowset in rowsets)
    if not total:
        return 0.0
    heights = (
        len(rowset) * sum(other.min_key <= rowset.max_key and rowset.min_key <= other.max_key for other in rowsets)
        for rowset in rowsets
    )
    return sum(heights) / total


def _column_stats(column: ColumnSchema, versions: list[Version]) -> ColumnStats:
    streams = [
        rowset.base_stream(column.id)
        for version in versions
        for rowset in version.on_disk
        if rowset.has_base(column.id)
    ]
    encodings = dict.fromkeys(name for stream in streams for name in stream.encoding_names)
    return ColumnStats(
        name=column.name,
        encodings=list(encodings) or [column.encoding],
        bytes_on_disk=sum(stream.compressed_bytes for stream in streams),
        raw_bytes=sum(stream.raw_bytes for stream in streams),
    )
