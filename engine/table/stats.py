"""The health of a store and the statistics of its tables, from what tablets know of their files."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import metadata

from ...schemas.store.description import (
    ColumnStats,
    DamagedFile,
    Health,
    KeyIndexStats,
    RowsetStats,
    TableDescription,
    TableStats,
    TableStore,
    TabletMap,
    TabletPlace,
    TabletStats,
)
from ...schemas.store.maintenance import FailingWork
from ...schemas.table.column import ColumnSchema
from ..manifest import files
from ..manifest.damage import NEXT_STEP, Damage
from ..manifest.manifest import Manifest
from ..tablet.tablet import Tablet
from ..tablet.version import Version
from .table import Table

_installed_version = cache(metadata.version)
"""The version of an installed package. Finding it takes 2 ms."""


def described(table: Table, store_uuid: str, server: str | None) -> TableDescription:
    """Describe a table's state: return its description in the store ``store_uuid``; ``server`` is the store's name in a
    placement."""
    name, version = table.name, table.version
    if known := version.descriptions.get(name):
        return known
    schema = version.schema
    version.descriptions[name] = found = TableDescription(
        name=name,
        table_id=table.table_id,
        schema_version=schema.version,
        columns=list(schema.columns),
        primary_key=[column.name for column in schema.key],
        unique_key=schema.unique_key,
        partitions=version.partitions.described(schema),
        options=version.options,
        stores=[TableStore(store_uuid=store_uuid, table_id=table.table_id, server=server)],
        cell_bytes_before=schema.cell_bytes_before,
    )
    return found


def table_stats(table: Table) -> TableStats:
    version = table.version
    tablets = [
        tablet_stats(tablet).model_copy(update={"layout": _layout(tablet.version)})
        for tablet in version.tablets
        if tablet.elsewhere is None
    ]
    versions = [tablet.version for tablet in version.tablets]
    return TableStats(
        name=table.name,
        live_rows=sum(tablet.live_rows for tablet in tablets),
        bytes_on_disk=sum(tablet.bytes_on_disk for tablet in tablets),
        tablets=tablets,
        columns=[_column_stats(column, versions) for column in version.schema.columns],
        last_change=table.last_change,
    )


def tablet_map(table: Table) -> TabletMap:
    """Return the partitions of a table, and which of its tablets are here."""
    version = table.version
    tablets = [
        TabletPlace(tablet=tablet.tablet_id, partition=tablet.partition, server=tablet.elsewhere)
        for tablet in version.tablets
    ]
    return TabletMap(schema_version=version.schema.version, partitions=version.partitions, tablets=tablets)


def health_of(
    read_only_reason: str | None,
    full_reason: str,
    damaged: list[DamagedFile],
    failing: list[FailingWork],
    server: str | None,
    store_uuid: str,
    clock_ahead_seconds: float,
) -> Health:
    failing_reason = f"maintenance fails and is tried again ({len(failing):,} in failing)" if failing else ""
    return Health(
        status="read_only" if read_only_reason else "degraded" if damaged or full_reason or failing else "ok",
        reason=read_only_reason or full_reason or failing_reason,
        version=_installed_version("nyala"),
        server=server,
        store_uuid=store_uuid,
        damaged=damaged,
        failing=failing,
        clock_ahead_seconds=round(clock_ahead_seconds, 3),
    )


def damaged_files(found: Iterable[Damage], manifest: Manifest, tablets: Iterable[Tablet]) -> list[DamagedFile]:
    """For the health of a store, return the damaged files of its tables and their owners, without files that were
    dropped or rewritten meanwhile."""
    owners = {
        f"{files.directory(tablet.home)}/{name}": (table, tablet)
        for table in manifest.tables
        for tablet in table.tablets
        for rowset in tablet.rowsets
        for name in rowset.file_names
    }
    in_quarantine = {tablet.tablet_id for tablet in tablets if tablet.quarantine}
    described: list[DamagedFile] = []
    for damage in found:
        table, tablet = owners.get(damage.path, (None, None))
        if tablet is None and damage.path.startswith(files.ROOT):
            continue
        described.append(
            DamagedFile(
                path=damage.path,
                offset=damage.offset,
                why=damage.why,
                table=table.name if table else None,
                tablet=tablet.id if tablet else None,
                is_quarantined=tablet is not None and tablet.id in in_quarantine,
                next_step=NEXT_STEP,
            )
        )
    return described


def tablet_stats(tablet: Tablet) -> TabletStats:
    """Return the state of a tablet that is here, without its layout."""
    version = tablet.version
    files = [file for rowset in version.on_disk for file in rowset.deltas.files]
    return TabletStats(
        tablet=tablet.tablet_id,
        live_rows=tablet.live_rows,
        rowsets=len(version.on_disk),
        delta_files=len(files),
        memory_bytes=tablet.memory_bytes,
        bytes_on_disk=sum(rowset.bytes_on_disk for rowset in version.on_disk),
        average_rowset_height=average_height(version),
        redo_bytes=sum(file.size_bytes for rowset in version.on_disk for file in rowset.deltas.stores.redo),
        undo_bytes=sum(file.size_bytes for rowset in version.on_disk for file in rowset.deltas.stores.undo),
        dropped_bytes=sum(rowset.bytes_beside(tablet.schema.by_id) for rowset in version.on_disk),
        history_floor=version.history_floor,
        key_index=KeyIndexStats(bytes=tablet.key_lookup.nbytes, mode=tablet.key_lookup.mode(version)),
        partition=tablet.partition,
        rows_read=tablet.rows_read,
        rows_written=tablet.rows_written,
        quarantine=tablet.quarantine.message if tablet.quarantine else None,
    )


def _layout(version: Version) -> list[RowsetStats]:
    """Return the rowsets on disk, by the order of their keys."""
    bounds = sorted({key for rowset in version.on_disk for key in (rowset.min_key, rowset.max_key)})
    places = {key: place for place, key in enumerate(bounds)}
    return [
        RowsetStats(
            first_key=places[rowset.min_key],
            last_key=places[rowset.max_key],
            rows=rowset.live.live_count,
            bytes_on_disk=rowset.bytes_on_disk,
            redo_bytes=sum(file.size_bytes for file in rowset.deltas.stores.redo),
            undo_bytes=sum(file.size_bytes for file in rowset.deltas.stores.undo),
        )
        for rowset in version.on_disk
    ]


def average_height(version: Version) -> float:
    """For the statistics of a table, return how many DiskRowSets of a tablet the key range of an average one overlaps,
    itself included, weighted by rows.

    This estimates how many rowsets the look-up of a random existing key would search without an index.
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
